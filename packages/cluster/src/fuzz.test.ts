// Fuzzes all external input: functions, messages, tapes and tensor files, mutated from valid ones. Each is accepted or
// rejected with a WeftError in bounded time; accepted functions pass the verifier, and generated code contains no
// payload, and runs within its memory. Runs a few seconds from a fixed seed; WEFT_FUZZ_MESSAGES=100000, WEFT_FUZZ_RUNS=1000 and
// WEFT_FUZZ_SEED=7 change this. `node scripts/fuzz-memory.mjs` runs it with native code under the address sanitizer.
import assert from "node:assert/strict";
import { mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CpuDevice, ReferenceDevice } from "@weft/core/internal/device";
import { bytesOf, functionOrder, type GraphFn, isOp, numel, WeftError } from "@weft/core/internal/graph";
import { decodeFunction, verify } from "@weft/core/internal/ops";
import { readNpz, readSafetensors, writeNpz, writeSafetensors } from "@weft/core/io";
import { sampleFunctions } from "./hostile.testkit.js";
import { mutated, mutatedBytes, pick, randomFrom } from "./mutate.testkit.js";
import { decode, decodeAll, fromClient, fromWorker, toWorker } from "./protocol.js";
import { diffTapes, readTape, tapeStats } from "./tape-file.js";
import { replay } from "./tape-replay.js";

const messages = Number(process.env.WEFT_FUZZ_MESSAGES ?? 6000);
const runs = Number(process.env.WEFT_FUZZ_RUNS ?? 12);
const seed = Number(process.env.WEFT_FUZZ_SEED ?? 1);
const folder = mkdtempSync(join(tmpdir(), "weft-fuzz-"));
after(() => rmSync(folder, { recursive: true, force: true }));

/** Maximum milliseconds per input, generous for busy machines, and where the C compiler runs. */
const most = 3000;
const mostCompiling = 120_000;

interface Count {
  taken: number;
  refused: number;
}

function tried<T>(count: Count, label: string, action: () => T, limit = most): T | null {
  const begin = performance.now();
  try {
    const value = action();
    count.taken++;
    return value;
  } catch (error) {
    assert.ok(error instanceof WeftError, `${label}: ${(error as Error).stack}`);
    assert.ok(error.message.length < 20_000, `${label}: an error of ${error.message.length} characters`);
    count.refused++;
    return null;
  } finally {
    const ms = performance.now() - begin;
    assert.ok(ms < limit, `${label}: ${ms} ms`);
  }
}

const samples = [...sampleFunctions().values()];

test("mutated functions are rejected or compile without a payload", (t) => {
  const random = randomFrom(seed);
  const count = { taken: 0, refused: 0 };
  const device = CpuDevice.available() ? new CpuDevice({ threads: 1 }) : null;
  const written = { taken: 0, refused: 0 };
  for (let i = 0; i < messages; i++) {
    const text = JSON.stringify(mutated(random, pick(random, samples)));
    const fn = tried<GraphFn>(count, `function ${i} of seed ${seed}`, () => decodeFunction(JSON.parse(text)));
    if (fn === null) continue;
    verify(fn);
    if (device === null || i % 4 !== 0) continue;
    const source = tried(written, `source ${i} of seed ${seed}`, () => device.source(fn));
    assert.ok(source === null || !source.includes("weft-payload"), text);
  }
  t.diagnostic(`${messages} functions: ${count.taken} taken, ${count.refused} refused; ${written.taken} written as C`);
  assert.ok(count.taken > messages / 100 && count.refused > messages / 4);
});

/** Whether a function is small enough to run: few elements, few turns of its loops. */
const isSmall = (fn: GraphFn): boolean =>
  functionOrder(fn).every(
    (node) =>
      [node, ...(node.outputs ?? [])].every(({ shape }) => numel(shape) <= 4096) &&
      (!isOp(node, "scan") || (node.attrs.length <= 1000 && isSmall(node.attrs.body))),
  );

test("mutated functions that are accepted compute within their memory, whatever their arguments contain", (t) => {
  if (!CpuDevice.available()) return t.skip("no C compiler");
  const random = randomFrom(seed + 4);
  const device = new CpuDevice({ threads: 1 });
  const count = { taken: 0, refused: 0 };
  // The name of a function that computes: a crash leaves nothing else behind.
  const current = process.env.WEFT_FUZZ_CURRENT;
  for (let i = 0; count.taken + count.refused < runs && i < 200 * runs; i++) {
    const plain = i < samples.length ? samples[i] : mutated(random, pick(random, samples));
    const fn = tried<GraphFn>({ taken: 0, refused: 0 }, `function ${i}`, () => decodeFunction(plain as never));
    if (fn === null || !isSmall(fn) || functionOrder(fn).some(({ op }) => op === "collective")) continue;
    if (current !== undefined) writeFileSync(current, JSON.stringify(plain));
    const compute = (): void => {
      const executable = device.compile(fn, {});
      const inputs = fn.params.map(({ shape, dtype }) => {
        const buffer = device.allocate(numel(shape) * bytesOf(dtype));
        device.upload(
          buffer,
          Uint8Array.from({ length: buffer.bytes }, () => Math.floor(random() * 256)),
        );
        return buffer;
      });
      for (const result of executable.run(inputs)) {
        device.download(result, new Uint8Array(result.bytes));
        if (!inputs.includes(result as never)) device.free(result);
      }
      for (const input of inputs) device.free(input);
    };
    tried(count, `run ${i} of seed ${seed}: ${JSON.stringify(plain)}`, compute, mostCompiling);
  }
  t.diagnostic(`${count.taken} functions computed, ${count.refused} were refused by the compiler`);
  assert.ok(count.taken > 0);
});

