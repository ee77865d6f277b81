import assert from "node:assert/strict";
import { test } from "node:test";
import { judgeBench } from "./judge.js";
import { benchFiles } from "./page.js";
import { type BenchRecord, type BenchResult, type BenchRow, parseBenchRecord } from "./record.js";
import { benchText } from "./text.js";

const result = (devices: number, seconds: number, more: Partial<BenchResult> = {}): BenchResult => ({
  devices,
  simulated: false,
  status: "ok",
  endToEnd: [seconds * 2, seconds * 2.2, seconds * 1.9],
  compute: [seconds, seconds * 1.1, seconds * 0.9],
  split: { create: 0, plan: 0, compute: seconds, communicate: 0, fetch: seconds },
  devicesUsed: devices,
  bytesMoved: 0,
  plan: "",
  error: 1e-6,
  ...more,
});

const row = (label: string, results: BenchResult[], more: Partial<BenchRow> = {}): BenchRow => ({
  id: label,
  group: "Square matrix products",
  label,
  flops: 2e9,
  batch: 128,
  paysFrom: 4096,
  results,
  ...more,
});

const record = (rows: BenchRow[], more: Partial<BenchRecord> = {}): BenchRecord => ({
  format: "weft-bench",
  version: 1,
  suite: "shard",
  at: "2026-01-01T00:00:00Z",
  device: "cpu",
  coresPerWorker: 1,
  precision: "float32",
  autoShard: true,
  hardware: {},
  versions: {},
  warmup: 2,
  repeats: 3,
  rows,
  ...more,
});

const verdictOf = (judged: ReturnType<typeof judgeBench>, label: string, devices: number, clock = "compute") =>
  judged.verdicts.find((v) => v.row.label === label && v.result.devices === devices && v.clock === clock)!;

test("speedups are ratios of medians against the smallest count, classes by efficiency", () => {
  const judged = judgeBench(
    record([row("a", [result(2, 0.8), result(8, 0.1)]), row("b", [result(2, 0.8), result(8, 0.4)])]),
  );
  assert.equal(judged.baselineDevices, 2);
  const a = verdictOf(judged, "a", 8);
  assert.ok(Math.abs(a.speedup - 8) < 1e-12);
  assert.ok(Math.abs(a.efficiency - 2) < 1e-12);
  assert.equal(a.class, "super-linear");
  assert.equal(verdictOf(judged, "b", 8).class, "partial");
  assert.equal(verdictOf(judged, "a", 2).class, "baseline");
  const summary = judged.summaries.find((s) => s.clock === "compute" && s.devices === 8)!;
  assert.deepEqual(
    [summary.average, summary.minimum, summary.maximum].map((x) => Number(x.toFixed(6))),
    [5, 2, 8],
  );
  assert.equal(a.teraflops, 2e9 / 0.1 / 1e12);
});

test("cause and advice follow from the measurement", () => {
  const judged = judgeBench(
    record([
      row("small", [result(1, 1e-3), result(4, 1e-3, { devicesUsed: 1 })]),
      row("chatty", [
        result(1, 1),
        result(4, 0.3),
        result(8, 0.5, { split: { create: 0, plan: 0, compute: 0.1, communicate: 0.4, fetch: 0 } }),
      ]),
      row("machine", [result(1, 1), result(8, 0.2, { independent: [1.5, 1.6, 1.55], sameCores: [0.16, 0.18, 0.19] })]),
    ]),
  );
  const small = verdictOf(judged, "small", 4);
  assert.match(small.cause, /kept it on one device/);
  assert.match(small.advice, /128 rows, pays from 4096/);
  const chatty = verdictOf(judged, "chatty", 8);
  assert.match(chatty.cause, /communication takes 80%/);
  assert.equal(chatty.advice, "use 4 of 8");
  const machine = verdictOf(judged, "machine", 8);
  assert.equal(machine.sameCores, 0.18 / 0.2);
  assert.equal(verdictOf(judged, "machine", 8, "endToEnd").sameCores, null);
  assert.match(benchText(judged), /machine, 8 devices: 200\.00 ms, one device with as many cores 180\.00 ms \(90%\)/);
  assert.ok(Math.abs(machine.machineEfficiency! - 1) < 1e-9);
  assert.match(machine.cause, /share nothing/);
  // More devices are never the advice for a slow count.
  assert.doesNotMatch(verdictOf(judged, "chatty", 4).advice, /use 8/);
  const off = judgeBench(record([row("x", [result(1, 1), result(2, 1)])], { autoShard: false }));
  assert.match(verdictOf(off, "x", 2).cause, /WEFT_AUTO_SHARD=0/);
  assert.match(verdictOf(judged, "chatty", 4, "endToEnd").cause, /fetches the result/);
});

test("predictions are labeled, failures listed, and the page is self-contained", async () => {
  const judged = judgeBench(
    record([
      row("a", [result(1, 1), result(8, 0.15, { simulated: true, error: null })]),
      row("<b>", [
        result(1, 1),
        result(8, 0, { status: "failed", message: "out of memory", endToEnd: [], compute: [] }),
      ]),
    ]),
  );
  const text = benchText(judged);
  for (const line of text.split("\n").filter((l) => l.includes("6.67x") || l.includes("150.00 ms")))
    assert.match(line, /predicted/);
  assert.match(text, /<b>, 8 devices: out of memory/);
  const files = await benchFiles(judged);
  const page = String(files["bench.html"]);
  assert.match(page, /&lt;b&gt;, 8 devices: out of memory/);
  assert.doesNotMatch(page, /<b>/);
  assert.doesNotMatch(page, /src=|href="http/);
  assert.deepEqual([...(files["speedup_compute.png"] as Uint8Array).slice(1, 4)], [0x50, 0x4e, 0x47]);
});

test("a benchmark file is validated", () => {
  const good = record([row("a", [result(1, 1)])]);
  assert.equal(parseBenchRecord(JSON.parse(JSON.stringify(good)), "x.json").rows.length, 1);
  const bad: [unknown, RegExp][] = [
    [null, /not a JSON object/],
    [{ ...good, format: "x" }, /"format"/],
    [{ ...good, version: 9 }, /version 9/],
    [{ ...good, rows: {} }, /"rows"/],
    [{ ...good, rows: [row("a", [result(0, 1)])] }, /device count/],
    [{ ...good, rows: [row("a", [{ ...result(1, 1), compute: ["1"] as never }])] }, /times/],
  ];
  for (const [value, message] of bad) assert.throws(() => parseBenchRecord(value, "x.json"), message);
});
