// Numerical analysis of samples: weighted means, covariances, integrals, interpolation, differences, phases, and reductions that
// leave NaN out.

import {
  checkOptions,
  DTypeError,
  isComplex,
  isInexact,
  keepAxes,
  promote,
  realOf,
  ShapeError,
  showShape,
  toInexact,
  WeftError,
} from "../graph/index.js";
import {
  checkArguments,
  commonDType,
  inWiderFloat,
  nodeOf,
  resolveAxes,
  resolveAxis,
  type TensorLike,
  wrap,
} from "./convert.js";
import { cumsum } from "./cumulative.js";
import { matmul } from "./einsum.js";
import { gather, sort, take } from "./indexing.js";
import { diagonal } from "./linalg.js";
import {
  abs,
  cast,
  clip,
  conj,
  equal,
  isFinite,
  isNaN,
  less,
  logicalAnd,
  logicalNot,
  mod,
  mul,
  real,
  sqrt,
  sub,
  where,
} from "./math.js";
import {
  type Axes,
  all,
  argmax,
  argmin,
  max,
  mean,
  min,
  prod,
  type ReduceOptions,
  stopGradient,
  sum,
  type VarOptions,
} from "./reduce.js";
import { between, rowsAlong } from "./rows.js";
import { concat, expand, reshape, squeeze, unsqueeze } from "./shape.js";
import { diff, searchsorted } from "./statistics.js";
import { Tensor } from "./tensor.js";

const floating = (op: string, x: TensorLike): Tensor => {
  const node = nodeOf(op, x);
  return cast(wrap(node), toInexact(node.dtype));
};

/** Coordinates whose differences count: integers have all their digits in float64. */
const coordinates = (x: Tensor): Tensor => (isInexact(x.dtype) ? x : cast(x, "float64"));

/** Difference of the largest and the smallest element over axes, by default all. */
export const ptp = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  sub(max(x, axes, options), min(x, axes, options));

/** Options of {@link average}. @inline */
interface AverageOptions extends ReduceOptions {
  /** Weights of the shape of x, or a vector along the one axis. */
  weights?: Tensor;
}

/** Weighted mean over axes, by default all: sum(x weights) / sum(weights). Without weights the {@link mean}. */
export function average(x: TensorLike, axes?: Axes, options: AverageOptions = {}): Tensor {
  const { weights, keepDims } = checkOptions("average", options, ["weights", "keepDims"]);
  const t = wrap(nodeOf("average", x));
  const resolved = resolveAxes("average", axes, t.rank);
  if (weights === undefined) return mean(x, axes, { keepDims });
  const isVector = weights.rank === 1 && t.rank > 1 && resolved.length === 1;
  if (!isVector && showShape(weights.shape) !== showShape(t.shape))
    throw new ShapeError(
      `average: weights ${showShape(weights.shape)} for ${showShape(t.shape)}; they have its shape, or are a vector along one axis`,
    );
  if (isVector && weights.size !== t.shape[resolved[0]])
    throw new ShapeError(
      `average: ${weights.size} weights for ${t.shape[resolved[0]]} elements along axis ${resolved[0]}`,
    );
  const shaped = isVector
    ? reshape(
        weights,
        t.shape.map((d, i) => (i === resolved[0] ? d : 1)),
      )
    : weights;
  const wide = expand(shaped, t.shape);
  return inWiderFloat("average", t, (values) =>
    sum(mul(values, wide), resolved, { keepDims }).div(sum(cast(wide, values.dtype), resolved, { keepDims })),
  );
}

/** Options of {@link cov}. @inline */
interface CovOptions {
  /** Variables are rows and observations columns (the default); false for the other way round. */
  rows?: boolean;
  /** Subtracted from the number of observations: 1 by default, the unbiased estimate. */
  correction?: number;
}

/** Covariance matrix of variables [variables, observations]; a vector is one variable and gives a scalar. */
export function cov(x: TensorLike, options: CovOptions = {}): Tensor {
  const { rows = true, correction = 1 } = checkOptions("cov", options, ["rows", "correction"]);
  return inWiderFloat("cov", x, (t) => {
    if (t.rank > 2) throw new ShapeError(`cov: needs a vector or a matrix, got shape ${showShape(t.shape)}`);
    const matrix = t.rank < 2 ? reshape(t, [1, t.size]) : rows ? t : t.T;
    const centered = sub(matrix, mean(matrix, 1, { keepDims: true }));
    const result = matmul(centered, conj(centered.T)).div(Math.max(0, matrix.shape[1] - correction));
    return result.size === 1 ? reshape(result, []) : result;
  });
}

