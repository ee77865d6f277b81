// The Tensor class: a handle on a graph node. Methods call the function of the same name.
import { type DType, type Shape, ShapeError } from "../graph/index.js";
import type { TensorLike } from "./convert.js";
import * as cumulative from "./cumulative.js";
import * as einsum from "./einsum.js";
import { TensorHandle } from "./handle.js";
import * as indexing from "./indexing.js";
import * as linalg from "./linalg.js";
import * as math from "./math.js";
import * as nn from "./nnfunctions.js";
import type { PadOptions } from "./padding.js";
import * as padding from "./padding.js";
import type { ProductOptions } from "./precision.js";
import * as reduce from "./reduce.js";
import * as selection from "./selection.js";
import * as shaping from "./shape.js";

export type { Data, DataOf, NestedData } from "./handle.js";

/**
 * An n-dimensional array with a dtype on a device. Operations are lazy: they build a graph, and a value is computed when it is
 * read. Create tensors with {@link tensor}, {@link zeros}, {@link randn} and so on.
 */
export class Tensor<D extends DType = DType> extends TensorHandle<D> {
  /** The slices along axis 0, so that `for (const row of t)` and `[...t]` work. */
  *[Symbol.iterator](): Generator<Tensor> {
    if (this.rank === 0) throw new ShapeError("a scalar has no elements to iterate over; use item()");
    for (let i = 0; i < this.shape[0]; i++) yield indexing.index(this, i);
  }

  // Arithmetic and comparison

  /** Elementwise sum. See {@link add}. */
  add(other: TensorLike): Tensor {
    return math.add(this, other);
  }

  /** Elementwise difference. See {@link sub}. */
  sub(other: TensorLike): Tensor {
    return math.sub(this, other);
  }

  /** Elementwise product. See {@link mul}. */
  mul(other: TensorLike): Tensor {
    return math.mul(this, other);
  }

  /** Elementwise true division. See {@link div}. */
  div(other: TensorLike): Tensor {
    return math.div(this, other);
  }

  /** Elementwise remainder with the sign of the divisor. See {@link mod}. */
  mod(other: TensorLike): Tensor {
    return math.mod(this, other);
  }

  /** Elementwise power. See {@link pow}. */
  pow(other: TensorLike): Tensor {
    return math.pow(this, other);
  }

  /**
   * Elementwise quotient rounded down, as // in Python: a = floorDivide(a, b) * b + mod(a, b) up to rounding. See {@link floorDivide}.
   */
  floorDivide(other: TensorLike): Tensor {
    return math.floorDivide(this, other);
  }

  /** Elementwise maximum. See {@link maximum}. */
  maximum(other: TensorLike): Tensor {
    return math.maximum(this, other);
  }

  /** Elementwise minimum. See {@link minimum}. */
  minimum(other: TensorLike): Tensor {
    return math.minimum(this, other);
  }

  /** Elementwise angle of the point (x, y) in (-pi, pi]. See {@link atan2}. */
  atan2(other: TensorLike): Tensor {
    return math.atan2(this, other);
  }

  /** Elementwise test a = b. See {@link equal}. */
  equal(other: TensorLike): Tensor {
    return math.equal(this, other);
  }

  /** Elementwise test a != b. See {@link notEqual}. */
  notEqual(other: TensorLike): Tensor {
    return math.notEqual(this, other);
  }

  /** Elementwise test a < b. See {@link less}. */
  less(other: TensorLike): Tensor {
    return math.less(this, other);
  }

  /** Elementwise test a <= b. See {@link lessEqual}. */
  lessEqual(other: TensorLike): Tensor {
    return math.lessEqual(this, other);
  }

  /** Elementwise test a > b. See {@link greater}. */
  greater(other: TensorLike): Tensor {
    return math.greater(this, other);
  }

  /** Elementwise test a >= b. See {@link greaterEqual}. */
  greaterEqual(other: TensorLike): Tensor {
    return math.greaterEqual(this, other);
  }

