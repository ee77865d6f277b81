import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import { readStudies } from "../import/index.js";
import { summarizeStudy } from "../metrics/index.js";
import { emptyRun, type Run, type Study } from "../model/index.js";
import { judgeStudy, type Verdict } from "./index.js";

const fixture = (name: string) => fileURLToPath(new URL(`../../testdata/${name}`, import.meta.url));
const near = (actual: number, expected: number, tolerance: number) =>
  assert.ok(Math.abs(actual - expected) <= tolerance, `${actual} is not ${expected} within ${tolerance}`);

function run(devices: number, seconds: number[], change: Partial<Run> = {}): Run {
  const r = emptyRun(`n${devices}`, devices, { kind: "jsonl", path: `n${devices}` });
  r.status = "ok";
  r.epochs = seconds.map((s, i) => ({ epoch: i + 1, seconds: s, line: i + 2 }));
  return Object.assign(r, change);
}
const study = (...runs: Run[]): Study => ({ name: "S", runs, problems: [] });
const verdictOf = (...runs: Run[]): Verdict => judgeStudy(summarizeStudy(study(...runs)));
const ids = (v: Verdict) => v.findings.map((f) => f.id);
const likelihoods = (v: Verdict) => v.scaling[1]!.readings.map((r) => r.likelihood);
const steady = (mean: number) => [mean * 1.2, mean, mean * 1.01, mean * 0.99, mean];

test("the published IMDB study is valid at 3.49x, with its means and deviations", () => {
  const [imdb] = readStudies([fixture("ddp_experiments")], { names: ["IMDB"] });
  const v = judgeStudy(summarizeStudy(imdb!));
  assert.equal(v.valid, true);
  assert.deepEqual(v.findings, []);
  near(v.scaling[1]!.speedup, 3.493, 0.0005);
  near(v.scaling[1]!.efficiency, 0.873, 0.0005);
  near(v.view.counts[0]!.seconds.mean, 11.1984, 5e-5);
  near(v.view.counts[0]!.seconds.std, 0.1425, 5e-5);
  near(v.view.counts[1]!.seconds.mean, 3.2062, 5e-5);
  near(v.view.counts[1]!.seconds.std, 0.0717, 5e-5);
});

test("the published AG News study is not valid; its work-normalized speedup is 1.85x", () => {
  const [agnews] = readStudies([fixture("ddp_experiments")], { names: ["AGNews"] });
  const v = judgeStudy(summarizeStudy(agnews!));
  assert.equal(v.valid, false);
  assert.deepEqual(
    v.findings.map((f) => [f.id, f.severity]),
    [
      ["two-jobs-in-one-file", "invalid"],
      ["work-not-divided", "unresolved"],
    ],
  );
  assert.ok(v.findings[1]!.evidence.every((e) => e.rank === "inferred"));
  const [all, part] = likelihoods(v);
  assert.ok(all! > 0.9 && part! < 0.1);
  const four = v.scaling[1]!;
  assert.equal(four.valid, false);
  assert.equal(four.workRatio, 4);
  assert.equal(four.workKnown, "inferred");
  near(four.workSpeedup!, 1.846, 0.003);
  near(four.workEfficiency!, 0.461, 0.002);
  assert.equal(four.class, "poor");
  const texts = v.findings.flatMap((f) => f.evidence.map((e) => e.text)).join("\n");
  for (const expected of [
    /1\.85x \(46%\)/,
    /0\.570 -> 0\.419/,
    /42\.33 s mixed/,
    /42\.29 s separated/,
    /15 rows, epochs 6 to 20; 20 rows, epochs 1 to 20/,
  ])
    assert.match(texts, expected);
  near(v.findings[1]!.predicted!.to!, 10.57, 0.01);
  assert.equal(v.view.runs[1]!.epochs!.jobs.length, 2);
});

