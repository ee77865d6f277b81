// Order statistics, differences, searching and counting. All of it can be traced and differentiated where a derivative exists.
import {
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  isInexact,
  keepAxes,
  kindOf,
  ShapeError,
  showShape,
  showValue,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import {
  checkArguments,
  commonDType,
  nodeAs,
  nodeOf,
  resolveAxes,
  resolveAxis,
  type TensorLike,
  wrap,
} from "./convert.js";
import { linspace, ones, zeros } from "./create.js";
import { argsort, indexAdd, take } from "./indexing.js";
import { cast, isNaN, logicalAnd, logicalNot, logicalOr, where } from "./math.js";
import { type Axes, any, type ReduceOptions } from "./reduce.js";
import { between, rowsAlong } from "./rows.js";
import { concat, reshape, stack } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link diff}. @inline */
interface DiffOptions {
  /** How many times differences are taken. */
  n?: number;
  /** Elements before the first one, along the axis. */
  prepend?: Tensor;
  /** Elements behind the last one, along the axis. */
  append?: Tensor;
}

/** Differences of neighbors along an axis, taken n times. bool gives bool: whether neighbors differ. */
export function diff(x: TensorLike, axis = -1, options: DiffOptions = {}): Tensor {
  checkOptions("diff", options, ["n", "prepend", "append"]);
  const { n = 1, prepend, append } = options;
  if (!Number.isInteger(n) || n < 0) throw new WeftError(`diff: n is a whole number >= 0, got ${n}`);
  const t = wrap(nodeOf("diff", x));
  const at = resolveAxis("diff", axis, t.rank);
  if (n === 0) return t;
  const parts = [prepend, t, append].filter((part) => part !== undefined);
  let result = parts.length === 1 ? t : concat(parts, at);
  for (let i = 0; i < n; i++) {
    const size = result.shape[at];
    const node = result.node;
    if (size === 0) return result;
    const [upper, lower] = [build.sliceAxis(node, at, 1, size), build.sliceAxis(node, at, 0, size - 1)];
    result = wrap(result.dtype === "bool" ? build.binary("ne", upper, lower) : build.sub(upper, lower));
  }
  return result;
}

/** How a quantile between two elements is chosen. @inline */
type QuantileMethod = "linear" | "lower" | "higher" | "midpoint" | "nearest";

/** Options of {@link quantile}, {@link percentile} and {@link median}. @inline */
interface QuantileOptions extends ReduceOptions {
  /** What a quantile between two elements is; "linear" by default. */
  method?: QuantileMethod;
}

/** Weight of the upper neighbor at a fraction of the way from the lower one. */
const upperWeight: Record<QuantileMethod, (fraction: number, low: number) => number> = {
  linear: (fraction) => fraction,
  lower: () => 0,
  higher: (fraction) => Number(fraction > 0),
  midpoint: (fraction) => (fraction > 0 ? 0.5 : 0),
  nearest: (fraction, low) => Number(fraction > 0.5 || (fraction === 0.5 && low % 2 === 1)),
};

/**
 * Quantile over axes, by default all: the element below which a share q of the elements is. NaN propagates. A list of shares gives a
 * quantile each, along a new first axis.
 */
export function quantile(
  x: TensorLike,
  q: number | readonly number[],
  axes?: Axes,
  options: QuantileOptions = {},
): Tensor {
  checkOptions("quantile", options, ["keepDims", "method"]);
  if (Array.isArray(q) && q.length > 0) return stack(q.map((share: number) => quantile(x, share, axes, options)));
  const { keepDims = false, method = "linear" } = options;
  if (typeof q !== "number" || !(q >= 0 && q <= 1))
    throw new WeftError(`quantile: q is a number between 0 and 1, or a list of them, got ${showValue(q)}`);
  if (!Object.hasOwn(upperWeight, method))
    throw new WeftError(`quantile: the method is one of ${Object.keys(upperWeight).join(", ")}, got ${String(method)}`);
  const given = nodeOf("quantile", x);
  if (isComplex(given.dtype)) throw new DTypeError("quantile: complex numbers have no order; use abs(x) or real(x)");
  const t = cast(wrap(given), isInexact(given.dtype) ? given.dtype : "float64");
  const reduced = resolveAxes("quantile", axes, t.rank);
  const rows = rowsAlong(t, reduced);
  const n = rows.shape[rows.rank - 1];
  if (n === 0) throw new ShapeError(`quantile: no elements along the axes of shape ${showShape(t.shape)}`);
  const position = q * (n - 1);
  const low = Math.floor(position);
  const weight = upperWeight[method](position - low, low);
  // The two places of the order that count: kernels select them without sorting the rest.
  const last = rows.rank - 1;
  const order = build.sliceAxis(argsort(rows).node, last, low, Math.min(low + 2, n));
  const found = build.gather(rows.node, order, last, last);
  const pick = (i: number): Tensor => wrap(build.sliceAxis(found, last, i, i + 1)).squeeze(-1);
  const [a, b] = [pick(0), pick(Math.min(1, n - 1 - low))];
  const middle = weight === 0 ? a : weight === 1 ? b : between(a, b, weight);
  const result = cast(where(any(isNaN(rows), -1), Number.NaN, middle), toInexact(given.dtype));
  return keepDims ? reshape(result, keepAxes(t.shape, reduced)) : result;
}

