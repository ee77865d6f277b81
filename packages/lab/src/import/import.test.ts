import assert from "node:assert/strict";
import { mkdirSync, mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import { fileURLToPath } from "node:url";
import { ImportError, ProblemLog, readMetricsCsv, readStudies, runFromTape, studyFromScaleDirectory } from "./index.js";

const directory = mkdtempSync(join(tmpdir(), "weft-import-"));
after(() => rmSync(directory, { recursive: true }));
const fixture = (name: string) => fileURLToPath(new URL(`../../testdata/${name}`, import.meta.url));

function put(name: string, text: string): string {
  const path = join(directory, name);
  mkdirSync(join(path, ".."), { recursive: true });
  writeFileSync(path, text);
  return path;
}
const lines = (records: object[]) => records.map((r) => `${JSON.stringify({ v: 1, ...r })}\n`).join("");

test("a damaged metrics.csv keeps its valid rows and counts the invalid ones", () => {
  const path = put(
    "bad.csv",
    "\ufeffepoch,train_loss,train_time,val_loss,val_acc\r\n1,0.5,10.5,0.4,0.8\r\n2,nan,nan,0.4,0.8\r\n3,0.4,-2,0.4,0.8\r\n" +
      "x,0.4,9,0.4,0.8\r\n4,0.3\r\nepoch,train_loss,train_time,val_loss,val_acc\r\n5,NaN,9.5,,0.9\r\n6,0.2,1e999,0,0\r\n7,0.1,9.2",
  );
  const problems = new ProblemLog();
  const { epochs, rows } = readMetricsCsv(path, problems);
  assert.deepEqual(epochs, [
    { epoch: 1, seconds: 10.5, trainLoss: 0.5, valLoss: 0.4, valAccuracy: 0.8, line: 2 },
    { epoch: 5, seconds: 9.5, valAccuracy: 0.9, line: 8 },
  ]);
  assert.equal(rows, 9);
  const found = Object.fromEntries(problems.list().map((p) => [p.id, p.count]));
  assert.deepEqual(found, {
    "bad-field": 1,
    "bad-time": 2,
    "negative-time": 1,
    "bad-epoch": 1,
    "short-row": 1,
    "repeated-header": 1,
    "truncated-line": 1,
  });
});

test("an empty file, a file with only a header and a foreign file are reported as such", () => {
  const ids = (path: string) => {
    const log = new ProblemLog();
    const { epochs } = readMetricsCsv(path, log);
    assert.deepEqual(epochs, []);
    return log.list().map((p) => p.id);
  };
  assert.deepEqual(ids(put("empty.csv", "")), ["empty-file"]);
  assert.deepEqual(ids(fixture("ddp_experiments/exp003_ddp_multinode/metrics.csv")), ["no-rows"]);
  assert.deepEqual(ids(put("foreign.csv", "a,b\n1,2\n")), ["no-header"]);
});

test("study.yaml: runs with their devices, batch and samples", () => {
  const studies = readStudies([fixture("ddp_experiments")]);
  assert.deepEqual(
    studies.map((s) => [s.name, s.runs.map((r) => [r.id, r.devices, r.epochs.length])]),
    [
      [
        "IMDB",
        [
          ["exp020_imdb_single_gpu_20ep", 1, 20],
          ["exp021_imdb_ddp_single_node_20ep", 4, 20],
        ],
      ],
      [
        "AGNews",
        [
          ["exp041_agnews_1gpu_20ep", 1, 20],
          ["exp042_agnews_ddp_4gpu_20ep", 4, 35],
        ],
      ],
    ],
  );
  assert.deepEqual(studies[1]!.runs[0]!.workload, { datasetSamples: 120000, batchPerRank: 32 });
  assert.deepEqual(readStudies([fixture("ddp_experiments")], { names: ["agnews"] }).length, 1);
  assert.throws(
    () => readStudies([fixture("ddp_experiments")], { names: ["MNIST"] }),
    /no study named MNIST; there are: IMDB, AGNews/,
  );
});

test("study.yaml: mistakes name the key and the remedy", () => {
  put("y/a/metrics.csv", "epoch,train_time\n1,2\n");
  const study = (body: string) => readStudies([put("y/study.yaml", body)]);
  const [one] = study(
    "studies:\n  - name: A\n    batch_per_gpu: 32\n    runs:\n      - {dir: a, devices: 2}\n      - {dir: gone, devices: 4}\n",
  );
  assert.equal(one!.runs.length, 1);
  assert.match(one!.problems[0]!.message, /batch_per_gpu is not a key here/);
  assert.match(one!.problems[1]!.message, /gone has no metrics\.csv/);
  assert.throws(
    () => study("studies:\n  - name: A\n    runs:\n      - {dir: a}\n"),
    /devices must be a positive integer/,
  );
  assert.throws(
    () => study("studies:\n  - name: A\n    samples: many\n    runs:\n      - {dir: a, devices: 1}\n"),
    /samples must be a count/,
  );
  assert.throws(() => study("a: [1,"), /is not YAML/);
  assert.throws(() => study("name: A"), /expected "studies:"/);
  assert.equal(study("studies:\n  - name: Empty\n    runs: []\n")[0]!.problems[0]!.id, "empty-study");
});

test("a directory without a study gives a template to write; a missing path is an error", () => {
  put("plain/run_a/metrics.csv", "epoch,train_time\n1,2\n");
  assert.throws(
    () => readStudies([join(directory, "plain")]),
    (error: Error) => error instanceof ImportError && /run_a, devices: \?/.test(error.message),
  );
  assert.throws(() => readStudies([join(directory, "nowhere")]), /nowhere: no such file or directory/);
  mkdirSync(join(directory, "void"), { recursive: true });
  assert.throws(() => readStudies([join(directory, "void")]), /no study found/);
});

test("a directory of weft scale gives ranks, facts and steps; an interrupted run and a missing rank are reported", () => {
  const home = join(directory, "scale");
  put(
    "scale/study.json",
    JSON.stringify({
      v: 1,
      name: "S",
      command: ["x", "{n}"],
      counts: [1, 2, 4],
      repeats: 1,
      launcher: "local",
      machine: { cores: 2 },
    }),
  );
  put(
    "scale/runs/n1/run.json",
    JSON.stringify({ v: 1, id: "n1", devices: 1, repeat: 0, order: 0, command: [], status: "ok", seconds: 3 }),
  );
  put(
    "scale/runs/n1/rank0.jsonl",
    lines([
      { type: "rank", rank: 0, worldSize: 1 },
      { type: "facts", rank: 0, facts: { datasetSamples: 64, samplerSharded: false } },
      { type: "facts", rank: 0, facts: { batchPerRank: 8, backend: null } },
      { type: "step", rank: 0, step: 0, epoch: 1, durationUs: 1000, samples: 8 },
    ]),
  );
  put(
    "scale/runs/n2/run.json",
    JSON.stringify({ v: 1, id: "n2", devices: 2, repeat: 0, order: 1, command: [], status: "running" }),
  );
  put(
    "scale/runs/n2/records.jsonl",
    lines([
      { type: "run", id: "n2", devices: 2 },
      { type: "sample", t: 5, host: { cpuPercent: 90 } },
      { type: "wrong" },
    ]),
  );
  put(
    "scale/runs/n2/rank1.jsonl",
    `${lines([
      { type: "step", rank: 1, step: 0, durationUs: 900, dataWaitUs: -4 },
      { type: "step", rank: 1, step: 1, durationUs: -1 },
    ])}{"v":1,"type":"st`,
  );
  put("scale/runs/junk/other.txt", "");
  const study = studyFromScaleDirectory(home);
  assert.deepEqual(
    study.runs.map((r) => [r.id, r.devices, r.status, r.machine?.cores]),
    [
      ["n1", 1, "ok", 2],
      ["n2", 2, "unknown", 2],
    ],
  );
  const [one, two] = study.runs;
  assert.equal(one!.workload.datasetSamples, 64);
  assert.equal(one!.workload.batchPerRank, 8);
  assert.deepEqual(one!.ranks[0]!.facts, { datasetSamples: 64, samplerSharded: false, batchPerRank: 8 });
  assert.deepEqual(two!.steps, [{ rank: 1, step: 0, durationUs: 900 }]);
  assert.deepEqual(two!.problems.map((p) => p.id).sort(), [
    "bad-field",
    "bad-record",
    "cut-off",
    "missing-ranks",
    "negative-time",
    "truncated-line",
  ]);
  assert.deepEqual(study.problems.map((p) => p.id).sort(), ["missing-count:4", "no-devices"]);
  assert.equal(readStudies([join(home, "runs/n1")])[0]!.runs[0]!.id, "n1");
});

test("an invalid study.json is an error, an invalid run.json a problem of the run", () => {
  put("broken/study.json", "{");
  assert.throws(() => readStudies([join(directory, "broken")]), /study\.json: not valid JSON/);
});

test("a tape becomes a run with one rank per worker and its communication time", () => {
  const path = put(
    "t.tape",
    [
      { type: "instruction", worker: 0, step: 0, op: "matmul", startUs: 0, endUs: 10 },
      { type: "instruction", worker: 0, step: 0, op: "all_reduce", startUs: 10, endUs: 14 },
      { type: "instruction", worker: 1, step: 0, op: "matmul", startUs: 1, endUs: 9, samples: 32 },
      { type: "instruction", worker: 1, op: "matmul", startUs: 9, endUs: 2 },
      { type: "instruction", worker: 1, step: 1, op: "exchange_8x8", kind: "collective", startUs: 20, endUs: 25 },
      { type: "plan" },
    ]
      .map((l) => JSON.stringify(l))
      .join("\n") + '\n{"type":"instr',
  );
  const run = runFromTape(path);
  assert.equal(run.devices, 2);
  assert.deepEqual(run.steps, [
    { rank: 0, step: 0, startUs: 0, durationUs: 14, commUs: 4 },
    { rank: 1, step: 0, startUs: 1, durationUs: 8, commUs: 0, samples: 32 },
    { rank: 1, step: 1, startUs: 20, durationUs: 5, commUs: 5 },
  ]);
  assert.deepEqual(run.problems.map((p) => p.id).sort(), ["bad-record", "truncated-line"]);
});
