// Padded functions: one function for all sizes up to those of a bucket, from traces of a user's function at several sizes. Sizes
// and numbers that differ between the traces become scalar parameters, and ops mask what lies outside (ops/padded.ts).
import {
  type DType,
  functionOrder,
  type GraphFn,
  inScope,
  isOp,
  type Node,
  type OpName,
  outputAvals,
  type Scalar,
  structuralKey,
} from "../graph/index.js";
import {
  aligned,
  build,
  compact,
  compacted,
  type DimLayout,
  isPrefix,
  isVarying,
  make,
  masked,
  multiplySizes,
  type PadContext,
  type Padded,
  padRules,
  reshaped,
  type Slots,
  sizesOf,
  sizesOfNodes,
  UnpaddableError,
} from "../ops/index.js";
import { inlineCustom } from "./inline.js";
import { joinScan, type ScanParts, splitScan } from "./scan.js";

/** A function for all sizes up to those of its first trace. */
export interface PaddedFunction {
  /**
   * Parameters and results as in the first trace, then the numbers. The valid elements of a parameter or result come first, in
   * row-major order of the actual shape, and fill the beginning of its memory.
   */
  fn: GraphFn;
  /** Values of the further parameters in the last trace. */
  numbers: { value: Scalar; dtype: DType }[];
}

const sameScalar = (a: Scalar, c: Scalar): boolean =>
  typeof a === "number" || typeof c === "number" ? Object.is(a, c) : Object.is(a.re, c.re) && Object.is(a.im, c.im);

const scalarText = (value: Scalar): string =>
  typeof value === "number"
    ? Object.is(value, -0)
      ? "-0"
      : String(value)
    : `${scalarText(value.re)}:${scalarText(value.im)}`;

/** Scalars by their values in all traces; equal ones are a constant, others a parameter that `declare` makes. */
class SlotTable implements Slots {
  readonly #known = new Map<string, Node>();
  constructor(private readonly declare: (values: readonly Scalar[], dtype: DType) => Node) {}

  of(values: readonly Scalar[], dtype: DType): Node {
    if (values.every((value) => sameScalar(value, values[0]))) return build.constant(values[0], dtype);
    const key = `${dtype}/${values.map(scalarText)}`;
    let node = this.#known.get(key);
    if (node === undefined) this.#known.set(key, (node = this.declare(values, dtype)));
    return node;
  }
}

/** Attributes that follow from sizes: the rule of the op compares them. */
const sizeAttributes: Partial<Record<OpName, readonly string[]>> = {
  const: ["value"],
  iota: ["shape"],
  random: ["shape"],
  reshape: ["shape"],
  expand: ["shape"],
  slice: ["start", "stop", "step"],
  pad: ["low", "high"],
  conv: ["size", "low"],
  fft: ["size"],
  scan: ["body", "length"],
};
/** Attributes that do not change what is computed. */
const names = new Set(["name", "tag", "rule"]);

function sameAttribute(a: unknown, c: unknown): boolean {
  if (Object.is(a, c)) return true;
  if (typeof a !== "object" || typeof c !== "object" || a === null || c === null) return false;
  if ("outputs" in a && "outputs" in c) return structuralKey(a as GraphFn) === structuralKey(c as GraphFn);
  const keys = Object.keys(a);
  return (
    keys.length === Object.keys(c).length &&
    keys.every((key) => sameAttribute((a as Record<string, unknown>)[key], (c as Record<string, unknown>)[key]))
  );
}

/** Whether the attributes of a node are equal in all traces; throws if others than sizes differ. */
function isSameEverywhere(nodes: readonly Node[]): boolean {
  const sizes = sizeAttributes[nodes[0].op] ?? [];
  let isSame = true;
  const first = nodes[0].attrs as Record<string, unknown>;
  for (const node of nodes.slice(1)) {
    const attrs = node.attrs as Record<string, unknown>;
    for (const key of new Set([...Object.keys(first), ...Object.keys(attrs)])) {
      if (names.has(key) || sameAttribute(first[key], attrs[key])) continue;
      if (!sizes.includes(key)) throw new UnpaddableError(`${node.op}: ${key} depends on the size`);
      isSame = false;
    }
  }
  return isSame;
}

const different = (what: string): never => {
  throw new UnpaddableError(`the function ${what} at different sizes`);
};

