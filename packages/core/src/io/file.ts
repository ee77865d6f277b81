// Files as byte ranges: reads are checked against the size of the file, and writes are atomic.
import { randomBytes } from "node:crypto";
import { type FileHandle, open, realpath, rename, stat, unlink } from "node:fs/promises";
import { basename, dirname, join } from "node:path";
import { WeftError } from "../graph/index.js";

/** A file cannot be read or written as requested. The message starts with its path. */
export class FileError extends WeftError {
  override name = "FileError";
  constructor(path: string, problem: string) {
    super(`${path}: ${problem}`);
  }
}

/** One system call moves at most 2 GiB. */
const mostPerCall = 2 ** 26;

function explain(path: string, doing: string, error: unknown): FileError {
  const { code, message } = error as NodeJS.ErrnoException;
  const reasons: Record<string, string> = {
    ENOENT: doing === "read" ? "there is no such file" : "its folder does not exist; create it first",
    EACCES: "permission denied",
    EISDIR: "it is a folder",
    ENOSPC: "the disk is full",
  };
  return new FileError(path, `cannot ${doing}: ${reasons[code ?? ""] ?? message}`);
}

/** A sequential source of bytes of known length. */
export interface ByteSource {
  /** Name for errors: the file, and the entry inside it. */
  readonly label: string;
  /** Size in bytes. */
  readonly size: number;
  /** Fills the target with the next bytes. */
  readInto(target: Uint8Array): Promise<void>;
}

export class InputFile {
  private constructor(
    readonly path: string,
    readonly size: number,
    private readonly handle: FileHandle,
  ) {}

  static async open(path: string): Promise<InputFile> {
    let handle: FileHandle | undefined;
    try {
      handle = await open(path, "r");
      const stat = await handle.stat();
      if (!stat.isFile()) throw new FileError(path, "cannot read: it is not a regular file");
      return new InputFile(path, stat.size, handle);
    } catch (error) {
      await handle?.close();
      throw error instanceof FileError ? error : explain(path, "read", error);
    }
  }

  /** Fills the target from a position. The caller has checked the range against `size`. */
  async readInto(target: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < target.length; ) {
      const wanted = Math.min(mostPerCall, target.length - done);
      const { bytesRead } = await this.handle.read(target, done, wanted, position + done);
      if (bytesRead === 0)
        throw new FileError(this.path, `ends at byte ${position + done}, inside data that it should hold`);
      done += bytesRead;
    }
  }

  async read(position: number, length: number, what: string): Promise<Buffer> {
    if (position + length > this.size)
      throw new FileError(this.path, `truncated: ${what} ends at byte ${position + length} of ${this.size}`);
    const bytes = Buffer.alloc(length);
    await this.readInto(bytes, position);
    return bytes;
  }

  /** A part of the file in pieces of bounded size. */
  async *chunks(position: number, length: number): AsyncGenerator<Uint8Array> {
    const most = 2 ** 20;
    for (let done = 0; done < length; done += most) {
      const chunk = Buffer.allocUnsafe(Math.min(most, length - done));
      await this.readInto(chunk, position + done);
      yield chunk;
    }
  }

  /** The whole file as a source that is read in order. */
  source(): ByteSource {
    let position = 0;
    return {
      label: this.path,
      size: this.size,
      readInto: async (target) => {
        await this.readInto(target, position);
        position += target.length;
      },
    };
  }

  close(): Promise<void> {
    return this.handle.close();
  }
}

/** Opens a file, passes it to `use`, and closes it. */
export async function withFile<T>(path: string, use: (file: InputFile) => Promise<T>): Promise<T> {
  const file = await InputFile.open(path);
  try {
    return await use(file);
  } finally {
    await file.close();
  }
}

export class OutputFile {
  /** Position of the next `write`. */
  position = 0;
  constructor(private readonly handle: FileHandle) {}

  async write(bytes: Uint8Array): Promise<void> {
    await this.writeAt(bytes, this.position);
    this.position += bytes.length;
  }

  /** Overwrites earlier bytes. */
  async writeAt(bytes: Uint8Array, position: number): Promise<void> {
    for (let done = 0; done < bytes.length; ) {
      const length = Math.min(mostPerCall, bytes.length - done);
      done += (await this.handle.write(bytes, done, length, position + done)).bytesWritten;
    }
  }
}

/** Writes to a temporary file beside the target and renames it on success. On failure the target is unchanged. */
export async function writeAtomically(path: string, write: (file: OutputFile) => Promise<void>): Promise<void> {
  // A rename would replace a symbolic link instead of its target.
  const target = await realpath(path).catch(() => path);
  // And it would replace a device or a pipe by a file.
  const there = await stat(target).catch(() => null);
  if (there !== null && !there.isFile() && !there.isDirectory())
    throw new FileError(path, "it is not a plain file, and would be replaced by one; give another path");
  const temporary = join(dirname(target), `.${basename(target)}.${process.pid}.${randomBytes(6).toString("hex")}.tmp`);
  let handle: FileHandle;
  try {
    handle = await open(temporary, "wx");
  } catch (error) {
    throw explain(path, "write", error);
  }
  try {
    await write(new OutputFile(handle));
    await handle.sync();
    await handle.close();
    await rename(temporary, target);
  } catch (error) {
    await handle.close().catch(() => {});
    await unlink(temporary).catch(() => {});
    throw error instanceof WeftError ? error : explain(path, "write", error);
  }
}
