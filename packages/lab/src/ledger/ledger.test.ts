import assert from "node:assert/strict";
import { appendFileSync, mkdtempSync, readFileSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, test } from "node:test";
import type { ProbeFacts } from "@weft/formats/internal";
import { analyzeStudy, type StudyReport } from "../diagnosis/index.js";
import { emptyRun, type Run, type Study } from "../model/index.js";
import { ledgerScore, makePrediction, predictionsOf, readLedger, recordPredictions, scoreLedger } from "./index.js";

const directory = mkdtempSync(join(tmpdir(), "weft-ledger-"));
after(() => rmSync(directory, { recursive: true }));

function report(name: string, runs: [devices: number, seconds: number, facts?: ProbeFacts][]): StudyReport {
  const study: Study = {
    name: "S",
    problems: [],
    runs: runs.map(([devices, seconds, facts = {}]): Run => {
      const run = emptyRun(`n${devices}`, devices, { kind: "scale", path: `${name}/n${devices}` });
      run.status = "ok";
      run.epochs = [1.1, 1, 1.004, 0.996].map((f, i) => ({ epoch: i + 1, seconds: seconds * f }));
      run.ranks = Array.from({ length: devices }, (_, rank) => ({ rank, facts }));
      return run;
    }),
  };
  return analyzeStudy(study).report;
}

test("a prediction is recorded once and scored by a later run, and the hit rate is counted", () => {
  const path = join(directory, "a/ledger.jsonl");
  const first = report("first", [
    [1, 10],
    [2, 5.2],
    [4, 2.8],
  ]);
  const predictions = predictionsOf(first, 100);
  assert.deepEqual(
    predictions.map((p) => [p.finding, p.devices, p.metric]),
    [
      [null, 8, "epochSeconds"],
      [null, 16, "epochSeconds"],
    ],
  );
  assert.equal(recordPredictions(path, predictions).length, 2);
  assert.equal(recordPredictions(path, predictions).length, 0);
  assert.deepEqual(scoreLedger(path, [first], 101), []);
  const later = report("later", [
    [1, 10],
    [8, predictions[0]!.to * 1.01],
  ]);
  const outcomes = scoreLedger(path, [later], 102);
  assert.equal(outcomes.length, 1);
  assert.equal(outcomes[0]!.inside, true);
  assert.ok(Math.abs(outcomes[0]!.error + 0.0099) < 0.001);
  assert.deepEqual(scoreLedger(path, [later], 103), []);
  const score = ledgerScore(readLedger(path));
  assert.deepEqual([score.predictions, score.scored, score.hitRate], [2, 1, 1]);
});

test("the predicted effect of a fix is scored only by a study without that finding", () => {
  const path = join(directory, "b.jsonl");
  const before = report("before", [
    [1, 10],
    [4, 22, { samplerSharded: false }],
  ]);
  recordPredictions(path, predictionsOf(before, 1));
  assert.equal(readLedger(path).predictions[0]!.finding, "work-not-divided");
  assert.deepEqual(
    scoreLedger(
      path,
      [
        report("again", [
          [1, 10],
          [4, 23, { samplerSharded: false }],
        ]),
      ],
      2,
    ),
    [],
  );
  const [outcome] = scoreLedger(
    path,
    [
      report("fixed", [
        [1, 10],
        [4, 1.9, { samplerSharded: true }],
      ]),
    ],
    3,
  );
  assert.equal(outcome!.inside, false);
  const score = ledgerScore(readLedger(path));
  assert.equal(score.hitRate, 0);
  assert.deepEqual(score.byFinding, [
    { finding: "work-not-divided", scored: 1, hitRate: 0, medianError: Math.abs(outcome!.error) },
  ]);
});

test("findings of earlier versions are read under their present ids", () => {
  const path = join(directory, "old.jsonl");
  const old = makePrediction({
    study: "S",
    finding: "low-utilisation",
    metric: "epochSeconds",
    devices: 2,
    from: 10,
    to: 8,
    interval: null,
    unit: "s",
    reason: "test",
    basedOn: [],
  });
  writeFileSync(path, `${JSON.stringify(old)}\n`);
  assert.equal(readLedger(path).predictions[0]!.finding, "low-utilization");
  assert.equal(readLedger(path).predictions[0]!.id, old.id);
});

test("an invalid line is counted and ignored", () => {
  const path = join(directory, "c.jsonl");
  recordPredictions(
    path,
    predictionsOf(
      report("first", [
        [1, 10],
        [2, 5.2],
      ]),
      1,
    ),
  );
  appendFileSync(path, '{"v":1,"type":"prediction","id":"x"}\n{"v":1,"ty');
  const ledger = readLedger(path);
  assert.equal(ledger.unreadable, 2);
  assert.equal(ledger.predictions.length, 2);
  assert.equal(readFileSync(path, "utf8").split("\n").length, 4);
  assert.deepEqual(readLedger(join(directory, "absent.jsonl")), { predictions: [], outcomes: [], unreadable: 0 });
});
