// .npy files: one array each, as NumPy's save and load make them.
import { bytesOf, type DType, numel, type Shape } from "../graph/index.js";
import { type ByteSource, FileError, InputFile, withFile, writeAtomically } from "./file.js";
import {
  type ArraySource,
  allocate,
  bytesView,
  fromFortranOrder,
  type HostArray,
  loadArray,
  normalizeBool,
  swapBytes,
} from "./host.js";
import { type NpyHeader, npyHeader, readNpyHeader } from "./npy-header.js";

/** Elements as they lie in the file -> elements as storage has them. */
function toStorageOrder(header: NpyHeader, shape: Shape, data: HostArray["data"]): HostArray {
  const { dtype } = header;
  if (header.bigEndian) swapBytes(dtype, data);
  normalizeBool(dtype, data);
  return { shape, dtype, data: header.fortranOrder ? fromFortranOrder(dtype, shape, data) : data };
}

/** Reads the array of a source that holds exactly one .npy file. */
export async function readNpyFrom(source: ByteSource): Promise<HostArray> {
  const header = await readNpyHeader(source);
  const data = allocate(source.label, header.dtype, numel(header.shape));
  await source.readInto(bytesView(data));
  return toStorageOrder(header, header.shape, data);
}

/** An open .npy file, of which parts can be read. */
export interface NpyFile {
  /** Sizes of the axes. */
  readonly shape: Shape;
  /** Dtype of the elements. */
  readonly dtype: DType;
  /** Reads the whole array. */
  read(): Promise<HostArray>;
  /** The entries start <= i < stop of the first axis. */
  readRows(start: number, stop: number): Promise<HostArray>;
  /** Closes the file. */
  close(): Promise<void>;
}

/** Opens a .npy file. */
export async function openNpy(path: string): Promise<NpyFile> {
  const file = await InputFile.open(path);
  let header: NpyHeader;
  try {
    header = await readNpyHeader(file.source());
  } catch (error) {
    await file.close();
    throw error;
  }
  const { shape, dtype, fortranOrder } = header;
  const readPart = async (first: number, partShape: Shape): Promise<HostArray> => {
    const data = allocate(path, dtype, numel(partShape));
    await file.readInto(bytesView(data), header.length + first * bytesOf(dtype));
    return toStorageOrder(header, partShape, data);
  };
  return {
    shape,
    dtype,
    read: () => readPart(0, shape),
    readRows: async (start, stop) => {
      if (shape.length === 0) throw new FileError(path, "readRows: the array is a scalar and has no rows");
      if (!(Number.isInteger(start) && Number.isInteger(stop) && start >= 0 && start <= stop && stop <= shape[0]))
        throw new FileError(path, `readRows: ${start} to ${stop} is not within the ${shape[0]} rows`);
      if (fortranOrder && shape.length > 1)
        throw new FileError(path, "readRows: the array is stored by columns (Fortran order); read it whole");
      const row = shape.slice(1);
      return readPart(start * numel(row), [stop - start, ...row]);
    },
    close: () => file.close(),
  };
}

/** Reads a .npy file. */
export const readNpy = (path: string): Promise<HostArray> => withFile(path, (file) => readNpyFrom(file.source()));

/** Writes a .npy file. bfloat16 is written as raw pairs of bytes, as NumPy does with the package ml_dtypes. */
export async function writeNpy(path: string, array: ArraySource): Promise<void> {
  const loaded = await loadArray(path, "the array", array);
  await writeAtomically(path, async (file) => {
    await file.write(npyHeader(loaded.shape, loaded.dtype));
    await file.write(bytesView(loaded.data));
  });
}
