// Streams text files line by line, and collects the problems of an import.
import { closeSync, openSync, readFileSync, readSync, statSync } from "node:fs";
import { StringDecoder } from "node:string_decoder";
import { CsvError, type CsvRow, readCsvText } from "@weft/formats/csv";
import type { ImportProblem } from "../model/index.js";

interface Line {
  text: string;
  /** 1-based. */
  number: number;
  /** False for a last line without a newline: its writer may have been interrupted. */
  complete: boolean;
}

const chunkBytes = 1 << 20;
/** Longest line that is read, so that a binary file cannot exhaust memory. */
const longestLine = 64 << 20;

/** Refuses what is no file of bounded size: reading a pipe or a device waits or never ends. */
export function checkFile(path: string, mostBytes = Number.POSITIVE_INFINITY): void {
  const info = statSync(path);
  if (!info.isFile()) throw new ImportError(`${path}: not a regular file; write what it delivers into a file first`);
  if (info.size > mostBytes) throw new ImportError(`${path}: larger than ${mostBytes / 2 ** 20} MiB`);
}

/** The rows of a CSV file that is read as a whole; a damaged one is refused. */
export function readCsvFile(path: string, mostBytes: number): CsvRow<string>[] {
  const bytes = readImport(path, mostBytes);
  try {
    return [...readCsvText(bytes, path)];
  } catch (error) {
    throw error instanceof CsvError ? new ImportError(error.message) : error;
  }
}

/** The bytes of a file that is read as a whole. */
export function readImport(path: string, mostBytes = 256 << 20): Buffer {
  checkFile(path, mostBytes);
  return readFileSync(path);
}

export function* readLines(path: string): Generator<Line> {
  checkFile(path);
  const file = openSync(path, "r");
  try {
    const decoder = new StringDecoder("utf8");
    const buffer = Buffer.allocUnsafe(chunkBytes);
    let rest = "";
    let number = 0;
    for (;;) {
      const bytes = readSync(file, buffer, 0, chunkBytes, null);
      if (bytes === 0) break;
      const parts = (rest + decoder.write(buffer.subarray(0, bytes))).split("\n");
      rest = parts.pop()!;
      for (const part of parts) yield { text: trimLine(part, ++number), number, complete: true };
      if (rest.length > longestLine)
        throw new ImportError(`${path}: line ${number + 1} is longer than 64 MiB; not a text file?`);
    }
    rest += decoder.end();
    if (rest !== "") yield { text: trimLine(rest, ++number), number, complete: false };
  } finally {
    closeSync(file);
  }
}

/** Removes a carriage return and, in the first line, a byte order mark. */
function trimLine(text: string, number: number): string {
  const start = number === 1 && text.charCodeAt(0) === 0xfeff ? 1 : 0;
  const end = text.endsWith("\r") ? text.length - 1 : text.length;
  return text.slice(start, end);
}

/** One entry per kind of problem and file, with a count and the first line: a million bad rows are one message. */
export class ProblemLog {
  readonly #entries = new Map<string, ImportProblem>();

  add(file: string, id: string, message: string, line?: number): void {
    const key = `${file}\0${id}`;
    const entry = this.#entries.get(key);
    if (entry === undefined)
      this.#entries.set(key, { file, id, message, count: 1, ...(line !== undefined && { line }) });
    else entry.count = (entry.count ?? 1) + 1;
  }

  list(): ImportProblem[] {
    return [...this.#entries.values()];
  }
}

/** An input that cannot be read; the message names the file and the remedy. */
export class ImportError extends Error {}
