// Sharding rules: how the dimensions of operands and results correspond. An op is a loop over factors (for a product: batch, m, n
// and the contracted k); each dimension follows one factor or must be replicated. `local` builds the op for the shard of one
// device. Independent of meshes and placements.
import {
  bytesOf,
  type DType,
  InternalError,
  isOp,
  kindOf,
  type Node,
  type OpAttrs,
  type OpName,
  outputAvals,
  type ReduceFn,
  range,
  type Shape,
} from "../graph/index.js";
import * as b from "./build.js";
import { convRule } from "./conv.js";
import { attentionRule } from "./factors-attention.js";
import { type BodyDimensions, scanRule } from "./factors-scan.js";

/**
 * How a dimension follows a factor. scaled: `scale` positions per position of the factor. window: position p is p + offset of the
 * factor (parts of a concatenation, padding). strided: position q of the factor needs start + step * q (slices).
 */
export type DimMap =
  | { kind: "scaled"; factor: number; scale: number }
  | { kind: "window"; factor: number; offset: number }
  | { kind: "strided"; factor: number; start: number; step: number };

export interface Factor {
  size: number;
  /** How partial results combine if the results do not have the factor as a dimension. */
  reduce: ReduceFn | null;
  /** Results that are then partial sums (or products, or maxima). */
  partial: readonly boolean[];
}

/** Dimensions with null are replicated. */
export interface Factors {
  factors: Factor[];
  inputs: (DimMap | null)[][];
  outputs: (DimMap | null)[][];
}

/** Part of a factor or dimension on a device: start <= position < stop. */
export interface FactorRange {
  start: number;
  stop: number;
}

export interface LocalContext<K extends OpName> {
  node: Node<K>;
  /** Operands on this device. */
  inputs: readonly Node[];
  /** This device's part of each factor; the whole factor if it is not split. */
  parts: readonly FactorRange[];
  /** Whether this device is the first of those that share a factor; true if it is not split. */
  first: readonly boolean[];
  isSplit: readonly boolean[];
  /** Offset of the local operands in the global ones, per dimension. */
  starts: readonly (readonly number[])[];
  /** Shapes of the local results. */
  shapes: readonly Shape[];
}

export interface FactorRule<K extends OpName> {
  factors(node: Node<K>): Factors;
  /** The op on one device; omitted if the attributes do not depend on sizes. */
  local?(context: LocalContext<K>): Node;
}

/** Ops of a function after inlining of custom functions without a kernel. */
export type ShardableOp = Exclude<OpName, "input" | "data" | "pick" | "collective">;

const independent = (size: number): Factor => ({ size, reduce: null, partial: [] });
const contracted = (size: number, reduce: ReduceFn = "sum"): Factor => ({ size, reduce, partial: [true] });
const at = (factor: number): DimMap => ({ kind: "scaled", factor, scale: 1 });
const shapeOf = (node: Node): Shape => node.shape;

/** Every dimension of the result is a factor, and the operands have the same dimensions. */
function same(node: Node): Factors {
  const dims = node.shape.map((_, i) => at(i));
  return { factors: node.shape.map(independent), inputs: node.inputs.map(() => dims), outputs: [dims] };
}

/** Dimensions of the only operand: a factor of the result at position `target`, or replicated. */
function moved(node: Node, target: (axis: number) => number | null): Factors {
  const shape = shapeOf(node.inputs[0]);
  const outputs: (DimMap | null)[] = node.shape.map(() => null);
  const inputs = shape.map((_, axis) => {
    const to = target(axis);
    if (to === null) return null;
    outputs[to] = at(axis);
    return at(axis);
  });
  return { factors: shape.map(independent), inputs: [inputs], outputs: [outputs] };
}

/** Only leading dimensions are independent; matrices are in the last two. `columns`: right-hand sides are independent too. */
function matrices(node: Node, columns = false): Factors {
  const rank = node.inputs[0].shape.length;
  const lead = range(rank - 2);
  const factors = lead.map((i) => independent(node.inputs[0].shape[i]));
  const dims = (shape: Shape): (DimMap | null)[] => shape.map((_, i) => (i < rank - 2 ? at(i) : null));
  const inputs = node.inputs.map((x) => dims(x.shape));
  const outputs = outputAvals(node).map((aval) => dims(aval.shape));
  if (columns) {
    const last = node.inputs[1].shape.length - 1;
    inputs[1][last] = at(factors.length);
    outputs[0][last] = at(factors.length);
    factors.push(independent(node.inputs[1].shape[last]));
  }
  return { factors, inputs, outputs };
}