test("counted work decides: replicated work is found, negative scaling with divided work is valid", () => {
  const steps = (devices: number, each: number) =>
    Array.from({ length: devices * each }, (_, i) => ({
      rank: i % devices,
      step: Math.floor(i / devices),
      epoch: 1,
      durationUs: 1000,
      samples: 8,
    }));
  const base = run(1, steady(10), { steps: steps(1, 40), workload: { datasetSamples: 320 } });
  const all = verdictOf(base, run(2, steady(12), { steps: steps(2, 40), workload: { datasetSamples: 320 } }));
  assert.equal(ids(all)[0], "work-not-divided");
  assert.equal(all.scaling[1]!.workKnown, "counted");
  near(all.scaling[1]!.workRatio, 2, 1e-9);
  const divided = verdictOf(base, run(2, steady(12), { steps: steps(2, 20), workload: { datasetSamples: 320 } }));
  assert.deepEqual(ids(divided), []);
  assert.equal(divided.scaling[1]!.valid, true);
  assert.equal(divided.scaling[1]!.class, "negative");
  assert.equal(divided.scaling[1]!.workRatio, 1);
});

test("an epoch that a step limit ended counts neither with its time nor with its samples", () => {
  // Rows as `weft train --max-steps 20` writes them: 2048 rows, batches of 128 per rank, 10 s per step on one device and 11 s on two.
  const limited = (devices: number, stepSeconds: number, scaling: "strong" | "weak"): Run => {
    const stepsPerEpoch = 16 / devices;
    const counts = devices === 1 ? [16, 4] : [8, 8, 4];
    const epochOf = counts.flatMap((count, i) => Array.from({ length: count }, () => i + 1));
    return run(devices, [], {
      epochs: counts.map((steps, i) => ({ epoch: i + 1, seconds: steps * stepSeconds, steps, line: i + 1 })),
      steps: Array.from({ length: devices }, (_, rank) =>
        epochOf.map((epoch, step) => ({ rank, step, epoch, durationUs: stepSeconds * 1e6, samples: 128 })),
      ).flat(),
      workload: { datasetSamples: 2048, batchPerRank: 128, stepsPerEpoch, scaling },
    });
  };
  for (const warmup of [undefined, 2]) {
    const both = { name: "S", runs: [limited(1, 10, "strong"), limited(2, 11, "strong")], problems: [] };
    const v = judgeStudy(summarizeStudy({ ...both, ...(warmup !== undefined && { warmup }) }));
    assert.deepEqual(ids(v), []);
    near(v.view.counts[0]!.seconds.mean, 160, 1e-9);
    near(v.view.counts[1]!.seconds.mean, 88, 1e-9);
    assert.equal(v.scaling[1]!.workRatio, 1);
    near(v.scaling[1]!.workEfficiency!, 10 / 11, 1e-9);
    assert.deepEqual(
      v.view.runs.map((r) => r.epochs!.cut.map((row) => row.epoch)),
      [[2], [3]],
    );
  }
  // Fewer steps than one epoch has: the samples of an epoch are those of its steps, all of them.
  const short = (devices: number, stepSeconds: number): Run => {
    const r = limited(devices, stepSeconds, "strong");
    r.workload.stepsPerEpoch = 256 / devices;
    r.steps = r.steps.map((step) => ({ ...step, epoch: 1 }));
    r.epochs = [{ epoch: 1, seconds: 20 * stepSeconds, steps: 20 }];
    return r;
  };
  const early = verdictOf(short(1, 10), short(2, 11));
  assert.deepEqual(ids(early), []);
  assert.equal(early.scaling[1]!.workRatio, 1);
  near(early.scaling[1]!.workEfficiency!, 10 / 11, 1e-9);
  // The same with a rank's loader that was not divided: both draw all 256 steps.
  const undivided = short(2, 11);
  undivided.workload.stepsPerEpoch = 256;
  assert.equal(ids(verdictOf(short(1, 10), undivided))[0], "work-not-divided");
});

test("weak scaling: twice the work in the same time is a speedup of two", () => {
  const weak = (devices: number, seconds: number): Run =>
    run(devices, steady(seconds), {
      workload: { datasetSamples: 1000 * devices, batchPerRank: 10, stepsPerEpoch: 100, scaling: "weak" },
    });
  const v = verdictOf(weak(1, 10), weak(2, 10.5));
  assert.equal(v.scaling[1]!.workRatio, 1);
  near(v.scaling[1]!.workSpeedup!, 2 / 1.05, 1e-9);
  near(v.scaling[1]!.workEfficiency!, 1 / 1.05, 1e-9);
  near(v.scaling[1]!.speedup, 2 / 1.05, 1e-9);
  near(v.scaling[1]!.efficiency, 1 / 1.05, 1e-9);
  assert.deepEqual(ids(verdictOf(weak(1, 10), weak(2, 10))), [], "equal times are no missing speedup");
});

