// Files of data sets: whole files with a clear limit, and Parquet by groups of rows.
import { readBytes } from "@weft/formats/file";
import { ParquetError, readParquet } from "@weft/formats/parquet";
import { DataError } from "./table.js";

/** Bytes of the largest file that is read. */
const mostBytes = 2 ** 31 - 1;

/** The bytes of a file. */
export function readWhole(path: string): Buffer {
  try {
    return readBytes(path, mostBytes);
  } catch (error) {
    if ((error as NodeJS.ErrnoException).code === "EFBIG")
      throw new DataError(`${path} has more than 2 GiB, the most that is read. Compress it (.gz), or take a part`);
    throw new DataError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** The rows of a Parquet file as objects, one group of rows at a time. `columns`: only these. */
export async function* parquetObjects(bytes: Buffer, path: string, columns?: string[]): AsyncGenerator<object> {
  try {
    yield* readParquet(bytes, path, columns);
  } catch (error) {
    throw error instanceof ParquetError ? new DataError(error.message) : error;
  }
}
