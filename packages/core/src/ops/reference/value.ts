// Values on the host, and the three ways to read their elements: doubles, complex pairs, big integers.
// Every op reads its operands one of these ways, computes, and rounds once when it stores.
import {
  bfloat16Bits,
  bfloat16Value,
  type DType,
  float16Bits,
  float16Value,
  InternalError,
  integerLimits,
  isBig,
  isComplex,
  kindOf,
  makeStorage,
  type Node,
  numel,
  type OpAttrs,
  type OpName,
  type Shape,
  type Storage,
  sameShape,
  wrapInteger,
} from "../../graph/index.js";
import type { Complex } from "./complex.js";

/** A tensor on the host, row-major. Bool is 0/1, halves are bits, complex numbers are interleaved pairs. */
export interface Value {
  shape: Shape;
  dtype: DType;
  data: Storage;
}

/** A node's result from its operands; the operand of `pick` is given as all its results. */
export type ReferenceRule<K extends OpName> = (inputs: readonly Value[], node: Node<K>) => Value | Value[];
/** What a device of a group offers: see the op `collective`. */
export interface CollectiveGroup {
  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void;
}

export type ReferenceRules<K extends OpName> = { [P in K]: ReferenceRule<P> };

/** True for the dtypes whose arithmetic wraps around instead of rounding. */
export const isIntegral = (dtype: DType): boolean => kindOf(dtype) === "int" || kindOf(dtype) === "bool";

/** Every number in storage as a double: two per complex element. */
function doubles({ dtype, data }: Value): Float64Array {
  if (dtype === "float16") return Float64Array.from(data as Uint16Array, float16Value);
  if (dtype === "bfloat16") return Float64Array.from(data as Uint16Array, bfloat16Value);
  if (data instanceof BigInt64Array || data instanceof BigUint64Array) return Float64Array.from(data, Number);
  return new Float64Array(data as Float64Array);
}

/** The elements of a real tensor as doubles (64-bit integers beyond 2^53 lose digits). */
export function reals(value: Value): Float64Array {
  if (isComplex(value.dtype)) throw new InternalError(`${value.dtype} elements were read as real numbers`);
  return doubles(value);
}

/** The elements of any tensor as complex numbers. */
export function complexes(value: Value): Complex[] {
  const numbers = doubles(value);
  const step = isComplex(value.dtype) ? 2 : 1;
  // Array.from would call a function per element.
  const list: Complex[] = [];
  for (let i = 0; i < numbers.length; i += step) list.push({ re: numbers[i], im: step === 2 ? numbers[i + 1] : 0 });
  return list;
}

/** The elements of a bool or integer tensor, exactly. */
export function integers(value: Value): bigint[] {
  if (!isIntegral(value.dtype)) throw new InternalError(`${value.dtype} elements were read as integers`);
  return Array.from(value.data as ArrayLike<number | bigint>, (x) => BigInt(x));
}

/** Truncates to an integer of the dtype; what does not fit becomes the nearest end of its range, NaN becomes 0. */
function truncateInto(dtype: DType, x: number): number | bigint {
  const { low, high } = integerLimits(dtype);
  const whole = Number.isNaN(x) ? 0 : Math.trunc(x);
  const held = whole >= high ? high : whole <= low ? low : BigInt(whole);
  return isBig(dtype) ? held : Number(held);
}

const intoInteger = (dtype: DType) => (x: number) => truncateInto(dtype, x);

const conversions: Record<DType, (x: number) => number | bigint> = {
  bool: (x) => (x === 0 ? 0 : 1),
  int8: intoInteger("int8"),
  uint8: intoInteger("uint8"),
  int16: intoInteger("int16"),
  uint16: intoInteger("uint16"),
  int32: intoInteger("int32"),
  uint32: intoInteger("uint32"),
  int64: intoInteger("int64"),
  uint64: intoInteger("uint64"),
  float16: float16Bits,
  bfloat16: bfloat16Bits,
  // The typed array rounds to nearest even as it stores.
  float32: (x) => x,
  float64: (x) => x,
  complex64: (x) => x,
  complex128: (x) => x,
};

/** Stores doubles, rounding once. A complex dtype gets imaginary parts of zero. */
export function fromReals(dtype: DType, shape: Shape, numbers: ArrayLike<number>): Value {
  const data = makeStorage(dtype, checkedCount(shape, numbers.length)) as { [i: number]: number | bigint };
  // Floats are rounded by the typed array.
  if (data instanceof Float64Array && !isComplex(dtype)) {
    data.set(numbers);
    return { shape, dtype, data };
  }
  const convert = conversions[dtype];
  const step = isComplex(dtype) ? 2 : 1;
  for (let i = 0; i < numbers.length; i++) data[i * step] = convert(numbers[i]);
  return { shape, dtype, data: data as Storage };
}

