// Selection of elements: basic and integer-array indexing, gather, scatter, take, one-hot, sorting.
import {
  broadcastShapes,
  checkOptions,
  DTypeError,
  isComplex,
  kindOf,
  type Node,
  numel,
  range,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkShape } from "./checks.js";
import { broadcastAll, checkArguments, nodeOf, resolveAxis, type TensorLike, updateNode, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { indexTensor, nonzeroPositions, unravel } from "./positions.js";
import { Tensor } from "./tensor.js";

/**
 * Index of one axis. A number selects one element and drops the axis, "1:10:2" slices as in Python, ":" keeps the axis, "..."
 * stands for as many ":" as fit, null inserts an axis, an integer tensor or array selects elements. A boolean tensor or array is a
 * mask of as many axes as it has: it selects the positions where it is true, and is read for that.
 */
export type IndexSpec = number | string | null | Tensor | readonly number[] | readonly boolean[];

/** Integer indices as int32 with negative positions counted from the end. */
function indexNode(op: string, indices: Tensor | readonly number[], size: number): Node {
  if (!(indices instanceof Tensor || Array.isArray(indices) || ArrayBuffer.isView(indices)))
    throw new WeftError(`${op}: indices are an integer tensor or an array of numbers, got ${showValue(indices)}`);
  const given = indices instanceof Tensor ? indices : tensor([...indices], { dtype: "int32" });
  if (kindOf(given.dtype) !== "int")
    throw new DTypeError(
      `${op}: indices are integers, got ${given.dtype}${given.dtype === "bool" ? "; use mask or index" : '; use cast("int32")'}`,
    );
  const node = build.toIndex(given.node);
  const negative = build.lt(node, build.zerosLike(node));
  return build.where(negative, build.shift(node, size), node);
}

function parseSlice(text: string, size: number): { start: number; stop: number; step: number } {
  const parts = text.split(":").map((p) => p.trim());
  const numbers = parts.map((p) => (p === "" ? null : Number(p)));
  if (parts.length < 2 || parts.length > 3 || numbers.some((n) => n !== null && !Number.isInteger(n)))
    throw new WeftError(`index: "${text}" is not a slice; write "start:stop" or "start:stop:step" with whole numbers`);
  const step = numbers[2] ?? 1;
  if (step === 0) throw new WeftError(`index: the step of "${text}" must not be 0`);
  const clamp = (at: number, low: number, high: number): number =>
    Math.min(high, Math.max(low, at < 0 ? at + size : at));
  if (step > 0) return { start: clamp(numbers[0] ?? 0, 0, size), stop: clamp(numbers[1] ?? size, 0, size), step };
  const start = numbers[0] === null ? size - 1 : clamp(numbers[0], -1, size - 1);
  const stop = numbers[1] === null || numbers[1] === undefined ? -1 : clamp(numbers[1], -1, size - 1);
  return { start, stop, step };
}

const isMask = (spec: IndexSpec): spec is Tensor | readonly boolean[] =>
  spec instanceof Tensor ? spec.dtype === "bool" : Array.isArray(spec) && typeof spec[0] === "boolean";

type PlainSpec = number | string | null | Tensor | readonly number[];

/** Index with one array of positions per axis of every mask, as NumPy does. */
function withoutMasks(shape: readonly number[], specs: readonly IndexSpec[]): PlainSpec[] {
  if (!specs.some(isMask)) return specs as PlainSpec[];
  const given = specs.map((spec) => (isMask(spec) && !(spec instanceof Tensor) ? tensor(spec) : spec));
  const axesOf = (spec: IndexSpec): number =>
    spec === null || spec === "..." ? 0 : spec instanceof Tensor && isMask(spec) ? spec.rank : 1;
  const used = given.reduce<number>((sum, spec) => sum + axesOf(spec), 0);
  let axis = 0;
  return given.flatMap((spec): PlainSpec[] => {
    const from = axis;
    axis += spec === "..." ? shape.length - used : axesOf(spec);
    if (!(spec instanceof Tensor && isMask(spec))) return [spec as PlainSpec];
    if (spec.rank === 0) throw new ShapeError("index: a mask has one axis at least; use where for a scalar condition");
    if (showShape(spec.shape) !== showShape(shape.slice(from, axis)))
      throw new ShapeError(
        `index: a mask ${showShape(spec.shape)} for the axes ${showShape(shape.slice(from, axis))} of ${showShape(shape)}`,
      );
    return unravel(nonzeroPositions(spec), spec.shape).map((positions) => indexTensor(positions));
  });
}

interface Plan {
  node: Node;
  /** Axis of `node` and indices, for every integer-array entry. */
  arrays: { axis: number; indices: Node }[];
  /** Axes of `node` that are indexed by a number. */
  dropped: number[];
  /** Axes of `node` before which a new axis is inserted. */
  fresh: number[];
}

/** Applies slices and numbers, and collects the integer arrays. */
function planIndex(x: Node, specs: readonly PlainSpec[]): Plan {
  const used = specs.filter((s) => s !== null && s !== "...").length;
  const rank = x.shape.length;
  if (used > rank) throw new ShapeError(`index: ${used} entries for a tensor of rank ${rank}`);
  if (specs.filter((s) => s === "...").length > 1) throw new WeftError('index: "..." may appear once');
  const hasEllipsis = specs.includes("...");
  const full = hasEllipsis
    ? specs.flatMap((s) => (s === "..." ? new Array<PlainSpec>(rank - used).fill(":") : [s]))
    : [...specs, ...new Array<PlainSpec>(rank - used).fill(":")];
  const start = x.shape.map(() => 0);
  const stop = [...x.shape];
  const step = x.shape.map(() => 1);
  const flips: number[] = [];
  const plan: Plan = { node: x, arrays: [], dropped: [], fresh: [] };
  let axis = 0;
  for (const spec of full) {
    if (spec === null) {
      plan.fresh.push(axis);
      continue;
    }
    const size = x.shape[axis];
    if (typeof spec === "number") {
      const at = spec < 0 ? spec + size : spec;
      if (!Number.isInteger(spec) || at < 0 || at >= size)
        throw new ShapeError(`index: ${spec} is out of range for axis ${axis} of size ${size}`);
      start[axis] = at;
      stop[axis] = at + 1;
      plan.dropped.push(axis);
    } else if (typeof spec === "string") {
      const parsed = parseSlice(spec, size);
      if (parsed.step > 0) {
        start[axis] = parsed.start;
        stop[axis] = Math.max(parsed.start, parsed.stop);
        step[axis] = parsed.step;
      } else {
        // Negative step: slice the same elements forward, then flip.
        const count = Math.max(0, Math.ceil((parsed.start - parsed.stop) / -parsed.step));
        const first = parsed.start + (count - 1) * parsed.step;
        start[axis] = count === 0 ? 0 : first;
        stop[axis] = count === 0 ? 0 : parsed.start + 1;
        step[axis] = -parsed.step;
        flips.push(axis);
      }
    } else {
      plan.arrays.push({ axis, indices: indexNode("index", spec, size) });
    }
    axis++;
  }
  plan.node = build.flip(build.slice(x, start, stop, step), flips);
  return plan;
}

/** NumPy's integer-array indexing: arrays broadcast together; adjacent ones stay in place, others move to the front. */
function applyArrays(x: Node, arrays: Plan["arrays"], adjacent: boolean): Node {
  const axes = arrays.map((a) => a.axis);
  const shape = broadcastAll(
    "index",
    arrays.map((a) => a.indices.shape),
  );
  const rest = range(x.shape.length).filter((a) => !axes.includes(a));
  const at = adjacent ? axes[0] : 0;
  const order = adjacent ? range(x.shape.length) : [...axes, ...rest];
  const moved = build.permute(x, order);
  const sizes = axes.map((a) => x.shape[a]);
  // One linear index over the indexed axes.
  let linear: Node | null = null;
  arrays.forEach(({ indices }, i) => {
    const term = build.scale(build.expandTo(indices, shape), numel(sizes.slice(i + 1)));
    linear = linear === null ? term : build.add(linear, term);
  });
  const flat = build.reshape(moved, [
    ...moved.shape.slice(0, at),
    numel(sizes),
    ...moved.shape.slice(at + axes.length),
  ]);
  return build.gather(flat, linear!, at, 0);
}

/** Whether no slice, "..." (of no axes too) or new axis stands between index arrays and numbers. */
function areAdjacent(specs: readonly PlainSpec[]): boolean {
  const isArray = (spec: PlainSpec): boolean => typeof spec !== "string" && spec !== null;
  return specs.slice(specs.findIndex(isArray), specs.findLastIndex(isArray)).every(isArray);
}

/**
 * Basic, integer-array and mask indexing with the rules of NumPy, as in `index(x, 0, "1:5", null)`.
 *
 * @example
 * ```ts
 * import { arange, index } from "@weft/core";
 *
 * const x = arange(12).reshape([3, 4]);
 * console.log(await index(x, 1).array()); // [4, 5, 6, 7]
 * console.log(await x.index(":", "1:4:2").array()); // [[1, 3], [5, 7], [9, 11]]
 * console.log(await x.index("...", [3, 0]).array()); // [[3, 0], [7, 4], [11, 8]]
 * ```
 */
export function index(x: TensorLike, ...specs: IndexSpec[]): Tensor {
  const source = nodeOf("index", x);
  const plain = withoutMasks(source.shape, specs);
  const { node, dropped, fresh, arrays } = planIndex(source, plain);
  const gone = arrays.length === 0 ? dropped : [];
  const shape: number[] = [];
  for (let i = 0; i <= node.shape.length; i++) {
    for (const f of fresh) if (f === i) shape.push(1);
    if (i < node.shape.length && !gone.includes(i)) shape.push(node.shape[i]);
  }
  const viewed = build.reshape(node, shape);
  if (arrays.length === 0) return wrap(viewed);
  // A number with index arrays acts as an array of rank 0, as in NumPy, and a new axis as one that is sliced.
  const all = [...arrays, ...dropped.map((axis) => ({ axis, indices: build.constant(0, "int32") }))]
    .map(({ axis, indices }) => ({ axis: axis + fresh.filter((f) => f <= axis).length, indices }))
    .sort((a, b) => a.axis - b.axis);
  return wrap(applyArrays(viewed, all, areAdjacent(plain)));
}

/**
 * Elements at the given indices of one axis, or of the flattened tensor if no axis is given. Indices out of range are clamped.
 *
 * @example
 * ```ts
 * import { take, tensor } from "@weft/core";
 *
 * const table = tensor([[1, 2], [3, 4], [5, 6]]);
 * console.log(await take(table, [2, 0], 0).array()); // [[5, 6], [1, 2]]
 * ```
 */
export function take(x: TensorLike, indices: Tensor | readonly number[], axis?: number): Tensor {
  const node = nodeOf("take", x);
  const source = axis === undefined ? build.reshape(node, [numel(node.shape)]) : node;
  const at = axis === undefined ? 0 : resolveAxis("take", axis, node.shape.length);
  return wrap(build.gather(source, indexNode("take", indices, source.shape[at]), at, 0));
}

function alongAxis(op: string, x: Node, indices: Tensor, axis: number): { at: number; rows: Node; idx: Node } {
  const rank = x.shape.length;
  const at = resolveAxis(op, axis, rank);
  if (indices.shape.length !== rank || indices.shape.some((d, i) => i !== at && d !== x.shape[i]))
    throw new ShapeError(
      `${op}: indices ${showShape(indices.shape)} must match ${showShape(x.shape)} in every axis but ${at}; expand them first`,
    );
  const idx = build.moveAxis(indexNode(op, indices, x.shape[at]), at, rank - 1);
  return { at, rows: build.moveAxis(x, at, rank - 1), idx };
}

/** Broadcasts a tensor and indices of the same rank in every axis but one. */
function alignedBeside(node: Node, indices: Tensor, at: number): { node: Node; index: Tensor } {
  if (indices.shape.length !== node.shape.length) return { node, index: indices };
  const shape = broadcastShapes(node.shape.with(at, 1), indices.shape.with(at, 1));
  if (shape === null) return { node, index: indices };
  return {
    node: build.expandTo(node, shape.with(at, node.shape[at])),
    index: wrap(build.expandTo(indices.node, shape.with(at, indices.shape[at]))),
  };
}

/**
 * Selects one element per index along an axis: out[i][j] = x[i][indices[i][j]]. Same as torch.gather and
 * numpy.take_along_axis.
 *
 * @example
 * ```ts
 * import { gather, tensor } from "@weft/core";
 *
 * const x = tensor([[1, 2], [3, 4]]);
 * const column = tensor([[1], [0]], { dtype: "int32" });
 * console.log(await gather(x, column).array()); // [[2], [3]]
 * ```
 */
export function gather(x: TensorLike, indices: Tensor, axis = -1): Tensor {
  checkArguments("gather", "tensor", { indices });
  const given = nodeOf("gather", x);
  const { node, index } = alignedBeside(given, indices, resolveAxis("gather", axis, given.shape.length));
  const { at, rows, idx } = alongAxis("gather", node, index, axis);
  const rank = node.shape.length;
  return wrap(build.moveAxis(build.gather(rows, idx, rank - 1, rank - 1), rank - 1, at));
}

/**
 * Adds updates to x at the indices along an axis. Repeated indices accumulate. Updates that need a wider dtype than x has are
 * refused.
 */
export function scatterAdd(x: TensorLike, indices: Tensor, updates: Tensor, axis = -1): Tensor {
  checkArguments("scatterAdd", "tensor", { indices, updates });
  const node = nodeOf("scatterAdd", x);
  const { at, rows, idx } = alongAxis("scatterAdd", node, indices, axis);
  const rank = node.shape.length;
  if (showShape(updates.shape) !== showShape(indices.shape))
    throw new ShapeError(
      `scatterAdd: updates ${showShape(updates.shape)} and indices ${showShape(indices.shape)} must have one shape`,
    );
  const values = build.moveAxis(updateNode("scatterAdd", wrap(node), updates), at, rank - 1);
  return wrap(build.moveAxis(build.scatterAdd(rows, idx, values, rank - 1, rank - 1), rank - 1, at));
}

/** Adds slices of `updates` to slices of x: x[indices[i]] += updates[i]. Updates that need a wider dtype than x has are refused. */
export function indexAdd(x: TensorLike, indices: Tensor, updates: Tensor, axis = 0): Tensor {
  checkArguments("indexAdd", "tensor", { updates });
  const node = nodeOf("indexAdd", x);
  const at = resolveAxis("indexAdd", axis, node.shape.length);
  const idx = indexNode("indexAdd", indices, node.shape[at]);
  const expected = [...node.shape.slice(0, at), ...idx.shape, ...node.shape.slice(at + 1)];
  if (showShape(expected) !== showShape(updates.shape))
    throw new ShapeError(`indexAdd: updates have shape ${showShape(updates.shape)}, expected ${showShape(expected)}`);
  return wrap(build.scatterAdd(node, idx, updateNode("indexAdd", wrap(node), updates), at, 0));
}

/** One-hot encoding: a new last axis with 1 at the class and 0 elsewhere. */
export function oneHot(
  classes: Tensor,
  count: number,
  options: { dtype?: "float32" | "float64" | "int32" | "bool" } = {},
): Tensor {
  checkOptions("oneHot", options, ["dtype"]);
  checkShape("oneHot", [count]);
  const node = indexNode("oneHot", classes, 0);
  const shape = [...node.shape, count];
  const wide = build.expand(build.reshape(node, [...node.shape, 1]), shape);
  return wrap(build.cast(build.eq(wide, build.iota(shape, shape.length - 1, "int32")), options.dtype ?? "float32"));
}

/** The operand with the axis that is ordered as its last one. */
function orderedRows(op: string, x: Node, axis: number): { rows: Node; at: number } {
  if (isComplex(x.dtype)) throw new DTypeError(`${op}: complex numbers have no order; sort abs(x) or real(x)`);
  const at = resolveAxis(op, axis, x.shape.length);
  return { rows: build.moveAxis(x, at, x.shape.length - 1), at };
}

/** Options of {@link sort} and {@link argsort}. @inline */
export interface SortOptions {
  /** Largest first; false by default. */
  descending?: boolean;
}

/** Indices (int32) that sort an axis. The sort is stable; NaN is greater than every number. */
export function argsort(x: TensorLike, axis = -1, options: SortOptions = {}): Tensor {
  checkOptions("argsort", options, ["descending"]);
  const { descending = false } = options;
  const node = nodeOf("argsort", x);
  const { rows, at } = orderedRows("argsort", node, axis);
  const order = build.make("argsort", [rows], { descending });
  return wrap(build.moveAxis(order, node.shape.length - 1, at));
}

/** Sorts the elements along an axis. NaN is greater than every number. */
export function sort(x: TensorLike, axis = -1, options: SortOptions = {}): Tensor {
  checkOptions("sort", options, ["descending"]);
  const { descending = false } = options;
  const node = nodeOf("sort", x);
  const { rows, at } = orderedRows("sort", node, axis);
  const order = build.make("argsort", [rows], { descending });
  const last = node.shape.length - 1;
  return wrap(build.moveAxis(build.gather(rows, order, last, last), last, at));
}

/** Refuses positions outside of an axis; negative ones count from its end. */
function checkKth(op: string, x: TensorLike, kth: number, axis: number): void {
  const { shape } = nodeOf(op, x);
  const size = shape[resolveAxis(op, axis, shape.length)];
  if (!Number.isInteger(kth) || kth < -size || kth >= size)
    throw new ShapeError(`${op}: kth = ${kth} is out of range for axis ${axis} of size ${size}`);
}

/**
 * Elements along an axis, rearranged so that the one at position `kth` has its place in sorted order, smaller ones are before it and
 * larger ones behind it. All of them are sorted.
 */
export function partition(x: TensorLike, kth: number, axis = -1): Tensor {
  checkKth("partition", x, kth, axis);
  return sort(x, axis);
}

/** Indices (int32) of {@link partition}. */
export function argpartition(x: TensorLike, kth: number, axis = -1): Tensor {
  checkKth("argpartition", x, kth, axis);
  return argsort(x, axis);
}

/** The k largest elements along an axis, largest first, and their indices. NaN is greater than every number. */
export function topk(x: TensorLike, k: number, axis = -1): { values: Tensor; indices: Tensor } {
  const node = nodeOf("topk", x);
  const { rows, at } = orderedRows("topk", node, axis);
  const last = node.shape.length - 1;
  if (!Number.isInteger(k) || k < 0 || k > rows.shape[last])
    throw new ShapeError(`topk: k = ${k} is out of range for axis ${at} of size ${rows.shape[last]}`);
  const first = build.make("argsort", [rows], { descending: true, count: k });
  return {
    values: wrap(build.moveAxis(build.gather(rows, first, last, last), last, at)),
    indices: wrap(build.moveAxis(first, last, at)),
  };
}
