// The number types of Weft: their sizes, their order under promotion, and their storage in JavaScript typed arrays.

import { WeftError } from "./errors.js";

/** Names of all dtypes, by kind and width. */
export const dtypes = [
  "bool",
  "int8",
  "uint8",
  "int16",
  "uint16",
  "int32",
  "uint32",
  "int64",
  "uint64",
  "float16",
  "bfloat16",
  "float32",
  "float64",
  "complex64",
  "complex128",
] as const;
/** Data type of the elements of a tensor. */
export type DType = (typeof dtypes)[number];
type DTypeKind = "bool" | "int" | "float" | "complex";

/** The arrays that hold raw storage. Half types are bit patterns in Uint16Array, complex numbers are interleaved pairs. */
export type Storage =
  | Int8Array
  | Uint8Array
  | Int16Array
  | Uint16Array
  | Int32Array
  | Uint32Array
  | BigInt64Array
  | BigUint64Array
  | Float32Array
  | Float64Array;

interface DTypeInfo {
  /** Number of the dtype in libraries written in C. Never changes, because stored programs contain it. */
  code: number;
  /** Bytes of one element. */
  bytes: number;
  kind: DTypeKind;
  /** The dtype of the real and imaginary part, or the dtype itself. */
  real: DType;
  array: new (buffer: ArrayBufferLike, offset?: number, length?: number) => Storage;
}

const info: Record<DType, DTypeInfo> = {
  bool: { code: 0, bytes: 1, kind: "bool", real: "bool", array: Uint8Array },
  int8: { code: 10, bytes: 1, kind: "int", real: "int8", array: Int8Array },
  uint8: { code: 1, bytes: 1, kind: "int", real: "uint8", array: Uint8Array },
  int16: { code: 11, bytes: 2, kind: "int", real: "int16", array: Int16Array },
  uint16: { code: 12, bytes: 2, kind: "int", real: "uint16", array: Uint16Array },
  int32: { code: 2, bytes: 4, kind: "int", real: "int32", array: Int32Array },
  uint32: { code: 13, bytes: 4, kind: "int", real: "uint32", array: Uint32Array },
  int64: { code: 3, bytes: 8, kind: "int", real: "int64", array: BigInt64Array },
  uint64: { code: 14, bytes: 8, kind: "int", real: "uint64", array: BigUint64Array },
  float16: { code: 4, bytes: 2, kind: "float", real: "float16", array: Uint16Array },
  bfloat16: { code: 5, bytes: 2, kind: "float", real: "bfloat16", array: Uint16Array },
  float32: { code: 6, bytes: 4, kind: "float", real: "float32", array: Float32Array },
  float64: { code: 7, bytes: 8, kind: "float", real: "float64", array: Float64Array },
  complex64: { code: 8, bytes: 8, kind: "complex", real: "float32", array: Float32Array },
  complex128: { code: 9, bytes: 16, kind: "complex", real: "float64", array: Float64Array },
};

export const isDType = (name: unknown): name is DType => typeof name === "string" && Object.hasOwn(info, name);
export const bytesOf = (dtype: DType): number => info[dtype].bytes;
/** Number of the dtype in libraries written in C. */
export const codeOf = (dtype: DType): number => info[dtype].code;
export const kindOf = (dtype: DType): DTypeKind => info[dtype].kind;
export const realOf = (dtype: DType): DType => info[dtype].real;
export const isComplex = (dtype: DType): boolean => info[dtype].kind === "complex";
export const isFloat = (dtype: DType): boolean => info[dtype].kind === "float";
/** Real or complex floating point: the dtypes that carry gradients. */
export const isInexact = (dtype: DType): boolean => isFloat(dtype) || isComplex(dtype);
/** Whether elements are at most 0 to 2^n - 1; bool is not counted. */
export const isUnsigned = (dtype: DType): boolean => kindOf(dtype) === "int" && dtype.startsWith("u");
/** Integer dtypes whose elements are bigints in JavaScript. */
export const isBig = (dtype: DType): boolean => dtype === "int64" || dtype === "uint64";
export const isHalf = (dtype: DType): boolean => dtype === "float16" || dtype === "bfloat16";
/** The complex dtype with parts of the same precision. */
export const complexOf = (dtype: DType): DType =>
  dtype === "float64" || dtype === "complex128" ? "complex128" : "complex64";