/** Percentile over axes: the {@link quantile} of p / 100, or of each of a list. */
export function percentile(
  x: TensorLike,
  p: number | readonly number[],
  axes?: Axes,
  options: QuantileOptions = {},
): Tensor {
  const list = Array.isArray(p) ? (p as readonly number[]) : [p as number];
  if (list.length === 0 || !list.every((share) => typeof share === "number" && share >= 0 && share <= 100))
    throw new WeftError(`percentile: p is a number between 0 and 100, or a list of them, got ${showValue(p)}`);
  return quantile(x, Array.isArray(p) ? list.map((share) => share / 100) : list[0] / 100, axes, options);
}

/** Median over axes, by default all: the middle element, or the mean of the two in the middle. NaN propagates. */
export const median = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  quantile(x, 0.5, axes, options);

/** Options of {@link searchsorted}. @inline */
interface SearchOptions {
  /** "left" (the default): the position before equal elements; "right": the one after them. */
  side?: "left" | "right";
  /** Indices that sort the vector, if it is not sorted. */
  sorter?: Tensor;
}

/**
 * Positions (int32) in a sorted vector where values would be inserted to keep its order. NaN is greater than every number.
 *
 * @example
 * ```ts
 * import { searchsorted, tensor } from "@weft/core";
 *
 * console.log(await searchsorted(tensor([1, 3, 5]), tensor([0, 3, 9])).array()); // [0, 1, 3]
 * ```
 */
export function searchsorted(vector: TensorLike, values: TensorLike, options: SearchOptions = {}): Tensor {
  const { side = "left", sorter } = checkOptions("searchsorted", options, ["side", "sorter"]);
  if (side !== "left" && side !== "right") throw new WeftError(`searchsorted: side is "left" or "right", got ${side}`);
  const dtype = commonDType("searchsorted", [vector, values]);
  if (isComplex(dtype)) throw new DTypeError("searchsorted: complex numbers have no order");
  const given = wrap(nodeAs("searchsorted", vector, dtype));
  if (given.rank !== 1)
    throw new ShapeError(`searchsorted: needs a sorted vector, got shape ${showShape(given.shape)}`);
  const sorted = sorter === undefined ? given : take(given, sorter, 0);
  const wanted = wrap(nodeAs("searchsorted", values, dtype));
  const n = sorted.size;
  let low = zeros(wanted.shape, { dtype: "int32" });
  if (n === 0) return low;
  let high = low.add(n);
  // Bisection: every step halves the distance between low and high, at most n.
  for (let length = n; length > 0; length = Math.floor(length / 2)) {
    const middle = low.add(high).floorDivide(2);
    const element = take(sorted, middle, 0);
    const before = side === "left" ? isBefore(element, wanted) : logicalNot(isBefore(wanted, element));
    const open = low.less(high);
    low = where(logicalAnd(open, before), middle.add(1), low);
    high = where(logicalAnd(open, logicalNot(before)), middle, high);
  }
  return low;
}

/** a < b where NaN is greater than every number. */
function isBefore(a: Tensor, b: Tensor): Tensor {
  if (kindOf(a.dtype) !== "float") return a.less(b);
  return logicalOr(a.less(b), logicalAnd(isNaN(b), logicalNot(isNaN(a))));
}

/** Options of {@link bincount}. @inline */
interface BincountOptions {
  /** Number of bins. By default one more than the largest element, which is read for it. */
  length?: number;
  /** What each element adds to its bin; 1 by default. */
  weights?: Tensor;
}

/** How often each of 0, 1, 2, ... occurs in an integer tensor: int64, or the dtype of the weights. Elements out of range are dropped. */
export function bincount(x: Tensor, options: BincountOptions = {}): Tensor {
  checkOptions("bincount", options, ["length", "weights"]);
  const { length, weights } = options;
  checkArguments("bincount", "tensor", { x });
  if (kindOf(x.dtype) !== "int") throw new DTypeError(`bincount: needs integers, got ${x.dtype}; use cast("int32")`);
  if (weights !== undefined && showShape(weights.shape) !== showShape(x.shape))
    throw new ShapeError(`bincount: weights ${showShape(weights.shape)} for elements ${showShape(x.shape)}`);
  const bins = length ?? (x.size === 0 ? 0 : x.max().itemSync() + 1);
  const flat = reshape(x, [-1]);
  const added = weights === undefined ? ones(flat.shape, { dtype: "int64" }) : reshape(weights, [-1]);
  // Negative elements must not count from the end.
  return indexAdd(zeros([bins], { dtype: added.dtype }), where(flat.less(0), bins, flat), added);
}

/** Options of {@link histogram}. @inline */
interface HistogramOptions {
  /** Ends of the bins; the smallest and largest element by default, which are read for it. */
  range?: readonly [number, number];
  /** What each element adds to its bin; 1 by default. */
  weights?: Tensor;
}

