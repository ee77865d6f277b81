import assert from "node:assert/strict";
import { test } from "node:test";
import type { ProbeFacts, TrainingStep } from "@weft/formats/internal";
import { seededRandom } from "@weft/formats/stats";
import { emptyRun, type Run, type Study, type TraceSummary } from "../model/index.js";
import { analyzeStudy, diagnosisRules } from "./index.js";

const trace = (t: Partial<TraceSummary>): TraceSummary => ({
  rank: 0,
  spanUs: 1000,
  idleUs: 20,
  computeUs: 900,
  nonComputeUs: 80,
  ...t,
});

interface Case {
  /** Input for which the rule must give a finding. */
  facts?: Partial<ProbeFacts>;
  step?: Partial<TrainingStep>;
  rankStep?: (rank: number, step: number) => Partial<TrainingStep>;
  traces?: TraceSummary[];
  run?: Partial<Run>;
  base?: Partial<Run>;
  steps?: number;
  /** Seconds of the measured counts; default 10 and 10 / N. */
  seconds?: Record<number, number>;
  devices?: number;
  /** Text that the first evidence must contain. */
  says: RegExp;
}

function runOf(devices: number, seconds: number, c: Case, isBase: boolean): Run {
  const run = emptyRun(`n${devices}`, devices, { kind: "scale", path: `n${devices}` });
  run.status = "ok";
  run.seconds = seconds * 4;
  run.epochs = [1.1, 1, 1.004, 0.996].map((f, i) => ({ epoch: i + 1, seconds: seconds * f }));
  if (isBase) return Object.assign(run, c.base);
  run.ranks = Array.from({ length: devices }, (_, rank) => ({
    rank,
    facts: { samplerSharded: true, ...c.facts, ...(c.facts?.device !== undefined && { device: `cuda:${rank}` }) },
  }));
  for (let step = 0; step < (c.steps ?? 20); step++)
    for (let rank = 0; rank < devices; rank++)
      run.steps.push({ rank, step, durationUs: 10000, ...c.step, ...c.rankStep?.(rank, step) });
  if (c.traces !== undefined) run.traces = c.traces;
  return Object.assign(run, c.run);
}

function findings(c: Case) {
  const devices = c.devices ?? 4;
  const seconds = c.seconds ?? { 1: 10, [devices]: 10 / devices };
  const runs = Object.entries(seconds).map(([n, s]) => runOf(Number(n), s, c, Number(n) === 1));
  const study: Study = { name: "S", runs, problems: [] };
  return analyzeStudy(study).report;
}

