// Reads untrusted zip archives: sizes, offsets and names are checked before memory is allocated. Supports stored and deflated
// entries and zip64.
import { Readable } from "node:stream";
import { crc32, createInflateRaw } from "node:zlib";
import { type ByteSource, FileError, type InputFile } from "./file.js";

export const signatures = {
  local: 0x04034b50,
  central: 0x02014b50,
  end: 0x06054b50,
  end64: 0x06064b50,
  locator64: 0x07064b50,
} as const;
export const methods = { stored: 0, deflated: 8 } as const;
/** In a 32-bit or 16-bit field: the number is in the zip64 record instead. */
export const elsewhere32 = 0xffffffff;
const elsewhere16 = 0xffff;
/** No deflate stream expands by more than this. */
const maxExpansion = 1032;

export interface ZipEntry {
  /** Path inside the archive. */
  name: string;
  /** Compression: 0 for none, 8 for deflate. */
  method: number;
  /** Checksum of the uncompressed bytes. */
  crc: number;
  /** Bytes in the archive. */
  compressedSize: number;
  /** Bytes after decompression. */
  size: number;
  /** Offset of its local header. */
  offset: number;
}

/** Reason why a name is invalid for an entry, or null. */
export function nameProblem(name: string): string | null {
  if (name === "") return "is empty";
  if (/[\0\\]/.test(name)) return "holds a backslash or a zero byte";
  if (name.startsWith("/") || /^[a-zA-Z]:/.test(name)) return "is an absolute path";
  if (name.split("/").includes("..")) return "leads out of the archive with '..'";
  return null;
}

interface Directory {
  offset: number;
  size: number;
  count: number;
}

class Archive {
  constructor(
    private readonly file: InputFile,
    private readonly path = file.path,
  ) {}

  private fail(problem: string): FileError {
    return new FileError(this.path, `is not a usable zip archive: ${problem}`);
  }

  private integer64(bytes: Buffer, at: number, what: string): number {
    const value = bytes.readBigUInt64LE(at);
    if (value > BigInt(this.file.size) * BigInt(maxExpansion) + 1_000_000n)
      throw this.fail(`${what} is ${value}, more than a file of ${this.file.size} bytes can hold`);
    return Number(value);
  }

  private async directory(): Promise<Directory> {
    const { size } = this.file;
    const tailLength = Math.min(size, 22 + elsewhere16);
    const tail = await this.file.read(size - tailLength, tailLength, "its end");
    for (let at = tailLength - 22; at >= 0; at--) {
      // The length of the comment must fit too, because a comment may contain the signature.
      if (tail.readUInt32LE(at) !== signatures.end || at + 22 + tail.readUInt16LE(at + 20) !== tailLength) continue;
      return this.checked(await this.directoryAt(tail.subarray(at), size - tailLength + at), size - tailLength + at);
    }
    throw this.fail("it has no end record; it may be truncated");
  }

  private checked(directory: Directory, end: number): Directory {
    if (directory.offset + directory.size > end)
      throw this.fail(
        `its directory claims bytes ${directory.offset} to ${directory.offset + directory.size} of ${end}`,
      );
    if (directory.count * 46 > directory.size)
      throw this.fail(`it claims ${directory.count} entries in a directory of ${directory.size} bytes`);
    return directory;
  }

  private async directoryAt(end: Buffer, position: number): Promise<Directory> {
    const small = { count: end.readUInt16LE(10), size: end.readUInt32LE(12), offset: end.readUInt32LE(16) };
    const isLarge = small.count === elsewhere16 || small.size === elsewhere32 || small.offset === elsewhere32;
    if (!isLarge) {
      if (end.readUInt16LE(4) !== 0 || end.readUInt16LE(6) !== 0) throw this.fail("it is one of several volumes");
      return small;
    }
    if (position < 20) throw this.fail("its zip64 record is missing");
    const locator = await this.file.read(position - 20, 20, "its zip64 locator");
    if (locator.readUInt32LE(0) !== signatures.locator64) throw this.fail("its zip64 record is missing");
    const at = this.integer64(locator, 8, "the place of its zip64 record");
    const record = await this.file.read(at, 56, "its zip64 record");
    if (record.readUInt32LE(0) !== signatures.end64) throw this.fail("its zip64 record is not where it should be");
    return {
      count: this.integer64(record, 32, "its number of entries"),
      size: this.integer64(record, 40, "the size of its directory"),
      offset: this.integer64(record, 48, "the place of its directory"),
    };
  }