test("equal batches on all ranks are sufficient evidence; a sampler or equal indices only raise the question", () => {
  const facts = (f: object) => ({ ranks: [0, 1].map((rank) => ({ rank, facts: f })) });
  const base = run(1, steady(10));
  const found = (f: object) =>
    verdictOf(base, run(2, steady(9.8), facts(f))).findings.map((x) => [x.id, x.severity])[0];
  assert.deepEqual(found({ contentHash: "ab", indexHash: "abc" }), ["work-not-divided", "invalid"]);
  assert.deepEqual(found({ samplerSharded: false, samplerClass: "RandomSampler" }), ["work-not-divided", "unresolved"]);
  assert.deepEqual(found({ indexHash: "abc" }), ["work-not-divided", "unresolved"]);
  assert.deepEqual(ids(verdictOf(base, run(2, steady(5), facts({ samplerSharded: true })))), []);
});

test("a baseline with other settings is not comparable; a fixed global batch is", () => {
  const v = verdictOf(
    run(1, steady(10), { workload: { precision: "fp32", batchPerRank: 32 } }),
    run(4, steady(3), { workload: { precision: "bf16", batchPerRank: 16 } }),
  );
  assert.equal(v.findings[0]!.id, "baseline-mismatch");
  assert.deepEqual(
    v.findings[0]!.evidence.map((e) => e.text),
    ["precision: fp32 at 1, bf16 at 4", "batch per rank: 32 at 1, 16 at 4"],
  );
  assert.equal(v.valid, false);
  assert.deepEqual(
    ids(
      verdictOf(
        run(1, steady(10), { workload: { batchPerRank: 64 } }),
        run(4, steady(3), { workload: { batchPerRank: 16 } }),
      ),
    ),
    [],
  );
  const rate = verdictOf(
    run(1, steady(10), { workload: { learningRate: 0.1 } }),
    run(4, steady(3), { workload: { learningRate: 0.4 } }),
  );
  assert.equal(rate.findings[0]!.severity, "low");
  assert.equal(rate.valid, true);
});

test("a difference within the confidence interval is not a speedup, and scatter is reported", () => {
  const v = verdictOf(run(1, [12, 10, 11, 9, 10]), run(2, [12, 9.8, 10.8, 9.2, 9.9]));
  assert.deepEqual(ids(v), ["not-distinguishable", "noisy", "noisy"]);
  assert.equal(v.scaling[1]!.valid, false);
  const flat = verdictOf(run(1, [12, 10, 10.01, 9.99, 10]), run(2, [12, 10.005, 9.99, 10.01, 10]));
  assert.deepEqual(
    flat.findings.map((f) => [f.id, f.severity]),
    [["not-distinguishable", "high"]],
  );
  assert.equal(flat.valid, true);
});

test("ranks that share a device or report another world size invalidate the launch", () => {
  const ranks = (device: (k: number) => string, world: number) =>
    [0, 1].map((rank) => ({ rank, device: device(rank), worldSize: world, facts: {} }));
  const base = run(1, steady(10));
  assert.deepEqual(ids(verdictOf(base, run(2, steady(5), { ranks: ranks(() => "cuda:0", 2) }))), ["wrong-launch"]);
  assert.deepEqual(ids(verdictOf(base, run(2, steady(5), { ranks: ranks((k) => `cuda:${k}`, 1) }))), ["wrong-launch"]);
  assert.deepEqual(ids(verdictOf(base, run(2, steady(5), { ranks: ranks((k) => `cuda:${k}`, 2) }))), []);
});