/** Matrix of Pearson's correlation coefficients of variables [variables, observations]. */
export function corrcoef(x: TensorLike, options: { rows?: boolean } = {}): Tensor {
  const { rows = true } = checkOptions("corrcoef", options, ["rows"]);
  return inWiderFloat("corrcoef", x, (t) => {
    const c = cov(t, { rows });
    if (c.rank === 0) return c.div(c);
    const spread = sqrt(real(diagonal(c)));
    const scaled = c.div(unsqueeze(spread, 0)).div(unsqueeze(spread, 1));
    return isComplex(scaled.dtype) ? scaled : clip(scaled, -1, 1);
  });
}

const sliceOf = (x: Tensor, axis: number, from: number, to: number): Tensor =>
  x.slice(
    x.shape.map((_, i) => (i === axis ? from : 0)),
    x.shape.map((d, i) => (i === axis ? to : d)),
  );

/** Options of {@link trapezoid}. @inline */
interface TrapezoidOptions {
  /** Points of the samples: a vector along the axis, or a tensor that broadcasts. */
  x?: Tensor;
  /** Distance of the samples, if no points are given; 1 by default. */
  dx?: TensorLike;
  /** Axis of the samples, the last by default. */
  axis?: number;
}

/** Integral of samples along an axis, by the trapezoidal rule. */
export function trapezoid(y: TensorLike, options: TrapezoidOptions = {}): Tensor {
  const { x, dx = 1, axis = -1 } = checkOptions("trapezoid", options, ["x", "dx", "axis"]);
  if (x !== undefined) checkArguments("trapezoid", "tensor", { x });
  const t = floating("trapezoid", y);
  const at = resolveAxis("trapezoid", axis, t.rank);
  const n = t.shape[at];
  const pairs = sliceOf(t, at, 1, n).add(sliceOf(t, at, 0, Math.max(0, n - 1)));
  const steps =
    x === undefined ? dx : cast(stepsOf(t, coordinates(x), at), isInexact(x.dtype) ? x.dtype : realOf(t.dtype));
  return sum(mul(mul(pairs, steps), 0.5), at);
}

/** Distances of points along an axis of samples; vectors are turned to that axis. */
function stepsOf(samples: Tensor, points: Tensor, axis: number): Tensor {
  const size = samples.shape[axis];
  const steps = points.rank === 1 ? diff(points) : diff(points, points.rank - samples.rank + axis);
  if (points.rank === 1 && points.size !== size)
    throw new ShapeError(`trapezoid: ${points.size} points for ${size} samples along axis ${axis}`);
  return points.rank === 1 ? reshape(steps, [-1, ...new Array<number>(samples.rank - 1 - axis).fill(1)]) : steps;
}

/** Options of {@link unwrap}. @inline */
interface UnwrapOptions {
  /** Length of a turn; 2 pi by default. */
  period?: number;
  /** Jumps up to this size stay; half a period by default, and at least that. */
  discontinuity?: number;
}

/** Removes jumps of phases along an axis: adds multiples of the period so that neighbors differ by half a period at most. */
export function unwrap(x: TensorLike, axis = -1, options: UnwrapOptions = {}): Tensor {
  const { period = 2 * Math.PI, discontinuity } = checkOptions("unwrap", options, ["period", "discontinuity"]);
  const t = floating("unwrap", x);
  if (isComplex(t.dtype)) throw new DTypeError("unwrap: not defined for complex tensors; use angle(x)");
  if (!(period > 0)) throw new WeftError(`unwrap: the period is a positive number, got ${period}`);
  const at = resolveAxis("unwrap", axis, t.rank);
  if (t.shape[at] < 2) return t;
  // Constants of the dtype: with a period that rounds to infinity nothing jumps.
  const turn = cast(period, t.dtype);
  const high = turn.div(2);
  const steps = diff(t, at);
  const wrapped = mod(steps.add(high), turn).sub(high);
  const near = where(logicalAnd(equal(wrapped, high.neg()), steps.greater(0)), high, wrapped);
  const limit = discontinuity === undefined ? high : cast(Math.max(discontinuity, 0), t.dtype);
  const correction = where(less(abs(steps), limit), 0, near.sub(steps));
  // Corrections are multiples of the period: constants for the derivative.
  const fixed = cumsum(stopGradient(correction), at);
  return concat([sliceOf(t, at, 0, 1), sliceOf(t, at, 1, t.shape[at]).add(fixed)], at);
}

/** Options of {@link interp}. @inline */
interface InterpOptions {
  /** Value below the first point; that of the first point by default. */
  left?: number;
  /** Value above the last point; that of the last point by default. */
  right?: number;
}