  /** Sizes and offset that do not fit into 32 bits, in the order of the fields that lack them. */
  private expand(entry: ZipEntry, extra: Buffer): void {
    const missing = (["size", "compressedSize", "offset"] as const).filter((field) => entry[field] === elsewhere32);
    for (let at = 0; missing.length > 0 && at + 4 <= extra.length; ) {
      const length = extra.readUInt16LE(at + 2);
      if (extra.readUInt16LE(at) === 1 && at + 4 + length <= extra.length && length >= 8 * missing.length) {
        missing.forEach((field, i) => {
          entry[field] = this.integer64(extra, at + 4 + 8 * i, `the ${field} of ${entry.name}`);
        });
        return;
      }
      at += 4 + length;
    }
    if (missing.length > 0) throw this.fail(`${entry.name} lacks its zip64 sizes`);
  }

  private check(entry: ZipEntry, flags: number): void {
    const problem = nameProblem(entry.name);
    if (problem !== null) throw this.fail(`the entry name ${JSON.stringify(entry.name)} ${problem}`);
    if (flags & 1) throw this.fail(`${entry.name} is encrypted`);
    if (entry.method !== methods.stored && entry.method !== methods.deflated)
      throw this.fail(`${entry.name} is compressed by method ${entry.method}; stored and deflated entries are read`);
    if (entry.method === methods.stored && entry.size !== entry.compressedSize)
      throw this.fail(`${entry.name} is stored, with two different sizes`);
    if (entry.size > entry.compressedSize * maxExpansion + 64)
      throw this.fail(`${entry.name} claims ${entry.size} bytes out of ${entry.compressedSize} compressed ones`);
  }

  async entries(): Promise<ZipEntry[]> {
    const { offset, size, count } = await this.directory();
    const bytes = await this.file.read(offset, size, "its directory");
    const entries: ZipEntry[] = [];
    const names = new Set<string>();
    let at = 0;
    for (let i = 0; i < count; i++) {
      if (at + 46 > size || bytes.readUInt32LE(at) !== signatures.central) throw this.fail(`entry ${i} is damaged`);
      const nameEnd = at + 46 + bytes.readUInt16LE(at + 28);
      const extraEnd = nameEnd + bytes.readUInt16LE(at + 30);
      const next = extraEnd + bytes.readUInt16LE(at + 32);
      if (next > size) throw this.fail(`entry ${i} is damaged`);
      const flags = bytes.readUInt16LE(at + 8);
      const entry: ZipEntry = {
        name: bytes.toString(flags & 0x800 ? "utf8" : "latin1", at + 46, nameEnd),
        method: bytes.readUInt16LE(at + 10),
        crc: bytes.readUInt32LE(at + 16),
        compressedSize: bytes.readUInt32LE(at + 20),
        size: bytes.readUInt32LE(at + 24),
        offset: bytes.readUInt32LE(at + 42),
      };
      this.expand(entry, bytes.subarray(nameEnd, extraEnd));
      this.check(entry, flags);
      if (names.has(entry.name)) throw this.fail(`${entry.name} occurs twice`);
      names.add(entry.name);
      entries.push(entry);
      at = next;
    }
    if (at !== size) throw this.fail(`its directory of ${count} entries is ${at} bytes long and claims ${size}`);
    this.checkApart(entries, offset);
    return entries;
  }