/** Bins up to which, and steps between representable numbers from which a quotient is at most one bin off. */
const evenBins = { most: 2 ** 16, steps: 8 };

/** Whether the bin of an element is known from a quotient but for one. */
function isEven(low: number, high: number, bins: number, dtype: DType): boolean {
  if (dtype !== "float32" && dtype !== "float64") return false;
  const [epsilon, largest] = dtype === "float32" ? [2 ** -23, 2 ** 127] : [2 ** -52, 2 ** 1023];
  const size = Math.max(Math.abs(low), Math.abs(high));
  const width = (high - low) / bins;
  return bins <= evenBins.most && size < largest / 2 && width > evenBins.steps * epsilon * size && 1 / width < largest;
}

/** The bin of an element between the first and the last edge: a quotient, corrected by the edges beside it. */
function placeByArithmetic(t: Tensor, edges: Tensor, low: number, perUnit: number): Tensor {
  const bins = edges.size - 1;
  const guess = t
    .sub(low)
    .mul(perUnit)
    .minimum(bins - 1)
    .cast("int32");
  const isLower = t.less(take(edges, guess, 0));
  const isHigher = t.greaterEqual(take(edges, guess.add(1), 0));
  return guess.sub(isLower.cast("int32")).add(isHigher.cast("int32"));
}

/** Equal bins between the ends of a range: their edges, and the bin of every element (`bins` for those outside). */
function binsOf(
  op: string,
  x: Tensor,
  bins: number,
  range?: readonly [number, number],
): { bin: Tensor; edges: Tensor } {
  if (!Number.isInteger(bins) || bins < 1) throw new WeftError(`${op}: bins is a whole number >= 1, got ${bins}`);
  const t = cast(reshape(x, [-1]), isInexact(x.dtype) ? x.dtype : "float64");
  const found = range ?? (t.size === 0 ? [0, 1] : [t.min().itemSync(), t.max().itemSync()]);
  if (!(found[0] <= found[1]) || !found.every(Number.isFinite))
    throw new WeftError(`${op}: the range goes from ${found[0]} to ${found[1]}; both are finite and in order`);
  const [low, high] = found[0] === found[1] ? [found[0] - 0.5, found[1] + 0.5] : found;
  const edges = linspace(low, high, bins + 1, { dtype: t.dtype });
  const inside = logicalAnd(t.greaterEqual(low), t.lessEqual(high));
  const place = isEven(low, high, bins, t.dtype)
    ? placeByArithmetic(where(inside, t, low), edges, low, bins / (high - low))
    : searchsorted(edges, t, { side: "right" }).sub(1);
  const bin = where(inside, place.minimum(bins - 1), bins).cast("int32");
  return { bin, edges: cast(edges, toInexact(x.dtype)) };
}

/** Counts of elements in equal bins, and the edges of the bins. The last bin includes its upper edge. */
export function histogram(x: Tensor, bins = 10, options: HistogramOptions = {}): { counts: Tensor; edges: Tensor } {
  const { range, weights } = checkOptions("histogram", options, ["range", "weights"]);
  checkArguments("histogram", "tensor", { x });
  const { bin, edges } = binsOf("histogram", x, bins, range);
  return { counts: bincount(bin, { length: bins, ...flatWeights(weights) }), edges };
}

const flatWeights = (weights: Tensor | undefined): BincountOptions =>
  weights === undefined ? {} : { weights: reshape(weights, [-1]) };

/** Options of {@link histogram2d}. @inline */
interface Histogram2dOptions extends Pick<HistogramOptions, "weights"> {
  /** Ends of the bins of x; the smallest and largest element by default, which are read for it. */
  xRange?: readonly [number, number];
  /** Ends of the bins of y. */
  yRange?: readonly [number, number];
}

/** Counts of points (x, y) in a grid of `bins` times `bins` equal bins, [x, y], and the edges of the bins along both axes. */
export function histogram2d(
  x: Tensor,
  y: Tensor,
  bins = 10,
  options: Histogram2dOptions = {},
): { counts: Tensor; xEdges: Tensor; yEdges: Tensor } {
  const { weights, xRange, yRange } = checkOptions("histogram2d", options, ["weights", "xRange", "yRange"]);
  checkArguments("histogram2d", "tensor", { x, y });
  if (x.size !== y.size)
    throw new ShapeError(`histogram2d: x ${showShape(x.shape)} and y ${showShape(y.shape)} need as many elements`);
  const [across, down] = [binsOf("histogram2d", x, bins, xRange), binsOf("histogram2d", y, bins, yRange)];
  // A point outside of one range must not count in the next row of the grid.
  const inside = logicalAnd(across.bin.less(bins), down.bin.less(bins));
  const counts = bincount(where(inside, across.bin.mul(bins).add(down.bin), bins * bins), {
    length: bins * bins,
    ...flatWeights(weights),
  });
  return { counts: reshape(counts, [bins, bins]), xEdges: across.edges, yEdges: down.edges };
}