/** Piecewise linear interpolation at x between points with ascending coordinates `xs` and values `ys`. */
export function interp(x: TensorLike, xs: Tensor, ys: Tensor, options: InterpOptions = {}): Tensor {
  const { left, right } = checkOptions("interp", options, ["left", "right"]);
  for (const [name, value] of Object.entries({ left, right }))
    if (value !== undefined && typeof value !== "number")
      throw new WeftError(`interp: ${name} is a number, got ${String(value)}`);
  checkArguments("interp", "tensor", { xs, ys });
  if (xs.rank !== 1 || showShape(xs.shape) !== showShape(ys.shape) || xs.size === 0)
    throw new ShapeError(
      `interp: needs vectors of points and values, got ${showShape(xs.shape)} and ${showShape(ys.shape)}`,
    );
  const common = toInexact(commonDType("interp", [x, xs]));
  if (isComplex(common)) throw new DTypeError("interp: complex points have no order");
  const dtype = isInexact(xs.dtype) ? common : "float64";
  const [t, points] = [cast(x, dtype), cast(xs, dtype)];
  const values = cast(ys, toInexact(ys.dtype));
  return cast(interpolated(t, points, values, left, right), promote(common, values.dtype));
}

function interpolated(t: Tensor, points: Tensor, values: Tensor, left?: number, right?: number): Tensor {
  const n = points.size;
  if (n === 1) return outside(t, values.index(0), values, points, left, right);
  const upper = clip(searchsorted(points, t, { side: "right" }), 1, n - 1).cast("int32");
  const lower = upper.sub(1);
  const [x0, x1] = [take(points, lower, 0), take(points, upper, 0)];
  const [y0, y1] = [take(values, lower, 0), take(values, upper, 0)];
  const width = x1.sub(x0);
  const flat = equal(width, 0);
  const share = t.sub(x0).div(where(flat, 1, width));
  const rise = y1.sub(y0);
  // Beside an infinite value the line is infinite, except in the point of the other one.
  const isSteep = isFinite(rise).logicalNot();
  const finite = y0.add(where(isSteep, 0, rise).mul(share));
  const steep = where(equal(share, 0), y0, where(equal(share, 1), y1, where(isFinite(y0), y0.add(rise), y1.sub(rise))));
  return outside(t, where(flat, y0, where(isSteep, steep, finite)), values, points, left, right);
}

function outside(x: Tensor, inside: Tensor, ys: Tensor, xs: Tensor, left?: number, right?: number): Tensor {
  const n = xs.size;
  const low = where(x.less(xs.index(0)), left ?? ys.index(0), inside);
  const both = where(x.greater(xs.index(n - 1)), right ?? ys.index(n - 1), low);
  return where(isNaN(x), Number.NaN, both);
}

/** Options of {@link gradient}. @inline */
interface DifferenceOptions {
  /** Distance of the samples, or their coordinates along the axis; 1 by default. */
  spacing?: number | Tensor;
  /** Order of accuracy at the two ends: 1 (the default) or 2. */
  edgeOrder?: 1 | 2;
}

/** Derivative of samples along an axis by central differences, as numpy.gradient. For derivatives of functions see grad. */
export function gradient(x: TensorLike, axis = -1, options: DifferenceOptions = {}): Tensor {
  const { spacing = 1, edgeOrder = 1 } = checkOptions("gradient", options, ["spacing", "edgeOrder"]);
  const { shape } = nodeOf("gradient", x);
  const at = resolveAxis("gradient", axis, shape.length);
  const n = shape[at];
  if (edgeOrder !== 1 && edgeOrder !== 2)
    throw new WeftError(`gradient: edgeOrder is 1 or 2, got ${String(edgeOrder)}`);
  if (n < edgeOrder + 1)
    throw new ShapeError(`gradient: needs ${edgeOrder + 1} samples at least along axis ${at}, got ${n}`);
  if (spacing instanceof Tensor && (spacing.rank !== 1 || spacing.size !== n))
    throw new ShapeError(`gradient: ${n} samples need ${n} coordinates, got shape ${showShape(spacing.shape)}`);
  return inWiderFloat("gradient", x, (t) => slopesOf(t, at, spacing, edgeOrder));
}