  /** Elementwise logical AND. See {@link logicalAnd}. */
  logicalAnd(other: TensorLike): Tensor {
    return math.logicalAnd(this, other);
  }

  /** Elementwise logical OR. See {@link logicalOr}. */
  logicalOr(other: TensorLike): Tensor {
    return math.logicalOr(this, other);
  }

  /** Elementwise logical XOR. See {@link logicalXor}. */
  logicalXor(other: TensorLike): Tensor {
    return math.logicalXor(this, other);
  }

  /** Elementwise bitwise AND of integers. See {@link bitwiseAnd}. */
  bitwiseAnd(other: TensorLike): Tensor {
    return math.bitwiseAnd(this, other);
  }

  /** Elementwise bitwise OR of integers. See {@link bitwiseOr}. */
  bitwiseOr(other: TensorLike): Tensor {
    return math.bitwiseOr(this, other);
  }

  /** Elementwise bitwise XOR of integers. See {@link bitwiseXor}. */
  bitwiseXor(other: TensorLike): Tensor {
    return math.bitwiseXor(this, other);
  }

  // Functions of one argument

  /** Elementwise negation. See {@link neg}. */
  neg(): Tensor {
    return math.neg(this);
  }

  /** Elementwise absolute value, the modulus of complex numbers. See {@link abs}. */
  abs(): Tensor {
    return math.abs(this);
  }

  /** Elementwise sign. See {@link sign}. */
  sign(): Tensor {
    return math.sign(this);
  }

  /** Elementwise floor. See {@link floor}. */
  floor(): Tensor {
    return math.floor(this);
  }

  /** Elementwise ceiling. See {@link ceil}. */
  ceil(): Tensor {
    return math.ceil(this);
  }

  /** Elementwise rounding to a number of decimals, by default 0; halves go to the even neighbor. See {@link round}. */
  round(decimals?: number): Tensor {
    return math.round(this, decimals);
  }

  /** Elementwise truncation toward zero. See {@link trunc}. */
  trunc(): Tensor {
    return math.trunc(this);
  }

  /** Elementwise square root. See {@link sqrt}. */
  sqrt(): Tensor {
    return math.sqrt(this);
  }

  /** Elementwise reciprocal square root. See {@link rsqrt}. */
  rsqrt(): Tensor {
    return math.rsqrt(this);
  }

  /** Elementwise reciprocal. See {@link reciprocal}. */
  reciprocal(): Tensor {
    return math.reciprocal(this);
  }

  /** Elementwise square. See {@link square}. */
  square(): Tensor {
    return math.square(this);
  }

  /** Elementwise exponential. See {@link exp}. */
  exp(): Tensor {
    return math.exp(this);
  }

  /** Elementwise exp(x) - 1, accurate near 0. See {@link expm1}. */
  expm1(): Tensor {
    return math.expm1(this);
  }

  /** Elementwise natural logarithm. See {@link log}. */
  log(): Tensor {
    return math.log(this);
  }

  /** Elementwise log(1 + x), accurate near 0. See {@link log1p}. */
  log1p(): Tensor {
    return math.log1p(this);
  }

  /** Elementwise base-2 logarithm. See {@link log2}. */
  log2(): Tensor {
    return math.log2(this);
  }

  /** Elementwise base-10 logarithm. See {@link log10}. */
  log10(): Tensor {
    return math.log10(this);
  }

  /** Elementwise sine. See {@link sin}. */
  sin(): Tensor {
    return math.sin(this);
  }

  /** Elementwise cosine. See {@link cos}. */
  cos(): Tensor {
    return math.cos(this);
  }

  /** Elementwise tangent. See {@link tan}. */
  tan(): Tensor {
    return math.tan(this);
  }

  /** Elementwise inverse sine. See {@link asin}. */
  asin(): Tensor {
    return math.asin(this);
  }

  /** Elementwise inverse cosine. See {@link acos}. */
  acos(): Tensor {
    return math.acos(this);
  }

