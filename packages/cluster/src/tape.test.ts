import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { cpSync, existsSync, mkdtempSync, readdirSync, readFileSync, rmSync, statSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { CpuDevice, ReferenceDevice } from "@weft/core/internal/device";
import { tapeLineSchema, unknownFields } from "@weft/formats/internal";
import { connect } from "./connect.js";
import { chromeTrace, diffTapes, readTape, tapeStats } from "./tape-file.js";
import { replay } from "./tape-replay.js";

const skip = CpuDevice.available() ? false : "no C compiler";
const folder = mkdtempSync(join(tmpdir(), "weft-tape-"));
after(() => rmSync(folder, { recursive: true, force: true }));
const clusterUrl = new URL("./index.js", import.meta.url).href;
const weftUrl = new URL(import.meta.resolve("@weft/core")).href;

/** Runs a program with a tape. Every line must match the schema exactly. */
function record(name: string, program: string, env: Record<string, string> = {}): string {
  const path = join(folder, name);
  const script = join(folder, `${name}.mjs`);
  writeFileSync(
    script,
    `import * as weft from ${JSON.stringify(weftUrl)};\nimport { connect } from ${JSON.stringify(clusterUrl)};\n${program}`,
  );
  const { status, stderr } = spawnSync(process.execPath, [script], {
    encoding: "utf8",
    env: { ...process.env, WEFT_TAPE: path, WEFT_DEVICE: "cpu", ...env },
  });
  assert.equal(status, 0, stderr);
  for (const text of readFileSync(path, "utf8").trimEnd().split("\n")) {
    const line: unknown = JSON.parse(text);
    assert.ok(tapeLineSchema.safeParse(line).success, text.slice(0, 200));
    assert.deepEqual(unknownFields(tapeLineSchema, line), [], text.slice(0, 200));
  }
  return path;
}

const training = `
const x = weft.tensor(Float32Array.from({ length: 64 * 40 }, (_, i) => Math.sin(i))).reshape([64, 40]);
let w = weft.full([40, 30], 0.1);
const step = weft.jit((w, x) => w.sub(weft.grad((w) => x.matmul(w).tanh().square().mean())(w)), { donate: [0] });
for (let i = 0; i < 3; i++) w = step(w, x);
console.log(await w.sum().item(), (await w.data())[0]);
`;

const preload = new URL(import.meta.resolve("@weft/testing/emulated-cuda")).href;
const attention = `
const [q, k, v] = [1, 2, 3].map((seed) =>
  weft.tensor(Float32Array.from({ length: 4 * 20 * 16 }, (_, i) => Math.sin(i * seed))).reshape([4, 1, 20, 16]));
const attend = (q, k, v) => weft.softmax(q.matmul(k.transpose()).div(4)).matmul(v);
const step = weft.jit(weft.grad((q) => attend(q, k, v).square().sum()));
console.log(await attend(q, k, v).data(), await step(q).data());
`;

test("a tape with a GPU's fused attention replays on a device without that kernel", { skip }, async () => {
  const gpu = { NODE_OPTIONS: `--import ${preload}`, WEFT_DEVICE: "cuda", WEFT_CUDA_GRAPHS: "0" };
  const tape = await readTape(record("attention", attention, gpu));
  assert.ok(tape.instructions.some(({ op }) => op.startsWith("attentionGradient")));
  const cluster = await connect({ devices: 2, cores: 1 });
  try {
    for (const device of [new ReferenceDevice(), new CpuDevice({ threads: 1 }), cluster.device]) {
      const { results } = await replay(tape, device);
      assert.deepEqual(
        results.map((r) => r.ok),
        [true, true],
        device.name,
      );
    }
  } finally {
    await cluster.close();
  }
});

test("a tape records every kernel with its source line, and replays with equal results on other devices", {
  skip,
}, async () => {
  const tape = await readTape(record("local", training));
  assert.equal(tape.unreadable, 0);
  const stats = tapeStats(tape);
  assert.ok(stats.runs >= 5);
  assert.equal(stats.fetches, 2);
  const products = tape.instructions.filter((i) => i.op.startsWith("gemm"));
  assert.equal(products.length, 6, "two products per step");
  for (const i of products) {
    assert.ok(i.endUs > i.startUs);
    assert.match(i.cause ?? "", /local\.mjs:\d+/);
    assert.ok(Math.abs(i.startUs / 1e3 - Date.now()) < 600_000, "unix time");
  }
  const again = await replay(tape, new ReferenceDevice());
  assert.equal(again.runs, stats.runs);
  assert.deepEqual(
    again.results.map((r) => r.ok),
    [true, true],
  );
  process.env.WEFT_FORCE_SHARD = "1";
  const cluster = await connect({ devices: 2, cores: 1 });
  try {
    const sharded = await replay(tape, cluster.device);
    assert.deepEqual(
      sharded.results.map((r) => r.ok),
      [true, true],
    );
    assert.ok(cluster.device.counts.sharded > 0);
  } finally {
    await cluster.close();
  }
});

test("a cluster's tape has the plan and every worker's instructions and collectives", { skip }, async () => {
  const program = `
const cluster = await connect({ devices: 2, cores: 1 });
${training}
await cluster.close();`;
  const tape = await readTape(record("cluster", program, { WEFT_FORCE_SHARD: "1" }));
  const { workers, ops } = tapeStats(tape);
  assert.deepEqual(
    workers.map((w) => w.workerId),
    ["w1", "w2"],
  );
  assert.ok(ops.some((o) => o.kind === "collective"));
  assert.ok(tape.lines.some((l) => l.type === "plan" && l.devices === 2));
  assert.ok(tape.instructions.every((i) => i.cause !== null));
  const { results } = await replay(tape, new CpuDevice());
  assert.deepEqual(
    results.map((r) => r.ok),
    [true, true],
  );
  const trace = chromeTrace(tape) as {
    traceEvents: { ph: string; ts?: number; dur?: number; pid: number; tid: number }[];
  };
  const events = trace.traceEvents.filter((e) => e.ph === "X");
  assert.equal(events.length, tape.instructions.length);
  assert.ok(events.every((e) => e.ts! >= 0 && e.dur! >= 0));
  assert.deepEqual(new Set(events.map((e) => e.tid)), new Set([0, 1]));
});

test("a program that ends with process.exit keeps its tape, alone and on a cluster", { skip }, async () => {
  const leaving = `console.log(await w.sum().item());\nprocess.exit(0);`;
  const loop = training.replace(/console\.log.*/, leaving);
  const single = await readTape(record("exit", loop));
  assert.deepEqual(single.problems, []);
  assert.equal(single.instructions.at(-1)?.step, single.lines.filter((l) => l.type === "run").length - 1);
  const program = `const cluster = await connect({ devices: 2, cores: 1 });\n${loop}`;
  const tape = await readTape(record("exit-cluster", program, { WEFT_FORCE_SHARD: "1" }));
  assert.deepEqual(tape.problems, []);
  const runs = tape.lines.flatMap((l) => (l.type === "run" ? [l.step] : []));
  for (const worker of ["w1", "w2"])
    assert.deepEqual([...new Set(tape.instructions.filter((i) => i.workerId === worker).map((i) => i.step))], runs);
});

test("diff finds the first difference", { skip }, async () => {
  const first = await readTape(record("a", training));
  const same = diffTapes(first, await readTape(record("a2", training)));
  assert.equal(same.firstDifference, null);
  assert.equal(same.fetches.length, 2);
  assert.ok(same.fetches.every((f) => f.equal));
  const changed = diffTapes(first, await readTape(record("c", training.replace("0.1)", "0.2)"))));
  assert.match(changed.firstDifference ?? "", /^instruction \d+: .*run .* at .*a\.mjs/);
  assert.ok(changed.fetches.some((f) => !f.equal));
});

test("large data is stored beside the tape, and replay detects a changed result", { skip }, async () => {
  const path = record(
    "large",
    "const x = weft.tensor(new Float32Array(5000).fill(2)).mul(3);\nconsole.log((await x.data()).length);",
  );
  assert.ok(existsSync(`${path}.data`));
  const tape = await readTape(path);
  assert.equal((await replay(tape, new CpuDevice())).results[0].ok, true);
  const fetch = tape.lines.find((l) => l.type === "fetch")!;
  const file = join(`${path}.data`, (fetch as { file: string }).file);
  const bytes = readFileSync(file);
  bytes.writeFloatLE(7, 4 * 100);
  writeFileSync(file, bytes);
  const [result] = (await replay(tape, new CpuDevice())).results;
  assert.equal(result.ok, false);
});

test("a file that is not a tape is rejected, a truncated last line is ignored", { skip }, async () => {
  const path = join(folder, "bad");
  writeFileSync(path, '{"hello": 1}\n');
  await assert.rejects(readTape(path), /is not a tape/);
  writeFileSync(path, '{"type":"tape","version":9}\n');
  await assert.rejects(readTape(path), /version 9/);
  writeFileSync(path, '{"type":"tape","version":1}\n{"type":"run","st');
  assert.equal((await readTape(path)).unreadable, 1);
});

test("a tape that was cut or altered anywhere is detected, and an intact one is not", { skip }, async () => {
  const program = `
    const x = weft.tensor(Float32Array.from({ length: 4000 }, (_, i) => i));
    for (let i = 0; i < 4; i++) { console.log((await x.mul(i).data())[7]); await new Promise((r) => setTimeout(r, 250)); }`;
  const path = record("whole", program);
  assert.equal(statSync(path).mode & 0o077, 0, "others cannot read it");
  const text = readFileSync(path, "utf8");
  const lines = text.trimEnd().split("\n");
  assert.deepEqual((await readTape(path)).problems, []);
  const device = new CpuDevice({ threads: 1 });
  const damaged = async (name: string, content: string): Promise<string[]> => {
    // The data of the original is beside the copy too.
    const copy = join(folder, name);
    writeFileSync(copy, content);
    cpSync(`${path}.data`, `${copy}.data`, { recursive: true });
    const tape = await readTape(copy);
    await replay(tape, device).catch(() => {});
    return tape.problems;
  };
  assert.deepEqual(await damaged("same", text), []);
  const without = (i: number): string => `${lines.filter((_, k) => k !== i).join("\n")}\n`;
  for (let i = 1; i < lines.length; i++) {
    assert.notDeepEqual(
      await damaged(`no-${i}`, without(i)),
      [],
      `line ${i + 1} was removed: ${lines[i].slice(0, 80)}`,
    );
    assert.notDeepEqual(await damaged(`cut-${i}`, `${lines.slice(0, i).join("\n")}\n`), [], `cut after line ${i}`);
  }
  const run = text.indexOf('"step":1');
  assert.ok(run > 0);
  assert.notDeepEqual(await damaged("digit", `${text.slice(0, run + 7)}2${text.slice(run + 8)}`), []);
  assert.notDeepEqual(await damaged("twice", `${text}${lines[lines.length - 2]}\n`), []);
  // A small change of the data, in its file.
  const [file] = readdirSync(`${path}.data`);
  const bytes = readFileSync(join(`${path}.data`, file));
  bytes.writeFloatLE(bytes.readFloatLE(400) * (1 + 1e-4), 400);
  writeFileSync(join(`${path}.data`, file), bytes);
  assert.match((await damaged("data", text)).join(), /was altered/);
});
