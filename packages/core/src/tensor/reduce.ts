// Reductions along axes, with keepDims everywhere; composed of sum, prod, max and min.
import {
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  isHalf,
  isInexact,
  isUnsigned,
  keepAxes,
  type Node,
  numel,
  type ReduceFn,
  realOf,
  ShapeError,
  toInexact,
} from "../graph/index.js";
import { build, composed } from "../ops/index.js";
import { inFloat32, nodeAs, nodeOf, resolveAxes, resolveAxis, type TensorLike, wrap } from "./convert.js";
import type { Tensor } from "./tensor.js";

/** Options of reductions. @inline */
export interface ReduceOptions {
  /** Keeps reduced axes with size 1; false by default. */
  keepDims?: boolean;
}
/** Options of sums and products. @inline */
export interface SumOptions extends ReduceOptions {
  /** Dtype of the result, to which elements are converted first. */
  dtype?: DType;
}
/** Axes of a reduction, counted from the end if negative; null or undefined means all axes. */
export type Axes = number | readonly number[] | null;

/** The only option of most reductions. */
function keepsDims(op: string, options: ReduceOptions): boolean | undefined {
  checkOptions(op, options, ["keepDims"]);
  return options.keepDims;
}

/** Reduces a node and keeps the reduced axes as ones if asked. */
function reduceNode(fn: ReduceFn, x: Node, axes: readonly number[], keepDims = false): Node {
  const result = build.reduce(fn, x, axes);
  return keepDims ? build.reshape(result, keepAxes(x.shape, axes)) : result;
}

/** Integers add up in int64 or uint64, truth values in int64, as in NumPy and the Array API standard. */
export const counting = (node: Node, dtype?: DType): Node =>
  build.cast(node, dtype ?? (isInexact(node.dtype) ? node.dtype : isUnsigned(node.dtype) ? "uint64" : "int64"));

/**
 * Sum over axes, by default all. Integers and bool are summed in int64, unsigned integers in uint64; both wrap.
 *
 * @example
 * ```ts
 * import { sum, tensor } from "@weft/core";
 *
 * const x = tensor([[1, 2], [3, 4]]);
 * console.log(await sum(x).item()); // 10
 * console.log(await x.sum(0).array(), await x.sum(1, { keepDims: true }).array()); // [4, 6] [[3], [7]]
 * ```
 */
export function sum(x: TensorLike, axes?: Axes, options: SumOptions = {}): Tensor {
  checkOptions("sum", options, ["keepDims", "dtype"]);
  const { keepDims, dtype } = options;
  const node = nodeOf("sum", x);
  return wrap(reduceNode("sum", counting(node, dtype), resolveAxes("sum", axes, node.shape.length), keepDims));
}

/** Product over axes, by default all. Integers and bool are multiplied in int64, unsigned integers in uint64; both wrap. */
export function prod(x: TensorLike, axes?: Axes, options: SumOptions = {}): Tensor {
  checkOptions("prod", options, ["keepDims", "dtype"]);
  const { keepDims, dtype } = options;
  const node = nodeOf("prod", x);
  return wrap(reduceNode("prod", counting(node, dtype), resolveAxes("prod", axes, node.shape.length), keepDims));
}

function extremum(fn: "max" | "min", x: TensorLike, axes: Axes | undefined, keepDims?: boolean): Tensor {
  const node = nodeOf(fn, x);
  if (isComplex(node.dtype)) throw new DTypeError(`${fn}: complex numbers have no order; use abs(x) or real(x)`);
  const resolved = resolveAxes(fn, axes, node.shape.length);
  if (numel(resolved.map((a) => node.shape[a])) === 0)
    throw new ShapeError(`${fn}: the ${fn} of no elements does not exist (shape [${node.shape.join(", ")}])`);
  return wrap(reduceNode(fn, node, resolved, keepDims));
}