const gcd = (x: number, y: number): number => (y === 0 ? x : gcd(y, x % y));

/** Groups of dimensions with equal products, whose row-major positions correspond. */
function reshapeGroups(from: Shape, to: Shape): { from: number[]; to: number[] }[] {
  const groups: { from: number[]; to: number[] }[] = [];
  let i = 0;
  let k = 0;
  while (i < from.length || k < to.length) {
    const group = { from: [] as number[], to: [] as number[] };
    let left = 1;
    let right = 1;
    do {
      if ((left <= right && i < from.length) || k === to.length) {
        left *= from[i];
        group.from.push(i++);
      } else {
        right *= to[k];
        group.to.push(k++);
      }
    } while (left !== right && (i < from.length || k < to.length));
    groups.push(group);
  }
  return groups;
}

/** First dimension of a group with more than one position: its parts are contiguous in the group. */
const leading = (shape: Shape, axes: readonly number[]): number | undefined => axes.find((axis) => shape[axis] !== 1);

function reshaped(node: Node): Factors {
  const from = shapeOf(node.inputs[0]);
  const to = node.shape;
  const inputs: (DimMap | null)[] = from.map(() => null);
  const outputs: (DimMap | null)[] = to.map(() => null);
  const factors: Factor[] = [];
  if (from.includes(0)) return { factors, inputs: [inputs], outputs: [outputs] };
  for (const group of reshapeGroups(from, to)) {
    const i = leading(from, group.from);
    const k = leading(to, group.to);
    if (i === undefined || k === undefined) continue;
    const size = gcd(from[i], to[k]);
    inputs[i] = { kind: "scaled", factor: factors.length, scale: from[i] / size };
    outputs[k] = { kind: "scaled", factor: factors.length, scale: to[k] / size };
    factors.push(independent(size));
  }
  return { factors, inputs: [inputs], outputs: [outputs] };
}

function expanded(node: Node): Factors {
  const from = shapeOf(node.inputs[0]);
  const outputs = node.shape.map((_, i) => at(i));
  return {
    factors: node.shape.map(independent),
    inputs: [from.map((d, i) => (d === node.shape[i] ? at(i) : null))],
    outputs: [outputs],
  };
}

function sliced(node: Node<"slice">): Factors {
  const { start, step } = node.attrs;
  const from = shapeOf(node.inputs[0]);
  const isWhole = (i: number): boolean => start[i] === 0 && step[i] === 1 && node.shape[i] === from[i];
  return {
    factors: node.shape.map(independent),
    inputs: [from.map((_, i) => (isWhole(i) ? at(i) : { kind: "strided", factor: i, start: start[i], step: step[i] }))],
    outputs: [node.shape.map((_, i) => at(i))],
  };
}

const window = (factor: number, offset: number): DimMap => ({ kind: "window", factor, offset });

function padded(node: Node<"pad">): Factors {
  const { low, high } = node.attrs;
  return {
    factors: node.shape.map(independent),
    inputs: [node.shape.map((_, i) => (low[i] === 0 && high[i] === 0 ? at(i) : window(i, low[i])))],
    outputs: [node.shape.map((_, i) => at(i))],
  };
}

function joined(node: Node<"concat">): Factors {
  const { axis } = node.attrs;
  let offset = 0;
  const inputs = node.inputs.map((x) => {
    const dims = node.shape.map((_, i) => (i === axis ? window(i, offset) : at(i)));
    offset += x.shape[axis];
    return dims;
  });
  return { factors: node.shape.map(independent), inputs, outputs: [node.shape.map((_, i) => at(i))] };
}

function reducedBy(node: Node, axes: readonly number[], fn: ReduceFn | null): Factors {
  const shape = shapeOf(node.inputs[0]);
  const inputs = shape.map((_, i) => (axes.includes(i) && fn === null ? null : at(i)));
  const outputs = range(shape.length)
    .filter((i) => !axes.includes(i))
    .map(at);
  const factors = shape.map((size, i) => (axes.includes(i) && fn !== null ? contracted(size, fn) : independent(size)));
  return { factors, inputs: [inputs], outputs: [outputs] };
}

