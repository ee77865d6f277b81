import assert from "node:assert/strict";
import { execFileSync } from "node:child_process";
import { chmodSync, mkdirSync, readFileSync, statSync, symlinkSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { HostArray } from "./host.js";
import { openNpy, readNpy, writeNpy } from "./npy.js";
import { allDtypes, assertOnlyFiles, assertSameArray, rejects, sample, scratchFolder } from "./testkit.js";

const folder = scratchFolder();
let files = 0;

/** A .npy file written by hand: any version, header and data. */
function handmade(header: string, data: Uint8Array | number[], version = 1, claimedLength?: number): string {
  const path = join(folder, `hand${files++}.npy`);
  const text = Buffer.from(header, version === 3 ? "utf8" : "latin1");
  const length = Buffer.alloc(version === 1 ? 2 : 4);
  length.writeUIntLE(claimedLength ?? text.length, 0, length.length);
  const magic = Buffer.from(`\x93NUMPY${String.fromCharCode(version)}\0`, "latin1");
  writeFileSync(path, Buffer.concat([magic, length, text, Buffer.from(data)]));
  return path;
}
const dict = (descr: string, shape: string, fortran = "False"): string =>
  `{'descr': ${descr}, 'fortran_order': ${fortran}, 'shape': ${shape}, }\n`;

test("every dtype and rank survives writing and reading", async () => {
  for (const dtype of allDtypes)
    for (const shape of [[], [3], [2, 3], [2, 0, 4], [1, 2, 3, 2]]) {
      const path = join(folder, "round.npy");
      await writeNpy(path, sample(dtype, shape));
      assertSameArray(await readNpy(path), sample(dtype, shape));
    }
});

test("the bytes are those that NumPy writes", async () => {
  const path = join(folder, "bytes.npy");
  await writeNpy(path, { shape: [2], dtype: "float32", data: Float32Array.of(1, -2) });
  const bytes = readFileSync(path);
  const text = "{'descr': '<f4', 'fortran_order': False, 'shape': (2,), }";
  assert.equal(bytes.length, 128 + 8);
  assert.equal(bytes.toString("latin1", 0, 10), "\x93NUMPY\x01\x00\x76\x00");
  assert.equal(bytes.toString("latin1", 10, 128), `${text.padEnd(117)}\n`);
  assert.deepEqual([...bytes.subarray(128)], [0, 0, 0x80, 0x3f, 0, 0, 0, 0xc0]);
});

test("versions 1, 2 and 3, Python 2 long integers, double quotes, any key order", async () => {
  const data = [1, 0, 0, 0, 2, 0, 0, 0];
  const expected: HostArray = { shape: [2], dtype: "int32", data: Int32Array.of(1, 2) };
  for (const version of [1, 2, 3])
    assertSameArray(await readNpy(handmade(dict("'<i4'", "(2,)"), data, version)), expected);
  assertSameArray(await readNpy(handmade(dict("'<i4'", "(2L,)"), data)), expected);
  const other = `{"shape": (2,), "descr": "<i4", "fortran_order": False}`;
  assertSameArray(await readNpy(handmade(other, data)), expected);
});

test("big-endian and Fortran order are converted", async () => {
  const big = await readNpy(handmade(dict("'>i4'", "(2,)"), [0, 0, 0, 1, 0xff, 0xff, 0xff, 0xfe]));
  assertSameArray(big, { shape: [2], dtype: "int32", data: Int32Array.of(1, -2) });
  const pair = Buffer.alloc(16);
  pair.writeDoubleBE(1.5, 0);
  pair.writeDoubleBE(-2.5, 8);
  const complex = await readNpy(handmade(dict("'>c16'", "()"), pair));
  assertSameArray(complex, { shape: [], dtype: "complex128", data: Float64Array.of(1.5, -2.5) });
  const columns = await readNpy(handmade(dict("'|u1'", "(2, 3)", "True"), [1, 4, 2, 5, 3, 6]));
  assertSameArray(columns, { shape: [2, 3], dtype: "uint8", data: Uint8Array.of(1, 2, 3, 4, 5, 6) });
  const cube = await readNpy(handmade(dict("'|u1'", "(2, 2, 2)", "True"), [0, 4, 2, 6, 1, 5, 3, 7]));
  assert.deepEqual([...(cube.data as Uint8Array)], [0, 1, 2, 3, 4, 5, 6, 7]);
  const pairs = new Uint8Array(Float32Array.of(1, 2, 5, 6, 3, 4, 7, 8).buffer);
  const complexColumns = await readNpy(handmade(dict("'<c8'", "(2, 2)", "True"), pairs));
  assert.deepEqual([...(complexColumns.data as Float32Array)], [1, 2, 3, 4, 5, 6, 7, 8]);
});

test("bool bytes other than 0 and 1 are true, not a third value", async () => {
  const flags = await readNpy(handmade(dict("'|b1'", "(3,)"), [0, 2, 255]));
  assert.deepEqual([...(flags.data as Uint8Array)], [0, 1, 1]);
});

test("rows are read from the open file", async () => {
  const path = join(folder, "rows.npy");
  await writeNpy(path, sample("int32", [5, 2]));
  const all = sample("int32", [5, 2]).data as Int32Array;
  const file = await openNpy(path);
  assert.deepEqual([file.shape, file.dtype], [[5, 2], "int32"]);
  assertSameArray(await file.readRows(1, 3), { shape: [2, 2], dtype: "int32", data: all.slice(2, 6) });
  assert.deepEqual((await file.readRows(5, 5)).shape, [0, 2]);
  assertSameArray(await file.read(), sample("int32", [5, 2]));
  await rejects(file.readRows(3, 6), path, /3 to 6 is not within the 5 rows/);
  await rejects(file.readRows(-1, 2), path, /not within/);
  await file.close();
  const fortran = await openNpy(handmade(dict("'|u1'", "(2, 1)", "True"), [1, 2]));
  await assert.rejects(fortran.readRows(0, 1), /Fortran order/);
  await fortran.close();
});

test("forged sizes are rejected before memory is allocated", async () => {
  const cases: [string, RegExp][] = [
    [handmade(dict("'<f4'", "(3,)"), [0, 0, 0, 0]), /truncated.*float32\[3\] takes 12 bytes and 4 follow/],
    [handmade(dict("'<f4'", "(1,)"), new Uint8Array(9)), /more bytes than its shape says/],
    [handmade(dict("'<f8'", "(9223372036854775808,)"), []), /9223372036854775808, which is not a possible dimension/],
    [handmade(dict("'<f8'", "(9007199254740991, 9007199254740991)"), []), /truncated/],
    [handmade(dict("'<f8'", "(2305843009213693952, 8)"), []), /not a possible dimension/],
    [handmade(dict("'<f8'", "(4294967296, 4294967296)"), new Uint8Array(8)), /truncated/],
    [handmade(dict("'<f8'", "(-1,)"), new Uint8Array(8)), /-1, which is not a possible dimension/],
    [handmade(dict("'<f8'", `(${"1, ".repeat(70)})`), new Uint8Array(8)), /70 dimensions; at most 64/],
    [handmade(dict("'<f4'", "(1,)"), [0, 0, 0, 0], 1, 60000), /truncated: its header claims 60000 bytes/],
    [handmade(dict("'<f4'", "(1,)"), [0, 0, 0, 0], 2, 0xfffffff0), /truncated: its header claims 4294967280/],
    [handmade(`${" ".repeat(70000)}{}`, [], 2), /header of 70002 bytes; at most 65536/],
  ];
  for (const [path, pattern] of cases) await rejects(readNpy(path), path, pattern);
});

test("invalid headers are rejected", async () => {
  const cases: [string, RegExp][] = [
    [handmade(dict("'|O'", "(1,)"), [1]), /pickled Python objects, which are never loaded/],
    [handmade(dict("'O'", "(1,)"), [1]), /pickled/],
    [handmade(dict("[('a', '<f4'), ('b', '<i4')]", "(1,)"), new Uint8Array(8)), /records/],
    [handmade(dict("'<U5'", "(1,)"), new Uint8Array(20)), /type '<U5'; convert/],
    [handmade(dict("'<f16'", "(1,)"), new Uint8Array(16)), /type '<f16'; convert them in NumPy to one of b1, i1, u1/],
    [handmade(dict("4", "(1,)"), []), /no dtype/],
    [handmade(dict("'<f4'", "4"), []), /no shape/],
    [handmade(dict("'<f4'", "('x',)"), []), /not a whole number/],
    [handmade(dict("'<f4'", "(1,)", "0"), []), /fortran_order/],
    [handmade("{'shape': (1,)", []), /cannot be read: expected , or }/],
    [handmade("__import__('os').system('true')", []), /cannot be read/],
    [handmade(`{'descr': ${"[".repeat(50)}`, []), /nested too deeply/],
    [handmade("(1, 2)", []), /not a dictionary/],
    [handmade("{'a': 1, 'a': 2}", []), /bad key/],
    [handmade("{} {}", []), /unexpected text/],
    [handmade(dict("'<f4'", "(1,)"), new Uint8Array(4), 9), /format version 9/],
  ];
  for (const [path, pattern] of cases) await rejects(readNpy(path), path, pattern);
});