test("too many processes are a warning, measured contention invalidates", () => {
  const ranks = [0, 1, 2, 3].map((rank) => ({ rank, facts: { loaderWorkers: 2 } }));
  const base = run(1, steady(10));
  const crowded = { ranks, machine: { cores: 4 } };
  const warned = verdictOf(base, run(4, steady(3), crowded));
  assert.deepEqual(
    warned.findings.map((f) => [f.id, f.severity]),
    [["cpu-oversubscription", "low"]],
  );
  assert.equal(warned.valid, true);
  assert.match(warned.findings[0]!.evidence[0]!.text, /12 processes/);
  const samples = [1, 2, 3].map((t) => ({ t, host: { runQueue: 11 } }));
  assert.equal(verdictOf(base, run(4, steady(3), { ...crowded, samples })).valid, false);
  assert.deepEqual(ids(verdictOf(base, run(4, steady(3), { ranks, machine: { cores: 12 } }))), []);
  // Slightly more processes than cores: sleeping loaders, unless a queue shows that something waits.
  const asleep = [1, 2, 3].map((t) => ({ t, host: { runQueue: 4 } }));
  const eight = { ranks, machine: { cores: 8 } };
  assert.deepEqual(ids(verdictOf(base, run(4, steady(3), eight))), []);
  const busy = [1, 2, 3].map((t) => ({ t, host: { runQueue: 13 } }));
  const ordinary = verdictOf(base, run(4, steady(3), { ...eight, samples: busy })).findings;
  assert.deepEqual(
    ordinary.map((f) => [f.id, f.severity]),
    [["cpu-oversubscription", "low"]],
  );
  assert.deepEqual(ids(verdictOf(base, run(4, steady(3), { ...eight, samples: asleep }))), []);
});

test("impossible parts, clock jumps and failed counts are reported; valid numbers remain", () => {
  const steps = Array.from({ length: 20 }, (_, i) => ({
    rank: 0,
    step: i,
    durationUs: 100,
    dataWaitUs: i < 5 ? 150 : 10,
  }));
  const jump = [...steady(10), 9000];
  const v = verdictOf(
    run(1, jump, { steps }),
    run(2, steady(5)),
    run(4, [], { status: "failed", exitCode: 1, message: "out of memory" }),
  );
  assert.deepEqual(ids(v), ["impossible-time", "dirty-data", "count-failed"]);
  near(v.view.counts[0]!.seconds.mean, 10, 0.01);
  assert.match(v.findings.at(-1)!.evidence[0]!.text, /run n4 at 4 devices: failed \(exit 1\): out of memory/);
  assert.deepEqual(
    v.scaling.map((p) => p.devices),
    [1, 2],
  );
});

test("a step with a clock jump is excluded and reported", () => {
  const steps = Array.from({ length: 20 }, (_, i) => ({
    rank: 0,
    step: i,
    epoch: 1,
    durationUs: i === 15 ? 9e12 : 100,
    samples: 4,
  }));
  const v = verdictOf(run(1, [], { steps }));
  near(v.view.counts[0]!.seconds.mean, 20 * 100e-6, 1e-9);
  assert.match(v.findings[0]!.evidence[0]!.text, /1 step more than 1000 times the median left out as clock jumps/);
});

test("a study with one count or no run reports that there is nothing to compare", () => {
  assert.equal(verdictOf(run(2, steady(5))).valid, null);
  assert.deepEqual(ids(verdictOf(run(2, steady(5)))), ["no-scaling-data"]);
  assert.deepEqual(ids(judgeStudy(summarizeStudy(study()))), ["no-scaling-data"]);
});

test("a million rows of two interleaved jobs are separated within seconds", () => {
  const directory = mkdtempSync(join(tmpdir(), "weft-million-"));
  try {
    const rows = ["epoch,train_loss,train_time,val_loss,val_acc"];
    for (let i = 1; i <= 500000; i++) rows.push(`${i},0.5,2,0.5,0.5`, `${i},0.5,4,0.5,0.5`);
    writeFileSync(join(directory, "metrics.csv"), rows.join("\n") + "\n");
    // CPU time, because wall time depends on what else the machine does.
    const started = process.cpuUsage();
    const [one] = readStudies([join(directory, "metrics.csv")]);
    const v = judgeStudy(summarizeStudy(one!));
    const took = process.cpuUsage(started).user / 1000;
    assert.equal(v.view.runs[0]!.epochs!.jobs.length, 2);
    near(v.view.counts[0]!.seconds.mean, 2, 1e-9);
    near(v.view.runs[0]!.epochs!.mixed!.mean, 3, 0.01);
    assert.ok(took < 10000, `${took} ms`);
  } finally {
    rmSync(directory, { recursive: true });
  }
});