  /** Elementwise inverse tangent. See {@link atan}. */
  atan(): Tensor {
    return math.atan(this);
  }

  /** Elementwise hyperbolic sine. See {@link sinh}. */
  sinh(): Tensor {
    return math.sinh(this);
  }

  /** Elementwise hyperbolic cosine. See {@link cosh}. */
  cosh(): Tensor {
    return math.cosh(this);
  }

  /** Elementwise hyperbolic tangent. See {@link tanh}. */
  tanh(): Tensor {
    return math.tanh(this);
  }

  /** Elementwise error function. See {@link erf}. */
  erf(): Tensor {
    return math.erf(this);
  }

  /** Elementwise real part. See {@link real}. */
  real(): Tensor {
    return math.real(this);
  }

  /** Elementwise imaginary part. See {@link imag}. */
  imag(): Tensor {
    return math.imag(this);
  }

  /** Elementwise complex conjugate. See {@link conj}. */
  conj(): Tensor {
    return math.conj(this);
  }

  /** Elementwise phase in (-pi, pi]. See {@link angle}. */
  angle(): Tensor {
    return math.angle(this);
  }

  /** Elementwise logical NOT. See {@link logicalNot}. */
  logicalNot(): Tensor {
    return math.logicalNot(this);
  }

  /** Elementwise test for NaN. See {@link isNaN}. */
  isNaN(): Tensor {
    return math.isNaN(this);
  }

  /** Elementwise test for finite numbers. See {@link isFinite}. */
  isFinite(): Tensor {
    return math.isFinite(this);
  }

  /** max(x, 0). See {@link relu}. */
  relu(): Tensor {
    return nn.relu(this);
  }

  /** 1 / (1 + exp(-x)), evaluated without overflow and accurate in both tails. See {@link sigmoid}. */
  sigmoid(): Tensor {
    return nn.sigmoid(this);
  }

  /** x sigmoid(x), also called swish; evaluated without premature underflow. See {@link silu}. */
  silu(): Tensor {
    return nn.silu(this);
  }

  /** Gaussian error linear unit x Phi(x); `approximate` uses the tanh formula. See {@link gelu}. */
  gelu(options?: { approximate?: boolean }): Tensor {
    return nn.gelu(this, options);
  }

  /** Softmax along an axis, the last by default. See {@link softmax}. */
  softmax(axis?: number | readonly number[]): Tensor {
    return nn.softmax(this, axis);
  }

  /** Logarithm of the softmax along an axis, the last by default. See {@link logSoftmax}. */
  logSoftmax(axis?: number | readonly number[]): Tensor {
    return nn.logSoftmax(this, axis);
  }

  /** Converts to another dtype. See {@link cast}. */
  cast(dtype: DType): Tensor {
    return math.cast(this, dtype);
  }

  /** Limits values to [low, high]. See {@link clip}. */
  clip(low: TensorLike | null, high: TensorLike | null): Tensor {
    return math.clip(this, low, high);
  }

  /** Keeps the elements where the condition holds and takes those of `other` elsewhere. See {@link where}. */
  where(condition: TensorLike, other: TensorLike): Tensor {
    return math.where(condition, this, other);
  }

  // Reductions

  /** Sum over axes, by default all. See {@link sum}. */
  sum(axes?: reduce.Axes, options?: reduce.SumOptions): Tensor {
    return reduce.sum(this, axes, options);
  }

  /** Product over axes, by default all. See {@link prod}. */
  prod(axes?: reduce.Axes, options?: reduce.SumOptions): Tensor {
    return reduce.prod(this, axes, options);
  }

  /** Mean over axes, by default all. See {@link mean}. */
  mean(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.mean(this, axes, options);
  }

  /** Maximum over axes, by default all. See {@link max}. */
  max(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.max(this, axes, options);
  }

  /** Minimum over axes, by default all. See {@link min}. */
  min(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.min(this, axes, options);
  }

