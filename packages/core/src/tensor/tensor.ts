// The Tensor class: a handle on a graph node. Methods call the function of the same name.
import {
  bfloat16Value,
  type DType,
  DTypeError,
  float16Value,
  isComplex,
  isHalf,
  makeStorage,
  type Node,
  numel,
  recordSite,
  type Shape,
  ShapeError,
  type Storage,
  showShape,
  showValue,
  siteOf,
  WeftError,
} from "../graph/index.js";
import { captureSite, memory, session, type TensorValue } from "../runtime/index.js";
import type { ComplexNumber, TensorLike } from "./convert.js";
import * as einsum from "./einsum.js";
import { format } from "./format.js";
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

/** Elements as typed arrays: half types are widened to float32, complex numbers are interleaved pairs. */
export type Data = Storage;

/** Typed arrays by dtype, where they are not Float32Array. */
interface TypedArrays {
  bool: Uint8Array;
  int8: Int8Array;
  uint8: Uint8Array;
  int16: Int16Array;
  uint16: Uint16Array;
  int32: Int32Array;
  uint32: Uint32Array;
  int64: BigInt64Array;
  uint64: BigUint64Array;
  float64: Float64Array;
  complex128: Float64Array;
}
/** Typed array that holds the elements of a tensor of a dtype. */
export type DataOf<D extends DType> = D extends keyof TypedArrays ? TypedArrays[D] : Float32Array;
/** Elements as nested arrays. */
export type NestedData = number | bigint | boolean | ComplexNumber | NestedData[];

function widen(dtype: DType, raw: Storage): Data {
  if (dtype === "float16") return Float32Array.from(raw as Uint16Array, float16Value);
  if (dtype === "bfloat16") return Float32Array.from(raw as Uint16Array, bfloat16Value);
  return raw as Data;
}

/** The site of a disposal when sites are not recorded. */
const unrecorded = (): null => null;

/**
 * An n-dimensional array with a dtype on a device. Operations are lazy: they build a graph, and a value is computed when it is
 * read. Create tensors with {@link tensor}, {@link zeros}, {@link randn} and so on.
 */
export class Tensor<D extends DType = DType> {
  readonly #node: Node;
  #signature: string | null = null;
  /** Location of the dispose() call; null if the tensor is not disposed. */
  #disposed: (() => string | null) | null = null;
  /** Number of reads that wait for the value. */
  #reads = 0;

  /** Internal. Create tensors with {@link tensor}, {@link zeros}, {@link randn} and so on. */
  constructor(node: Node) {
    this.#node = node;
    if (memory.recordSites) recordSite(node, memory.callSite());
  }

  /** Internal: the graph node of this tensor. Throws after {@link Tensor.dispose}. */
  get node(): Node {
    if (this.#disposed !== null) throw this.#disposedError(this.#disposed);
    return this.#node;
  }

  #disposedError(disposed: () => string | null): WeftError {
    const { op } = this.#node;
    const site = siteOf(this.#node);
    const what = `${this.dtype}${showShape(this.shape)} tensor (${op}${site === null ? "" : `, made at ${site}`})`;
    const where = disposed();
    const hint = where === null ? " (WEFT_MEMORY_SITES=1 shows where)" : ` at ${where}`;
    return new WeftError(`this ${what} was disposed${hint}; use it before it is disposed, or dispose of it later`);
  }

  /** Sizes of the axes. */
  get shape(): Shape {
    return this.#node.shape;
  }

  /** Data type of the elements. */
  get dtype(): D {
    return this.#node.dtype as D;
  }

  /**
   * This tensor with its dtype in its type, so that `t.as("float32").dataSync()[0]` is a number. Throws if it has another dtype; use
   * {@link Tensor.cast} to convert.
   */
  as<E extends DType>(dtype: E): Tensor<E> {
    if ((this.dtype as DType) !== dtype)
      throw new DTypeError(`as: this tensor is ${this.dtype}, not ${dtype}; use cast("${dtype}") to convert it`);
    return this as unknown as Tensor<E>;
  }

  /** Number of axes. */
  get rank(): number {
    return this.#node.shape.length;
  }

  /** Number of elements. */
  get size(): number {
    return numel(this.#node.shape);
  }

  /** Shape and dtype as text. Part of the cache key of jit. */
  get signature(): string {
    this.#signature ??= `;${this.#node.dtype}${this.#node.shape.join("x")}`;
    return this.#signature;
  }

  // Values

  /** Computes the value without reading it. */
  realize(): this {
    session().realize([this.node]);
    return this;
  }

  /** A copy of the stored elements; half types as bits. */
  rawSync(): Storage {
    session().realize([this.node], true);
    return session().download(this.node.value as TensorValue);
  }

  /** Blocking form of {@link Tensor.data}. */
  dataSync(into?: DataOf<D>): DataOf<D> {
    if (into === undefined) return widen(this.dtype, this.rawSync()) as DataOf<D>;
    this.#requireFit("dataSync", into);
    session().realize([this.node], true);
    return session().download(this.node.value as TensorValue, into as Storage) as DataOf<D>;
  }

  #requireFit(name: string, into: Data): void {
    const expected = makeStorage(this.dtype, 0);
    const length = this.size * (isComplex(this.dtype) ? 2 : 1);
    if (isHalf(this.dtype) || into?.constructor !== expected.constructor || into.length !== length)
      throw new DTypeError(
        `${name}: cannot put ${this.dtype}${showShape(this.shape)} into ${showValue(into)}; ` +
          (isHalf(this.dtype)
            ? "half types are widened on the way and need a new array"
            : `it needs a ${expected.constructor.name} of ${length}`),
      );
  }

  /**
   * A copy of the elements, row-major. The event loop runs while the value is computed. `into` is an array of an earlier call, of this dtype and size, to fill and return instead of
   * a new one: the fastest way to read large results of a GPU repeatedly. Do not write to it until the promise resolves.
   */
  async data(into?: DataOf<D>): Promise<DataOf<D>> {
    if (into !== undefined) this.#requireFit("data", into);
    const { node } = this;
    const current = session();
    this.#reads++;
    try {
      const computed = current.realizeAsync([node]);
      if (computed !== null) await computed;
      const data = await current.downloadAsync(node.value as TensorValue, into as Storage | undefined);
      return into ?? (widen(this.dtype, data) as DataOf<D>);
    } finally {
      this.#reads--;
      if (this.#disposed !== null) this.#release();
    }
  }

  /** Blocking form of {@link Tensor.item}. */
  itemSync(): number {
    this.#requireOne();
    return Number(this.dataSync()[0]);
  }

  #requireOne(): void {
    if (this.size !== 1)
      throw new ShapeError(`item: needs one element, got shape ${showShape(this.shape)}; use array() or data()`);
    if (isComplex(this.dtype))
      throw new DTypeError(
        `item: a ${this.dtype} element is two numbers; use real(), imag() or abs() first, or array()`,
      );
  }

  /** The element of a tensor of size 1, as a number (bool as 0 or 1). array() keeps all digits of int64. */
  async item(): Promise<number> {
    this.#requireOne();
    return Number((await this.data())[0]);
  }

  /** Blocking form of {@link Tensor.array}. */
  arraySync(): NestedData {
    return this.#nested(this.dataSync());
  }

  #nested(data: Data): NestedData {
    const { dtype, shape } = this;
    const complex = isComplex(dtype);
    let next = 0;
    const build = (axis: number): NestedData => {
      if (axis < shape.length) return Array.from({ length: shape[axis] }, () => build(axis + 1));
      const i = next++;
      if (complex) return { re: Number(data[2 * i]), im: Number(data[2 * i + 1]) };
      return dtype === "bool" ? data[i] === 1 : data[i];
    };
    return build(0);
  }