  /** Rejects entries that share bytes, which zip bombs use. */
  private checkApart(entries: readonly ZipEntry[], directory: number): void {
    const order = [...entries].sort((a, b) => a.offset - b.offset);
    order.forEach((entry, i) => {
      const end = i + 1 < order.length ? order[i + 1].offset : directory;
      if (entry.offset + 30 + entry.compressedSize > end)
        throw this.fail(`${entry.name} reaches beyond byte ${end}, where the next part starts`);
    });
  }
}

/** An entry with the place of its bytes. */
export interface PlacedEntry extends ZipEntry {
  /** Position of the first byte of the contents. */
  start: number;
}

/** The directory of an archive, checked: names, methods, sizes, local headers, and that no entries overlap. */
export async function readDirectory(file: InputFile): Promise<PlacedEntry[]> {
  const placed: PlacedEntry[] = [];
  for (const entry of await new Archive(file).entries())
    placed.push({ ...entry, start: await dataOffset(file, entry) });
  return placed;
}

/** Start of an entry's bytes, after its local header, which must agree with the directory. */
async function dataOffset(file: InputFile, entry: ZipEntry): Promise<number> {
  const label = `${file.path}: ${entry.name}`;
  const header = await file.read(entry.offset, 30, `the header of ${entry.name}`);
  if (header.readUInt32LE(0) !== signatures.local) throw new FileError(label, "its header is not where it should be");
  const nameLength = header.readUInt16LE(26);
  const name = await file.read(entry.offset + 30, nameLength, `the name of ${entry.name}`);
  const encoding = header.readUInt16LE(6) & 0x800 ? "utf8" : "latin1";
  if (name.toString(encoding) !== entry.name || header.readUInt16LE(8) !== entry.method)
    throw new FileError(label, "its own header and the directory disagree");
  const start = entry.offset + 30 + nameLength + header.readUInt16LE(28);
  if (start + entry.compressedSize > file.size) throw new FileError(label, "truncated: the file ends inside it");
  return start;
}

/** An entry's bytes, in order; `finish` checks that there are no more of them and that the checksum fits. */
export function openEntry(
  file: InputFile,
  entry: PlacedEntry,
): ByteSource & { finish(): Promise<void>; cancel(): Promise<void> } {
  const label = `${file.path}: ${entry.name}`;
  const raw = file.chunks(entry.start, entry.compressedSize);
  const stream = entry.method === methods.stored ? raw : inflated(label, raw);
  let chunk: Uint8Array = new Uint8Array(0);
  let crc = 0;
  return {
    label,
    size: entry.size,
    readInto: async (target) => {
      for (let done = 0; done < target.length; ) {
        if (chunk.length === 0) {
          const next = await stream.next();
          if (next.done) throw new FileError(label, "holds fewer bytes than it claims");
          chunk = next.value;
          continue;
        }
        const part = chunk.subarray(0, target.length - done);
        target.set(part, done);
        done += part.length;
        crc = crc32(part, crc);
        chunk = chunk.subarray(part.length);
      }
    },
    finish: async () => {
      while (chunk.length === 0) {
        const next = await stream.next();
        if (next.done) break;
        chunk = next.value;
      }
      if (chunk.length > 0) throw new FileError(label, `holds more than the ${entry.size} bytes that it claims`);
      if (crc !== entry.crc) throw new FileError(label, "its checksum is wrong; the file is damaged");
    },
    cancel: async () => void (await stream.return(undefined)),
  };
}

async function* inflated(label: string, raw: AsyncGenerator<Uint8Array>): AsyncGenerator<Uint8Array> {
  const inflate = createInflateRaw();
  const input = Readable.from(raw);
  input.on("error", (error) => inflate.destroy(error));
  input.pipe(inflate);
  try {
    for await (const chunk of inflate) yield chunk as Uint8Array;
  } catch (error) {
    if (error instanceof FileError) throw error;
    throw new FileError(label, `its compressed data is damaged (${(error as Error).message})`);
  } finally {
    input.destroy();
  }
}
