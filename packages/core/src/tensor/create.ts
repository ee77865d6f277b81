// Creation of tensors from constants, ranges and JavaScript data.
import {
  bfloat16Bits,
  bytesOf,
  checkOptions,
  type DType,
  DTypeError,
  float16Bits,
  integerLimits,
  isBig,
  isComplex,
  kindOf,
  makeStorage,
  numel,
  type Shape,
  ShapeError,
  type Storage,
  showShape,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { dataNode, session } from "../runtime/index.js";
import { checkCount, checkDType, checkShape } from "./checks.js";
import { type ComplexNumber, checkArguments, isScalarValue, scalarNode, wrap } from "./convert.js";
import { Tensor } from "./tensor.js";

type Element = number | bigint | boolean | ComplexNumber;
/** A scalar, or nested arrays of scalars of equal lengths. */
export type NestedArray = Element | readonly NestedArray[];
/** Typed arrays that {@link tensor} accepts. */
export type TypedArray = Storage | Uint8ClampedArray;

/** Options of functions that create tensors. @inline */
export interface CreateOptions {
  /** Dtype of the elements. */
  dtype?: DType;
}
/** Typed arrays with the same bytes as a tensor. */

const typedDTypes: [new (n: number) => object, DType][] = [
  [Float32Array, "float32"],
  [Float64Array, "float64"],
  [Int8Array, "int8"],
  [Uint8Array, "uint8"],
  [Uint8ClampedArray, "uint8"],
  [Int16Array, "int16"],
  [Uint16Array, "uint16"],
  [Int32Array, "int32"],
  [Uint32Array, "uint32"],
  [BigInt64Array, "int64"],
  [BigUint64Array, "uint64"],
];

function shapeOfNested(data: NestedArray): number[] {
  const shape: number[] = [];
  for (let at: NestedArray = data; Array.isArray(at); at = at[0]) {
    shape.push(at.length);
    if (at.length === 0) break;
  }
  return shape;
}

function flatten(data: NestedArray, shape: readonly number[], out: Element[], depth = 0): void {
  if (depth === shape.length) {
    if (Array.isArray(data)) throw new ShapeError("tensor: the nested arrays have different depths");
    out.push(data as number);
    return;
  }
  if (!Array.isArray(data) || data.length !== shape[depth])
    throw new ShapeError(
      `tensor: the nested arrays are ragged; expected ${shape[depth]} elements at depth ${depth}, ` +
        `got ${Array.isArray(data) ? data.length : typeof data}`,
    );
  for (const part of data) flatten(part, shape, out, depth + 1);
}

function inferDType(elements: readonly Element[]): DType {
  if (elements.some((x) => typeof x === "object")) return "complex64";
  if (elements.length > 0 && elements.every((x) => typeof x === "bigint"))
    return elements.some((x) => x > integerLimits("int64").high) ? "uint64" : "int64";
  if (elements.some((x) => typeof x === "bigint"))
    throw new DTypeError("tensor: bigints and other numbers are mixed, and no default holds both; give the dtype");
  if (elements.length > 0 && elements.every((x) => typeof x === "boolean")) return "bool";
  return "float32";
}

/** Converts an element to an integer dtype. */
const integerWriter = (dtype: DType) => (x: number | bigint, name: () => string) => wholeNumber(x, dtype, name);

/** Converts elements to the storage of a dtype. Throws if the dtype cannot represent a number. */
const writers: Record<DType, (x: number | bigint, name: () => string) => number | bigint> = {
  bool: (x, name) => truth(x, name),
  int8: integerWriter("int8"),
  uint8: integerWriter("uint8"),
  int16: integerWriter("int16"),
  uint16: integerWriter("uint16"),
  int32: integerWriter("int32"),
  uint32: integerWriter("uint32"),
  int64: integerWriter("int64"),
  uint64: integerWriter("uint64"),
  float16: (x) => float16Bits(Number(x)),
  bfloat16: (x) => bfloat16Bits(Number(x)),
  float32: Number,
  float64: Number,
  complex64: Number,
  complex128: Number,
};

function wholeNumber(x: number | bigint, dtype: DType, name: () => string): number | bigint {
  const isWhole = typeof x === "bigint" || Number.isInteger(x);
  if (!isWhole)
    throw new DTypeError(
      `${name()} is ${x}, which is not a whole number and does not fit into ${dtype}; round it, or make a float tensor and cast it (cast truncates)`,
    );
  const { low, high } = integerLimits(dtype);
  if (x < low || x > high)
    throw new DTypeError(`${name()} is ${x}, which does not fit into ${dtype}; use a wider dtype`);
  return isBig(dtype) ? BigInt(x) : Number(x);
}

function truth(x: number | bigint, name: () => string): number {
  const value = Number(x);
  if (value !== 0 && value !== 1)
    throw new DTypeError(
      `${name()} is ${x}, which is neither true (1) nor false (0) as bool needs; compare with 0 (x.notEqual(0))`,
    );
  return value;
}

/** "element [1, 0]" for messages. */
function elementName(op: string, at: number, shape: Shape): string {
  const index: number[] = [];
  let rest = at;
  for (const size of [...shape].reverse()) {
    index.unshift(rest % size);
    rest = Math.floor(rest / size);
  }
  return `${op}: element [${index.join(", ")}]`;
}

function fill(dtype: DType, elements: ArrayLike<Element>, shape: Shape): Storage {
  const data = makeStorage(dtype, elements.length) as { [i: number]: number | bigint };
  const write = writers[dtype];
  const complex = isComplex(dtype);
  for (let i = 0; i < elements.length; i++) {
    const x = elements[i];
    if (complex) {
      data[2 * i] = typeof x === "object" ? x.re : Number(x);
      data[2 * i + 1] = typeof x === "object" ? x.im : 0;
    } else if (typeof x === "object") {
      throw new DTypeError(
        `${elementName("tensor", i, shape)} is a complex number, which does not fit into ${dtype}; use dtype complex64 or complex128`,
      );
    } else {
      data[i] = write(typeof x === "boolean" ? Number(x) : x, () => elementName("tensor", i, shape));
    }
  }
  return data as Storage;
}

/** Uploads a copy of the storage to the current device. */
export function fromStorage(shape: Shape, dtype: DType, data: Storage): Tensor {
  return new Tensor(dataNode(session().upload({ shape: [...shape], dtype }, data)));
}

/**
 * Creates a tensor from a number, nested arrays or a typed array. Numbers become float32, booleans bool, bigints int64 and
 * `{ re, im }` complex64; typed arrays keep their type. `dtype` overrides this, `shape` reshapes the elements.
 *
 * @example
 * ```ts
 * import { tensor } from "@weft/core";
 *
 * const x = tensor([[1, 2], [3, 4]]);
 * const mask = tensor([true, false]);
 * const bytes = tensor(new Uint8Array(6), { shape: [2, 3] });
 * console.log(x.shape, x.dtype, mask.dtype, bytes.shape); // [2, 2] float32 bool [2, 3]
 * console.log(await x.array()); // [[1, 2], [3, 4]]
 * ```
 */
export function tensor(data: NestedArray | TypedArray, options: CreateOptions & { shape?: Shape } = {}): Tensor {
  checkOptions("tensor", options, ["dtype", "shape"]);
  if (options.dtype !== undefined) checkDType("tensor", options.dtype);
  if (ArrayBuffer.isView(data)) {
    const own = typedDTypes.find(([type]) => data instanceof type)?.[1] ?? null;
    const dtype = options.dtype ?? own;
    if (dtype === null || data instanceof DataView)
      throw new WeftError(
        `tensor: a ${(data as object).constructor.name} says nothing about its elements; pass a typed array`,
      );
    const raw = data as Storage;
    const packedComplex = isComplex(dtype) && (own === "float32" || own === "float64");
    const packedHalf = kindOf(dtype) === "float" && raw instanceof Uint16Array;
    const elements = packedComplex ? raw.length / 2 : raw.length;
    if (!Number.isInteger(elements))
      throw new ShapeError(`tensor: ${raw.length} numbers are not pairs of real and imaginary parts for ${dtype}`);
    const shape = options.shape ?? [elements];
    checkShape("tensor", shape);
    if (numel(shape) !== elements)
      throw new ShapeError(`tensor: ${elements} elements do not fill shape ${showShape(shape)} (${numel(shape)})`);
    const same = own === dtype || packedHalf || (packedComplex && (own === "float64") === (dtype === "complex128"));
    if (same) return fromStorage(shape, dtype, raw);
    if (packedComplex)
      return fromStorage(
        shape,
        dtype,
        dtype === "complex64" ? Float32Array.from(raw as Float64Array) : Float64Array.from(raw as Float32Array),
      );
    return fromStorage(shape, dtype, fill(dtype, raw as ArrayLike<number>, shape));
  }
  const shape = shapeOfNested(data);
  const elements: Element[] = [];
  flatten(data, shape, elements);
  for (const x of elements) {
    if (typeof x !== "bigint" && !isScalarValue(x))
      throw new WeftError(`tensor: elements are numbers, booleans or { re, im }, got ${String(x)}`);
  }
  const dtype = options.dtype ?? inferDType(elements);
  const wanted = options.shape ?? shape;
  checkShape("tensor", wanted);
  if (numel(wanted) !== elements.length)
    throw new ShapeError(`tensor: ${elements.length} elements do not fill shape ${showShape(wanted)}`);
  return fromStorage(wanted, dtype, fill(dtype, elements, wanted));
}

/** Options of {@link fromBuffer}. @inline */
interface BufferOptions extends CreateOptions {
  /** Shape of the tensor; a vector of all elements by default. */
  shape?: Shape;
  /** Bytes before the first element; 0 by default. */
  offset?: number;
}

/**
 * Creates a tensor from raw bytes, as other libraries, files and workers hand them over: little-endian elements of `dtype` (float32 by
 * default) in row-major order, complex numbers as pairs. The bytes are copied.
 *
 * @example
 * ```ts
 * import { fromBuffer } from "@weft/core";
 *
 * const bytes = new Float32Array([1, 2, 3, 4]).buffer;
 * console.log(await fromBuffer(bytes, { shape: [2, 2] }).array()); // [[1, 2], [3, 4]]
 * ```
 */
export function fromBuffer(buffer: ArrayBufferLike | ArrayBufferView, options: BufferOptions = {}): Tensor {
  checkOptions("fromBuffer", options, ["dtype", "shape", "offset"]);
  const { dtype = "float32", offset = 0 } = options;
  checkDType("fromBuffer", dtype);
  const isShared = typeof SharedArrayBuffer !== "undefined" && buffer instanceof SharedArrayBuffer;
  if (!(buffer instanceof ArrayBuffer) && !isShared && !ArrayBuffer.isView(buffer))
    throw new WeftError(
      `fromBuffer: needs an ArrayBuffer or a view of one, got ${typeof buffer}; tensor() takes arrays`,
    );
  const bytes = ArrayBuffer.isView(buffer)
    ? new Uint8Array(buffer.buffer, buffer.byteOffset, buffer.byteLength)
    : new Uint8Array(buffer);
  const size = bytesOf(dtype);
  if (!Number.isInteger(offset) || offset < 0 || offset > bytes.length)
    throw new WeftError(`fromBuffer: the offset is a whole number up to the ${bytes.length} bytes, got ${offset}`);
  const shape = options.shape ?? [(bytes.length - offset) / size];
  if (options.shape === undefined && !Number.isInteger(shape[0]))
    throw new ShapeError(
      `fromBuffer: ${bytes.length - offset} bytes are not a whole number of ${dtype} (${size} bytes each)`,
    );
  checkShape("fromBuffer", shape);
  if (numel(shape) * size > bytes.length - offset)
    throw new ShapeError(
      `fromBuffer: shape ${showShape(shape)} needs ${numel(shape) * size} bytes, the buffer has ${bytes.length - offset}`,
    );
  const data = makeStorage(dtype, numel(shape));
  new Uint8Array(data.buffer).set(bytes.subarray(offset, offset + data.byteLength));
  // Any byte but 0 is true.
  return fromStorage(
    shape,
    dtype,
    dtype === "bool" ? Uint8Array.from(data as Uint8Array, (x) => Number(x !== 0)) : data,
  );
}

type FillValue = number | bigint | boolean | ComplexNumber;

function filled(op: string, shape: Shape, value: FillValue, options: CreateOptions, like?: DType): Tensor {
  checkOptions(op, options, ["dtype"]);
  checkShape(op, shape);
  if (!isScalarValue(value))
    throw new WeftError(`${op}: the value is a number, a bigint, a boolean or { re, im }, got ${String(value)}`);
  const dtype = options.dtype ?? like ?? inferDType([value]);
  checkDType(op, dtype);
  if (typeof value === "object" && !isComplex(dtype))
    throw new DTypeError(`${op}: a complex number does not fit into ${dtype}; use dtype complex64 or complex128`);
  if (typeof value === "number" || typeof value === "bigint") writers[dtype](value, () => `${op}: the value`);
  // A copy: the caller may change the array.
  return wrap(build.expandTo(scalarNode(value, dtype), [...shape]));
}

function filledLike(op: string, x: Tensor, value: FillValue, options: CreateOptions): Tensor {
  checkArguments(op, "tensor", { x });
  return filled(op, x.shape, value, options, x.dtype);
}

/** Tensor with all elements equal to a value. The dtype follows from the value unless it is given. */
export const full = (shape: Shape, value: FillValue, options: CreateOptions = {}): Tensor =>
  filled("full", shape, value, options);
/**
 * Tensor of zeros, float32 by default.
 *
 * @example
 * ```ts
 * import { zeros } from "@weft/core";
 *
 * const x = zeros([2, 3], { dtype: "float64" });
 * console.log(await x.array()); // [[0, 0, 0], [0, 0, 0]]
 * ```
 */
export const zeros = (shape: Shape, options: CreateOptions = {}): Tensor => filled("zeros", shape, 0, options);
/** Tensor of ones, float32 by default. */
export const ones = (shape: Shape, options: CreateOptions = {}): Tensor => filled("ones", shape, 1, options);
/** Tensor of zeros with the shape and dtype of another tensor. */
export const zerosLike = (x: Tensor, options: CreateOptions = {}): Tensor => filledLike("zerosLike", x, 0, options);
/** Tensor with the shape and dtype of another tensor and all elements equal to a value. */
export const fullLike = (x: Tensor, value: FillValue, options: CreateOptions = {}): Tensor =>
  filledLike("fullLike", x, value, options);
/** Tensor of a shape whose elements do not matter; they are zeros. */
export const empty = (shape: Shape, options: CreateOptions = {}): Tensor => filled("empty", shape, 0, options);
/** Tensor with the shape and dtype of another tensor whose elements do not matter; they are zeros. */
export const emptyLike = (x: Tensor, options: CreateOptions = {}): Tensor => filledLike("emptyLike", x, 0, options);
/** Tensor of ones with the shape and dtype of another tensor. */
export const onesLike = (x: Tensor, options: CreateOptions = {}): Tensor => filledLike("onesLike", x, 1, options);

/**
 * Evenly spaced numbers in [start, stop): `arange(stop)`, `arange(start, stop)` or `arange(start, stop, step)`, each with
 * options behind the numbers. The default dtype is float32, also for whole numbers.
 *
 * @example
 * ```ts
 * import { arange } from "@weft/core";
 *
 * console.log(await arange(4).array()); // [0, 1, 2, 3]
 * console.log(await arange(3, { dtype: "int32" }).array()); // [0, 1, 2]
 * console.log(await arange(1, 10, 3, { dtype: "int32" }).array()); // [1, 4, 7]
 * ```
 */
export function arange(stop: number, options?: CreateOptions): Tensor;
export function arange(start: number, stop: number, options?: CreateOptions): Tensor;
export function arange(start: number, stop?: number, step?: number, options?: CreateOptions): Tensor;
export function arange(start: number, ...rest: readonly (number | CreateOptions | undefined)[]): Tensor {
  // Options follow the last number.
  const at = rest.findIndex((x) => typeof x === "object");
  const options = (at < 0 ? {} : rest[at]) as CreateOptions;
  const [stop, step = 1] = (at < 0 ? rest : rest.slice(0, at)) as (number | undefined)[];
  checkOptions("arange", options, ["dtype"]);
  const [from, to] = stop === undefined ? [0, start] : [start, stop];
  if (step === 0 || ![from, to, step].every(Number.isFinite))
    throw new WeftError(
      `arange: start ${String(from)}, stop ${String(to)}, step ${String(step)}: step must not be 0, all must be finite numbers`,
    );
  const dtype = options.dtype ?? "float32";
  checkDType("arange", dtype);
  const n = Math.max(0, Math.ceil((to - from) / step));
  checkShape("arange", [n]);
  if (kindOf(dtype) === "int" || kindOf(dtype) === "bool")
    for (const [name, x] of Object.entries({ start: from, step, "last element": from + Math.max(0, n - 1) * step }))
      writers[name === "step" ? "int64" : dtype](x, () => `arange: the ${name}`);
  // Narrow and unsigned integers are counted in a signed dtype, because steps may be negative.
  const wide = countingDType(dtype);
  const index = build.iota([n], 0, wide);
  return wrap(build.cast(build.shift(build.scale(index, step), from), dtype));
}

/** The dtype in which the elements of a range are computed, before they are rounded or wrapped. */
function countingDType(dtype: DType): DType {
  if (kindOf(dtype) === "float") return dtype === "float64" ? "float64" : "float32";
  if (kindOf(dtype) === "complex") return dtype;
  return isBig(dtype) || dtype === "uint32" ? "int64" : "int32";
}

/** `count` evenly spaced numbers from start to stop, both included unless `endpoint` is false. Integers are rounded down. */
export function linspace(
  start: number,
  stop: number,
  count: number,
  options: CreateOptions & { endpoint?: boolean } = {},
): Tensor {
  checkOptions("linspace", options, ["dtype", "endpoint"]);
  checkArguments("linspace", "number", { start, stop });
  checkCount("linspace", count);
  const dtype = options.dtype ?? "float32";
  checkDType("linspace", dtype);
  const last = options.endpoint === false ? count : count - 1;
  const step = last > 0 ? (stop - start) / last : 0;
  const toElement = kindOf(dtype) === "int" ? Math.floor : (x: number): number => x;
  const data = Float64Array.from({ length: count }, (_, i) =>
    toElement(i === last && count > 1 ? stop : start + i * step),
  );
  // A typed array of a complex dtype would be taken as pairs of parts.
  return tensor(isComplex(dtype) ? Array.from(data) : data, { dtype });
}

/** Identity matrix [n, n], or [n, columns] with ones on diagonal `k`: 0 is the main one, 1 the one above it. */
export function eye(n: number, options: CreateOptions & { columns?: number; k?: number } = {}): Tensor {
  checkOptions("eye", options, ["dtype", "columns", "k"]);
  const shape = [n, options.columns ?? n];
  checkShape("eye", shape);
  checkDType("eye", options.dtype ?? "float32");
  const { k = 0 } = options;
  if (!Number.isInteger(k)) throw new ShapeError(`eye: k is the number of a diagonal, a whole number, got ${k}`);
  const same = build.eq(build.shift(build.iota(shape, 0, "int32"), k), build.iota(shape, 1, "int32"));
  return wrap(build.cast(same, options.dtype ?? "float32"));
}