  /** Elements as nested arrays: numbers, booleans, bigints (int64) or `{ re, im }` (complex dtypes). */
  async array(): Promise<NestedData> {
    return this.#nested(await this.data());
  }

  /** Formats shape, dtype and elements. */
  toString(): string {
    return format(this);
  }

  /** The number of a tensor of size 1 for arithmetic (`t > 0`, `t + 1`); text in template strings. */
  [Symbol.toPrimitive](hint: "number" | "string" | "default"): number | string {
    if (hint === "string") return this.toString();
    if (this.size !== 1)
      throw new WeftError(
        `JavaScript's operators take tensors of one element, not ${this.dtype}${showShape(this.shape)}; use add, sub, mul, div, less ...`,
      );
    return this.itemSync();
  }

  /** Elements as nested arrays for JSON.stringify; bigints that a number does not hold are strings. */
  toJSON(): unknown {
    const plain = (x: NestedData): unknown => {
      if (Array.isArray(x)) return x.map(plain);
      if (typeof x !== "bigint") return x;
      return Number.isSafeInteger(Number(x)) ? Number(x) : String(x);
    };
    return plain(this.arraySync());
  }

  /** The slices along axis 0, so that `for (const row of t)` and `[...t]` work. */
  *[Symbol.iterator](): Generator<Tensor> {
    if (this.rank === 0) throw new ShapeError("a scalar has no elements to iterate over; use item()");
    for (let i = 0; i < this.shape[0]; i++) yield indexing.index(this, i);
  }

  get [Symbol.toStringTag](): string {
    return "Tensor";
  }

  /** What console.log prints in Node: shape, dtype and elements, or the reason why there are none. */
  [Symbol.for("nodejs.util.inspect.custom")](): string {
    try {
      return `Tensor ${this.toString()}`;
    } catch {
      return `Tensor ${this.dtype}${showShape(this.shape)} without a value (${this.#disposed === null ? "traced" : "disposed"})`;
    }
  }

  // Lifetime

  /** Frees the memory now. Pending work that reads this tensor still gets its value; other use throws. */
  dispose(): void {
    // The stack of every call would cost more than the call of a small program.
    this.#disposed ??= memory.recordSites ? captureSite() : unrecorded;
    this.#release();
  }

  /** Frees the memory of a disposed tensor when no read is waiting for it. */
  #release(): void {
    if (this.#reads === 0) (this.#node.value as TensorValue | null)?.release();
  }

  /** Same as {@link Tensor.dispose}, for `using` declarations. */
  [Symbol.dispose](): void {
    this.dispose();
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
  cumsum(axis?: number, options?: reduce.CumulativeOptions): Tensor {
    return reduce.cumsum(this, axis, options);
  }

  /** Cumulative product along an axis. See {@link cumprod}. */
  cumprod(axis?: number, options?: reduce.CumulativeOptions): Tensor {
    return reduce.cumprod(this, axis, options);
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