  /** Whether any element along the axes is nonzero. See {@link any}. */
  any(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.any(this, axes, options);
  }

  /** Whether all elements along the axes are nonzero. See {@link all}. */
  all(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.all(this, axes, options);
  }

  /** log(sum(exp(x))) over axes, evaluated without overflow. See {@link logsumexp}. */
  logsumexp(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.logsumexp(this, axes, options);
  }

  /** Variance over axes. See {@link variance}. */
  var(axes?: reduce.Axes, options?: reduce.VarOptions): Tensor {
    return reduce.variance(this, axes, options);
  }

  /** Standard deviation over axes: the square root of the {@link variance}. See {@link std}. */
  std(axes?: reduce.Axes, options?: reduce.VarOptions): Tensor {
    return reduce.std(this, axes, options);
  }

  /** Index (int32) of the first maximum, of the flattened tensor or along one axis. See {@link argmax}. */
  argmax(axis?: number, options?: reduce.ReduceOptions): Tensor {
    return reduce.argmax(this, axis, options);
  }

  /** Index (int32) of the first minimum, of the flattened tensor or along one axis. See {@link argmin}. */
  argmin(axis?: number, options?: reduce.ReduceOptions): Tensor {
    return reduce.argmin(this, axis, options);
  }

  /** Cumulative sum along an axis. See {@link cumsum}. */
  cumsum(axis?: number, options?: cumulative.CumulativeOptions): Tensor {
    return cumulative.cumsum(this, axis, options);
  }

  /** Cumulative product along an axis. See {@link cumprod}. */
  cumprod(axis?: number, options?: cumulative.CumulativeOptions): Tensor {
    return cumulative.cumprod(this, axis, options);
  }

  /** 2-norm (the default; Frobenius norm of a matrix), 1-norm or maximum magnitude over the axes. See {@link norm}. */
  norm(axes?: reduce.Axes, options?: { order?: 1 | 2 | "max"; keepDims?: boolean }): Tensor {
    return linalg.norm(this, axes, options);
  }

  // Shape

  /** Same elements in the same order with another shape. See {@link reshape}. */
  reshape(shape: Shape): Tensor {
    return shaping.reshape(this, shape);
  }

  /** Permutes the axes: axis i of the result is axis order[i] of x. See {@link permute}. */
  permute(order: readonly number[]): Tensor {
    return shaping.permute(this, order);
  }

  /** Swaps two axes, by default the last two. See {@link transpose}. */
  transpose(a?: number, b?: number): Tensor {
    return shaping.transpose(this, a, b);
  }

  /** Transpose of the last two axes. See {@link transpose}. */
  get T(): Tensor {
    return shaping.transpose(this);
  }

  /** Broadcasts to a shape; -1 keeps a size. See {@link expand}. */
  expand(shape: Shape): Tensor {
    return shaping.expand(this, shape);
  }

  /** Removes axes of size 1: all of them, or the given ones. See {@link squeeze}. */
  squeeze(axes?: number | readonly number[]): Tensor {
    return shaping.squeeze(this, axes);
  }

  /** Inserts an axis of size 1. See {@link unsqueeze}. */
  unsqueeze(axis: number): Tensor {
    return shaping.unsqueeze(this, axis);
  }

  /** Merges the axes from `start` to `end`, by default all, into one. See {@link flatten}. */
  flatten(start?: number, end?: number): Tensor {
    return shaping.flatten(this, start, end);
  }

  /** Pads axes by zeros, a value or elements of the tensor: one [before, after] per axis. See {@link pad}. */
  pad(amounts: readonly (readonly [number, number])[], options?: number | PadOptions): Tensor {
    return padding.pad(this, amounts, options);
  }

  /** Reverses the order of the elements along axes, by default along all axes. See {@link flip}. */
  flip(axes?: number | readonly number[]): Tensor {
    return shaping.flip(this, axes);
  }

  /** Splits along an axis into a number of equal pieces, or into pieces of the given sizes. See {@link split}. */
  split(pieces: number | readonly number[], axis?: number): Tensor[] {
    return shaping.split(this, pieces, axis);
  }

