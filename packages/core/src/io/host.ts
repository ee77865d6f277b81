// Host arrays as files store them: checks before writing, and conversion of raw bytes to storage. Assumes a little-endian host.
import {
  bytesOf,
  type DType,
  isComplex,
  isDType,
  makeStorage,
  numel,
  type Shape,
  type Storage,
} from "../graph/index.js";
import type { Value } from "../ops/index.js";
import { FileError } from "./file.js";

/** An array in host memory, row-major. Bool is 0 or 1, half types are bits, complex numbers are interleaved pairs. */
export type HostArray = Value;

/** An array that is loaded when it is written, so that a file may be larger than memory. */
export interface LazyArray {
  /** Sizes of the axes. */
  readonly shape: Shape;
  /** Dtype of the elements. */
  readonly dtype: DType;
  /** Reads or computes the elements. */
  load(): Promise<HostArray>;
}

/** An array, or a function that loads it. */
export type ArraySource = HostArray | LazyArray;

export const bytesView = (data: Storage): Uint8Array => new Uint8Array(data.buffer, data.byteOffset, data.byteLength);

/** Loads an array and checks its shape, dtype and length. */
export async function loadArray(path: string, name: string, source: ArraySource): Promise<HostArray> {
  const array = "load" in source ? await source.load() : source;
  const shown = `${source.dtype}[${source.shape.join(", ")}]`;
  if (!isDType(array.dtype)) throw new FileError(path, `${name} has the unknown dtype ${String(array.dtype)}`);
  if (array.dtype !== source.dtype || array.shape.join() !== source.shape.join())
    throw new FileError(
      path,
      `${name} was announced as ${shown} and loaded as ${array.dtype}[${array.shape.join(", ")}]`,
    );
  if (typeof array.data === "function")
    throw new FileError(
      path,
      `${name} is a tensor, and this function writes arrays of the host; use save(path, tensors)`,
    );
  const storage = makeStorage(array.dtype, 0).constructor as new () => Storage;
  if (!(array.data instanceof storage) || array.data.byteLength !== byteCount(path, name, array))
    throw new FileError(
      path,
      `${name} is ${shown}, which is not what its ${array.data.constructor.name} of ${array.data.length} holds`,
    );
  return array;
}

/** Bytes of an array to be written. */
export function byteCount(path: string, name: string, { shape, dtype }: { shape: Shape; dtype: DType }): number {
  const bytes = numel(shape) * bytesOf(dtype);
  if (!shape.every((d) => Number.isSafeInteger(d) && d >= 0) || !Number.isSafeInteger(bytes))
    throw new FileError(path, `${name} has the shape [${shape.join(", ")}]; dimensions are whole numbers >= 0`);
  return bytes;
}

/** NumPy's own limit. A file that claims more dimensions is not an array. */
const maxRank = 64;

/**
 * Exact number of bytes of an array according to its file, Infinity if no file can hold it. A product that overflows must not
 * look small.
 */
export function claimedBytes(label: string, shape: readonly number[], bytesPerElement: number): number {
  if (shape.length > maxRank)
    throw new FileError(label, `claims ${shape.length} dimensions; at most ${maxRank} are read`);
  for (const d of shape)
    if (!Number.isSafeInteger(d) || d < 0)
      throw new FileError(label, `claims the shape [${shape.join(", ")}]; ${d} is not a possible dimension`);
  const total = shape.reduce((product, d) => product * BigInt(d), BigInt(bytesPerElement));
  return total > BigInt(Number.MAX_SAFE_INTEGER) ? Number.POSITIVE_INFINITY : Number(total);
}

/** Memory for an array whose size was checked against its file. */
export function allocate(label: string, dtype: DType, elements: number): Storage {
  try {
    return makeStorage(dtype, elements);
  } catch {
    throw new FileError(label, `an array of ${elements * bytesOf(dtype)} bytes does not fit into memory`);
  }
}

/** Reverses the bytes of every number: storage read from a big-endian file. */
export function swapBytes(dtype: DType, data: Storage): void {
  const width = isComplex(dtype) ? bytesOf(dtype) / 2 : bytesOf(dtype);
  const bytes = Buffer.from(data.buffer, data.byteOffset, data.byteLength);
  if (width === 2) bytes.swap16();
  else if (width === 4) bytes.swap32();
  else if (width === 8) bytes.swap64();
}

/** Files may hold any nonzero byte for true; storage holds 1. */
export function normalizeBool(dtype: DType, data: Storage): void {
  if (dtype !== "bool") return;
  for (let i = 0; i < data.length; i++) if (data[i]) data[i] = 1;
}

/** Column-major elements, put into row-major order. */
export function fromFortranOrder(dtype: DType, shape: Shape, data: Storage): Storage {
  if (shape.length < 2) return data;
  const out = makeStorage(dtype, numel(shape)) as { [i: number]: number | bigint };
  const perElement = isComplex(dtype) ? 2 : 1;
  const strides = shape.map((_, axis) => numel(shape.slice(0, axis)));
  const index = new Array<number>(shape.length).fill(0);
  let from = 0;
  for (let to = 0; to < numel(shape); to++) {
    for (let part = 0; part < perElement; part++)
      out[to * perElement + part] = data[from * perElement + part] as number | bigint;
    for (let axis = shape.length - 1; axis >= 0; axis--) {
      from += strides[axis];
      if (++index[axis] < shape[axis]) break;
      from -= strides[axis] * shape[axis];
      index[axis] = 0;
    }
  }
  return out as Storage;
}