/** The nodes of all traces that correspond, in order of their computation. */
function corresponding(traces: readonly GraphFn[]): (readonly Node[])[] {
  const orders = traces.map(functionOrder);
  const numbers = orders.map((order) => new Map(order.map((node, i) => [node, i])));
  if (orders.some((order) => order.length !== orders[0].length)) different("builds different operations");
  const at = (t: number, node: Node): number => numbers[t].get(node)!;
  const params = traces.map((fn) => new Set(fn.params));
  orders[0].forEach((node, i) => {
    orders.forEach((order, t) => {
      const other = order[i];
      const isLeaf = params[0].has(node);
      const isSame =
        params[t].has(other) === isLeaf &&
        (isLeaf || other.op === node.op) &&
        other.dtype === node.dtype &&
        other.shape.length === node.shape.length &&
        (isLeaf || other.inputs.length === node.inputs.length) &&
        (isLeaf || node.inputs.every((input, k) => at(0, input) === at(t, other.inputs[k])));
      if (!isSame) different("builds different operations");
    });
  });
  const roots = (t: number): string =>
    [...traces[t].params, ...traces[t].outputs].map((node) => at(t, node) ?? "").join();
  if (traces.some((_, t) => roots(t) !== roots(0))) different("has different results");
  return orders[0].map((_, i) => orders.map((order) => order[i]));
}

const single = (node: Node, layout: readonly DimLayout[]): Padded => ({ node, layouts: [layout] });
const isStatic = (nodes: readonly Node[]): boolean =>
  outputAvals(nodes[0]).every((_, i) => !sizesOfNodes(nodes, i).some(isVarying));

/** The padded results of a function, from its padded parameters. */
function padBody(traces: readonly GraphFn[], params: readonly Padded[], slots: Slots): Padded[] {
  const made = new Map<Node, Padded>(traces[0].params.map((param, i) => [param, params[i]]));
  for (const nodes of corresponding(traces)) {
    const [node] = nodes;
    if (made.has(node)) continue;
    const inputs = node.inputs.map((input) => made.get(input)!);
    const padded = inScope(node.scope, () => padNode(nodes, inputs, slots));
    checkSizes(nodes, padded);
    made.set(node, padded);
  }
  return traces[0].outputs.map((output) => made.get(output)!);
}

/** A result has the shape of the bucket, and as many valid positions as the actual one, whatever a rule overlooked. */
function checkSizes(nodes: readonly Node[], { node, layouts, outputs }: Padded): void {
  layouts.forEach((layout, i) => {
    const sizes = sizesOfNodes(nodes, i);
    const { shape } = outputAvals(node)[outputs?.[i] ?? i];
    const isRight =
      layout.length === sizes.length &&
      layout.every((dim, axis) => shape[axis] === sizes[axis][0] && sizesOf(dim).every((n, t) => n === sizes[axis][t]));
    if (!isRight) throw new UnpaddableError(`${nodes[0].op} has no padded form of the right shape`);
  });
}

function padNode(nodes: readonly Node[], inputs: readonly Padded[], slots: Slots): Padded {
  const [node] = nodes;
  if (isOp(node, "pick")) {
    const [{ node: tuple, layouts, outputs }] = inputs;
    const { index } = node.attrs;
    return single(build.pick(tuple, outputs?.[index] ?? index), layouts[index]);
  }
  const isSame = isSameEverywhere(nodes);
  if (isSame && isStatic(nodes) && node.inputs.every((_, i) => isStatic(nodes.map((each) => each.inputs[i])))) {
    const copy = build.withInputs(
      node,
      inputs.map((x) => x.node),
    );
    return { node: copy, layouts: outputAvals(node).map((_, i) => sizesOfNodes(nodes, i).map(compact)) };
  }
  if (isOp(node, "scan")) return padScan(nodes as Node<"scan">[], inputs, slots);
  const rule = padRules[node.op as keyof typeof padRules] as ((context: PadContext<OpName>) => Padded) | undefined;
  if (rule === undefined) throw new UnpaddableError(`${node.op} is not padded`);
  return rule({ nodes, inputs, slots });
}

/**
 * A loop on padded tensors. If its length varies it becomes a loop that stops: after a count, or when its predicate is false or
 * the valid steps have run.
 */
