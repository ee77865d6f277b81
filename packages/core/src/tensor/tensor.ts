// The Tensor that users touch: a handle on a graph node. Nothing is consumed; values are computed when asked for.
// Methods are thin: each names the function of the same name.
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
import type { ProductOptions } from "./precision.js";
import * as reduce from "./reduce.js";
import * as shaping from "./shape.js";

/** Numbers as users read them: half types widened to float32, complex numbers as interleaved pairs. */
export type Data = Uint8Array | Int32Array | BigInt64Array | Float32Array | Float64Array;
export type NestedData = number | bigint | boolean | ComplexNumber | NestedData[];

function widen(dtype: DType, raw: Storage): Data {
  if (dtype === "float16") return Float32Array.from(raw as Uint16Array, float16Value);
  if (dtype === "bfloat16") return Float32Array.from(raw as Uint16Array, bfloat16Value);
  return raw as Data;
}

export class Tensor {
  readonly #node: Node;
  #signature: string | null = null;
  /** Says where the user disposed of it. */
  #disposed: (() => string | null) | null = null;

  /** Internal: users make tensors with weft.tensor, weft.zeros, weft.randn and so on. */
  constructor(node: Node) {
    this.#node = node;
    if (memory.recordSites) recordSite(node, memory.callSite());
  }