function multiplied(node: Node): Factors {
  const lead = node.shape.length - 2;
  const batch = range(lead).map(at);
  const [m, n] = node.shape.slice(-2);
  const k = node.inputs[0].shape[lead + 1];
  return {
    factors: [...node.shape.slice(0, lead).map(independent), independent(m), independent(n), contracted(k)],
    inputs: [
      [...batch, at(lead), at(lead + 2)],
      [...batch, at(lead + 2), at(lead + 1)],
    ],
    outputs: [[...batch, at(lead), at(lead + 1)]],
  };
}

/** Transformed axes are replicated. */
function transformed(node: Node<"fft">): Factors {
  const lead = node.shape.length - node.attrs.axes;
  const dims = node.shape.map((_, i) => (i < lead ? at(i) : null));
  return { factors: node.shape.slice(0, lead).map(independent), inputs: [dims], outputs: [dims] };
}

/** Factors of gather and scatters: the dimensions of the table, then those of the indices. */
function lookup(node: Node<"gather"> | Node<"scatterAdd"> | Node<"scatterReduce">): {
  table: DimMap[];
  indices: DimMap[];
  found: DimMap[];
  sizes: number[];
} {
  const { axis, batch } = node.attrs;
  const [x, indices] = node.inputs;
  const rank = x.shape.length;
  const table = x.shape.map((_, i) => at(i));
  const chosen = range(indices.shape.length - batch).map((i) => at(rank + i));
  return {
    table,
    indices: [...table.slice(0, batch), ...chosen],
    found: [...table.slice(0, axis), ...chosen, ...table.slice(axis + 1)],
    sizes: [...x.shape, ...indices.shape.slice(batch)],
  };
}

/** A table that is split along the indexed axis gives zeros for rows on other devices. */
function gathered(node: Node<"gather">): Factors {
  const { table, indices, found, sizes } = lookup(node);
  const factors = sizes.map((size, i) => (i === node.attrs.axis ? contracted(size) : independent(size)));
  return { factors, inputs: [table, indices], outputs: [found] };
}

function gatherLocal({ node, inputs, parts, isSplit }: LocalContext<"gather">): Node {
  const { axis, batch } = node.attrs;
  const [rows, indices] = inputs;
  if (!isSplit[axis]) return b.gather(rows, indices, axis, batch);
  // A device without rows still needs a valid operand, whose value is masked out.
  const none = rows.shape.map(() => 0);
  const x = rows.shape[axis] > 0 ? rows : b.pad(rows, none, none.with(axis, 1));
  const { start, stop } = parts[axis];
  const last = node.inputs[0].shape[axis] - 1;
  const clamped = b.binary("min", b.binary("max", indices, b.fullLike(indices, 0)), b.fullLike(indices, last));
  const isHere = b.binary("and", b.le(b.fullLike(indices, start), clamped), b.lt(clamped, b.fullLike(indices, stop)));
  const found = b.gather(x, b.sub(clamped, b.fullLike(indices, start)), axis, batch);
  const chosen = indices.shape.length - batch;
  const shape = found.shape.map((d, i) => (i < batch || (i >= axis && i < axis + chosen) ? d : 1));
  return b.where(b.expand(b.reshape(isHere, shape), found.shape), found, b.fullLike(found, 0));
}

/** The updated axis is replicated. */
function updated({ shape, attrs: { axis, batch } }: Node<"updateSlice">): Factors {
  const dims = shape.map((_, i) => (i === axis ? null : at(i)));
  return { factors: shape.map(independent), inputs: [dims, dims.slice(0, batch), dims], outputs: [dims] };
}

/** Rows of the base may be split (updates elsewhere are dropped); updates may be split and give partial results. */
function scattered(node: Node<"scatterAdd"> | Node<"scatterReduce">): Factors {
  const { table, indices, found, sizes } = lookup(node);
  const rank = table.length;
  const updates = found.map((map) => map);
  const fn = isOp(node, "scatterReduce") ? node.attrs.fn : "sum";
  const factors = sizes.map((size, i) => (i >= rank ? contracted(size, fn) : independent(size)));
  return { factors, inputs: [table, indices, updates], outputs: [table] };
}