function padScan(nodes: readonly Node<"scan">[], inputs: readonly Padded[], slots: Slots): Padded {
  const [node] = nodes;
  const { stop, reverse } = node.attrs;
  const lengths = nodes.map((each) => each.attrs.length);
  const isBounded = isVarying(lengths);
  if (isBounded && stop === "while" && reverse)
    throw new UnpaddableError("a reverse loop with a predicate varies in length");
  const given = splitScan(node, inputs);
  // Carries keep one layout from step to step.
  const carries = given.carries.map((x) => {
    const layout = x.layouts[0].map((dim) => compact(sizesOf(dim)));
    return { node: aligned(x, layout, slots), layouts: [layout] };
  });
  const xs = given.xs.map((x) => compacted(x, slots, [0]));
  const bodies = nodes.map((each) => inlineCustom(each.attrs.body));
  const param = (like: Padded, layout: readonly DimLayout[], name: string, lead = 0): Padded =>
    single(build.input(like.node.shape.slice(lead), like.node.dtype, name), layout);
  const inside: ScanParts<Padded> = {
    consts: given.consts.map((x) => param(x, x.layouts[0], "const")),
    carries: carries.map((x) => param(x, x.layouts[0], "carry")),
    xs: xs.map((x) => param(x, x.layouts[0].slice(1), "x", 1)),
  };
  const outer: Node[] = [];
  const inner: Node[] = [];
  const table = new SlotTable((values, dtype) => {
    outer.push(slots.of(values, dtype));
    inner.push(build.input([], dtype, "size"));
    return inner[inner.length - 1];
  });
  const results = padBody(bodies, joinScan(inside), table);
  const next = results.slice(0, carries.length).map((x, i) => aligned(x, carries[i].layouts[0], table));
  const ys = results.slice(carries.length);
  const node0 = (x: Padded): Node => x.node;
  const parts = { consts: given.consts.map(node0), carries: carries.map(node0), xs: xs.map(node0) };
  const params = { consts: inside.consts.map(node0), carries: inside.carries.map(node0), xs: inside.xs.map(node0) };
  const valid = (x: Node, layout: readonly DimLayout[], table: Slots): Node =>
    masked(
      x,
      layout,
      layout.map((_, axis) => axis),
      0,
      table,
    );
  let ends = stop;
  if (stop === "while") {
    // Rows outside must not keep the loop running.
    parts.carries[0] = valid(parts.carries[0], carries[0].layouts[0], slots);
    next[0] = valid(next[0], carries[0].layouts[0], table);
    if (isBounded) {
      const count = build.input([], "int32", "step");
      const following = build.shift(count, 1);
      const goes = (at: Node, predicate: Node, from: Slots): Node =>
        build.binary("and", predicate, build.expandTo(build.lt(at, from.of(lengths, "int32")), predicate.shape));
      const zero = build.constant(0, "int32");
      params.carries = [build.input(next[0].shape, "bool", "goes"), ...params.carries, count];
      parts.carries = [goes(zero, parts.carries[0], slots), ...parts.carries, zero];
      next.unshift(goes(following, next[0], table));
      next.push(following);
    }
  } else if (isBounded) {
    ends = "count";
    const length = slots.of(lengths, "int32");
    if (stop === "count") {
      const count = valid(parts.consts[0], given.consts[0].layouts[0], slots);
      parts.consts[0] = build.binary("min", count, build.expandTo(length, count.shape));
    } else {
      parts.consts.unshift(length);
      params.consts.unshift(build.input([], "int32", "length"));
    }
  } else if (stop === "count") parts.consts[0] = valid(parts.consts[0], given.consts[0].layouts[0], slots);
  parts.consts.push(...outer);
  params.consts.push(...inner);
  const attrs = {
    body: { params: joinScan(params), outputs: [...next, ...ys.map(node0)] },
    consts: parts.consts.length,
    carries: parts.carries.length,
    length: node.attrs.length,
    reverse,
  };
  const loop = make("scan", joinScan(parts), ends === undefined ? attrs : { ...attrs, stop: ends });
  const stacked = ys.map((y) => [compact(lengths), ...y.layouts[0]]);
  const layouts = [...carries.map((x) => x.layouts[0]), ...stacked];
  if (parts.carries.length === carries.length) return { node: loop, layouts };
  // The added carries are not results of the original loop.
  const outputs = [...carries.map((_, i) => i + 1), ...ys.map((_, i) => parts.carries.length + i)];
  return { node: loop, layouts, outputs };
}

/**
 * The padded form of a function that was traced at several sizes: first at those of the bucket, last at those of a call. Throws
 * an UnpaddableError if there is none.
 */
export function padFunction(traced: readonly GraphFn[]): PaddedFunction {
  const traces = traced.map((fn) => inlineCustom(fn));
  if (traces.some(({ params }) => params.length !== traces[0].params.length)) different("uses different tensors");
  const numbers: PaddedFunction["numbers"] = [];
  const added: Node[] = [];
  const slots = new SlotTable((values, dtype) => {
    numbers.push({ value: values[values.length - 1], dtype });
    added.push(build.input([], dtype, "size"));
    return added[added.length - 1];
  });
  const [{ params }] = traces;
  const all = traces.map(() => 1);
  const padded = params.map((param, i) => {
    const sizes = sizesOfNodes(traces.map((fn) => fn.params[i]));
    const layout = sizes.map(compact);
    const node = build.input(param.shape, param.dtype, "argument");
    if (isPrefix(layout)) return { param: node, x: single(node, layout) };
    const row = single(build.reshape(node, [sizes.reduce(multiplySizes, all)[0]]), [
      compact(sizes.reduce(multiplySizes, all)),
    ]);
    return { param: node, x: reshaped(row, sizes, slots) };
  });
  const results = padBody(
    traces,
    padded.map(({ x }) => x),
    slots,
  );
  const outputs = results.map((x) => {
    const y = compacted(x, slots);
    if (isPrefix(y.layouts[0])) return y.node;
    const sizes = y.layouts[0].map(sizesOf);
    const row = compacted(reshaped(y, [sizes.reduce(multiplySizes, all)], slots), slots);
    return build.reshape(row.node, y.node.shape);
  });
  return { fn: { params: [...padded.map(({ param }) => param), ...added], outputs }, numbers };
}
