// Ops that commute with a sum (or maximum, or minimum) of partial results: determines how long a reduction over devices can be
// delayed.
import {
  bytesOf,
  isInexact,
  isOp,
  type Node,
  type OpName,
  type ReduceFn,
  realOf,
  type UnaryFn,
} from "../graph/index.js";
import type { ShardableOp } from "./factors.js";

/** `parts` marks operands that are partial; true if the op on partial operands gives partial results. */
type LinearRule<K extends OpName> = (node: Node<K>, parts: readonly boolean[], fn: ReduceFn) => boolean;

/** Constant zero, which is a partial term of any sum. */
function isZero(node: Node): boolean {
  let at = node;
  while (at.op === "expand" || at.op === "reshape" || at.op === "permute") at = at.inputs[0];
  return isOp(at, "const") && at.attrs.value === 0;
}

const never = (): boolean => false;
const always = (): boolean => true;
const sums: LinearRule<OpName> = (_, __, fn) => fn === "sum";
const one = (parts: readonly boolean[]): boolean => parts.filter(Boolean).length === 1;
const allOf = (node: Node, parts: readonly boolean[], fn: ReduceFn, from = 0): boolean =>
  node.inputs.every((x, i) => i < from || parts[i] || (fn === "sum" && isZero(x)));

const linearUnary: ReadonlySet<UnaryFn> = new Set(["neg", "real", "imag", "conj"] as const);

/** b of a x = b. */
const rightSide: LinearRule<OpName> = (_, parts, fn) => fn === "sum" && !parts[0];

/** A base and updates that are written into it. */
const added: LinearRule<OpName> = (node, parts, fn) =>
  fn === "sum" && !parts[1] && [0, 2].every((i) => parts[i] || isZero(node.inputs[i]));

const linearRules: { [K in ShardableOp]: LinearRule<K> } = {
  const: never,
  iota: never,
  random: never,
  alias: always,
  barrier: always,
  pin: always,
  unary: (node, _, fn) => fn === "sum" && linearUnary.has(node.attrs.fn),
  binary: (node, parts, fn) => {
    const name = node.attrs.fn;
    if (name === "max" || name === "min") return fn === name && parts.every(Boolean);
    if (fn !== "sum") return false;
    if (name === "add" || name === "sub" || name === "complex") return allOf(node, parts, fn);
    return name === "mul" ? one(parts) : name === "div" && parts[0] && !parts[1];
  },
  where: (node, parts, fn) => !parts[0] && allOf(node, parts, fn, 1),
  // Partial results must not be rounded before they are combined.
  cast: (node, _, fn) => {
    const [x] = node.inputs;
    const wide = bytesOf(realOf(node.dtype)) >= bytesOf(realOf(x.dtype));
    return fn === "sum" && isInexact(x.dtype) && isInexact(node.dtype) && wide;
  },
  reshape: always,
  permute: always,
  expand: always,
  slice: always,
  pad: sums,
  flip: always,
  concat: (node, parts, fn) => allOf(node, parts, fn),
  reduce: (node, _, fn) => node.attrs.fn === fn,
  argreduce: never,
  cumsum: sums,
  matmul: (_, parts, fn) => fn === "sum" && one(parts),
  conv: (_, parts, fn) => fn === "sum" && one(parts),
  gather: (_, parts) => parts[0] && !parts[1],
  scatterAdd: added,
  scatterReduce: never,
  updateSlice: added,
  fft: sums,
  argsort: never,
  cholesky: never,
  triangularSolve: rightSide,
  solve: rightSide,
  det: never,
  eigh: never,
  qr: never,
  lu: never,
  eig: never,
  svd: never,
  scan: never,
  custom: never,
};

export function isLinear(node: Node, parts: readonly boolean[], fn: ReduceFn): boolean {
  const rule = linearRules[node.op as ShardableOp] as LinearRule<OpName> | undefined;
  return rule?.(node, parts, fn) ?? false;
}
