// Reads files of the runs folder, which may be anything: links out of the folder, pipes, files that grow, shrink or have no
// line ends. Nothing is read without a bound.
import { closeSync, constants, fstatSync, openSync, readSync, realpathSync } from "node:fs";
import { type FileHandle, open } from "node:fs/promises";
import { dirname, sep } from "node:path";

// O_NOFOLLOW: a link is not opened. O_NONBLOCK: opening a pipe does not wait for a writer.
const flags = constants.O_RDONLY | constants.O_NOFOLLOW | constants.O_NONBLOCK;

/** Whether a folder is the root or below it, after links in its path are resolved. `root` is resolved already. */
export function isInside(root: string, folder: string): boolean {
  try {
    const real = realpathSync.native(folder);
    return real === root || real.startsWith(root.endsWith(sep) ? root : root + sep);
  } catch {
    return false;
  }
}

/** The first bytes of a small file as text; null if it is missing, not a plain file, or outside the root. */
export function readSmall(root: string, path: string, most = 1 << 20): string | null {
  return readPart(root, path, (size) => [0, Math.min(size, most)]);
}

/** The last bytes of a file as text, from the start of a line. */
export function readEnd(root: string, path: string, most: number): string | null {
  const text = readPart(root, path, (size) => [Math.max(0, size - most), Math.min(size, most)]);
  if (text === null || Buffer.byteLength(text) < most) return text;
  return text.slice(text.indexOf("\n") + 1);
}

function readPart(root: string, path: string, range: (size: number) => [from: number, length: number]): string | null {
  if (!isInside(root, dirname(path))) return null;
  let file: number;
  try {
    file = openSync(path, flags);
  } catch {
    return null;
  }
  try {
    const status = fstatSync(file);
    if (!status.isFile()) return null;
    const [from, length] = range(status.size);
    const bytes = Buffer.alloc(length);
    return bytes.toString("utf8", 0, readSync(file, bytes, 0, length, from));
  } catch {
    return null;
  } finally {
    closeQuietly(file);
  }
}

function closeQuietly(file: number): void {
  try {
    closeSync(file);
  } catch {
    // It was closed already.
  }
}

/** Bytes read at a time. */
const chunkBytes = 1 << 20;
/** A longer line is not a record. */
const longestLine = 1 << 20;
/** Bytes at the start of a file that tell whether it was replaced by another. */
const headBytes = 256;

/** Reads the lines that are appended to a file, in chunks. */
export class Tail {
  #offset = 0;
  #rest = "";
  #skipping = false;
  #head: Buffer = Buffer.alloc(0);
  #size = 0;
  /** Counts how often the file started over. */
  generation = 0;

  constructor(
    private readonly root: string,
    private readonly path: string,
  ) {}

  /** Share of the file that was read. */
  get share(): number {
    return this.#size === 0 ? 1 : Math.min(1, this.#offset / this.#size);
  }

  /** Calls back with whole new lines; stops after about `budget` bytes. Returns whether there is more to read. */
  async read(
    onLines: (lines: string[]) => void,
    onRestart: () => void,
    budget = Number.POSITIVE_INFINITY,
  ): Promise<boolean> {
    const file = await openInside(this.root, this.path);
    if (file === null) return false;
    try {
      const { size } = await file.stat();
      if (await this.#isAnother(file, size)) {
        this.#restart();
        onRestart();
      }
      this.#size = size;
      const bytes = Buffer.alloc(Math.min(chunkBytes, Math.max(1, size - this.#offset)));
      const until = Math.min(size, this.#offset + budget);
      while (this.#offset < until) {
        const { bytesRead } = await file.read(bytes, 0, bytes.length, this.#offset);
        if (bytesRead === 0) break;
        this.#offset += bytesRead;
        onLines(this.#lines(bytes.toString("latin1", 0, bytesRead)));
      }
      await this.#keepHead(file);
      return this.#offset < size;
    } finally {
      await file.close();
    }
  }

  /** Whole lines of a chunk. Bytes of a character may be in two chunks, so that lines are decoded one by one. */
  #lines(text: string): string[] {
    const parts = text.split("\n");
    parts[0] = this.#rest + parts[0];
    this.#rest = parts.pop()!;
    if (this.#skipping && parts.length > 0) {
      parts.shift();
      this.#skipping = false;
    }
    if (this.#rest.length > longestLine) {
      this.#rest = "";
      this.#skipping = true;
    }
    return parts;
  }

  async #isAnother(file: FileHandle, size: number): Promise<boolean> {
    if (size < this.#offset) return true;
    const head = Buffer.alloc(this.#head.length);
    const { bytesRead } = await file.read(head, 0, head.length, 0);
    return bytesRead !== head.length || !head.equals(this.#head);
  }

  async #keepHead(file: FileHandle): Promise<void> {
    if (this.#head.length === headBytes) return;
    const head = Buffer.alloc(Math.min(headBytes, this.#offset));
    const { bytesRead } = await file.read(head, 0, head.length, 0);
    this.#head = head.subarray(0, bytesRead);
  }

  #restart(): void {
    this.#offset = 0;
    this.#rest = "";
    this.#skipping = false;
    this.#head = Buffer.alloc(0);
    this.generation++;
  }

  /** Lines from evenly spaced places of the file, for a first picture of a large one. */
  async sample(places: number, bytesEach: number): Promise<string[]> {
    const file = await openInside(this.root, this.path);
    if (file === null) return [];
    try {
      const { size } = await file.stat();
      this.#size = size;
      const bytes = Buffer.alloc(bytesEach);
      const lines: string[] = [];
      for (let k = 0; k < places; k++) {
        const at = Math.floor((k * Math.max(0, size - bytesEach)) / Math.max(1, places - 1));
        const { bytesRead } = await file.read(bytes, 0, bytesEach, at);
        const text = bytes.toString("latin1", 0, bytesRead).split("\n");
        for (const line of text.slice(at === 0 ? 0 : 1, -1)) lines.push(line);
      }
      return lines;
    } finally {
      await file.close();
    }
  }

  async size(): Promise<number> {
    const file = await openInside(this.root, this.path);
    if (file === null) return 0;
    try {
      return (await file.stat()).size;
    } finally {
      await file.close();
    }
  }
}

async function openInside(root: string, path: string): Promise<FileHandle | null> {
  if (!isInside(root, dirname(path))) return null;
  try {
    const file = await open(path, flags);
    if ((await file.stat()).isFile()) return file;
    await file.close();
  } catch {
    // Missing, a link, or not readable.
  }
  return null;
}

/** Text of a line that was read as latin1. */
export const decodeLine = (line: string): string => Buffer.from(line, "latin1").toString("utf8");
