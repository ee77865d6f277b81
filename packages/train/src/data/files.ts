// Files of data sets: whole files with a clear limit, and Parquet by groups of rows.
import { readFileSync, statSync } from "node:fs";
import { brotliDecompressSync, gunzipSync } from "node:zlib";
import { DataError } from "./table.js";

/** Bytes of the largest file that is read. */
const mostBytes = 2 ** 31 - 1;

/** The bytes of a file. */
export function readWhole(path: string): Buffer {
  const { size } = statSync(path);
  if (size > mostBytes)
    throw new DataError(
      `${path} has ${size} bytes; files of at most 2 GiB are read. Compress it (.gz), or take a part`,
    );
  try {
    return readFileSync(path);
  } catch (error) {
    throw new DataError(`${path} cannot be read: ${(error as Error).message}`);
  }
}

/** The rows of a Parquet file as objects, one group of rows at a time. `columns`: only these. */
export async function* parquetObjects(bytes: Buffer, path: string, columns?: string[]): AsyncGenerator<object> {
  const { parquetMetadata, parquetReadObjects } = await import("hyparquet");
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  const limit = (length: number) => ({ maxOutputLength: Math.max(1, length) });
  const compressors = {
    GZIP: (input: Uint8Array, length: number) => gunzipSync(input, limit(length)),
    BROTLI: (input: Uint8Array, length: number) => brotliDecompressSync(input, limit(length)),
  };
  try {
    const metadata = parquetMetadata(file);
    let rowStart = 0;
    for (const { num_rows: count } of metadata.row_groups) {
      const rowEnd = rowStart + Number(count);
      yield* await parquetReadObjects({ file, metadata, compressors, rowStart, rowEnd, ...(columns && { columns }) });
      rowStart = rowEnd;
    }
  } catch (error) {
    if (error instanceof DataError) throw error;
    const { message } = error as Error;
    const remedy = /codec: ZSTD/.test(message) ? "; write it with compression snappy or gzip" : "";
    throw new DataError(`${path}: cannot be read as Parquet: ${message}${remedy}`);
  }
}
