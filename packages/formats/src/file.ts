// Reads the files that users name. Pipes are read as well, because shells write `<(command)` as one; a device, a pipe or a file that
// delivers more than the limit is refused, so that nothing exhausts memory.
import { closeSync, fstatSync, openSync, readSync } from "node:fs";

/** More than any configuration, specification or script that a person wrote. */
const configurationBytes = 16 << 20;

/** An error as Node's functions for files throw it, so that callers need no further case. */
function fileError(code: string, message: string, path: string): NodeJS.ErrnoException {
  return Object.assign(new Error(message), { code, path });
}

/**
 * Reads a whole file of bounded size.
 *
 * @param path - A path, or 0 for standard input.
 * @throws An error with `code` and `path`, as Node's own: `EFBIG` for more than `mostBytes`, `EISDIR` for a folder.
 *
 * @example
 * ```ts
 * import { readBytes } from "@weft/formats/file";
 * console.log(readBytes("package.json").length > 0); // true
 * ```
 */
export function readBytes(path: string | 0, mostBytes: number = configurationBytes): Buffer {
  const name = path === 0 ? "standard input" : path;
  const descriptor = path === 0 ? 0 : openSync(path, "r");
  try {
    const info = fstatSync(descriptor);
    if (info.isDirectory()) throw fileError("EISDIR", "is a folder, and a file is needed", name);
    const chunks: Buffer[] = [];
    let total = 0;
    // The size of a growing file, a pipe or a device is known only at its end.
    for (let size = info.size; ; size = 0) {
      const chunk = Buffer.allocUnsafe(Math.min(Math.max(size + 1, 1 << 16), mostBytes + 1 - total));
      const read = readSync(descriptor, chunk, 0, chunk.length, null);
      if (read === 0) return Buffer.concat(chunks, total);
      total += read;
      if (total > mostBytes) throw fileError("EFBIG", `has more than ${mostBytes / 2 ** 20} MiB`, name);
      chunks.push(chunk.subarray(0, read));
    }
  } finally {
    if (path !== 0) closeSync(descriptor);
  }
}

/** Reads a text file of bounded size, as {@link readBytes}. */
export const readText = (path: string | 0, mostBytes?: number): string => readBytes(path, mostBytes).toString("utf8");