/** The base of sums and products counts once. Other devices still read it, so that all devices run the same collectives. */
function scatterLocal({
  node,
  inputs,
  parts,
  first,
}: LocalContext<"scatterAdd"> | LocalContext<"scatterReduce">): Node {
  const { axis, batch } = node.attrs;
  const [base, indices, updates] = inputs;
  const isFirst = first.every((yes, i) => i < node.shape.length || yes);
  const start = parts[axis].start;
  const shifted = start === 0 ? indices : b.sub(indices, b.fullLike(indices, start));
  if (!isOp(node, "scatterReduce")) return b.scatterAdd(isFirst ? base : zeroed(base), shifted, updates, axis, batch);
  const isOnce = node.attrs.fn === "prod" && !isFirst;
  return b.scatterReduce(isOnce ? b.add(zeroed(base), b.fullLike(base, 1)) : base, shifted, updates, node.attrs);
}

/** Zeros that depend on what they replace: no device may remove a collective that others wait in. */
export function zeroed(x: Node): Node {
  if (x.op === "const") return b.zerosLike(x);
  if (x.shape.includes(0)) return x;
  if (x.shape.length === 0) return b.reshape(zeroed(b.reshape(x, [1])), []);
  const none = x.shape.map(() => 0);
  return b.pad(b.sliceAxis(x, 0, 0, 0), none, none.with(0, x.shape[0]));
}

const isNarrow = (dtype: DType): boolean => kindOf(dtype) === "int" && bytesOf(dtype) < 4;

/** iota with an offset: counted exactly, rounded once. */
function iotaLocal({ node, parts, shapes }: LocalContext<"iota">): Node {
  const { axis, dtype } = node.attrs;
  const { start } = parts[axis];
  if (start === 0) return b.iota(shapes[0], axis, dtype);
  const counting = kindOf(dtype) === "int" ? dtype : "int32";
  return b.cast(b.shift(b.iota(shapes[0], axis, counting), start), dtype);
}

function randomFactors(node: Node<"random">): Factors {
  const lead = node.inputs[0].shape.length - 1;
  const dims = node.shape.map((_, i) => at(i));
  return { factors: node.shape.map(independent), inputs: [[...dims.slice(0, lead), null]], outputs: [dims] };
}

function randomLocal({ node, inputs, parts, shapes }: LocalContext<"random">): Node {
  const lead = node.inputs[0].shape.length - 1;
  const { attrs } = node;
  const begin = attrs.within?.start ?? attrs.shape.map(() => 0);
  return b.make("random", [inputs[0]], {
    ...attrs,
    shape: shapes[0].slice(lead),
    within: { shape: attrs.within?.shape ?? attrs.shape, start: begin.map((s, i) => s + parts[lead + i].start) },
  });
}

function sliceLocal({ node, inputs, parts, starts }: LocalContext<"slice">): Node {
  const { start, step } = node.attrs;
  const bounds = parts.map(({ start: low, stop: high }, i) => {
    if (low === high) return [0, 0];
    const from = start[i] + step[i] * low - starts[0][i];
    return [from, from + step[i] * (high - 1 - low) + 1];
  });
  return b.slice(
    inputs[0],
    bounds.map(([from]) => from),
    bounds.map(([, to]) => to),
    step,
  );
}

function padLocal({ node, inputs, parts, starts }: LocalContext<"pad">): Node {
  const [x] = inputs;
  const amounts = parts.map(({ start, stop }, i) => {
    const size = x.shape[i];
    if (size === 0) return [stop - start, 0];
    const from = starts[0][i] + node.attrs.low[i];
    return [from - start, stop - (from + size)];
  });
  return b.pad(
    x,
    amounts.map(([low]) => low),
    amounts.map(([, high]) => high),
  );
}

const whole = (node: Node): Factors => ({ factors: [], inputs: [], outputs: [node.shape.map(() => null)] });

const loopRule = scanRule(
  (node) => factorsOf(node),
  (context) => localNode(context),
);