function slopesOf(t: Tensor, at: number, spacing: number | Tensor, edgeOrder: 1 | 2): Tensor {
  const n = t.shape[at];
  const steps = spacing instanceof Tensor ? diff(coordinates(spacing)) : expand(cast(spacing, "float64"), [n - 1]);
  const gaps = reshape(cast(steps, realOf(t.dtype)), [-1, ...new Array<number>(t.rank - 1 - at).fill(1)]);
  const slopes = diff(t, at).div(gaps);
  const first = sliceOf(slopes, at, 0, 1);
  const last = sliceOf(slopes, at, n - 2, n - 1);
  if (n === 2) return concat([first, last], at);
  const gap = (from: number, to: number): Tensor => sliceOf(gaps, 0, from, to);
  const [before, after] = [gap(0, n - 2), gap(1, n - 1)];
  const [left, right] = [sliceOf(slopes, at, 0, n - 2), sliceOf(slopes, at, 1, n - 1)];
  // The slope of the parabola through three neighbors.
  const inner = left.mul(after).add(right.mul(before)).div(before.add(after));
  if (edgeOrder === 1) return concat([first, inner, last], at);
  const bend = right.sub(left).div(before.add(after));
  const start = first.sub(sliceOf(bend, at, 0, 1).mul(gap(0, 1)));
  const end = last.add(sliceOf(bend, at, n - 3, n - 2).mul(gap(n - 2, n - 1)));
  return concat([start, inner, end], at);
}

/**
 * Positions (int32) of the bins that elements fall into, as numpy.digitize: `edges` ascend or descend; with `right`, bins include their
 * upper edge instead of the lower.
 */
export function digitize(x: TensorLike, edges: Tensor, options: { right?: boolean } = {}): Tensor {
  const { right = false } = checkOptions("digitize", options, ["right"]);
  if (typeof right !== "boolean") throw new WeftError(`digitize: right is true or false, got ${String(right)}`);
  checkArguments("digitize", "tensor", { edges });
  const side = right ? "left" : "right";
  const ascending = searchsorted(edges, x, { side });
  if (edges.rank !== 1 || edges.size < 2) return ascending;
  const descending = searchsorted(edges.flip([0]), x, { side })
    .neg()
    .add(edges.size);
  return where(edges.index(0).greater(edges.index(-1)), descending, ascending);
}

/** Indices (int32) that sort by several keys of one shape along the last axis; the last key counts first, as numpy.lexsort. */
export function lexsort(keys: readonly Tensor[]): Tensor {
  checkArguments("lexsort", "array", { keys });
  checkArguments("lexsort", "tensor", { ...keys });
  if (keys.length === 0) throw new WeftError("lexsort: needs one key at least");
  return keys.slice(1).reduce<Tensor>((order, key) => gather(order, gather(key, order).argsort()), keys[0].argsort());
}

/** Whether elements of x are among the elements of another tensor, or (`invert`) are not. NaN is never. */
export function isIn(x: TensorLike, among: TensorLike, options: { invert?: boolean } = {}): Tensor {
  const { invert = false } = checkOptions("isIn", options, ["invert"]);
  const [t, values] = [wrap(nodeOf("isIn", x)), reshape(wrap(nodeOf("isIn", among)), [-1])];
  // Many values are searched in sorted order; few are compared with one by one, in one kernel.
  const found =
    values.size > 64 && !isComplex(commonDType("isIn", [t, values])) ? searched(t, values) : compared(t, values);
  return invert ? logicalNot(found) : found;
}

const compared = (t: Tensor, values: Tensor): Tensor => unsqueeze(t, -1).equal(values).any(-1);

function searched(t: Tensor, values: Tensor): Tensor {
  const sorted = sort(values);
  const at = searchsorted(sorted, t).minimum(values.size - 1);
  return equal(take(sorted, at.cast("int32"), 0), t);
}

// Reductions that leave NaN out.

const without = (x: TensorLike, value: number): Tensor => {
  const t = wrap(nodeOf("nan reductions", x));
  return isInexact(t.dtype) ? where(isNaN(t), value, t) : t;
};
const counted = (x: TensorLike, axes: Axes | undefined, options: ReduceOptions): Tensor =>
  sum(logicalNot(isNaN(x)), axes, options);

/** Sum over axes of the elements that are not NaN; 0 where there are none. */
export const nansum = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  sum(without(x, 0), axes, options);
/** Product over axes of the elements that are not NaN; 1 where there are none. */
export const nanprod = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  prod(without(x, 1), axes, options);

/** Mean over axes of the elements that are not NaN; NaN where there are none. */
export function nanmean(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  return inWiderFloat("nanmean", x, (t) => nansum(t, axes, options).div(cast(counted(t, axes, options), t.dtype)));
}

