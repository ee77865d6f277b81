// One finding per cause, and no advice from a machine that others used.
import assert from "node:assert/strict";
import { test } from "node:test";
import { emptyRun, type Run, type Study } from "../model/index.js";
import { findingTitle, verdictLine } from "../report/index.js";
import { analyzeStudy } from "./index.js";

interface Options {
  seconds?: number;
  /** Share of a step that waits for data. */
  waits?: number;
  disturbance?: string;
}

function runOf(devices: number, repeat: number, { seconds = 10 / devices, waits = 0, disturbance }: Options): Run {
  const run = emptyRun(`n${devices}-r${repeat}`, devices, { kind: "scale", path: `n${devices}-r${repeat}` });
  run.status = "ok";
  run.epochs = [1.1, 1, 1.004, 0.996].map((f, i) => ({ epoch: i + 1, seconds: seconds * f }));
  for (let step = 0; step < 20; step++)
    for (let rank = 0; rank < devices; rank++)
      run.steps.push({ rank, step, durationUs: 1e4, dataWaitUs: 1e4 * waits, samples: 4 });
  if (disturbance !== undefined) run.events.push({ name: "machine-disturbed", level: "warning", message: disturbance });
  return run;
}
const analyze = (runs: Run[]) => analyzeStudy({ name: "S", runs, problems: [] } satisfies Study).report;
const each = (options: (devices: number, repeat: number) => Options): Run[] =>
  [0, 1, 2].flatMap((repeat) => [1, 2].map((n) => runOf(n, repeat, options(n, repeat))));

test("repeats and counts that show one cause give one finding, with how many runs show it", () => {
  const report = analyze(each(() => ({ waits: 0.3 })));
  const found = report.findings.filter((f) => f.id === "input-bound");
  assert.equal(found.length, 1);
  assert.deepEqual(found[0]!.shownBy!.devices, [1, 2]);
  assert.equal(found[0]!.devices, 2, "the largest count stands for the others");
  assert.match(findingTitle(found[0]!, 0), /input-bound, 1, 2 devices, 6 of 6 runs/);
  assert.equal(report.mainCause, "input-bound");
});

test("what a minority of the repeats shows is listed and explains nothing", () => {
  const report = analyze(each((n, repeat) => ({ waits: n === 2 && repeat === 1 ? 0.3 : 0 })));
  const found = report.findings.find((f) => f.id === "input-bound")!;
  assert.equal(found.severity, "low");
  assert.equal(report.mainCause, null);
});

test("on a disturbed machine nothing is advised, and the finding says what the times suggest", () => {
  const disturbance = "others used 73% of the cores: make (pid 7) 70%";
  const report = analyze(each(() => ({ waits: 0.3, disturbance })));
  assert.equal(report.disturbance, "others used 73% of the cores");
  assert.match(verdictLine(report), /cannot say: others used 73% of the cores/);
  assert.deepEqual(
    report.findings.filter((f) => f.fix !== null).map((f) => f.id),
    ["disturbed-machine"],
  );
  assert.ok(report.findings[0]!.evidence.some((e) => /suggest input-bound; cannot say/.test(e.text)));
  assert.deepEqual([report.predictions, report.mainCause], [[], null]);
});

test("a disturbed repeat does not count where others are quiet", () => {
  const report = analyze(
    each((n, repeat) =>
      n === 2 && repeat === 0 ? { seconds: 20, waits: 0.3, disturbance: "others used 40% of the cores" } : {},
    ),
  );
  assert.equal(report.disturbance, null);
  assert.equal(report.scaling[1]!.speedup.toFixed(2), "2.00");
  assert.ok(!report.findings.some((f) => f.id === "input-bound"));
});
