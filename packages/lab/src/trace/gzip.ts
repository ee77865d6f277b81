// Decompresses a gzip file member by member. Node's own stream fails at bytes behind the last member and loses the chunk before
// them; here they are left out and reported, as gzip does. A truncated file gives what it contains.
import { createReadStream } from "node:fs";
import type { FileHandle } from "node:fs/promises";
import { constants, createInflateRaw, type ZlibOptions } from "node:zlib";

/** Longest optional fields of a header that are accepted. */
const longestHeader = 1 << 16;
const chunk = 1 << 18;

/** Position of the compressed data of the member at `at`; null where there is no member. */
async function memberData(handle: FileHandle, at: number): Promise<number | null> {
  const head = Buffer.alloc(longestHeader);
  const { bytesRead } = await handle.read(head, 0, longestHeader, at);
  if (bytesRead < 10 || head[0] !== 0x1f || head[1] !== 0x8b || head[2] !== 8) return null;
  const flags = head[3];
  let from = 10;
  if (flags & 4) from += 2 + head.readUInt16LE(from);
  // File name and comment end with a zero byte.
  for (const flag of [8, 16]) if (flags & flag) from = head.indexOf(0, from) + 1 || longestHeader;
  if (flags & 2) from += 2;
  return from < bytesRead ? at + from : null;
}

/**
 * Calls `take` with the decompressed chunks and the number of compressed bytes so far. Returns a problem, or null.
 * Throws an error with zlib's code where the data are damaged or, behind the last chunk, cut short.
 */
export async function gunzipFile(
  file: string,
  handle: FileHandle,
  size: number,
  take: (bytes: Buffer, consumed: number) => void | Promise<void>,
): Promise<string | null> {
  let at = 0;
  for (;;) {
    const start = await memberData(handle, at);
    if (start === null) return at === 0 ? "the gzip header is damaged" : trailing(handle, at, size);
    const source = createReadStream(file, { start, highWaterMark: chunk });
    // Reads some chunks ahead: decompression continues in its own thread while a chunk is parsed. A cut-off end is no error here.
    const options: ZlibOptions & { readableHighWaterMark: number } = {
      chunkSize: chunk,
      readableHighWaterMark: 1 << 21,
      finishFlush: constants.Z_SYNC_FLUSH,
    };
    const inflater = source.pipe(createInflateRaw(options));
    source.on("error", (error) => inflater.destroy(error));
    try {
      for await (const bytes of inflater) await take(bytes as Buffer, start + inflater.bytesWritten);
    } finally {
      source.destroy();
    }
    // Checksum and length follow the data.
    at = start + inflater.bytesWritten + 8;
    if (at > size) throw Object.assign(new Error("unexpected end of file"), { code: "Z_BUF_ERROR" });
    if (at === size) return null;
  }
}

/** Zero bytes behind the data are padding. */
async function trailing(handle: FileHandle, at: number, size: number): Promise<string | null> {
  const head = Buffer.alloc(Math.min(4096, size - at));
  await handle.read(head, 0, head.length, at);
  return head.every((byte) => byte === 0) ? null : `${size - at} bytes behind the gzip data were left out`;
}
