// Simplification: folds constants, removes ops that cancel, merges equal nodes, inlines custom functions, prunes loops. Rewrites are
// a table keyed by op.
import {
  type DType,
  functionOrder,
  type GraphFn,
  inScope,
  isComplex,
  isFloat,
  isInexact,
  isOp,
  kindOf,
  type Node,
  numel,
  type OpName,
  type Scalar,
  sameShape,
  structuralKey,
  topological,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { foldBinary, foldCast, foldSum, foldUnary } from "./fold.js";
import { pruneScan } from "./prune.js";
import { instantiate, rebuild, uniformValue } from "./walk.js";

const { cast, constant, expandTo, fullLike, mul, neg, permute, reshape, unary } = build;

const isReal = (value: Scalar | null, want: number): boolean =>
  value !== null && (typeof value === "number" ? value === want : value.re === want && value.im === 0);

/** The additive identity: -0 for floats, because -0 + 0 is 0. */
function isNeutral(value: Scalar | null, dtype: DType, sign: 1 | -1): boolean {
  if (!isReal(value, 0)) return false;
  if (!isInexact(dtype)) return true;
  const parts = typeof value === "number" ? [value] : [value!.re, value!.im];
  return parts.every((x) => Object.is(x, sign === 1 ? -0 : 0)) && (!isComplex(dtype) || parts.length === 2);
}

const filled = (like: Node, value: Scalar, dtype: DType = like.dtype): Node =>
  expandTo(constant(value, dtype), like.shape);

type Rewrite<K extends OpName> = (node: Node<K>) => Node | null;

function powerByConstant(x: Node, exponent: Scalar | null): Node | null {
  if (typeof exponent !== "number" || kindOf(x.dtype) === "int") return null;
  const square = (): Node => mul(x, x);
  const table: Record<string, () => Node> = {
    "0": () => fullLike(x, 1),
    "0.5": () => unary("sqrt", x),
    "1": () => x,
    "2": square,
    "3": () => mul(square(), x),
    "4": () => mul(square(), square()),
    "-0.5": () => unary("rsqrt", x),
    "-1": () => unary("reciprocal", x),
    // The square of the inverse: the square itself may overflow where the result does not vanish.
    "-2": () => mul(unary("reciprocal", x), unary("reciprocal", x)),
  };
  return table[String(exponent)]?.() ?? null;
}

const binaryRewrites: Partial<Record<string, (node: Node, a: Node, b: Node) => Node | null>> = {
  add: (_, a, b) => (isNeutral(uniformValue(b), b.dtype, 1) ? a : isNeutral(uniformValue(a), a.dtype, 1) ? b : null),
  sub: (_, a, b) =>
    isNeutral(uniformValue(b), b.dtype, -1) ? a : isNeutral(uniformValue(a), a.dtype, 1) ? neg(b) : null,
  mul: (_, a, b) => (isReal(uniformValue(b), 1) ? a : isReal(uniformValue(a), 1) ? b : null),
  div: (_, a, b) => (isReal(uniformValue(b), 1) ? a : null),
  pow: (_, a, b) => powerByConstant(a, uniformValue(b)),
};

const inverses: Partial<Record<string, string>> = { neg: "neg", conj: "conj", not: "not" };

const rewrites: { [K in OpName]?: Rewrite<K> } = {
  alias: (node) => node.inputs[0],
  unary: (node) => {
    const [x] = node.inputs;
    const { fn } = node.attrs;
    const value = uniformValue(x);
    if (value !== null) {
      const folded = foldUnary(fn, value, x.dtype);
      if (folded !== null) return filled(node, folded);
    }
    if (isOp(x, "unary") && inverses[fn] === x.attrs.fn) return x.inputs[0];
    if (!isComplex(x.dtype) && (fn === "real" || fn === "conj")) return x;
    if (isOp(x, "binary") && x.attrs.fn === "complex") {
      if (fn === "real") return x.inputs[0];
      if (fn === "imag") return x.inputs[1];
    }
    // A real number converted to complex.
    if (isOp(x, "cast") && isComplex(x.dtype) && isFloat(x.inputs[0].dtype)) {
      if (fn === "conj") return x;
      if (fn === "real") return cast(x.inputs[0], node.dtype);
      if (fn === "imag") return filled(node, 0);
    }
    return null;
  },
  binary: (node) => {
    const [a, b] = node.inputs;
    const left = uniformValue(a);
    const right = uniformValue(b);
    if (left !== null && right !== null) {
      const folded = foldBinary(node.attrs.fn, left, right, a.dtype);
      if (folded !== null) return filled(node, folded);
    }
    return binaryRewrites[node.attrs.fn]?.(node, a, b) ?? null;
  },
  where: (node) => {
    const condition = uniformValue(node.inputs[0]);
    if (condition !== null) return condition ? node.inputs[1] : node.inputs[2];
    return node.inputs[1] === node.inputs[2] ? node.inputs[1] : null;
  },
  cast: (node) => {
    const [x] = node.inputs;
    const value = uniformValue(x);
    if (x.dtype === node.dtype) return x;
    const converted = value === null ? null : foldCast(value, x.dtype, node.dtype);
    return converted === null ? null : filled(node, converted);
  },
  reshape: (node) => {
    const [x] = node.inputs;
    if (sameShape(x.shape, node.shape)) return x;
    if (isOp(x, "reshape")) return reshape(x.inputs[0], node.shape);
    const value = uniformValue(x);
    return value !== null && isBroadcast(x) ? filled(node, value) : null;
  },
  permute: (node) => {
    const [x] = node.inputs;
    const { axes } = node.attrs;
    if (axes.every((a, i) => a === i)) return x;
    if (isOp(x, "permute"))
      return permute(
        x.inputs[0],
        axes.map((a) => x.attrs.axes[a]),
      );
    const value = uniformValue(x);
    if (value !== null) return filled(node, value);
    // Permuting axes of size one moves no element.
    const big = axes.filter((a) => x.shape[a] !== 1);
    return big.every((a, i) => i === 0 || a > big[i - 1]) ? reshape(x, node.shape) : null;
  },
  expand: (node) => {
    const [x] = node.inputs;
    if (sameShape(x.shape, node.shape)) return x;
    return isOp(x, "expand") ? build.expand(x.inputs[0], node.shape) : null;
  },
  slice: (node) => {
    const [x] = node.inputs;
    const { start, step } = node.attrs;
    if (sameShape(x.shape, node.shape) && start.every((s, i) => s === 0 && step[i] === 1)) return x;
    const value = uniformValue(x);
    return value !== null ? filled(node, value) : null;
  },
  flip: (node) => (uniformValue(node.inputs[0]) !== null ? node.inputs[0] : null),
  reduce: (node) => {
    const [x] = node.inputs;
    const { fn, axes } = node.attrs;
    if (axes.every((a) => x.shape[a] === 1)) return reshape(x, node.shape);
    const value = uniformValue(x);
    if (value === null || typeof value !== "number") return null;
    const count = numel(axes.map((a) => x.shape[a]));
    const total = fn === "sum" ? foldSum(value, count, x.dtype) : null;
    if (total !== null) return filled(node, total);
    return (fn === "max" || fn === "min") && count > 0 ? filled(node, value) : null;
  },
};

const isBroadcast = (node: Node): boolean => node.op === "expand" || node.op === "reshape" || node.op === "const";

const attrKeys = new WeakMap<object, string>();

/** Attributes as text; hand-written, because every new program needs it for every node. */
function attrsText(value: unknown): string {
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value === "string") return JSON.stringify(value);
  if (typeof value !== "object" || value === null) return typeof value === "function" ? "" : String(value);
  let text = "";
  if (Array.isArray(value)) {
    for (const item of value) text += `${attrsText(item)},`;
    return `[${text}]`;
  }
  for (const key in value) {
    const item = (value as Record<string, unknown>)[key];
    if (item !== undefined) text += `${key}:${key === "body" ? structuralKey(item as GraphFn) : attrsText(item)};`;
  }
  return `{${text}}`;
}

