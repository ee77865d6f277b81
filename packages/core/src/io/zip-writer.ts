// Writing zip archives, one entry after the other, with zip64 fields where 32 bits do not suffice.
import { Readable } from "node:stream";
import { crc32, createDeflateRaw } from "node:zlib";
import { FileError, type OutputFile } from "./file.js";
import { elsewhere32, methods, nameProblem, signatures, type ZipEntry } from "./zip.js";

/** Every entry carries the same date, so that equal arrays make equal files: 1 January 1980. */
const date = 0x0021;
const versionNeeded = 45;

const utf8Flag = (name: string): number => (/^[\x20-\x7e]*$/.test(name) ? 0 : 0x800);

/** A zip64 extra field with the numbers that did not fit. */
function extraField(numbers: readonly number[]): Buffer {
  if (numbers.length === 0) return Buffer.alloc(0);
  const extra = Buffer.alloc(4 + 8 * numbers.length);
  extra.writeUInt16LE(1, 0);
  extra.writeUInt16LE(8 * numbers.length, 2);
  numbers.forEach((n, i) => {
    extra.writeBigUInt64LE(BigInt(n), 4 + 8 * i);
  });
  return extra;
}

/** `large` puts both sizes into the extra field: its length must be fixed before the compressed size is known. */
function localHeader(entry: ZipEntry, large: boolean): Buffer {
  const name = Buffer.from(entry.name, "utf8");
  const header = Buffer.alloc(30);
  header.writeUInt32LE(signatures.local, 0);
  header.writeUInt16LE(versionNeeded, 4);
  header.writeUInt16LE(utf8Flag(entry.name), 6);
  header.writeUInt16LE(entry.method, 8);
  header.writeUInt16LE(date, 12);
  header.writeUInt32LE(entry.crc, 14);
  header.writeUInt32LE(large ? elsewhere32 : entry.compressedSize, 18);
  header.writeUInt32LE(large ? elsewhere32 : entry.size, 22);
  header.writeUInt16LE(name.length, 26);
  const extra = extraField(large ? [entry.size, entry.compressedSize] : []);
  header.writeUInt16LE(extra.length, 28);
  return Buffer.concat([header, name, extra]);
}

/** Numbers from `limit` on go to the zip64 fields. */
function centralHeader(entry: ZipEntry, limit: number): Buffer {
  const name = Buffer.from(entry.name, "utf8");
  const numbers = [entry.size, entry.compressedSize, entry.offset];
  const extra = extraField(numbers.filter((n) => n >= limit));
  const [size, compressedSize, offset] = numbers.map((n) => (n >= limit ? elsewhere32 : n));
  const header = Buffer.alloc(46);
  header.writeUInt32LE(signatures.central, 0);
  header.writeUInt16LE(versionNeeded, 4);
  header.writeUInt16LE(versionNeeded, 6);
  header.writeUInt16LE(utf8Flag(entry.name), 8);
  header.writeUInt16LE(entry.method, 10);
  header.writeUInt16LE(date, 14);
  header.writeUInt32LE(entry.crc, 16);
  header.writeUInt32LE(compressedSize, 20);
  header.writeUInt32LE(size, 24);
  header.writeUInt16LE(name.length, 28);
  header.writeUInt16LE(extra.length, 30);
  header.writeUInt32LE(offset, 42);
  return Buffer.concat([header, name, extra]);
}

function endRecords(count: number, offset: number, size: number, limit: number): Buffer {
  const end = Buffer.alloc(22);
  end.writeUInt32LE(signatures.end, 0);
  end.writeUInt16LE(Math.min(count, 0xffff), 8);
  end.writeUInt16LE(Math.min(count, 0xffff), 10);
  end.writeUInt32LE(size >= limit ? elsewhere32 : size, 12);
  end.writeUInt32LE(offset >= limit ? elsewhere32 : offset, 16);
  if (count < 0xffff && size < limit && offset < limit) return end;
  const end64 = Buffer.alloc(56);
  end64.writeUInt32LE(signatures.end64, 0);
  end64.writeBigUInt64LE(44n, 4);
  end64.writeUInt16LE(versionNeeded, 12);
  end64.writeUInt16LE(versionNeeded, 14);
  [count, count, size, offset].forEach((n, i) => {
    end64.writeBigUInt64LE(BigInt(n), 24 + 8 * i);
  });
  const locator = Buffer.alloc(20);
  locator.writeUInt32LE(signatures.locator64, 0);
  locator.writeBigUInt64LE(BigInt(offset + size), 8);
  locator.writeUInt32LE(1, 16);
  return Buffer.concat([end64, locator, end]);
}

const pieceSize = 2 ** 20;
function* pieces(parts: readonly Uint8Array[]): Generator<Uint8Array> {
  for (const part of parts) for (let at = 0; at < part.length; at += pieceSize) yield part.subarray(at, at + pieceSize);
}

export class ZipWriter {
  private readonly entries: ZipEntry[] = [];
  private readonly names = new Set<string>();
  constructor(
    private readonly path: string,
    private readonly file: OutputFile,
    /** Numbers from this value on are written as zip64; lower in tests, which cannot write 4 GiB. */
    private readonly limit = elsewhere32,
  ) {}

  async add(name: string, parts: readonly Uint8Array[], compress: boolean): Promise<void> {
    const problem = nameProblem(name) ?? (this.names.has(name) ? "occurs twice" : null);
    if (problem !== null) throw new FileError(this.path, `the name ${JSON.stringify(name)} ${problem}`);
    if (Buffer.byteLength(name) > 0xffff)
      throw new FileError(this.path, `the name ${name.slice(0, 40)}... is too long`);
    this.names.add(name);
    const size = parts.reduce((sum, part) => sum + part.length, 0);
    const entry: ZipEntry = {
      name,
      method: compress ? methods.deflated : methods.stored,
      crc: 0,
      compressedSize: 0,
      size,
      offset: this.file.position,
    };
    // Deflate may lengthen what it cannot compress, by less than a thousandth.
    const large = size * 1.001 + 1024 >= this.limit;
    await this.file.write(localHeader(entry, large));
    const start = this.file.position;
    for (const piece of pieces(parts)) entry.crc = crc32(piece, entry.crc);
    if (compress) await this.writeDeflated(parts);
    else for (const part of parts) await this.file.write(part);
    entry.compressedSize = this.file.position - start;
    await this.file.writeAt(localHeader(entry, large), entry.offset);
    this.entries.push(entry);
  }

  private async writeDeflated(parts: readonly Uint8Array[]): Promise<void> {
    const deflated = Readable.from(pieces(parts)).pipe(createDeflateRaw());
    for await (const chunk of deflated) await this.file.write(chunk as Uint8Array);
  }

  async finish(): Promise<void> {
    const offset = this.file.position;
    for (const entry of this.entries) await this.file.write(centralHeader(entry, this.limit));
    await this.file.write(endRecords(this.entries.length, offset, this.file.position - offset, this.limit));
  }
}
