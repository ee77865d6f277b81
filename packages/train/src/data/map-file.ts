// Maps a file into memory, so that all ranks and loaders of a machine share one copy. Falls back to reading the file.
import { closeSync, fstatSync, openSync, readFileSync } from "node:fs";
import koffi from "koffi";

type MapFunction = (
  address: null,
  length: number,
  protection: number,
  flags: number,
  fd: number,
  offset: number,
) => unknown;

const readWrite = 3;
/** MAP_PRIVATE: writes stay in this process. */
const mapPrivate = 2;

let map: MapFunction | null | undefined;

function mapper(): MapFunction | null {
  if (map === undefined)
    try {
      map = koffi.load("libc.so.6").func("void* mmap(void*, size_t, int, int, int, int64_t)") as MapFunction;
    } catch {
      map = null;
    }
  return map;
}

/** The bytes of a file. It must not be modified in place afterwards; replacing it by rename is safe. */
export function mapFile(path: string): ArrayBuffer {
  const call = mapper();
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    if (call !== null && size > 0) {
      const address = call(null, size, readWrite, mapPrivate, fd, 0);
      // MAP_FAILED is -1. The mapping is never removed, because views of it may exist anywhere.
      if (koffi.address(address) !== 0xffffffffffffffffn) return koffi.view(address, size);
    }
  } finally {
    closeSync(fd);
  }
  const bytes = readFileSync(path);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}