  /** Repeats the whole tensor along each axis. See {@link tile}. */
  tile(repeats: readonly number[]): Tensor {
    return shaping.tile(this, repeats);
  }

  /** Shifts elements cyclically along an axis. See {@link roll}. */
  roll(shift: number | readonly number[], axis?: number | readonly number[] | null): Tensor {
    return shaping.roll(this, shift, axis);
  }

  /** Slices every axis: start, start + step, ... below stop. See {@link slice}. */
  slice(start: readonly number[], stop: readonly number[], step?: readonly number[]): Tensor {
    return shaping.slice(this, start, stop, step);
  }

  // Indexing

  /** Basic and integer-array indexing with the rules of NumPy, as in `index(x, 0, "1:5", null)`. See {@link index}. */
  index(...specs: indexing.IndexSpec[]): Tensor {
    return indexing.index(this, ...specs);
  }

  /** Elements at the given indices of one axis, or of the flattened tensor if no axis is given. See {@link take}. */
  take(indices: Tensor | readonly number[], axis?: number): Tensor {
    return indexing.take(this, indices, axis);
  }

  /** Selects one element per index along an axis: out[i][j] = x[i][indices[i][j]]. See {@link gather}. */
  gather(indices: Tensor, axis?: number): Tensor {
    return indexing.gather(this, indices, axis);
  }

  /** Adds updates to x at the indices along an axis. See {@link scatterAdd}. */
  scatterAdd(indices: Tensor, updates: Tensor, axis?: number): Tensor {
    return indexing.scatterAdd(this, indices, updates, axis);
  }

  /** Sorts the elements along an axis. See {@link sort}. */
  sort(axis?: number, options?: indexing.SortOptions): Tensor {
    return indexing.sort(this, axis, options);
  }

  /** Indices (int32) that sort an axis. See {@link argsort}. */
  argsort(axis?: number, options?: indexing.SortOptions): Tensor {
    return indexing.argsort(this, axis, options);
  }

  /** The k largest elements along an axis, largest first, and their indices. See {@link topk}. */
  topk(k: number, axis?: number): { values: Tensor; indices: Tensor } {
    return indexing.topk(this, k, axis);
  }

  /** Elements where a condition holds. See {@link mask}. */
  mask(condition: TensorLike): Tensor {
    return selection.mask(this, condition);
  }

  /** Copy with other values where a condition holds. See {@link setMask}. */
  setMask(condition: TensorLike, values: TensorLike): Tensor {
    return selection.setMask(this, condition, values);
  }

  /** Repeats every element along an axis. See {@link repeat}. */
  repeat(repeats: number | readonly number[] | Tensor, axis?: number): Tensor {
    return selection.repeat(this, repeats, axis);
  }

  // Matrices

  /** Matrix product with the rules of NumPy: 1D operands are vectors, leading axes broadcast. See {@link matmul}. */
  matmul(other: TensorLike, options?: ProductOptions): Tensor {
    return einsum.matmul(this, other, options);
  }

  /** Conjugate transpose of the last two axes. See {@link adjoint}. */
  adjoint(): Tensor {
    return linalg.adjoint(this);
  }

  /** Matrix inverse. See {@link inv}. */
  inv(): Tensor {
    return linalg.inv(this);
  }

  /** Determinant. See {@link det}. */
  det(): Tensor {
    return linalg.det(this);
  }

  /** Lower Cholesky factor l of a Hermitian positive definite matrix, a = l l^H. See {@link cholesky}. */
  cholesky(): Tensor {
    return linalg.cholesky(this);
  }

  /** Sum of the main diagonal of the last two axes. See {@link trace}. */
  trace(): Tensor {
    return linalg.trace(this);
  }

  /** Main diagonal of the last two axes. See {@link diagonal}. */
  diagonal(): Tensor {
    return linalg.diagonal(this);
  }
}
