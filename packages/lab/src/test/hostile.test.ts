// Hostile input: absurd counts, values that are not numbers, formulas and terminal escapes give a clear message or a neutral
// form, in bounded time and memory.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, symlinkSync } from "node:fs";
import { dirname, join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { formatCsv } from "@weft/formats/csv";
import { plainText } from "@weft/formats/text";
import { analyzeStudy } from "../diagnosis/index.js";
import { readStudies } from "../import/index.js";
import { readPoints } from "../predict/index.js";
import { performanceReport, summaryCsv, summaryTex } from "../report/index.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { analyzeTraces } from "../trace/index.js";

const weft = join(dirname(fileURLToPath(import.meta.url)), "../../../cli/bin/weft.js");

/** Processor seconds of a piece of work: wall time depends on what else the machine does. */
function cpuSeconds(work: () => void): number {
  const before = process.cpuUsage();
  work();
  const used = process.cpuUsage(before);
  return (used.user + used.system) / 1e6;
}

const record = (fields: object): string => `${JSON.stringify({ v: 1, ...fields })}\n`;

for (const count of [1e8, 1e12])
  test(`a world size of ${count} in records, run.json, study.yaml or a trace is refused quickly`, async () => {
    using folder = new TestFolder();
    const records = folder.file(
      "absurd.jsonl",
      record({ type: "rank", rank: 0, worldSize: count }) +
        record({ type: "facts", rank: 0, facts: { worldSize: count } }) +
        record({ type: "epoch", epoch: 1, seconds: 3 }),
    );
    folder.file(
      "scaled/study.json",
      JSON.stringify({ v: 1, name: "s", command: [], counts: [count], repeats: 1, launcher: "local" }),
    );
    folder.file("scaled/runs/a/run.json", JSON.stringify({ v: 1, id: "a", devices: count, status: "ok" }));
    folder.file("scaled/runs/a/rank0.jsonl", record({ type: "epoch", epoch: 1, seconds: 3 }));
    const yaml = folder.file("y/study.yaml", `studies: [{name: s, runs: [{dir: a, devices: ${count}}]}]`);
    const used = cpuSeconds(() => {
      const [study] = readStudies([records]);
      const { report } = analyzeStudy(study!);
      assert.match(JSON.stringify(report.findings), /worldSize/);
      const [scaled] = readStudies([join(folder.path, "scaled")]);
      assert.match(JSON.stringify(scaled), /not a valid value|says how many devices/);
      analyzeStudy(scaled!);
      assert.throws(() => readStudies([yaml]), /devices.*at most 1048576/);
    });
    assert.ok(used < 5, `${used} s`);
    const trace = folder.file(
      "trace.json",
      JSON.stringify({
        distributedInfo: { rank: 0, world_size: count },
        traceEvents: [{ ph: "X", name: "a", pid: 1, tid: 1, ts: 1, dur: 2 }],
      }),
    );
    const report = await analyzeTraces([trace]);
    assert.match(JSON.stringify(report), new RegExp(`world_size ${count} is above 1048576`));
    assert.deepEqual(report.missingRanks, []);
  });

test("a run on as many devices as are allowed is analyzed in bounded time", () => {
  using folder = new TestFolder();
  for (const [name, devices] of [
    ["a", 1],
    ["b", 1 << 20],
  ] as const)
    folder.file(
      `runs/${name}/run.json`,
      JSON.stringify({ v: 1, id: name, devices, status: "ok", seconds: 10, repeat: 0, order: devices }),
    );
  folder.file("runs/b/rank0.jsonl", record({ type: "rank", rank: 0, worldSize: 1 << 20 }));
  folder.file(
    "study.json",
    JSON.stringify({ v: 1, name: "s", command: [], counts: [1, 1 << 20], repeats: 1, launcher: "local" }),
  );
  const used = cpuSeconds(() => {
    const { report } = analyzeStudy(readStudies([folder.path])[0]!);
    const text = performanceReport([report]);
    assert.match(text, /no records of rank 1, 2, 3, .* and \d+ more/);
    assert.ok(text.length < 20_000, `${text.length} characters`);
  });
  assert.ok(used < 10, `${used} s`);
});

test("times that are not numbers are reported, not dropped in silence", () => {
  using folder = new TestFolder();
  const csv = folder.file("metrics.csv", "epoch,train_loss,train_time\n1,0.5,10\n2,0.4,NaN\n3,oops,ten\n4,0.2,10\n");
  const jsonl = folder.file(
    "records.jsonl",
    record({ type: "epoch", epoch: 1, seconds: 10 }) +
      `{"v":1,"type":"epoch","epoch":2,"seconds":NaN}\n` +
      record({ type: "epoch", epoch: 3, seconds: "ten" }),
  );
  for (const path of [csv, jsonl]) {
    const { report } = analyzeStudy(readStudies([path])[0]!);
    const dirty = report.findings.find((f) => f.id === "dirty-data");
    assert.equal(dirty?.severity, "moderate", path);
  }
});

test("cells that a spreadsheet would run are neutral, and numbers stay numbers", () => {
  const text = formatCsv(
    ["a"],
    [["=1+2"], ["@x"], ["+cmd|' /C calc'!A0"], ["-2+3"], [-2], ["-2.5e3"], ["-"], ["\t=1"]],
  );
  assert.deepEqual(text.trimEnd().split("\n"), [
    "a",
    "'=1+2",
    "'@x",
    "'+cmd|' /C calc'!A0",
    "'-2+3",
    "-2",
    "-2.5e3",
    "-",
    "'\t=1",
  ]);
});

test("terminal escapes and formulas in names reach neither the terminal, the text, TeX nor the CSV", () => {
  using folder = new TestFolder();
  const evil = "=HYPERLINK(1)\u001b]0;owned\u0007\u009b2J\u202e";
  const yaml = {
    studies: [
      { name: evil, runs: [1, 2].map((devices) => ({ dir: `d${devices}`, devices, id: `${evil}${devices}` })) },
    ],
  };
  folder.file("study.yaml", JSON.stringify(yaml));
  for (const devices of [1, 2])
    folder.file(
      `d${devices}/metrics.csv`,
      `epoch,train_time\n1,9\n2,${10 / devices}\n3,${10.1 / devices}\n4,${10 / devices}\n`,
    );
  const { report } = analyzeStudy(readStudies([folder.path])[0]!);
  const outputs = [performanceReport([report]), summaryCsv([report]), summaryTex([report])];
  const done = spawnSync(
    process.execPath,
    [weft, "analyze", folder.path, "--no-pictures", "--no-ledger", "--out", join(folder.path, "out")],
    { encoding: "utf8" },
  );
  assert.equal(done.status, 0, done.stderr);
  for (const text of [...outputs, done.stdout, done.stderr])
    for (const c of "\u001b\u0007\u009b\u202e") assert.ok(!text.includes(c), JSON.stringify(text));
  assert.match(summaryCsv([report]), /\n'=HYPERLINK/);
  assert.equal(plainText("a\u001b[31mb"), "a\\u001b[31mb");
});

test("points that overflow are left out, and a file with too many is refused at once", () => {
  const huge = readPoints({
    points: [
      { devices: 8, throughput: 1e308, globalBatch: 64 },
      { devices: 16, throughput: 1e-308 },
    ],
  });
  assert.equal(huge.samples.length, 0);
  assert.equal(huge.problems.length, 2);
  const many = Array.from({ length: 300_000 }, (_, i) => [i + 1, i + 1]);
  const seconds = cpuSeconds(() =>
    assert.throws(() => readPoints({ metric: "throughput", points: many }), /300000 points; at most 10000/),
  );
  assert.ok(seconds < 1, `${seconds} s`);
});

test("pipes, devices, deep nesting and endless lines are refused at once by every command that reads them", () => {
  using folder = new TestFolder();
  folder.file("deep.yaml", "[".repeat(100_000));
  folder.file("quotes.yaml", '"'.repeat(200_001));
  folder.file("keys.yaml", Array.from({ length: 30_000 }, (_, i) => `k${i}: ${i}\n`).join(""));
  folder.file("binary.txt", "\0\u0001\u0002");
  mkdirSync(join(folder.path, "folder.yaml"));
  folder.file("bad.csv", '"'.repeat(1001));
  for (const name of ["pipe.yaml", "pipe.json", "pipe.jsonl", "pipe.csv"])
    spawnSync("mkfifo", [join(folder.path, name)]);
  for (const name of ["zero.yaml", "zero.csv", "zero.json"]) symlinkSync("/dev/zero", join(folder.path, name));
  const refusals: [string[], RegExp][] = [
    [["analyze", "deep.yaml"], /brackets inside each other/],
    [["analyze", "quotes.yaml"], /more than 20000 quotes/],
    [["analyze", "keys.yaml"], /more than 20000 keys/],
    [["train", "deep.yaml"], /brackets inside each other/],
    [["train", "keys.yaml"], /more than 20000 keys/],
    [["train", "zero.yaml"], /more than 16 MiB/],
    [["train", "folder.yaml"], /is a folder, and a file is needed/],
    [["tune", "quotes.yaml"], /more than 20000 quotes/],
    [["quantum", "run", "quotes.yaml"], /more than 20000 quotes/],
    [["quantum", "optimize", "zero.yaml"], /more than 16 MiB/],
    [["quantum", "meta", "keys.yaml"], /more than 20000 keys/],
    [["data", "show", "zero.csv"], /more than 2 GiB/],
    [["compare", "zero.json", "zero.json"], /more than/],
    [["hang", "binary.txt"], /no dump, stack or log of a rank/],
    [["lint", "binary.txt"], /not text/],
    [["ui", "binary.txt"], /is a file; give a folder/],
    [["audit", "binary.txt"], /is not a folder/],
    [["analyze", "pipe.csv"], /not a regular file/],
    [["analyze", "pipe.jsonl"], /not a regular file/],
    [["lint", "zero.yaml", "pipe.yaml", "deep.yaml", "quotes.yaml"], /not a file[\s\S]*brackets inside each other/],
    [["trace", "pipe.json"], /not a regular file/],
    [["hang", "pipe.json"], /not a regular file/],
    [["predict", "bad.csv", "--at", "8"], /quoted field/],
  ];
  for (const [line, expected] of refusals) {
    const args = line.map((arg) => (/\.\w+$/.test(arg) ? join(folder.path, arg) : arg));
    const done = spawnSync(process.execPath, [weft, ...args], { encoding: "utf8", timeout: 60_000 });
    const said = done.stdout + done.stderr;
    assert.match(said, expected, line.join(" "));
    assert.doesNotMatch(said, /\n {4}at /, line.join(" "));
  }
});