const cuda = { device: "cuda:0" };
const cases: Record<string, Case> = {
  "input-bound": {
    step: { dataWaitUs: 2500 },
    facts: { loaderWorkers: 1 },
    says: /data wait: 25 % of the step \(threshold 5/,
  },
  "transfer-bound": { facts: { hostToDeviceUs: 1500, pinMemory: false }, says: /15 % of the step/ },
  "slow-loader": { step: { durationUs: 500000, dataWaitUs: 15000 }, says: /15 ms \(threshold 10/ },
  "launch-bound": { traces: [trace({ kernels: 100, shortKernels: 80, launchUs: 200 })], says: /80 % \(threshold 50/ },
  "host-wait": {
    traces: [trace({ idleUs: 400, hostWaitUs: 350, kernelWaitUs: 50 })],
    says: /87\.5 % of the idle time/,
  },
  "python-pauses": {
    run: { events: [{ name: "gc", level: "info", data: { durationUs: 4000 } }] },
    says: /above 1 ms: 1/,
  },
  "compile-in-window": { rankStep: () => ({ compile: true }), says: /steps that compiled/ },
  "compile-time": { facts: { compileSeconds: 4 }, says: /compilation: 40 % of the run/ },
  "serial-initialization": { facts: { initSeconds: 5 }, says: /start to first step: 5 s/ },
  "serial-time-stepping": { facts: { serialLoopShare: 0.9, serialLoopSteps: 800 }, says: /90 % of the step/ },
  "cheap-switches": {
    facts: { ddpStaticGraph: false, persistentWorkers: false, loaderWorkers: 2 },
    says: /persistent_workers=True, DDP\(static_graph=True\)/,
  },
  "low-utilization": {
    run: { samples: [1, 2, 3].map((t) => ({ t, devices: [{ index: 0, utilizationPercent: 20 }] })) },
    says: /mean: 20 %/,
  },
  "device-idle": { traces: [trace({ idleUs: 300 })], says: /idle: 30 % of the span/ },
  "device-limit": {
    run: {
      samples: [1, 2, 3].map((t) => ({ t, devices: [{ index: 0, tensorActivePercent: 80, memoryActivePercent: 30 }] })),
    },
    says: /tensor cores active: 80/,
  },
  "tensor-cores-idle": { traces: [trace({ tensorCoreEligible: 12, tensorCoreUsed: 0 })], says: /eligible kernels: 12/ },
  "memory-limit": { facts: { peakMemoryBytes: 95e9, deviceMemoryBytes: 100e9 }, says: /95 % of the device/ },
  "small-batch": { facts: { ...cuda, batchPerRank: 8 }, says: /batch per device: 8/ },
  "full-precision": { facts: { ...cuda, precision: "fp32" }, says: /precision: fp32/ },
  "many-sync-batch-norms": { facts: { syncBatchNorms: 53 }, says: /53 \(threshold 20\)/ },
  "wrong-backend": { facts: { ...cuda, backend: "gloo" }, says: /gloo/ },
  "communication-cost": {
    step: { exposedCommUs: 4000, commUs: 5000 },
    says: /exposed communication: 40 % of the step/,
  },
  "communication-dominates": { step: { exposedCommUs: 6000, commUs: 6000 }, says: /0\.6667 \(threshold 3\)/ },
  "small-messages": {
    step: { exposedCommUs: 1000 },
    facts: { ddpBucketBytes: [1e6, 10e6] },
    says: /messages below 16 MB: 100 %/,
  },
  "slow-link": {
    facts: { deviceName: "NVIDIA A100-SXM4-80GB" },
    traces: [trace({ collectives: [{ name: "allreduce", bytes: 1e8, durationUs: 1e4, busGBps: 20, count: 3 }] })],
    says: /20 GB\/s \(threshold 188/,
  },
  "poor-overlap": {
    step: { commUs: 2000, exposedCommUs: 1800, backwardUs: 6000 },
    facts: { ddpBucketBytes: [1061904, 10240000] },
    says: /0\.9 \(threshold 0\.5\)/,
  },
  "bucket-size": {
    step: { commUs: 4000, exposedCommUs: 3000, backwardUs: 5000 },
    facts: { deviceName: "NVIDIA A10", parameterElements: Array.from({ length: 60 }, () => 100000) },
    says: /bucket cap now: 25 MiB/,
  },
  "communication-contention": {
    step: { commUs: 3000 },
    run: { figures: { isolatedAllReduceUs: 1000 } },
    says: /3000 us/,
  },
  // Four epochs of 2.5 s each, 10.25 s with the warm-up.
  "evaluation-in-loop": { facts: { evaluationSeconds: 2.05 }, says: /evaluation inside epochs: 20 % of the training/ },
  "garbage-collection": { facts: { gcSeconds: 1.025 }, says: /garbage collection: 10 % of the training/ },
  "logging-in-loop": { facts: { loggingSeconds: 1.025 }, says: /messages .*: 10 % of the training/ },
  "checkpoint-in-loop": { facts: { saveSeconds: 1.025 }, says: /checkpoints .*: 10 % of the training/ },
  "work-after-update": { facts: { afterUpdateSeconds: 2.05 }, says: /to the next batch: 20 % of the training/ },
  "loaders-restarted": {
    facts: { loaderStarts: 4, loaderStartSeconds: 1.2, loaderWorkers: 2 },
    says: /starts of the loader processes: 4/,
  },
  "forgotten-no-sync": {
    facts: { backwardPasses: 80, gradientSyncs: 80, updates: 20, accumulation: 4 },
    says: /exchanges of gradients per update: 4/,
  },
  "slowing-down": {
    steps: 60,
    rankStep: (_, step) => ({ durationUs: 10000 + 100 * step }),
    says: /last quarter over the first: 1\.3/,
  },
  "small-buckets": {
    facts: { ddpBucketBytes: Array.from({ length: 40 }, () => 4000), ddpBucketCapBytes: 1000, gradientBytes: 160000 },
    says: /buckets per backward pass: 40/,
  },
  "moving-straggler": {
    facts: { parallelism: "ddp" },
    // The rank that is late waits least in its backward pass.
    rankStep: (rank, step) => ({ durationUs: 14000, backwardUs: rank === step % 4 ? 4000 : 8000 }),
    says: /lost to the slowest rank of each step: 21\.43 % of the step/,
  },
  straggler: { rankStep: (rank) => ({ durationUs: rank === 2 ? 13000 : 10000 }), says: /rank 2 above the mean/ },
  "load-imbalance": {
    traces: [trace({ rank: 0, computeUs: 900 }), trace({ rank: 1, computeUs: 300 })],
    says: /0\.6667 \(threshold 0\.8\)/,
  },
  "parallel-efficiency": {
    traces: [trace({ rank: 0, computeUs: 500 }), trace({ rank: 1, computeUs: 480 })],
    says: /0\.49 \(threshold 0\.8\)/,
  },
  "sharding-fallback": { facts: { replicatedForDivisibility: ["states"] }, says: /states/ },
  "single-axis-sharding": { facts: { shardedAxes: 1 }, seconds: { 1: 10, 4: 8 }, says: /sharded axes: 1/ },
  "past-the-peak": { seconds: { 1: 10, 2: 6, 4: 7 }, says: /speedup at 4: 1\.429/ },
};

test("a slow exchange between processes of one host is a slow link; a fast one is not", () => {
  const facts = (us: number): Partial<ProbeFacts> => ({
    backend: "gloo",
    device: "cpu",
    parallelism: "ddp",
    gradientBytes: 2e6,
    ddpCommUs: us,
    ddpOverlapUs: us / 10,
    ddpBackwardUs: 3000,
  });
  const found = (us: number) => {
    const report = findings({
      devices: 2,
      facts: {},
      run: { ranks: [0, 1].map((rank) => ({ rank, facts: facts(us) })) },
      says: /./,
    });
    return { slow: report.findings.some((f) => f.id === "slow-link"), cause: report.mainCause };
  };
  assert.deepEqual(found(80000), { slow: true, cause: "slow-link" });
  assert.equal(found(4000).slow, false);
});

test("every rule of the catalog has a test case, a source and a refutation", () => {
  assert.deepEqual(diagnosisRules.map((r) => r.id).sort(), Object.keys(cases).sort());
  for (const rule of diagnosisRules) {
    assert.ok(rule.source.length > 10, rule.id);
  }
});

test("a run without problems has no findings", () => {
  assert.deepEqual(findings({ says: /./ }).findings, []);
});

for (const [id, c] of Object.entries(cases))
  test(`rule ${id} gives a finding with its evidence`, () => {
    const found = findings(c).findings.filter((f) => f.id === id);
    assert.equal(found.length > 0, true, `${id} is silent`);
    const [first] = found;
    assert.match(first!.evidence.map((e) => e.text).join("\n"), c.says);
    assert.ok(first!.cause !== "" && first!.refutedBy !== "" && first!.fix !== "");
    assert.notEqual(first!.severity, "invalid");
    assert.equal(first!.run, `n${c.devices ?? 4}`);
  });

test("overlap is not recommended over shared memory, where the computing cores communicate", () => {
  const step = { commUs: 2000, exposedCommUs: 2000, backwardUs: 6000 };
  const ids = (backend: string) => findings({ step, facts: { backend }, says: /./ }).findings.map((f) => f.id);
  assert.ok(ids("gloo").includes("poor-overlap"));
  assert.ok(!ids("shm").includes("poor-overlap"));
});

test("nothing is recommended from a count that is not valid", () => {
  const report = findings({ step: { dataWaitUs: 5000 }, facts: { contentHash: "ab" }, says: /./ });
  assert.equal(report.valid, false);
  assert.deepEqual(
    report.findings.map((f) => f.id),
    ["work-not-divided"],
  );
  assert.deepEqual(report.predictions, []);
  assert.equal(report.usl, null);
});

test("the predicted effect of a fix equals its formula", () => {
  const report = findings({ step: { exposedCommUs: 4000, commUs: 5000 }, says: /./ });
  const effect = report.findings.find((f) => f.id === "communication-cost")!.predicted!;
  // Step 10 ms with 4 ms exposed; over four micro-steps 7 ms: 30% less of 2.5 s.
  assert.ok(Math.abs(effect.to! - 2.5 * 0.7) < 0.01);
  assert.ok(effect.interval![0] < effect.to! && effect.to! < effect.interval![1] && effect.interval![1] < effect.from!);
});

test("a valid study is extrapolated, and the report has the documented fields", () => {
  const report = findings({ says: /./ });
  assert.deepEqual(
    report.predictions.map((p) => p.devices),
    [8, 16],
  );
  assert.deepEqual(Object.keys(report.runs[0]!.epochSeconds!), ["mean", "std", "n"]);
  for (const key of ["devices", "speedup", "efficiency", "valid", "workRatio", "workSpeedup", "class"])
    assert.ok(key in report.scaling[1]!, key);
  assert.equal(report.scaling[0]!.class, "baseline");
});

test("replicated work counts once in samples per second and twice in work per second", () => {
  const step = { samples: 8, epoch: 1 };
  const report = findings({
    step,
    devices: 2,
    seconds: { 1: 10, 2: 10.5 },
    base: { workload: { datasetSamples: 160 } },
    says: /./,
  });
  const [one, two] = report.runs;
  assert.equal(one!.samplesPerSecond, 160 / report.runs[0]!.epochSeconds!.mean);
  // Two ranks with 20 steps of 8 samples: 320 samples processed, 160 distinct, in the time of the counted epochs.
  assert.equal(report.scaling[1]!.workRatio, 2);
  assert.ok(Math.abs(two!.workSamplesPerSecond! - 320 / two!.epochSeconds!.mean) < 1e-6);
  assert.ok(Math.abs(two!.samplesPerSecond! - 160 / two!.epochSeconds!.mean) < 1e-6);
});

const idsOf = (c: Case): string[] => findings(c).findings.map((f) => f.id);

test("steps that slow down for good are found, a machine whose speed wanders is not", () => {
  const wandering = Array.from({ length: 60 }, (_, seed) => {
    const random = seededRandom(seed + 1);
    let drift = 0;
    const noise = Array.from({ length: 96 }, () => {
      drift = 0.95 * drift + 0.2 * (random() - 0.5);
      return Math.exp(drift + 0.1 * (random() - 0.5));
    });
    return idsOf({ steps: 96, rankStep: (_, step) => ({ durationUs: 10000 * noise[step]! }), says: /./ });
  });
  const alarms = wandering.filter((ids) => ids.includes("slowing-down")).length;
  assert.ok(alarms <= 3, `${alarms} of 60`);
  // A clock that falls to five sixths halfway.
  const clock = (step: number): number => (step < 48 ? 10000 : 12000) * (1 + 0.002 * (step % 5));
  assert.ok(
    idsOf({ steps: 96, rankStep: (_, step) => ({ durationUs: clock(step) }), says: /./ }).includes("slowing-down"),
  );
});

test("a rank that a quota stops in some of the steps is a straggler", () => {
  const stopped = (step: number): boolean => step % 5 < 2;
  const report = findings({
    steps: 60,
    facts: { parallelism: "ddp" },
    // The others wait for it inside their backward passes.
    rankStep: (rank, step) => ({
      durationUs: stopped(step) ? 14000 : 10000,
      backwardUs: stopped(step) && rank !== 1 ? 8000 : 4000,
    }),
    says: /./,
  });
  assert.equal(report.mainCause, "straggler");
});

test("what a restart of loaders brings about is not the main cause", () => {
  const report = findings({
    facts: { loaderStarts: 4, loaderStartSeconds: 0.6, loaderWorkers: 2 },
    step: { dataWaitUs: 4000 },
    run: { machine: { cores: 4 }, samples: [1, 2, 3].map((t) => ({ t, host: { runQueue: 7 } })) },
    says: /./,
  });
  const found = report.findings.map((f) => f.id);
  for (const id of ["cpu-oversubscription", "input-bound", "loaders-restarted"]) assert.ok(found.includes(id), id);
  assert.equal(report.mainCause, "loaders-restarted");
});