  /** Internal: the graph node behind the handle. Throws once the tensor is disposed, computed or not. */
  get node(): Node {
    if (this.#disposed !== null) throw this.#gone(this.#disposed);
    return this.#node;
  }

  #gone(disposed: () => string | null): WeftError {
    const { op } = this.#node;
    const site = siteOf(this.#node);
    const what = `${this.dtype}${showShape(this.shape)} tensor (${op}${site === null ? "" : `, made at ${site}`})`;
    const where = disposed();
    return new WeftError(
      `this ${what} was disposed${where === null ? "" : ` at ${where}`}; use it before it is disposed, or dispose of it later`,
    );
  }

  get shape(): Shape {
    return this.#node.shape;
  }
  get dtype(): DType {
    return this.#node.dtype;
  }
  get rank(): number {
    return this.#node.shape.length;
  }
  /** The number of elements. */
  get size(): number {
    return numel(this.#node.shape);
  }
  /** Shape and dtype as text; what jit keys its programs by. */
  get signature(): string {
    this.#signature ??= `;${this.#node.dtype}${this.#node.shape.join("x")}`;
    return this.#signature;
  }

  // Values

  /** Computes the tensor now, without reading it. */
  realize(): this {
    session().realize([this.node]);
    return this;
  }

  /** The stored bytes as they are: half types as bits. */
  rawSync(): Storage {
    session().realize([this.node], true);
    return session().download(this.node.value as TensorValue);
  }

  /**
   * A copy of the elements, row-major. `into`: an array from an earlier call, of this dtype and size, that is filled and
   * returned instead of a new one; on a GPU that is the fastest way to read large results again and again.
   */
  dataSync(into?: Data): Data {
    if (into === undefined) return widen(this.dtype, this.rawSync());
    this.#requireFit("dataSync", into);
    session().realize([this.node], true);
    return session().download(this.node.value as TensorValue, into as Storage) as Data;
  }

  #requireFit(name: string, into: Data): void {
    const expected = makeStorage(this.dtype, 0);
    const length = this.size * (isComplex(this.dtype) ? 2 : 1);
    if (isHalf(this.dtype) || into.constructor !== expected.constructor || into.length !== length)
      throw new DTypeError(
        `${name}: cannot put ${this.dtype}${showShape(this.shape)} into a ${into.constructor.name} of ${into.length} elements; ` +
          (isHalf(this.dtype)
            ? "half types are widened on the way and need a new array"
            : `it needs a ${expected.constructor.name} of ${length}`),
      );
  }

  /** The same without holding up the program meanwhile; nothing else may write `into` until it is there. */
  async data(into?: Data): Promise<Data> {
    if (into !== undefined) this.#requireFit("data", into);
    session().realize([this.node], true);
    const value = this.node.value as TensorValue;
    if (into !== undefined) return (await session().downloadAsync(value, into as Storage)) as Data;
    return widen(this.dtype, await session().downloadAsync(value));
  }

  /** The one element of a tensor of size 1, as a number (truth as 0 or 1; array() keeps all digits of int64). */
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

  async item(): Promise<number> {
    this.#requireOne();
    return Number((await this.data())[0]);
  }

  /** Nested arrays of numbers (booleans, bigints for int64, { re, im } for complex dtypes). */
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

  async array(): Promise<NestedData> {
    return this.#nested(await this.data());
  }

  toString(): string {
    return format(this);
  }

  // Lifetime

  /** Frees the memory now (pending work that reads this tensor still gets its value). The tensor cannot be used afterwards. */
  dispose(): void {
    this.#disposed ??= captureSite();
    (this.#node.value as TensorValue | null)?.release();
  }

  [Symbol.dispose](): void {
    this.dispose();
  }

  // Arithmetic and comparison

  add(other: TensorLike): Tensor {
    return math.add(this, other);
  }
  sub(other: TensorLike): Tensor {
    return math.sub(this, other);
  }
  mul(other: TensorLike): Tensor {
    return math.mul(this, other);
  }
  div(other: TensorLike): Tensor {
    return math.div(this, other);
  }
  mod(other: TensorLike): Tensor {
    return math.mod(this, other);
  }
  pow(other: TensorLike): Tensor {
    return math.pow(this, other);
  }
  floorDivide(other: TensorLike): Tensor {
    return math.floorDivide(this, other);
  }
  maximum(other: TensorLike): Tensor {
    return math.maximum(this, other);
  }
  minimum(other: TensorLike): Tensor {
    return math.minimum(this, other);
  }
  atan2(other: TensorLike): Tensor {
    return math.atan2(this, other);
  }
  equal(other: TensorLike): Tensor {
    return math.equal(this, other);
  }
  notEqual(other: TensorLike): Tensor {
    return math.notEqual(this, other);
  }
  less(other: TensorLike): Tensor {
    return math.less(this, other);
  }
  lessEqual(other: TensorLike): Tensor {
    return math.lessEqual(this, other);
  }
  greater(other: TensorLike): Tensor {
    return math.greater(this, other);
  }
  greaterEqual(other: TensorLike): Tensor {
    return math.greaterEqual(this, other);
  }
  logicalAnd(other: TensorLike): Tensor {
    return math.logicalAnd(this, other);
  }
  logicalOr(other: TensorLike): Tensor {
    return math.logicalOr(this, other);
  }
  logicalXor(other: TensorLike): Tensor {
    return math.logicalXor(this, other);
  }
  bitwiseAnd(other: TensorLike): Tensor {
    return math.bitwiseAnd(this, other);
  }
  bitwiseOr(other: TensorLike): Tensor {
    return math.bitwiseOr(this, other);
  }
  bitwiseXor(other: TensorLike): Tensor {
    return math.bitwiseXor(this, other);
  }

  // Functions of one argument

  neg(): Tensor {
    return math.neg(this);
  }
  abs(): Tensor {
    return math.abs(this);
  }
  sign(): Tensor {
    return math.sign(this);
  }
  floor(): Tensor {
    return math.floor(this);
  }
  ceil(): Tensor {
    return math.ceil(this);
  }
  round(): Tensor {
    return math.round(this);
  }
  trunc(): Tensor {
    return math.trunc(this);
  }
  sqrt(): Tensor {
    return math.sqrt(this);
  }
  rsqrt(): Tensor {
    return math.rsqrt(this);
  }
  reciprocal(): Tensor {
    return math.reciprocal(this);
  }
  square(): Tensor {
    return math.square(this);
  }
  exp(): Tensor {
    return math.exp(this);
  }
  expm1(): Tensor {
    return math.expm1(this);
  }
  log(): Tensor {
    return math.log(this);
  }
  log1p(): Tensor {
    return math.log1p(this);
  }
  log2(): Tensor {
    return math.log2(this);
  }
  log10(): Tensor {
    return math.log10(this);
  }
  sin(): Tensor {
    return math.sin(this);
  }
  cos(): Tensor {
    return math.cos(this);
  }
  tan(): Tensor {
    return math.tan(this);
  }
  asin(): Tensor {
    return math.asin(this);
  }
  acos(): Tensor {
    return math.acos(this);
  }
  atan(): Tensor {
    return math.atan(this);
  }
  sinh(): Tensor {
    return math.sinh(this);
  }
  cosh(): Tensor {
    return math.cosh(this);
  }
  tanh(): Tensor {
    return math.tanh(this);
  }
  erf(): Tensor {
    return math.erf(this);
  }
  real(): Tensor {
    return math.real(this);
  }
  imag(): Tensor {
    return math.imag(this);
  }
  conj(): Tensor {
    return math.conj(this);
  }
  angle(): Tensor {
    return math.angle(this);
  }
  logicalNot(): Tensor {
    return math.logicalNot(this);
  }
  isNaN(): Tensor {
    return math.isNaN(this);
  }
  isFinite(): Tensor {
    return math.isFinite(this);
  }

  relu(): Tensor {
    return nn.relu(this);
  }
  sigmoid(): Tensor {
    return nn.sigmoid(this);
  }
  silu(): Tensor {
    return nn.silu(this);
  }

  gelu(options?: { approximate?: boolean }): Tensor {
    return nn.gelu(this, options);
  }
  softmax(axis?: number): Tensor {
    return nn.softmax(this, axis);
  }
  logSoftmax(axis?: number): Tensor {
    return nn.logSoftmax(this, axis);
  }
  cast(dtype: DType): Tensor {
    return math.cast(this, dtype);
  }
  clip(low: TensorLike | null, high: TensorLike | null): Tensor {
    return math.clip(this, low, high);
  }
  /** Where the condition holds this tensor, elsewhere the other one. */
  where(condition: TensorLike, other: TensorLike): Tensor {
    return math.where(condition, this, other);
  }

  // Reductions

  sum(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.sum(this, axes, options);
  }
  prod(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.prod(this, axes, options);
  }
  mean(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.mean(this, axes, options);
  }
  max(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.max(this, axes, options);
  }
  min(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.min(this, axes, options);
  }
  any(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.any(this, axes, options);
  }
  all(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.all(this, axes, options);
  }
  logsumexp(axes?: reduce.Axes, options?: reduce.ReduceOptions): Tensor {
    return reduce.logsumexp(this, axes, options);
  }
  var(axes?: reduce.Axes, options?: reduce.VarOptions): Tensor {
    return reduce.variance(this, axes, options);
  }
  std(axes?: reduce.Axes, options?: reduce.VarOptions): Tensor {
    return reduce.std(this, axes, options);
  }
  argmax(axis?: number, options?: reduce.ReduceOptions): Tensor {
    return reduce.argmax(this, axis, options);
  }
  argmin(axis?: number, options?: reduce.ReduceOptions): Tensor {
    return reduce.argmin(this, axis, options);
  }
  cumsum(axis?: number): Tensor {
    return reduce.cumsum(this, axis);
  }
  norm(axes?: reduce.Axes, options?: { order?: 1 | 2 | "max"; keepDims?: boolean }): Tensor {
    return linalg.norm(this, axes, options);
  }

  // Shape

  reshape(shape: Shape): Tensor {
    return shaping.reshape(this, shape);
  }
  permute(order: readonly number[]): Tensor {
    return shaping.permute(this, order);
  }
  transpose(a?: number, b?: number): Tensor {
    return shaping.transpose(this, a, b);
  }
  get T(): Tensor {
    return shaping.transpose(this);
  }
  expand(shape: Shape): Tensor {
    return shaping.expand(this, shape);
  }
  squeeze(axes?: number | readonly number[]): Tensor {
    return shaping.squeeze(this, axes);
  }
  unsqueeze(axis: number): Tensor {
    return shaping.unsqueeze(this, axis);
  }
  flatten(start?: number, end?: number): Tensor {
    return shaping.flatten(this, start, end);
  }
  pad(amounts: readonly (readonly [number, number])[], value?: number): Tensor {
    return shaping.pad(this, amounts, value);
  }
  flip(axes?: number | readonly number[]): Tensor {
    return shaping.flip(this, axes);
  }
  split(pieces: number | readonly number[], axis?: number): Tensor[] {
    return shaping.split(this, pieces, axis);
  }
  tile(repeats: readonly number[]): Tensor {
    return shaping.tile(this, repeats);
  }
  roll(shift: number, axis?: number): Tensor {
    return shaping.roll(this, shift, axis);
  }
  slice(start: readonly number[], stop: readonly number[], step?: readonly number[]): Tensor {
    return shaping.slice(this, start, stop, step);
  }

  // Indexing

  index(...specs: indexing.IndexSpec[]): Tensor {
    return indexing.index(this, ...specs);
  }
  take(indices: Tensor | readonly number[], axis?: number): Tensor {
    return indexing.take(this, indices, axis);
  }
  gather(indices: Tensor, axis?: number): Tensor {
    return indexing.gather(this, indices, axis);
  }
  scatterAdd(indices: Tensor, updates: Tensor, axis?: number): Tensor {
    return indexing.scatterAdd(this, indices, updates, axis);
  }
  sort(axis?: number, options?: indexing.SortOptions): Tensor {
    return indexing.sort(this, axis, options);
  }
  argsort(axis?: number, options?: indexing.SortOptions): Tensor {
    return indexing.argsort(this, axis, options);
  }
  topk(k: number, axis?: number): { values: Tensor; indices: Tensor } {
    return indexing.topk(this, k, axis);
  }

  // Matrices

  matmul(other: TensorLike, options?: ProductOptions): Tensor {
    return einsum.matmul(this, other, options);
  }
  adjoint(): Tensor {
    return linalg.adjoint(this);
  }
  inv(): Tensor {
    return linalg.inv(this);
  }
  det(): Tensor {
    return linalg.det(this);
  }
  cholesky(): Tensor {
    return linalg.cholesky(this);
  }
  trace(): Tensor {
    return linalg.trace(this);
  }
  diagonal(): Tensor {
    return linalg.diagonal(this);
  }
}