function wideNanvar(t: Tensor, axes: Axes | undefined, { keepDims, correction = 0 }: VarOptions): Tensor {
  const center = nanmean(t, axes, { keepDims: true });
  // NaN is replaced before the squares, because 0 times NaN would be NaN in the gradient.
  const deviation = sub(where(isNaN(t), center, t), center);
  const squares = isComplex(t.dtype) ? real(mul(deviation, conj(deviation))) : mul(deviation, deviation);
  // An infinity makes the variance NaN, as in NumPy.
  const total = sum(squares, axes, { keepDims });
  const count = cast(counted(t, axes, { keepDims }), total.dtype).sub(correction);
  return where(count.greater(0), total.div(where(count.greater(0), count, 1)), Number.NaN);
}

/** Variance over axes of the elements that are not NaN; NaN where there are none. */
export function nanvar(x: TensorLike, axes?: Axes, options: VarOptions = {}): Tensor {
  checkOptions("nanvar", options, ["keepDims", "correction"]);
  return inWiderFloat("nanvar", x, (t) => wideNanvar(t, axes, options));
}

/** Standard deviation over axes of the elements that are not NaN. */
export function nanstd(x: TensorLike, axes?: Axes, options: VarOptions = {}): Tensor {
  checkOptions("nanstd", options, ["keepDims", "correction"]);
  return inWiderFloat("nanstd", x, (t) => {
    const spread = wideNanvar(t, axes, options);
    // As std: the slope is taken as 0 where there is no spread.
    const isZero = equal(spread, 0);
    return where(isZero, 0, sqrt(where(isZero, 1, spread)));
  });
}

const extreme =
  (fn: typeof max, neutral: number) =>
  (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor => {
    const t = wrap(nodeOf("nan reductions", x));
    if (!isInexact(t.dtype)) return fn(t, axes, options);
    return where(all(isNaN(t), axes, options), Number.NaN, fn(without(t, neutral), axes, options));
  };

/** Maximum over axes of the elements that are not NaN; NaN where there are none. */
export const nanmax = extreme(max, Number.NEGATIVE_INFINITY);
/** Minimum over axes of the elements that are not NaN; NaN where there are none. */
export const nanmin = extreme(min, Number.POSITIVE_INFINITY);

/** Index (int32) of the first maximum among the elements that are not NaN; 0 where there are none. */
export const nanargmax = (x: TensorLike, axis?: number, options: ReduceOptions = {}): Tensor =>
  argmax(without(x, Number.NEGATIVE_INFINITY), axis, options);
/** Index (int32) of the first minimum among the elements that are not NaN; 0 where there are none. */
export const nanargmin = (x: TensorLike, axis?: number, options: ReduceOptions = {}): Tensor =>
  argmin(without(x, Number.POSITIVE_INFINITY), axis, options);

/** Quantile over axes of the elements that are not NaN, between two of them in proportion; NaN where there are none. */
export function nanquantile(x: TensorLike, q: number, axes?: Axes, options: ReduceOptions = {}): Tensor {
  const { keepDims = false } = checkOptions("nanquantile", options, ["keepDims"]);
  checkArguments("nanquantile", "number", { q });
  if (!(q >= 0 && q <= 1)) throw new WeftError(`nanquantile: q is a number between 0 and 1, got ${q}`);
  const given = wrap(nodeOf("nanquantile", x));
  const t = coordinates(given);
  const reduced = resolveAxes("nanquantile", axes, t.rank);
  const rows = rowsAlong(t, reduced);
  const n = rows.shape[rows.rank - 1];
  if (n === 0) throw new ShapeError(`nanquantile: no elements along the axes of shape ${showShape(t.shape)}`);
  // NaN is sorted to the end, so that the others come first.
  const sorted = sort(rows);
  const count = counted(rows, -1, { keepDims: true });
  const position = cast(count.sub(1).maximum(0), "float64").mul(q);
  const low = position.floor();
  const pick = (at: Tensor): Tensor => squeeze(gather(sorted, cast(at, "int32").minimum(n - 1)), -1);
  const isLast = low.add(1).greaterEqual(cast(count, "float64"));
  const [a, b] = [pick(low), pick(where(isLast, low, low.add(1)))];
  const result = between(a, b, cast(squeeze(position.sub(low), -1), t.dtype));
  const shaped = cast(where(equal(squeeze(count, -1), 0), Number.NaN, result), toInexact(given.dtype));
  return keepDims ? reshape(shaped, keepAxes(t.shape, reduced)) : shaped;
}

/** Median over axes of the elements that are not NaN; NaN where there are none. */
export const nanmedian = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  nanquantile(x, 0.5, axes, options);
