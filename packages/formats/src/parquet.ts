// Rows of Parquet files, one group of rows at a time.
import * as zlib from "node:zlib";

/** A Parquet file cannot be read; the message starts with its path. */
export class ParquetError extends Error {
  override name = "ParquetError";
}

/** Present from Node 22.15 on. */
const unpackZstd = (zlib as { zstdDecompressSync?: typeof zlib.gunzipSync }).zstdDecompressSync;

/** The rows of a Parquet file as objects. `columns`: only these. */
export async function* readParquet(bytes: Buffer, path: string, columns?: string[]): AsyncGenerator<object> {
  const { parquetMetadata, parquetReadObjects } = await import("hyparquet");
  const file = bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
  const limit = (length: number) => ({ maxOutputLength: Math.max(1, length) });
  const compressors = {
    GZIP: (input: Uint8Array, length: number) => zlib.gunzipSync(input, limit(length)),
    BROTLI: (input: Uint8Array, length: number) => zlib.brotliDecompressSync(input, limit(length)),
    ...(unpackZstd !== undefined && { ZSTD: (input: Uint8Array, length: number) => unpackZstd(input, limit(length)) }),
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
    const { message } = error as Error;
    const isZstd = unpackZstd === undefined && /codec: ZSTD/.test(message);
    const remedy = /compression codec/.test(message)
      ? `; ${isZstd ? "use Node 22.15 or newer, or " : ""}write it with compression snappy or gzip`
      : "";
    throw new ParquetError(`${path}: cannot be read as Parquet: ${message}${remedy}`);
  }
}
