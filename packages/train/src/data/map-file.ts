// A file as memory: mapped by the system, so that all ranks and loaders of a machine share one copy. Where the C library
// cannot be called, the file is read.
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
/** Private: a stray write would stay in this process. */
const mapPrivate = 2;

let map: MapFunction | null | undefined;

function mapper(): MapFunction | null {
  if (map === undefined)
    try {
      map = koffi.load("libc.so.6").func("void* mmap(void*, size_t, int, int, int, int64_t)") as unknown as MapFunction;
    } catch {
      map = null;
    }
  return map;
}

/** The bytes of a file. It must not be changed in place afterwards; files that are replaced by a rename are safe. */
export function mapFile(path: string): ArrayBuffer {
  const call = mapper();
  const fd = openSync(path, "r");
  try {
    const { size } = fstatSync(fd);
    if (call !== null && size > 0) {
      const address = call(null, size, readWrite, mapPrivate, fd, 0);
      // MAP_FAILED is -1. The mapping lives as long as the process: views of it may be anywhere.
      if (koffi.address(address) !== 0xffffffffffffffffn) return koffi.view(address, size);
    }
  } finally {
    closeSync(fd);
  }
  const bytes = readFileSync(path);
  return bytes.buffer.slice(bytes.byteOffset, bytes.byteOffset + bytes.length) as ArrayBuffer;
}