/** Text that equal nodes share: op, numbers of the operands, attributes. */
export function nodeKey(node: Node, numbers: ReadonlyMap<Node, number>): string {
  let attrs = attrKeys.get(node.attrs);
  if (attrs === undefined) {
    attrs = attrsText(node.attrs);
    attrKeys.set(node.attrs, attrs);
  }
  let inputs = "";
  for (const input of node.inputs) inputs += `${numbers.get(input)},`;
  return `${node.op}|${inputs}|${attrs}`;
}

/** Decides which custom functions are not inlined, because the device has a kernel for them. */
export type CustomKernelSupport = (node: Node<"custom">) => boolean;

/** Returns a smaller graph with the same parameters and results. */
export function simplify(fn: GraphFn, keep: CustomKernelSupport = () => false): GraphFn {
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  const inlined = new Map<Node, Node[]>();
  const numbers = new Map<Node, number>(fn.params.map((p, i) => [p, i]));
  const known = new Map<string, Node>();

  const order = functionOrder(fn);

  /** The canonical node of a node whose inputs are canonical. */
  const intern = (node: Node): Node => {
    if (numbers.has(node)) return node;
    const key = nodeKey(node, numbers);
    const same = known.get(key);
    if (same !== undefined) return same;
    known.set(key, node);
    numbers.set(node, numbers.size);
    return node;
  };

  /** The canonical node of a node whose inputs have one; nested custom functions are inlined. */
  const visit = (node: Node): void => {
    if (isOp(node, "pick")) {
      const inside = inlined.get(node.inputs[0]);
      if (inside !== undefined) {
        map.set(node, inside[node.attrs.index]);
        return;
      }
    }
    const inputs = node.inputs.map((input) => map.get(input)!);
    if (isOp(node, "custom") && !keep(node)) {
      inlined.set(node, instantiate(node.attrs.body, inputs).map(settle));
      map.set(node, node);
      return;
    }
    const representative = reduceNode(rebuild(node, inputs));
    map.set(node, representative);
    // Rewrites use canonical nodes, because a custom function that was not inlined must not be visited again.
    map.set(representative, representative);
  };

  /** Interns the nodes of a rewrite, inputs first, and rewrites them too. */
  const settle = (root: Node): Node => {
    for (const node of topological([root], (n) => map.has(n))) if (!map.has(node)) visit(node);
    return map.get(root)!;
  };

  const reduceNode = (node: Node): Node => {
    const interned = intern(node);
    if (interned !== node) return interned;
    const rewrite = rewrites[node.op as OpName] as Rewrite<OpName> | undefined;
    const smaller = rewrite === undefined ? null : inScope(node.scope, () => rewrite(node));
    if (smaller === null) return node;
    map.set(node, node);
    const result = numbers.has(smaller) ? smaller : settle(smaller);
    map.set(node, result);
    known.set(nodeKey(node, numbers), result);
    return result;
  };

  for (const node of order) if (!map.has(node)) visit(node);
  const outputs = fn.outputs.map((output) => map.get(output)!);
  return pruneScan({ params: fn.params, outputs }, (body) => simplify(body));
}
