// Files of compiled code end with a checksum of what comes before. Loading a damaged one can kill the process (a truncated
// shared object ends in SIGBUS), so a file that does not match is removed and compiled again. Loaders ignore bytes after the code.
import { createHash } from "node:crypto";
import { appendFileSync, readFileSync, rmSync, statSync } from "node:fs";

const mark = Buffer.from("weft-sha256:");
const digestBytes = 32;
const sealBytes = mark.length + digestBytes;
/** Larger files were not written by Weft. */
const maxBytes = 2 ** 29;

const digest = (bytes: Uint8Array): Buffer => createHash("sha256").update(bytes).digest();

/** The checksum that a file of these bytes ends with. */
export const sealOf = (bytes: Uint8Array): Buffer => Buffer.concat([mark, digest(bytes)]);

/** Appends the checksum to a finished file, before it is renamed into the cache. */
export function seal(path: string): void {
  appendFileSync(path, sealOf(readFileSync(path)));
}

/** The content without the checksum; null if the file is missing or damaged. A damaged file is removed. */
export function readSealed(path: string): Uint8Array | null {
  try {
    const { size } = statSync(path);
    if (size >= sealBytes && size <= maxBytes) {
      const bytes = readFileSync(path);
      const content = bytes.subarray(0, bytes.length - sealBytes);
      const expected = bytes.subarray(bytes.length - sealBytes);
      if (expected.equals(sealOf(content))) return content;
    }
    rmSync(path, { force: true });
  } catch {
    // Missing, or not readable.
  }
  return null;
}

export const isIntact = (path: string): boolean => readSealed(path) !== null;