/** Stores complex numbers, rounding each part once. A real dtype drops the imaginary parts. */
export function fromComplexes(dtype: DType, shape: Shape, numbers: readonly Complex[]): Value {
  if (dtype === "bool") {
    return fromReals(
      dtype,
      shape,
      numbers.map((z) => (z.re === 0 && z.im === 0 ? 0 : 1)),
    );
  }
  if (!isComplex(dtype)) {
    return fromReals(
      dtype,
      shape,
      numbers.map((z) => z.re),
    );
  }
  const data = makeStorage(dtype, checkedCount(shape, numbers.length)) as Float64Array;
  numbers.forEach((z, i) => {
    data[2 * i] = z.re;
    data[2 * i + 1] = z.im;
  });
  return { shape, dtype, data };
}

/** An integer as a double, rounded to odd beyond 53 bits, so that rounding it again to a narrower float rounds as if once. */
function oddNumber(x: bigint): number {
  const size = x < 0n ? -x : x;
  if (size < 2n ** 53n) return Number(x);
  const shift = BigInt(size.toString(2).length - 53);
  const odd = ((size >> shift) | BigInt((size & ((1n << shift) - 1n)) !== 0n)) << shift;
  return Number(x < 0n ? -odd : odd);
}

/** Stores integers: modulo the range of an integer dtype, as "is not zero" in bool, rounded in the inexact ones. */
export function fromIntegers(dtype: DType, shape: Shape, numbers: readonly bigint[]): Value {
  if (kindOf(dtype) !== "int") return fromReals(dtype, shape, numbers.map(dtype === "float64" ? Number : oddNumber));
  const data = makeStorage(dtype, checkedCount(shape, numbers.length)) as { [i: number]: number | bigint };
  numbers.forEach((x, i) => {
    const wrapped = wrapInteger(x, dtype);
    data[i] = isBig(dtype) ? wrapped : Number(wrapped);
  });
  return { shape, dtype, data: data as Storage };
}

function checkedCount(shape: Shape, count: number): number {
  if (numel(shape) !== count) throw new InternalError(`${count} elements do not fill the shape [${shape.join(", ")}]`);
  return count;
}

/** Calls back for every position of a shape in row-major order. The array is reused between calls. */
export function forEachIndex(shape: Shape, visit: (index: readonly number[], linear: number) => void): void {
  const index = new Array<number>(shape.length).fill(0);
  const count = numel(shape);
  for (let linear = 0; linear < count; linear++) {
    visit(index, linear);
    for (let axis = shape.length - 1; axis >= 0 && ++index[axis] === shape[axis]; axis--) index[axis] = 0;
  }
}

/** Position of an index in row-major order. */
export function linearIndex(shape: Shape, index: readonly number[]): number {
  let linear = 0;
  for (let axis = 0; axis < shape.length; axis++) linear = linear * shape[axis] + index[axis];
  return linear;
}

/** A new tensor whose every element is copied, bit by bit, from a position of the old one, or zero where that is null. */
export function copyElements(
  value: Value,
  shape: Shape,
  source: (index: readonly number[], linear: number) => number | null,
): Value {
  const data = makeStorage(value.dtype, numel(shape)) as { [i: number]: number | bigint };
  const perElement = isComplex(value.dtype) ? 2 : 1;
  forEachIndex(shape, (index, linear) => {
    const from = source(index, linear);
    if (from === null) return;
    for (let part = 0; part < perElement; part++)
      data[linear * perElement + part] = value.data[from * perElement + part] as number | bigint;
  });
  return { shape, dtype: value.dtype, data: data as Storage };
}

/** The elements [start, start + numel(shape)) as a tensor of that shape, copied. */
export function copyBlock(value: Value, start: number, shape: Shape): Value {
  const perElement = isComplex(value.dtype) ? 2 : 1;
  const data = value.data.slice(start * perElement, (start + numel(shape)) * perElement) as Storage;
  return { shape, dtype: value.dtype, data };
}

/** Tensors of one dtype laid one after the other in memory. */
export function joinBlocks(dtype: DType, shape: Shape, blocks: readonly Value[]): Value {
  const data = makeStorage(dtype, numel(shape));
  let at = 0;
  for (const part of blocks) {
    (data as Float64Array).set(part.data as Float64Array, at);
    at += part.data.length;
  }
  if (at !== data.length) throw new InternalError(`blocks of ${at} numbers do not fill [${shape.join(", ")}]`);
  return { shape, dtype, data };
}

export const hasAval = (value: Value, shape: Shape, dtype: DType): boolean =>
  value.dtype === dtype && sameShape(value.shape, shape);