/** Maximum over axes, by default all. NaN propagates. Zeros of either sign are equal. */
export const max = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  extremum("max", x, axes, keepsDims("max", options));
/** Minimum over axes, by default all. NaN propagates. Zeros of either sign are equal. */
export const min = (x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor =>
  extremum("min", x, axes, keepsDims("min", options));

/** Whether any element along the axes is nonzero. */
export function any(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  const keepDims = keepsDims("any", options);
  const node = nodeAs("any", x, "bool");
  return wrap(reduceNode("max", node, resolveAxes("any", axes, node.shape.length), keepDims));
}

/** Whether all elements along the axes are nonzero. */
export function all(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  const keepDims = keepsDims("all", options);
  const node = nodeAs("all", x, "bool");
  return wrap(reduceNode("min", node, resolveAxes("all", axes, node.shape.length), keepDims));
}

/**
 * The dtype in which means and variances are computed: float64 for integers, because float32 has too few digits, and float32 for
 * halves, whose sums and counts leave the range of float16.
 */
const averaged = (node: Node): Node =>
  build.cast(node, isHalf(node.dtype) ? "float32" : isInexact(node.dtype) ? node.dtype : "float64");

/**
 * Mean over axes, by default all. Integers and bool give float32, computed in float64.
 *
 * @example
 * ```ts
 * import { mean, tensor } from "@weft/core";
 *
 * const x = tensor([[1, 2], [3, 6]]);
 * console.log(await mean(x).item(), await x.mean(0).array()); // 3 [2, 4]
 * ```
 */
export function mean(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  const keepDims = keepsDims("mean", options);
  const node = nodeOf("mean", x);
  const resolved = resolveAxes("mean", axes, node.shape.length);
  const count = numel(resolved.map((a) => node.shape[a]));
  const total = reduceNode("sum", averaged(node), resolved, keepDims);
  return wrap(build.cast(build.div(total, build.fullLike(total, count)), toInexact(node.dtype)));
}

/** Options of {@link variance} and {@link std}. @inline */
export interface VarOptions extends ReduceOptions {
  /** Subtracted from the count: 0 (NumPy's default) or 1 (the unbiased estimate). */
  correction?: number;
}

/** The variance in the dtype in which it is computed. */
function wideVariance(op: string, x: TensorLike, axes: Axes | undefined, options: VarOptions): Node {
  const { keepDims, correction = 0 } = checkOptions(op, options, ["keepDims", "correction"]);
  const node = nodeOf(op, x);
  const values = averaged(node);
  const resolved = resolveAxes(op, axes, node.shape.length);
  const count = numel(resolved.map((a) => node.shape[a]));
  const total = reduceNode("sum", values, resolved, true);
  const center = build.expand(build.div(total, build.fullLike(total, count)), values.shape);
  const deviation = build.sub(values, center);
  const squares = isComplex(values.dtype)
    ? build.real(build.mul(deviation, build.conj(deviation)))
    : build.mul(deviation, deviation);
  const spread = reduceNode("sum", squares, resolved, keepDims);
  return build.div(spread, build.fullLike(spread, Math.max(0, count - correction)));
}

/** The dtype of a variance: real, and that of the elements if they are floating-point numbers. */
const spreadDType = (x: TensorLike): DType => realOf(toInexact(nodeOf("variance", x).dtype));

/** Variance over axes, as accurate as in two passes. For complex numbers it is the mean of |x - mean|^2. */
export const variance = (x: TensorLike, axes?: Axes, options: VarOptions = {}): Tensor =>
  wrap(build.cast(wideVariance("variance", x, axes, options), spreadDType(x)));

/** Standard deviation over axes: the square root of the {@link variance}. Its derivative is taken as 0 where it is 0. */
export function std(x: TensorLike, axes?: Axes, options: VarOptions = {}): Tensor {
  const spread = wideVariance("std", x, axes, options);
  const isZero = build.eq(spread, build.zerosLike(spread));
  const root = build.unary("sqrt", build.where(isZero, build.fullLike(spread, 1), spread));
  return wrap(build.cast(build.where(isZero, spread, root), spreadDType(x)));
}

/** log(sum(exp(x))) over axes, evaluated without overflow. */
export function logsumexp(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  const keepDims = keepsDims("logsumexp", options);
  const node = nodeOf("logsumexp", x);
  if (isComplex(node.dtype)) throw new DTypeError("logsumexp: not defined for complex tensors");
  const resolved = resolveAxes("logsumexp", axes, node.shape.length);
  return inFloat32("logsumexp", wrap(build.cast(node, toInexact(node.dtype))), ({ node: values }) => {
    const result = composed.logSumExp(values, resolved);
    return wrap(keepDims ? result : build.reshape(result, build.reduce("max", values, resolved).shape));
  });
}

/** Identity whose gradient is zero: treats the tensor as a constant. */
export const stopGradient = (x: TensorLike): Tensor => wrap(composed.stopGradient(nodeOf("stopGradient", x)));

function argExtremum(fn: "argmax" | "argmin", x: TensorLike, axis: number | undefined, keepDims = false): Tensor {
  const node = nodeOf(fn, x);
  if (isComplex(node.dtype)) throw new DTypeError(`${fn}: complex numbers have no order; use abs(x) or real(x)`);
  const source = axis === undefined ? build.reshape(node, [numel(node.shape)]) : node;
  const resolved = axis === undefined ? 0 : resolveAxis(fn, axis, node.shape.length);
  if (source.shape[resolved] === 0) throw new ShapeError(`${fn}: the ${fn} of no elements does not exist`);
  const values = source.dtype === "bool" ? build.cast(source, "uint8") : source;
  const result = build.make("argreduce", [values], { fn, axis: resolved });
  const kept = node.shape.map((d, i) => (axis === undefined || i === resolved ? 1 : d));
  return wrap(keepDims ? build.reshape(result, kept) : result);
}

/** Index (int32) of the first maximum, of the flattened tensor or along one axis. */
export const argmax = (x: TensorLike, axis?: number, options: ReduceOptions = {}): Tensor =>
  argExtremum("argmax", x, axis, keepsDims("argmax", options));
/** Index (int32) of the first minimum, of the flattened tensor or along one axis. */
export const argmin = (x: TensorLike, axis?: number, options: ReduceOptions = {}): Tensor =>
  argExtremum("argmin", x, axis, keepsDims("argmin", options));

/** Number of nonzero elements over axes, by default all; int64. */
export function countNonzero(x: TensorLike, axes?: Axes, options: ReduceOptions = {}): Tensor {
  return sum(wrap(nodeAs("countNonzero", x, "bool")), axes, options);
}