test("mutated messages of every kind are rejected or valid", (t) => {
  const random = randomFrom(seed + 1);
  const part = { worker: "w1", offset: 0, sizes: [4], strides: [4], element: 4 };
  const where = { host: "h", pid: 1 };
  const run = { t: "run", program: 1, inputs: [1, 2], outputs: [3], step: 1, site: "a.mjs:1", free: [1] };
  const graph = samples[0];
  const valid = [
    { t: "hello", label: null, process: where, settings: { maxQueue: 5 } },
    {
      t: "define",
      program: 1,
      donated: [true],
      members: ["w1"],
      generation: 1,
      graphs: [graph],
      which: [0],
      collective: false,
    },
    run,
    { t: "upload", id: 1, bytes: 16, parts: [part] },
    { t: "upload", client: 1, id: 1, bytes: 16, part },
    { t: "free", ids: [1, 2] },
    { ...run, client: 1 },
    { t: "define", client: 1, program: 1, donated: [], graph, group: { name: "g", rank: 0, size: 1, mpi: null } },
    { t: "failed", client: 1, ids: [1], message: "m", code: "error", worker: "w1" },
    { t: "progress", client: 1, done: 2, seconds: 0.1 },
  ];
  const count = { taken: 0, refused: 0 };
  const schemas = [fromClient, toWorker, fromWorker] as const;
  for (let i = 0; i < messages / 4; i++) {
    const bytes = Buffer.from(JSON.stringify(mutated(random, pick(random, valid))) ?? "null");
    const cut = random() < 0.1 ? mutatedBytes(random, bytes) : bytes;
    tried(count, `message ${i} of seed ${seed}`, () => decodeAll<unknown>(pick(random, schemas), cut));
  }
  t.diagnostic(`${messages / 4} messages: ${count.taken} taken, ${count.refused} refused`);
});

async function triedAsync(count: Count, label: string, action: () => Promise<unknown>): Promise<void> {
  const begin = performance.now();
  try {
    await action();
    count.taken++;
  } catch (error) {
    assert.ok(error instanceof WeftError, `${label}: ${(error as Error).stack}`);
    count.refused++;
  }
  const ms = performance.now() - begin;
  assert.ok(ms < most, `${label}: ${ms} ms`);
}

test("mutated tapes are rejected or can be summarized, compared and replayed", async (t) => {
  const random = randomFrom(seed + 2);
  const lines = [
    { type: "tape", version: 1 },
    { type: "program", program: 1, donated: [], graph: sampleFunctions().get("reduce") },
    { type: "data", id: 1, bytes: 128, sha256: "ab", base64: Buffer.alloc(128).toString("base64") },
    { type: "run", step: 1, program: 1, inputs: [1], outputs: [2], cause: "a.mjs:3" },
    { type: "fetch", id: 2, sha256: "cd", base64: Buffer.alloc(16).toString("base64") },
    { type: "free", id: 1 },
  ];
  const count = { taken: 0, refused: 0 };
  const path = join(folder, "a.tape");
  const device = new ReferenceDevice();
  const turns = Math.ceil(messages / 20);
  for (let i = 0; i < turns; i++) {
    const changed = lines.map((line, k) => (random() < (k === 0 ? 0.05 : 0.4) ? mutated(random, line) : line));
    const bytes = Buffer.from(changed.map((line) => JSON.stringify(line)).join("\n"));
    writeFileSync(path, random() < 0.2 ? mutatedBytes(random, bytes) : bytes);
    await triedAsync(count, `tape ${i} of seed ${seed}`, async () => {
      const tape = await readTape(path);
      tapeStats(tape);
      diffTapes(tape, tape);
      await replay(tape, device);
    });
  }
  t.diagnostic(`${turns} tapes: ${count.taken} taken, ${count.refused} refused`);
});

test("mutated .safetensors and .npz files are rejected or readable", async (t) => {
  const random = randomFrom(seed + 3);
  const tensors = {
    a: { shape: [3, 4], dtype: "float32", data: Float32Array.from({ length: 12 }, (_, i) => i) },
    b: { shape: [5], dtype: "int64", data: new BigInt64Array(5) },
  } as const;
  const count = { taken: 0, refused: 0 };
  const turns = Math.ceil(messages / 20);
  for (const [name, write, read] of [
    ["x.safetensors", writeSafetensors, readSafetensors],
    ["x.npz", writeNpz, readNpz],
  ] as const) {
    const path = join(folder, name);
    await write(path, tensors);
    const good = readFileSync(path);
    for (let i = 0; i < turns; i++) {
      const bytes = mutatedBytes(random, good);
      writeFileSync(path, bytes);
      await triedAsync(count, `${name} ${i} of seed ${seed}`, () => read(path));
    }
  }
  t.diagnostic(`${2 * turns} files: ${count.taken} taken, ${count.refused} refused`);
});

test("the short check of runs accepts nothing that the schema refuses, and changes nothing", () => {
  const good = { t: "run", program: 3, inputs: [1, 2], outputs: [3], step: 0, site: null };
  const values: unknown[] = [0, 7, -1, 1.5, -0, 2 ** 53, Number.NaN, null, "1", [], [1], [-1], ["1"], [1.5], {}, true];
  for (const field of [...Object.keys(good), "free", "measure", "extra", "__proto__", "client"])
    for (const value of values) {
      const text = JSON.stringify({ ...good, [field]: value });
      const message = JSON.parse(text) as unknown;
      const expected = fromClient.safeParse(message);
      let got: unknown = null;
      try {
        got = decode(fromClient, Buffer.from(text));
      } catch {
        // It was refused.
      }
      assert.deepEqual(got, expected.success ? expected.data : null, text);
    }
});