const factorRules: { [K in ShardableOp]: FactorRule<K> } = {
  const: { factors: (node) => whole(node) },
  // The start of a part may be no number of a narrow dtype.
  iota: {
    factors: (node) => {
      const dims = node.shape.map((_, i) => (i === node.attrs.axis && isNarrow(node.dtype) ? null : at(i)));
      return { factors: node.shape.map(independent), inputs: [], outputs: [dims] };
    },
    local: iotaLocal,
  },
  random: { factors: randomFactors, local: randomLocal },
  alias: { factors: same },
  barrier: { factors: same },
  pin: { factors: same },
  unary: { factors: same },
  binary: { factors: same },
  where: { factors: same },
  cast: { factors: same },
  reshape: { factors: reshaped, local: ({ inputs, shapes }) => b.reshape(inputs[0], shapes[0]) },
  permute: { factors: (node) => moved(node, (axis) => node.attrs.axes.indexOf(axis)) },
  expand: { factors: expanded, local: ({ inputs, shapes }) => b.expand(inputs[0], shapes[0]) },
  slice: { factors: sliced, local: sliceLocal },
  pad: { factors: padded, local: padLocal },
  flip: { factors: (node) => moved(node, (axis) => (node.attrs.axes.includes(axis) ? null : axis)) },
  concat: { factors: joined },
  reduce: { factors: (node) => reducedBy(node, node.attrs.axes, node.attrs.fn) },
  argreduce: { factors: (node) => reducedBy(node, [node.attrs.axis], null) },
  cumsum: { factors: (node) => moved(node, (axis) => (axis === node.attrs.axis ? null : axis)) },
  matmul: { factors: multiplied },
  conv: convRule,
  gather: { factors: gathered, local: gatherLocal },
  scatterAdd: { factors: scattered, local: scatterLocal },
  scatterReduce: { factors: scattered, local: scatterLocal },
  updateSlice: { factors: updated },
  fft: { factors: transformed },
  argsort: { factors: (node) => moved(node, (axis) => (axis === node.shape.length - 1 ? null : axis)) },
  cholesky: { factors: matrices },
  triangularSolve: { factors: (node) => matrices(node, true) },
  solve: { factors: (node) => matrices(node, true) },
  det: { factors: matrices },
  eigh: { factors: matrices },
  qr: { factors: matrices },
  lu: { factors: matrices },
  eig: { factors: matrices },
  svd: { factors: matrices },
  scan: loopRule,
  custom: attentionRule,
};

/** Dimensions inside a loop that are split with a factor of the loop. */
export const bodyDimensions = (node: Node<"scan">): BodyDimensions => loopRule.dimensions(node);

const cache = new WeakMap<Node, Factors>();

export function factorsOf(node: Node): Factors {
  let found = cache.get(node);
  if (found === undefined) {
    const rule = factorRules[node.op as ShardableOp] as FactorRule<OpName> | undefined;
    if (rule === undefined) throw new InternalError(`${node.op} cannot be split over devices`);
    found = rule.factors(node);
    cache.set(node, found);
  }
  return found;
}

/** Builds the op on one device. */
export function localNode(context: LocalContext<OpName>): Node {
  const { node, inputs } = context;
  const rule = factorRules[node.op as ShardableOp] as FactorRule<OpName>;
  return rule.local?.(context) ?? b.make(node.op, inputs, node.attrs as OpAttrs[OpName]);
}

/** The part of a dimension that corresponds to a part of its factor. */
export function partOf(
  map: DimMap | null,
  size: number,
  parts: readonly FactorRange[],
  factors: readonly Factor[],
): FactorRange {
  if (map === null) return { start: 0, stop: size };
  const { start, stop } = parts[map.factor];
  const position = (p: number): number => boundOf(map, size, factors[map.factor].size, p);
  return { start: position(start), stop: position(stop) };
}

/** Position of a factor boundary in a dimension; the ends map to the ends. */
export function boundOf(map: DimMap, size: number, factorSize: number, bound: number): number {
  if (map.kind === "scaled") return bound * map.scale;
  if (map.kind === "window") return Math.min(size, Math.max(0, bound - map.offset));
  if (bound === 0) return 0;
  return bound === factorSize ? size : Math.min(size, map.start + map.step * bound);
}

/** The inverse; null if the boundary of the dimension is not one of the factor. */
export function factorBound(map: DimMap, size: number, factorSize: number, bound: number): number | null {
  if (map.kind === "scaled") return bound % map.scale === 0 ? bound / map.scale : null;
  if (bound === 0) return 0;
  if (bound === size) return factorSize;
  if (map.kind === "window") return bound + map.offset;
  return Math.min(factorSize, Math.max(0, Math.ceil((bound - map.start) / map.step)));
}