test("other files are rejected", async () => {
  const empty = join(folder, "empty.npy");
  writeFileSync(empty, "");
  await rejects(readNpy(empty), empty, /no \.npy file: it has 0 bytes/);
  const text = join(folder, "text.npy");
  writeFileSync(text, "this is only text, and long enough");
  await rejects(readNpy(text), text, /first bytes/);
  const missing = join(folder, "missing.npy");
  await rejects(readNpy(missing), missing, /no such file/);
  await rejects(readNpy(folder), folder, /not a regular file/);
  await rejects(openNpy(text), text, /first bytes/);
  const path = join(folder, "cut.npy");
  await writeNpy(path, sample("float64", [100]));
  for (const size of [5, 9, 11, 100, 128, 500]) {
    truncateSync(path, size);
    await rejects(readNpy(path), path, /truncated|no \.npy file/);
    await writeNpy(path, sample("float64", [100]));
  }
});

test("a file that shrinks after it was opened is an error", async () => {
  const path = join(folder, "shrinks.npy");
  await writeNpy(path, sample("float64", [100]));
  const file = await openNpy(path);
  truncateSync(path, 300);
  await rejects(file.read(), path, /ends at byte 300/);
  await file.close();
});

test("writing is atomic, follows links, and validates its argument", async () => {
  const place = join(folder, "atomic");
  mkdirSync(place);
  const path = join(place, "a.npy");
  await writeNpy(path, sample("int32", [2]));
  const wrong = { shape: [3], dtype: "int32", data: Int32Array.of(1, 2) } as HostArray;
  await rejects(writeNpy(path, wrong), path, /int32\[3\], which is not what its Int32Array of 2 holds/);
  const mixed = { shape: [2], dtype: "float32", data: Int32Array.of(1, 2) } as HostArray;
  await rejects(writeNpy(path, mixed), path, /not what its Int32Array/);
  const tensor = { shape: [2], dtype: "float32", data: async () => Float32Array.of(1, 2) } as unknown as HostArray;
  await rejects(writeNpy(path, tensor), path, /is a tensor.*use save/);
  const strange = { shape: [1], dtype: "float8", data: Uint8Array.of(1) } as unknown as HostArray;
  await rejects(writeNpy(path, strange), path, /unknown dtype float8/);
  const failing = { shape: [1], dtype: "int32" as const, load: () => Promise.reject(new Error("gone")) };
  await assert.rejects(writeNpy(path, failing), /gone/);
  const other = { shape: [1], dtype: "int32" as const, load: async () => sample("int32", [2]) };
  await rejects(writeNpy(path, other), path, /announced as int32\[1\] and loaded as int32\[2\]/);
  assertSameArray(await readNpy(path), sample("int32", [2]));
  symlinkSync(path, join(place, "link.npy"));
  await writeNpy(join(place, "link.npy"), sample("int32", [4]));
  assertSameArray(await readNpy(path), sample("int32", [4]));
  assertOnlyFiles(place, ["a.npy", "link.npy"]);
  const nowhere = join(place, "none", "a.npy");
  await rejects(writeNpy(nowhere, sample("int32", [1])), nowhere, /folder does not exist/);
  const directory = join(place, "dir.npy");
  mkdirSync(directory);
  await rejects(writeNpy(directory, sample("int32", [1])), directory, /cannot write/);
  assertOnlyFiles(place, ["a.npy", "link.npy", "dir.npy"]);
  const pipe = join(folder, "pipe.npy");
  execFileSync("mkfifo", [pipe]);
  await rejects(writeNpy(pipe, sample("int32", [1])), pipe, /not a plain file/);
  if (process.getuid?.() !== 0) {
    chmodSync(place, 0o500);
    await rejects(writeNpy(path, sample("int32", [1])), path, /permission denied/);
    chmodSync(place, 0o700);
  }
  assert.equal(statSync(path).isFile(), true);
});
