// What every tensor has before any operation: its node, shape and dtype, the reading of its value, and its lifetime.
// Programs with the libraries of ES2022 find Symbol.dispose through this line.
/// <reference lib="esnext.disposable" preserve="true" />
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
import { assertClosed, captureSite, isTracing, memoryManager, session, type TensorValue } from "../runtime/index.js";
import type { ComplexNumber } from "./convert.js";
import { format } from "./format.js";
import type { Tensor } from "./tensor.js";

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

/** Base of {@link Tensor}: everything but the methods that build graphs. */
export abstract class TensorHandle<D extends DType = DType> {
  readonly #node: Node;
  #signature: string | null = null;
  /** Location of the dispose() call; null if the tensor is not disposed. */
  #disposed: (() => string | null) | null = null;
  /** Number of reads that wait for the value. */
  #reads = 0;

  /** Internal. Create tensors with {@link tensor}, {@link zeros}, {@link randn} and so on. */
  constructor(node: Node) {
    this.#node = node;
    if (memoryManager.recordSites) recordSite(node, memoryManager.callSite());
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
  data(into?: DataOf<D>): Promise<DataOf<D>> {
    this.#refuseTraced();
    return this.#read(into);
  }

  /** Throws at once, and not in a promise that nobody awaits, where a traced function reads a value that it does not have yet. */
  #refuseTraced(): void {
    if (isTracing()) assertClosed([this.#node]);
  }

  async #read(into?: DataOf<D>): Promise<DataOf<D>> {
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
  item(): Promise<number> {
    this.#refuseTraced();
    return this.#readOne();
  }

  async #readOne(): Promise<number> {
    this.#requireOne();
    return Number((await this.#read())[0]);
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
  array(): Promise<NestedData> {
    this.#refuseTraced();
    return this.#read().then((data) => this.#nested(data));
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
    this.#disposed ??= memoryManager.recordSites ? captureSite() : unrecorded;
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
}
