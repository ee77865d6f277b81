import assert from "node:assert/strict";
import { mkdirSync, readFileSync, truncateSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { HostArray } from "./host.js";
import { openSafetensors, readSafetensors, writeSafetensors } from "./safetensors.js";
import { allDtypes, assertOnlyFiles, assertSameArray, rejects, sample, scratchFolder } from "./testkit.js";

const folder = scratchFolder();
let files = 0;

function handmade(header: unknown, dataBytes: number, claimedLength?: bigint): string {
  const path = join(folder, `hand${files++}.safetensors`);
  const text = Buffer.from(typeof header === "string" ? header : JSON.stringify(header));
  const length = Buffer.alloc(8);
  length.writeBigUInt64LE(claimedLength ?? BigInt(text.length));
  writeFileSync(path, Buffer.concat([length, text, Buffer.alloc(dataBytes, 1)]));
  return path;
}
const tensor = (dtype: string, shape: unknown, ...data_offsets: unknown[]) => ({ dtype, shape, data_offsets });

const shared = allDtypes.filter((dtype) => dtype !== "complex128");

test("every dtype that the format has survives, with metadata", async () => {
  const path = join(folder, "round.safetensors");
  const tensors: Record<string, HostArray> = {};
  for (const dtype of shared) tensors[`model.${dtype}`] = sample(dtype, [3, 5]);
  tensors["scalar"] = sample("float32", []);
  tensors["empty"] = sample("int64", [0, 4]);
  await writeSafetensors(path, tensors, { format: "weft", note: "Größe" });
  const read = await readSafetensors(path);
  assert.deepEqual(Object.keys(read).sort(), Object.keys(tensors).sort());
  for (const [name, expected] of Object.entries(tensors)) assertSameArray(read[name], expected);
  const file = await openSafetensors(path);
  assert.deepEqual(file.metadata, { format: "weft", note: "Größe" });
  assert.deepEqual(file.info("scalar"), { shape: [], dtype: "float32" });
  assertSameArray(await file.read("model.bfloat16"), sample("bfloat16", [3, 5]));
  await rejects(file.read("other"), path, /no tensor "other"; it has 16/);
  await file.close();
});

test("tensors start at multiples of their element size, and the header is padded to 8", async () => {
  const path = join(folder, "aligned.safetensors");
  await writeSafetensors(path, { a: sample("bool", [3]), b: sample("float64", [2]), c: sample("float16", [1]) });
  const bytes = readFileSync(path);
  const length = Number(bytes.readBigUInt64LE(0));
  assert.equal(length % 8, 0);
  const header = JSON.parse(bytes.toString("utf8", 8, 8 + length));
  assert.deepEqual(header, {
    b: tensor("F64", [2], 0, 16),
    c: tensor("F16", [1], 16, 18),
    a: tensor("BOOL", [3], 18, 21),
  });
});

test("lazy tensors are loaded one at a time, in the order of the file", async () => {
  const path = join(folder, "lazy.safetensors");
  let alive = 0;
  let most = 0;
  const lazy = (seed: number) => ({
    shape: [4],
    dtype: "int32" as const,
    load: async () => {
      most = Math.max(most, ++alive);
      setImmediate(() => alive--);
      return { shape: [4], dtype: "int32" as const, data: new Int32Array(4).fill(seed) };
    },
  });
  await writeSafetensors(path, { a: lazy(1), b: lazy(2), c: lazy(3) });
  assert.equal(most, 1);
  assert.deepEqual([...((await readSafetensors(path)).c.data as Int32Array)], [3, 3, 3, 3]);
});

test("names such as __proto__ are plain data", async () => {
  const path = join(folder, "names.safetensors");
  const odd = Object.fromEntries(["__proto__", "constructor", "../up", "1"].map((n) => [n, sample("uint8", [2])]));
  await writeSafetensors(path, odd);
  const read = await readSafetensors(path);
  assert.deepEqual(Object.keys(read).sort(), Object.keys(odd).sort());
  assertSameArray(Object.getOwnPropertyDescriptor(read, "__proto__")?.value, sample("uint8", [2]));
});

test("tensors of unsupported dtypes do not prevent reading the others", async () => {
  const path = handmade({ a: tensor("F8_E4M3", [4], 0, 4), b: tensor("U8", [2], 4, 6) }, 6);
  const file = await openSafetensors(path);
  assert.deepEqual(file.names, ["a", "b"]);
  assert.deepEqual(file.info("a"), { shape: [4], dtype: null });
  await rejects(file.read("a"), path, /tensor a: has the dtype F8_E4M3, which Weft lacks/);
  assert.deepEqual([...((await file.read("b")).data as Uint8Array)], [1, 1]);
  await file.close();
});

test("forged headers are rejected before memory is allocated", async () => {
  const big = 2 ** 53 - 1;
  const cases: [string, RegExp][] = [
    [handmade({}, 0, 2n ** 63n), /header claims 9223372036854775808 bytes/],
    [handmade({}, 0, 3n), /header claims 3 bytes of 10/],
    [handmade({ a: tensor("F32", [2], 0, 8) }, 4), /tensor a: claims bytes 0 to 8 of 4; is the file truncated/],
    [handmade({ a: tensor("F32", [3], 0, 8) }, 8), /F32\[3\] takes 12 bytes and has 8/],
    [handmade({ a: tensor("F32", [big, big], 0, 8) }, 8), /takes Infinity bytes and has 8/],
    [handmade({ a: tensor("F32", [2 ** 62, 8], 0, 8) }, 8), /not a list of possible dimensions/],
    [handmade({ a: tensor("F64", [2 ** 32, 2 ** 32], 0, 8) }, 8), /takes Infinity bytes/],
    [handmade({ a: tensor("F32", [-2, -1], 0, 8) }, 8), /not a list of possible dimensions/],
    [handmade({ a: tensor("F32", [1.5], 0, 6) }, 6), /not a list of possible dimensions/],
    [handmade({ a: tensor("F32", "2", 0, 8) }, 8), /not a list of possible dimensions/],
    [handmade({ a: tensor("F32", [2], 8, 0) }, 8), /not a range/],
    [handmade({ a: tensor("F32", [2], -8, 0) }, 8), /not a range/],
    [handmade({ a: tensor("F32", [2], 0) }, 8), /not a range/],
    [
      handmade({ a: tensor("U8", [4], 0, 4), b: tensor("U8", [4], 2, 6) }, 6),
      /tensor b starts at byte 2 of the data, inside/,
    ],
    [handmade({ a: tensor("U8", [2], 0, 2), b: tensor("U8", [2], 3, 5) }, 5), /after a gap/],
    [handmade({ a: tensor("U8", [2], 0, 2) }, 5), /5 bytes of data and tensors for 2/],
    [handmade({ a: tensor("U8", new Array(65).fill(1), 0, 1) }, 1), /65 dimensions/],
    [handmade({ a: { shape: [1] } }, 0), /no dtype/],
    [handmade({ a: 5 }, 0), /no dtype/],
    [handmade([1, 2], 0), /not a JSON object/],
    [handmade("{'a': 1}", 0), /not JSON/],
    [
      handmade(
        '{"a": {"dtype":"U8","shape":[2],"data_offsets":[0,2]},"a":{"dtype":"U8","shape":[2],"data_offsets":[2,4]}}',
        4,
      ),
      /gap/,
    ],
    [handmade({ __metadata__: { a: 1 } }, 0), /metadata/],
  ];
  for (const [path, pattern] of cases) await rejects(openSafetensors(path), path, pattern);
  const invalid = join(folder, "utf8.safetensors");
  writeFileSync(invalid, Buffer.from([2, 0, 0, 0, 0, 0, 0, 0, 0xff, 0xfe]));
  await rejects(openSafetensors(invalid), invalid, /not JSON/);
});

test("truncated files are rejected", async () => {
  const path = join(folder, "cut.safetensors");
  await writeSafetensors(path, { a: sample("float32", [10]), b: sample("uint8", [3]) });
  const whole = readFileSync(path);
  for (let size = 0; size < whole.length; size++) {
    writeFileSync(path, whole.subarray(0, size));
    await assert.rejects(readSafetensors(path), /truncated|no \.safetensors file|header/);
  }
  writeFileSync(path, whole);
  const file = await openSafetensors(path);
  truncateSync(path, whole.length - 20);
  await rejects(file.read("a"), path, /ends at byte/);
  await file.close();
});

test("writing rejects unsupported dtypes and leaves no file", async () => {
  const place = join(folder, "atomic");
  mkdirSync(place);
  const path = join(place, "a.safetensors");
  await writeSafetensors(path, { a: sample("uint8", [2]) });
  await rejects(
    writeSafetensors(path, { z: sample("complex128", [1]) }),
    path,
    /z is complex128, which the format lacks/,
  );
  await rejects(writeSafetensors(path, { __metadata__: sample("uint8", [1]) }), path, /no tensor can be named/);
  await rejects(writeSafetensors(path, {}, { a: 1 } as unknown as Record<string, string>), path, /metadata/);
  const wrong = { ...sample("uint8", [2]), shape: [3] };
  await rejects(writeSafetensors(path, { a: sample("uint8", [1]), wrong }), path, /wrong is uint8\[3\]/);
  assertSameArray((await readSafetensors(path)).a, sample("uint8", [2]));
  assertOnlyFiles(place, ["a.safetensors"]);
  await writeSafetensors(path, {});
  assert.deepEqual(await readSafetensors(path), {});
});
