// The three traces that Weft writes: weft.profile, weft tape export, and tapes.
import assert from "node:assert/strict";
import { test } from "node:test";
import { TestFolder } from "./fixtures.testkit.js";
import { analyzeTraces } from "./ranks.js";

const instructions = [0, 1].flatMap((worker) =>
  [0, 1, 2].flatMap((step) => [
    {
      type: "instruction",
      worker,
      workerId: `w${worker}`,
      step,
      program: 0,
      op: "matmul",
      kind: "library",
      startUs: 1.7e15 + 1000 * step,
      endUs: 1.7e15 + 1000 * step + 600,
    },
    {
      type: "instruction",
      worker,
      workerId: `w${worker}`,
      step,
      program: 0,
      op: "all-reduce",
      kind: "collective",
      startUs: 1.7e15 + 1000 * step + 500,
      endUs: 1.7e15 + 1000 * step + 800 + 50 * worker,
    },
  ]),
);

const summary = async (file: string) =>
  (await analyzeTraces([file])).ranks.map((r) => [
    r.rank,
    r.source,
    r.spanUs,
    r.computeUs,
    r.communicationUs,
    r.exposedCommunicationUs,
    r.steps.length,
  ]);

test("tapes and their exports give the same times per worker", async () => {
  using folder = new TestFolder();
  const expected = [
    [0, "weft", 2800, 1800, 900, 600, 3],
    [1, "weft", 2850, 1800, 1050, 750, 3],
  ];
  const lines = [{ type: "tape", version: 1 }, { type: "run", step: 0 }, ...instructions].map((line) =>
    JSON.stringify(line),
  );
  assert.deepEqual(await summary(folder.file("run.tape", `${lines.join("\n")}\n`)), expected);
  // A tape that was cut in the middle of a line.
  assert.equal((await summary(folder.file("cut.tape", lines.join("\n").slice(0, -40)))).length, 2);
  const meta = [0, 1].map((pid) => ({ ph: "M", name: "process_name", pid, tid: 0, args: { name: `worker w${pid}` } }));
  const events = instructions.map((i) => ({
    ph: "X",
    name: i.op,
    cat: i.kind,
    pid: i.worker,
    tid: i.kind === "collective" ? 1 : 0,
    ts: i.startUs - 1.7e15,
    dur: i.endUs - i.startUs,
    args: { step: i.step, program: 0 },
  }));
  assert.deepEqual(
    await summary(folder.file("run.json", JSON.stringify({ traceEvents: [...meta, ...events] }))),
    expected,
  );
});

test("a trace of weft.profile shows kernels and runs", async () => {
  using folder = new TestFolder();
  const event = (name: string, ts: number, dur: number, tid: number) => ({ name, ph: "X", ts, dur, pid: 77, tid });
  const traceEvents = [0, 1000].flatMap((at) => [
    event("run (2 kernels)", at, 500, 1),
    event("matmul", at, 300, 2),
    event("add", at + 300, 100, 2),
  ]);
  const path = folder.file("profile.json", JSON.stringify({ traceEvents, displayTimeUnit: "ms" }));
  assert.deepEqual(await summary(path), [[0, "weft", 1400, 800, 0, 0, 2]]);
});