const order: Record<DTypeKind, number> = { bool: 0, int: 1, float: 2, complex: 3 };

/**
 * Promotes two dtypes by the table of the Python Array API standard: to the higher kind of bool < int < float < complex, and to the
 * wider dtype within a kind. A signed with an unsigned integer gives the narrowest signed dtype that holds both. The standard
 * leaves four cases open: int64 with uint64 gives float64 as in NumPy, float16 with bfloat16 gives float32, float64 with complex64
 * gives complex128, and an integer tensor does not widen a float tensor (int64 with float32 gives float32), as in PyTorch.
 */
export function promote(a: DType, b: DType): DType {
  if (a === b) return a;
  const [low, high] = order[kindOf(a)] <= order[kindOf(b)] ? [a, b] : [b, a];
  const lowKind = kindOf(low);
  const highKind = kindOf(high);
  if (highKind === "complex") {
    return low === "float64" || low === "complex128" ? "complex128" : high;
  }
  if (lowKind !== highKind) return high;
  if (highKind === "float" && isHalf(a) && isHalf(b)) return "float32";
  if (highKind === "int" && isUnsigned(a) !== isUnsigned(b)) return promoteSigns(a, b);
  return bytesOf(a) >= bytesOf(b) ? a : b;
}

const signedBySize: Record<number, DType> = { 1: "int8", 2: "int16", 4: "int32", 8: "int64" };

/** An unsigned integer needs a signed dtype of twice its width. */
function promoteSigns(a: DType, b: DType): DType {
  const [signed, unsigned] = isUnsigned(a) ? [b, a] : [a, b];
  if (bytesOf(signed) > bytesOf(unsigned)) return signed;
  return signedBySize[2 * bytesOf(unsigned)] ?? "float64";
}

/** Smallest and largest value of an integer dtype or bool. */
export function integerLimits(dtype: DType): { low: bigint; high: bigint } {
  if (kindOf(dtype) === "bool") return { low: 0n, high: 1n };
  const bits = BigInt(8 * bytesOf(dtype));
  return isUnsigned(dtype)
    ? { low: 0n, high: 2n ** bits - 1n }
    : { low: -(2n ** (bits - 1n)), high: 2n ** (bits - 1n) - 1n };
}

/** An integer modulo the range of an integer dtype. */
export function wrapInteger(x: bigint, dtype: DType): bigint {
  const bits = 8 * bytesOf(dtype);
  return isUnsigned(dtype) ? BigInt.asUintN(bits, x) : BigInt.asIntN(bits, x);
}

/** The dtype of a result that cannot be an integer: division, exp, mean. */
export const toInexact = (dtype: DType): DType => (isInexact(dtype) ? dtype : "float32");

/** A typed array over raw memory; complex arrays have two numbers per element. */
export function storageView(dtype: DType, buffer: ArrayBufferLike, byteOffset = 0, elements?: number): Storage {
  const perElement = isComplex(dtype) ? 2 : 1;
  return new info[dtype].array(buffer, byteOffset, elements === undefined ? undefined : elements * perElement);
}

/** The bytes of an array. Versions of Node before 22 cannot view more than 4 GiB as bytes. */
export function storageBytes(data: Storage): Uint8Array {
  try {
    return new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  } catch (error) {
    if (!(error instanceof RangeError)) throw error;
    throw new WeftError(
      `an array of ${data.byteLength} bytes is larger than what this version of Node can view as bytes; pass or read it in parts (slice, concat)`,
    );
  }
}

export function makeStorage(dtype: DType, elements: number): Storage {
  return storageView(dtype, new ArrayBuffer(elements * bytesOf(dtype)), 0, elements);
}
