// The captured output of a run. It may be of any size, so that only its end is read.
import { closeSync, fstatSync, openSync, readSync } from "node:fs";

const endBytes = 64 * 1024;

/** The last 64 KiB of a file, from the start of a line on; empty if it cannot be read. */
function endOf(path: string): string {
  let file: number;
  try {
    file = openSync(path, "r");
  } catch {
    return "";
  }
  try {
    const { size } = fstatSync(file);
    const start = Math.max(0, size - endBytes);
    const buffer = Buffer.alloc(Math.min(size, endBytes));
    const text = buffer.toString("utf8", 0, readSync(file, buffer, 0, buffer.length, start));
    return start === 0 ? text : text.slice(text.indexOf("\n") + 1);
  } catch {
    return "";
  } finally {
    closeSync(file);
  }
}

const longestLine = 500;

/** The last lines of a file, each shortened. */
export const lastLines = (path: string, count: number): string[] =>
  endOf(path)
    .trimEnd()
    .split("\n")
    .slice(-count)
    .map((line) => line.slice(0, longestLine));

/** The error of the last Python traceback in the error output of a run; null without one. */
export function lastTraceback(path: string): string | null {
  const text = endOf(path);
  const at = text.lastIndexOf("Traceback (most recent call last):");
  if (at < 0) return null;
  const [, ...rest] = text.slice(at).split("\n");
  const error = rest.find((line) =>
    /^[\w.]*(?:Error|Exception|Interrupt|Exit|Warning|Stop\w*)\b/.test(line.trimStart()),
  );
  return (error ?? "unknown error").trim().slice(0, longestLine);
}
