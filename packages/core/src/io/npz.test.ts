import assert from "node:assert/strict";
import { mkdirSync, readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { crc32, deflateRawSync } from "node:zlib";
import { withFile, writeAtomically } from "./file.js";
import { bytesView } from "./host.js";
import { npyHeader } from "./npy-header.js";
import { openNpz, readNpz, writeNpz } from "./npz.js";
import { allDtypes, assertOnlyFiles, assertSameArray, rejects, sample, scratchFolder } from "./testkit.js";
import { readDirectory } from "./zip.js";
import { ZipWriter } from "./zip-writer.js";

const folder = scratchFolder();
const array = sample("int32", [2, 3]);
const npyBytes = Buffer.concat([npyHeader(array.shape, array.dtype), bytesView(array.data)]);
let files = 0;

/** One entry of an archive made by hand, with every field that may lie. */
interface Forged {
  name?: string;
  localName?: string;
  method?: number;
  localMethod?: number;
  flags?: number;
  data?: Buffer;
  crc?: number;
  size?: number;
  compressedSize?: number;
  offset?: number;
  extra?: Buffer;
}

interface ForgedEnd {
  count?: number;
  size?: number;
  offset?: number;
  disk?: number;
  comment?: string;
  zip64?: { count: bigint; size: bigint; offset: bigint; at?: bigint };
  cut?: number;
}

/** A well-formed archive but for the fields that are given. */
function forge(entries: Forged[], end: ForgedEnd = {}): string {
  const path = join(folder, `forged${files++}.npz`);
  const parts: Buffer[] = [];
  const central: Buffer[] = [];
  let at = 0;
  const push = (...more: Buffer[]): void => {
    for (const part of more) at += part.length;
    parts.push(...more);
  };
  for (const entry of entries) {
    const data = entry.data ?? npyBytes;
    const offset = entry.offset ?? at;
    const local = Buffer.alloc(30);
    const localName = Buffer.from(entry.localName ?? entry.name ?? "a.npy");
    local.writeUInt32LE(0x04034b50, 0);
    local.writeUInt16LE(entry.flags ?? 0, 6);
    local.writeUInt16LE(entry.localMethod ?? entry.method ?? 0, 8);
    local.writeUInt16LE(localName.length, 26);
    push(local, localName, data);
    const name = Buffer.from(entry.name ?? "a.npy");
    const extra = entry.extra ?? Buffer.alloc(0);
    const header = Buffer.alloc(46);
    header.writeUInt32LE(0x02014b50, 0);
    header.writeUInt16LE(entry.flags ?? 0, 8);
    header.writeUInt16LE(entry.method ?? 0, 10);
    header.writeUInt32LE(entry.crc ?? crc32(npyBytes), 16);
    header.writeUInt32LE(entry.compressedSize ?? data.length, 20);
    header.writeUInt32LE(entry.size ?? npyBytes.length, 24);
    header.writeUInt16LE(name.length, 28);
    header.writeUInt16LE(extra.length, 30);
    header.writeUInt32LE(offset, 42);
    central.push(header, name, extra);
  }
  const directory = at;
  push(...central);
  const directorySize = at - directory;
  if (end.zip64) {
    const record = Buffer.alloc(56);
    const recordAt = at;
    record.writeUInt32LE(0x06064b50, 0);
    record.writeBigUInt64LE(end.zip64.count, 32);
    record.writeBigUInt64LE(end.zip64.size, 40);
    record.writeBigUInt64LE(end.zip64.offset, 48);
    const locator = Buffer.alloc(20);
    locator.writeUInt32LE(0x07064b50, 0);
    locator.writeBigUInt64LE(end.zip64.at ?? BigInt(recordAt), 8);
    push(record, locator);
  }
  const comment = Buffer.from(end.comment ?? "");
  const last = Buffer.alloc(22);
  last.writeUInt32LE(0x06054b50, 0);
  last.writeUInt16LE(end.disk ?? 0, 4);
  last.writeUInt16LE(end.count ?? entries.length, 10);
  last.writeUInt32LE(end.size ?? directorySize, 12);
  last.writeUInt32LE(end.offset ?? directory, 16);
  last.writeUInt16LE(comment.length, 20);
  push(last, comment);
  const bytes = Buffer.concat(parts);
  writeFileSync(path, bytes.subarray(0, bytes.length - (end.cut ?? 0)));
  return path;
}

const extra64 = (...numbers: bigint[]): Buffer => {
  const extra = Buffer.alloc(4 + 8 * numbers.length);
  extra.writeUInt16LE(1, 0);
  extra.writeUInt16LE(8 * numbers.length, 2);
  numbers.forEach((n, i) => {
    extra.writeBigUInt64LE(n, 4 + 8 * i);
  });
  return extra;
};

test("every dtype survives, stored and deflated, under any name", async () => {
  const arrays = Object.fromEntries(allDtypes.map((dtype) => [`layers/${dtype}`, sample(dtype, [3, 5])]));
  const all = { ...arrays, "Größe und Maß": sample("float32", []), "empty.npy": sample("int64", [0, 4]) };
  for (const compress of [false, true]) {
    const path = join(folder, `round${compress}.npz`);
    await writeNpz(path, all, { compress });
    const read = await readNpz(path);
    assert.deepEqual(Object.keys(read), Object.keys(all));
    for (const [name, expected] of Object.entries(all)) assertSameArray(read[name], expected);
  }
});

test("deflated arrays are smaller, and equal arrays make equal files", async () => {
  const zeros = { z: { shape: [100_000], dtype: "float64" as const, data: new Float64Array(100_000) } };
  const [stored, deflated, again] = ["s.npz", "d.npz", "e.npz"].map((name) => join(folder, name));
  await writeNpz(stored, zeros);
  await writeNpz(deflated, zeros, { compress: true });
  await writeNpz(again, zeros, { compress: true });
  assert.ok(readFileSync(stored).length > 800_000);
  assert.ok(readFileSync(deflated).length < 2_000);
  assert.deepEqual(readFileSync(deflated), readFileSync(again));
  assertSameArray((await readNpz(deflated)).z, zeros.z);
});

test("an open archive reads arrays one by one, lazily written ones too", async () => {
  const path = join(folder, "open.npz");
  const lazy = { shape: array.shape, dtype: array.dtype, load: async () => array };
  await writeNpz(path, { a: sample("float32", [2]), lazy });
  const file = await openNpz(path);
  assert.deepEqual(file.names, ["a", "lazy"]);
  assertSameArray(await file.read("lazy"), array);
  assertSameArray(await file.read("a"), sample("float32", [2]));
  await rejects(file.read("b"), path, /no array "b"; it has a, lazy/);
  await file.close();
});

test("the forging helper builds a valid archive by default", async () => {
  assertSameArray((await readNpz(forge([{}]))).a, array);
  assertSameArray((await readNpz(forge([{ method: 8, data: deflateRawSync(npyBytes) }]))).a, array);
  assertSameArray((await readNpz(forge([{}], { comment: "PK\x05\x06 is in this comment" }))).a, array);
  const both = await readNpz(forge([{ name: "notes.txt", data: Buffer.from("hello"), size: 5 }, {}]));
  assert.deepEqual(Object.keys(both), ["a"]);
});

test("zip64 archives are read", async () => {
  const size = BigInt(npyBytes.length);
  const large = { size: 0xffffffff, compressedSize: 0xffffffff, offset: 0xffffffff };
  const entry = { ...large, extra: extra64(size, size, 0n) };
  assertSameArray((await readNpz(forge([entry]))).a, array);
  const other = Buffer.concat([Buffer.from([0x55, 0x54, 1, 0, 7]), extra64(size)]);
  assertSameArray((await readNpz(forge([{ size: 0xffffffff, extra: other }]))).a, array);
  const plain = readFileSync(forge([{}]));
  const directory = BigInt(plain.readUInt32LE(plain.length - 6));
  const directorySize = BigInt(plain.readUInt32LE(plain.length - 10));
  const zip64 = { count: 1n, size: directorySize, offset: directory };
  assertSameArray(
    (await readNpz(forge([{}], { count: 0xffff, size: 0xffffffff, offset: 0xffffffff, zip64 }))).a,
    array,
  );
});

test("zip64 fields are written where numbers are large, and read back", async () => {
  const path = join(folder, "large.npz");
  await writeAtomically(path, async (file) => {
    const zip = new ZipWriter(path, file, 100);
    await zip.add("a.npy", [npyBytes], false);
    await zip.add("b.npy", [npyBytes], true);
    await zip.finish();
  });
  const bytes = readFileSync(path);
  assert.equal(bytes.readUInt32LE(18), 0xffffffff);
  assert.equal(bytes.readUInt32LE(bytes.length - 6), 0xffffffff);
  const read = await readNpz(path);
  assertSameArray(read.a, array);
  assertSameArray(read.b, array);
  const entries = await withFile(path, readDirectory);
  assert.deepEqual(
    entries.map((entry) => [entry.name, entry.size, entry.crc]),
    [
      ["a.npy", npyBytes.length, crc32(npyBytes)],
      ["b.npy", npyBytes.length, crc32(npyBytes)],
    ],
  );
});

test("archives with a forged directory are rejected", async () => {
  const huge = 2n ** 63n;
  const cases: [string, RegExp][] = [
    [forge([{}], { cut: 30 }), /no end record; it may be truncated/],
    [forge([{}], { offset: 10_000 }), /directory claims bytes/],
    [forge([{}], { size: 10_000 }), /directory claims bytes/],
    [forge([{}], { count: 60_000 }), /claims 60000 entries in a directory of/],
    [forge([{}], { disk: 1 }), /several volumes/],
    [forge([{}], { offset: 0 }), /entry 0 is damaged|directory claims/],
    [forge([{}], { offset: 0xffffffff }), /zip64 record is missing/],
    [
      forge([{}], { offset: 0xffffffff, zip64: { count: huge, size: 1n, offset: 0n } }),
      /number of entries is 9223372036854775808/,
    ],
    [forge([{}], { offset: 0xffffffff, zip64: { count: 1n, size: huge, offset: 0n } }), /size of its directory is/],
    [
      forge([{}], { offset: 0xffffffff, zip64: { count: 1n, size: 1n, offset: 1n, at: huge } }),
      /place of its zip64 record/,
    ],
    [forge([{}], { offset: 0xffffffff, zip64: { count: 1n, size: 1n, offset: 1n, at: 3n } }), /not where it should be/],
    [forge([{ size: 0xffffffff, extra: extra64(huge) }]), /size of a\.npy is 9223372036854775808/],
    [forge([{ size: 0xffffffff }]), /lacks its zip64 sizes/],
    [forge([{ size: 0xffffffff, compressedSize: 0xffffffff, extra: extra64(1n) }]), /lacks its zip64 sizes/],
  ];
  for (const [path, pattern] of cases) await rejects(readNpz(path), path, pattern);
});

test("path traversal, duplicate names and overlaps are rejected", async () => {
  const cases: [string, RegExp][] = [
    [forge([{ name: "../a.npy" }]), /leads out of the archive/],
    [forge([{ name: "x/../../a.npy" }]), /leads out of the archive/],
    [forge([{ name: "/etc/a.npy" }]), /absolute path/],
    [forge([{ name: "C:a.npy" }]), /absolute path/],
    [forge([{ name: "..\\a.npy" }]), /backslash/],
    [forge([{ name: "a\0.npy" }]), /zero byte/],
    [forge([{ name: "" }]), /is empty/],
    [forge([{}, {}]), /a\.npy occurs twice/],
    [forge([{}, { name: "b.npy", offset: 0 }]), /reaches beyond/],
    [forge([{ compressedSize: npyBytes.length + 1000, size: npyBytes.length + 1000 }]), /reaches beyond/],
    [forge([{ offset: 5_000_000 }]), /reaches beyond/],
  ];
  for (const [path, pattern] of cases) await rejects(readNpz(path), path, pattern);
});

test("entries with a forged size, checksum, method or content are rejected", async () => {
  const deflated = { method: 8, data: deflateRawSync(npyBytes) };
  const cases: [string, RegExp][] = [
    [forge([{ crc: 1 }]), /a\.npy: its checksum is wrong/],
    [forge([{ ...deflated, crc: 1 }]), /a\.npy: its checksum is wrong/],
    [forge([{ size: 5 }]), /stored, with two different sizes/],
    [forge([{ ...deflated, size: npyBytes.length - 4 }]), /truncated, or its shape is wrong/],
    [forge([{ ...deflated, size: npyBytes.length + 4 }]), /more bytes than its shape says/],
    [forge([{ ...deflated, data: deflateRawSync(npyBytes.subarray(0, 140)) }]), /fewer bytes than it claims/],
    [
      forge([{ ...deflated, data: deflateRawSync(Buffer.concat([npyBytes, Buffer.alloc(9)])) }]),
      /more than the 152 bytes/,
    ],
    [forge([{ ...deflated, data: deflated.data.subarray(0, 40) }]), /compressed data is damaged/],
    [forge([{ ...deflated, data: Buffer.alloc(60, 0xff) }]), /compressed data is damaged/],
    [forge([{ method: 12 }]), /method 12/],
    [forge([{ flags: 1 }]), /encrypted/],
    [forge([{ localName: "b.npy" }]), /disagree/],
    [forge([{ localMethod: 8 }]), /disagree/],
    [forge([{ data: Buffer.from("no array, but text"), size: 18, crc: 0 }]), /a\.npy: is no \.npy file/],
  ];
  for (const [path, pattern] of cases) await rejects(readNpz(path), path, pattern);
});

test("zip bombs are rejected by their declared size", async () => {
  const bomb = forge([{ method: 8, data: Buffer.alloc(100), size: 4_000_000_000 }]);
  await rejects(readNpz(bomb), bomb, /claims 4000000000 bytes out of 100 compressed/);
  const path = join(folder, "limit.npz");
  await writeNpz(path, { a: sample("float64", [1000]), b: sample("float64", [1000]) }, { compress: true });
  await rejects(readNpz(path, { maxBytes: 10_000 }), path, /its 2 arrays would unfold to 16256 bytes; at most 10000/);
  const file = await openNpz(path, { maxBytes: 10_000 });
  assertSameArray(await file.read("b"), sample("float64", [1000]));
  await file.close();
});

test("writing rejects invalid names and leaves no file", async () => {
  const place = join(folder, "atomic");
  mkdirSync(place);
  const path = join(place, "a.npz");
  await writeNpz(path, { a: array });
  await rejects(writeNpz(path, { a: array, "../b": array }), path, /leads out of the archive/);
  const wrong = { ...array, shape: [7] };
  await rejects(writeNpz(path, { a: array, wrong }), path, /wrong is int32\[7\], which is not what/);
  assertSameArray((await readNpz(path)).a, array);
  assertOnlyFiles(place, ["a.npz"]);
});
