// The number types of Weft: their sizes, their order under promotion, and their storage in JavaScript typed arrays.

/** Names of all dtypes, in the order of promotion. */
export const dtypes = [
  "bool",
  "uint8",
  "int32",
  "int64",
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
export type Storage = Uint8Array | Int32Array | BigInt64Array | Uint16Array | Float32Array | Float64Array;

interface DTypeInfo {
  /** Bytes of one element. */
  bytes: number;
  kind: DTypeKind;
  /** The dtype of the real and imaginary part, or the dtype itself. */
  real: DType;
  array: new (buffer: ArrayBufferLike, offset?: number, length?: number) => Storage;
}

const info: Record<DType, DTypeInfo> = {
  bool: { bytes: 1, kind: "bool", real: "bool", array: Uint8Array },
  uint8: { bytes: 1, kind: "int", real: "uint8", array: Uint8Array },
  int32: { bytes: 4, kind: "int", real: "int32", array: Int32Array },
  int64: { bytes: 8, kind: "int", real: "int64", array: BigInt64Array },
  float16: { bytes: 2, kind: "float", real: "float16", array: Uint16Array },
  bfloat16: { bytes: 2, kind: "float", real: "bfloat16", array: Uint16Array },
  float32: { bytes: 4, kind: "float", real: "float32", array: Float32Array },
  float64: { bytes: 8, kind: "float", real: "float64", array: Float64Array },
  complex64: { bytes: 8, kind: "complex", real: "float32", array: Float32Array },
  complex128: { bytes: 16, kind: "complex", real: "float64", array: Float64Array },
};

export const isDType = (name: unknown): name is DType => typeof name === "string" && Object.hasOwn(info, name);
export const bytesOf = (dtype: DType): number => info[dtype].bytes;
export const kindOf = (dtype: DType): DTypeKind => info[dtype].kind;
export const realOf = (dtype: DType): DType => info[dtype].real;
export const isComplex = (dtype: DType): boolean => info[dtype].kind === "complex";
export const isFloat = (dtype: DType): boolean => info[dtype].kind === "float";
/** Real or complex floating point: the dtypes that carry gradients. */
export const isInexact = (dtype: DType): boolean => isFloat(dtype) || isComplex(dtype);
export const isHalf = (dtype: DType): boolean => dtype === "float16" || dtype === "bfloat16";
/** The complex dtype with parts of the same precision. */
export const complexOf = (dtype: DType): DType =>
  dtype === "float64" || dtype === "complex128" ? "complex128" : "complex64";

const order: Record<DTypeKind, number> = { bool: 0, int: 1, float: 2, complex: 3 };

/**
 * Promotes two dtypes: to the higher kind of bool < int < float < complex, and to the wider dtype within a kind. float16 with
 * bfloat16 gives float32; float64 with complex64 gives complex128. An integer tensor does not widen a float tensor (int64 with
 * float32 gives float32), as in PyTorch.
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
  return bytesOf(a) >= bytesOf(b) ? a : b;
}

/** The dtype of a result that cannot be an integer: division, exp, mean. */
export const toInexact = (dtype: DType): DType => (isInexact(dtype) ? dtype : "float32");

/** A typed array over raw memory; complex arrays have two numbers per element. */
export function storageView(dtype: DType, buffer: ArrayBufferLike, byteOffset = 0, elements?: number): Storage {
  const perElement = isComplex(dtype) ? 2 : 1;
  return new info[dtype].array(buffer, byteOffset, elements === undefined ? undefined : elements * perElement);
}

export function makeStorage(dtype: DType, elements: number): Storage {
  return storageView(dtype, new ArrayBuffer(elements * bytesOf(dtype)), 0, elements);
}
