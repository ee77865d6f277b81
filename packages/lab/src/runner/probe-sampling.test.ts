// The probe samples steps that take little more time than their record: which steps it records, that the records stand for all
// steps, and that the statistics of a sampled run are those of the whole one.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { mkdirSync, readFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import type { TrainingStep } from "@weft/formats";
import { imbalance, stepWeight, summarizeStudy } from "../metrics/index.js";
import { emptyRun, type Run } from "../model/index.js";
import { loudly, pythonWith } from "../test/python.js";
import { TestFolder } from "../trace/fixtures.testkit.js";
import { probeEnvironment, probeFolder } from "./probe.js";

const skip = spawnSync("python3", ["--version"]).status === 0 ? false : "there is no python3 here";

function python<T>(code: string): T {
  const done = spawnSync("python3", ["-c", `import sys; sys.path.insert(0, ${JSON.stringify(probeFolder)})\n${code}`], {
    encoding: "utf8",
  });
  assert.equal(done.stderr, "");
  return JSON.parse(done.stdout) as T;
}

test("one step of every block is chosen, of larger blocks among those of smaller ones, without a period", {
  skip,
}, () => {
  const chosen = python<number[][]>(`
import json
from weft_probe_sampling import chosen
print(json.dumps([[chosen(block, level) for block in range(4096 >> level)] for level in range(7)]))`);
  for (const [level, steps] of chosen.entries()) {
    for (const [block, step] of steps.entries()) assert.equal(step >> level, block);
    if (level > 0) assert.ok(steps.every((step) => chosen[level - 1]!.includes(step)));
    // Every remainder of a short period is met about equally often.
    for (const period of [2, 4, 5, 10])
      for (let k = 0; k < period; k++) {
        const share = steps.filter((step) => step % period === k).length / steps.length;
        assert.ok(Math.abs(share - 1 / period) < 0.13, `level ${level}: ${share} of ${k} mod ${period}`);
      }
  }
});

interface Simulated {
  records: { step: number; weight: number; duration: number }[];
  level: number;
  total: number;
  steps: number;
}

/** Steps of given durations (a Python expression of `i`), recorded at a cost of 16 us each. */
const simulate = (duration: string, steps = 20_000): Simulated =>
  python(`
import json, random
from weft_probe_sampling import Sampling
random.seed(1)
s = Sampling()
records, total = [], 0.0
for i in range(${steps}):
    d = ${duration}
    total += d
    if i == s.next or d > s.long:
        records.append({"step": i, "weight": s.recorded(i, 16e-6, d), "duration": d})
    if i == 256 or i % 1000 == 0: s.decide(0.0)
print(json.dumps({"records": records, "level": s.level, "total": total, "steps": ${steps}}))`);

test("records stand for all steps: sums are right with periods and rare long steps, which are all recorded", {
  skip,
}, () => {
  for (const [name, duration] of Object.entries({
    even: "580e-6 * (1 + 0.1 * random.random())",
    "every fourth waits for its loader": "580e-6 * (2 if i % 4 == 0 else 1)",
    "every sixteenth logs": "500e-6 + (400e-6 if i % 16 == 3 else 0)",
    checkpoints: "580e-6 + (0.5 if i % 1000 == 999 else 0)",
    "twice as slow in the second half": "580e-6 * (1 if i < 10000 else 2)",
  })) {
    const { records, level, total, steps } = simulate(duration);
    assert.equal(level, name.startsWith("twice") ? 3 : 4, name);
    assert.ok(records.length < steps / 8, `${name}: ${records.length}`);
    const sum = records.reduce((a, r) => a + r.weight * r.duration, 0);
    assert.ok(Math.abs(sum / total - 1) < 0.02, `${name}: ${sum} of ${total}`);
    const stood = records.reduce((a, r) => a + r.weight, 0);
    assert.ok(Math.abs(stood - steps) <= 1 << level, `${name}: ${stood}`);
  }
  const long = simulate("580e-6 + (0.5 if i % 1000 == 999 else 0)").records.filter((r) => r.duration > 0.1);
  assert.deepEqual(
    long.map((r) => [r.step, r.weight]),
    Array.from({ length: 20 }, (_, k) => [1000 * k + 999, 1]),
  );
});

test("long steps are all recorded, short ones so that a record comes every 50 ms", { skip }, () => {
  const slow = simulate("0.012", 500);
  assert.deepEqual([slow.level, slow.records.length], [0, 500]);
  const fast = simulate("2e-6", 200_000);
  // By cost 3200 steps should share a record.
  assert.equal(fast.level, 12);
  const dear = python<number>(`
from weft_probe_sampling import Sampling
s = Sampling()
for i in range(300):
    if i == s.next: s.recorded(i, 1e-3, 5e-3)
    s.decide(0.0)
print(s.wanted)`);
  assert.equal(dear, 3);
});

test("two sampled ranks record the same steps, count all, and say so", { skip }, () => {
  using folder = new TestFolder();
  const steps = 3000;
  const run = join(folder.path, "runs/r0");
  mkdirSync(run, { recursive: true });
  // Rank 1 is slower; a step of 30 ms comes at 2000. The probe reads a simulated clock, so that other load on the machine changes
  // neither the steps nor the cost of a record: every reading takes 2 us.
  const code = `
import os, weft_probe
now = 0.0
def clock():
    global now
    now += 2e-6
    return now
weft_probe._clock = clock
weft_probe.recorder.origin = weft_probe.recorder.last_flush = now
work = 200e-6 if os.environ["RANK"] == "0" else 300e-6
for i in range(${steps}):
    with weft_probe.step(samples=8):
        now += 0.03 if i == 2000 else work
print(now)`;
  const seconds = ["0", "1"].map((rank) => {
    const done = spawnSync("python3", ["-c", code], {
      encoding: "utf8",
      env: { ...process.env, ...probeEnvironment(run, {}), RANK: rank, WORLD_SIZE: "2" },
    });
    assert.equal(done.stderr, "");
    return Number(done.stdout);
  });
  const records = [0, 1].map((rank) =>
    readFileSync(join(run, `rank${rank}.jsonl`), "utf8")
      .trimEnd()
      .split("\n")
      .map((line) => JSON.parse(line) as Record<string, unknown>),
  );
  for (const [rank, list] of records.entries()) {
    const own = list.filter((r) => r["type"] === "step") as unknown as TrainingStep[];
    assert.ok(own.length < steps / 2, `rank ${rank}: ${own.length} of ${steps}`);
    assert.deepEqual(
      own.slice(0, 256).map((s) => s.step),
      Array.from({ length: 256 }, (_, k) => k),
    );
    assert.equal(own.find((s) => s.step === 2000)?.weight, undefined);
    const sum = own.reduce((a, s) => a + (stepWeight(s) * s.durationUs) / 1e6, 0);
    assert.ok(Math.abs(sum / seconds[rank]! - 1) < 0.04, `rank ${rank}: ${sum} s of ${seconds[rank]} s`);
    const facts = Object.assign({}, ...list.filter((r) => r["type"] === "facts").map((r) => r["facts"])) as Record<
      string,
      number
    >;
    assert.ok(facts["stepSampling"]! >= 2 && facts["probeStepUs"]! > 0, JSON.stringify(facts));
  }
  const whole = emptyRun("r", 2, { kind: "jsonl", path: run });
  whole.steps = records.flat().filter((r) => r["type"] === "step") as unknown as TrainingStep[];
  const summary = summarizeStudy({ name: "s", runs: [whole], problems: [] }).runs[0]!.steps!;
  assert.ok(summary.sampling >= 2);
  for (const { rank, meanUs } of summary.perRank)
    assert.ok(Math.abs((meanUs * steps) / 1e6 / seconds[rank]! - 1) < 0.04, `rank ${rank}: ${meanUs} us`);
});

/** A run of two ranks and 20 epochs; with `thinned` as the probe samples it. */
function twoRanks(thinned: boolean): Run {
  const run = emptyRun("r", 2, { kind: "jsonl", path: "r" });
  const perEpoch = 203;
  const durations = Array.from({ length: 20 * perEpoch }, (_, i) =>
    [0, 1].map((rank) => 600 + 40 * rank + (i % perEpoch === 0 ? 9000 : 0) + ((i * 7919) % 13)),
  );
  const weights: (number | undefined)[] = thinned
    ? python<(number | null)[]>(`
import json
from weft_probe_sampling import Sampling
s = Sampling()
out = []
for i, (d, _) in enumerate(json.loads(${JSON.stringify(JSON.stringify(durations))})):
    out.append(s.recorded(i, 12e-6, d / 1e6) if i == s.next or d / 1e6 > s.long else None)
    s.decide(0.0)
print(json.dumps(out))`).map((weight) => weight ?? undefined)
    : durations.map(() => 1);
  for (const rank of [0, 1]) {
    run.ranks.push({ rank, facts: { parallelism: "ddp" } });
    durations.forEach((row, i) => {
      const weight = weights[i];
      if (weight === undefined) return;
      const epoch = 1 + Math.floor(i / perEpoch);
      // The last batch of an epoch is smaller.
      const samples = i % perEpoch === perEpoch - 1 ? 5 : 32;
      const wait = i % perEpoch === 0 ? 9000 : 20;
      const parts = { durationUs: row[1]!, dataWaitUs: wait, backwardUs: 300 + (rank === 0 ? 40 : 0), samples };
      run.steps.push({ rank, step: i, epoch, ...parts, ...(weight > 1 && { weight }) });
    });
    for (let epoch = 1; epoch <= 20; epoch++)
      run.epochs.push({ rank, epoch, seconds: 0.14, steps: perEpoch, samples: 32 * (perEpoch - 1) + 5 });
  }
  return run;
}

test("a sampled run gives the statistics of the whole one", { skip }, () => {
  const [whole, sampled] = [twoRanks(false), twoRanks(true)];
  assert.ok(sampled.steps.length < whole.steps.length / 5, `${sampled.steps.length}`);
  const [a, b] = [whole, sampled].map(
    (run) => summarizeStudy({ name: "s", runs: [run], problems: [] }).runs[0]!.steps!,
  );
  const close = (x: number, y: number, what: string): void =>
    assert.ok(Math.abs(x / y - 1) < 0.01, `${what}: ${x} sampled, ${y} whole`);
  close(b!.durationUs.mean, a!.durationUs.mean, "mean");
  close(b!.durationUs.median, a!.durationUs.median, "median");
  close(b!.dataShare!, a!.dataShare!, "data share");
  close(b!.samplesPerSecond!, a!.samplesPerSecond!, "samples per second");
  assert.deepEqual([b!.stepsPerEpoch, b!.samplesPerEpoch], [a!.stepsPerEpoch, a!.samplesPerEpoch]);
  assert.deepEqual([a!.sampling, b!.sampling > 4], [1, true]);
  const [x, y] = [whole, sampled].map((run) => imbalance(run.steps, 10, true)!);
  close(y!.lostShare, x!.lostShare, "lost share");
  assert.equal(y!.slowest.rank, x!.slowest.rank);
});

/** Records of a program under the probe, and the totals of its facts. */
function recorded(python: string, folder: string, code: string) {
  const done = spawnSync(python, ["-W", "ignore", "-c", code], {
    encoding: "utf8",
    env: { ...process.env, ...probeEnvironment(folder, {}) },
  });
  assert.equal(done.status, 0, done.stderr);
  const records = readFileSync(join(folder, "rank0.jsonl"), "utf8")
    .trimEnd()
    .split("\n")
    .map((line) => JSON.parse(line) as Record<string, unknown>);
  const facts = Object.assign({}, ...records.filter((r) => r["type"] === "facts").map((r) => r["facts"])) as Record<
    string,
    number
  >;
  return {
    epochs: records.filter((r) => r["type"] === "epoch"),
    steps: records.filter((r) => r["type"] === "step") as unknown as TrainingStep[],
    facts,
  };
}

test("a PyTorch loop of short steps: epochs, samples and updates are counted, evaluation is none of them", async (t) => {
  const found = await pythonWith("torch");
  if (typeof found === "string") return t.skip(loudly(found));
  using folder = new TestFolder();
  // 30 epochs of 41 steps, the last of 5 samples; every epoch ends with an evaluation; one step takes 60 ms.
  const code = `
import time, torch
from torch.utils.data import DataLoader, TensorDataset
torch.set_num_threads(1)
x = torch.randn(40 * 16 + 5, 8)
train, held = (DataLoader(TensorDataset(x, x.sum(1)), batch_size=16, shuffle=s) for s in (True, False))
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
for epoch in range(30):
    for i, (a, b) in enumerate(train):
        optimizer.zero_grad()
        (model(a)[:, 0] - b).square().mean().backward()
        optimizer.step()
        if (epoch, i) == (20, 17): time.sleep(0.06)
    with torch.no_grad():
        for a, b in held: model(a)
`;
  const { epochs, steps, facts } = recorded(found.python, folder.path, code);
  assert.deepEqual(
    epochs.map((r) => [r["epoch"], r["steps"], r["samples"]]),
    Array.from({ length: 30 }, (_, k) => [k + 1, 41, 645]),
  );
  assert.ok(steps.length < 1000 && steps.some((s) => stepWeight(s) > 1), `${steps.length} records`);
  assert.equal((steps.find((s) => s.step === 20 * 41 + 17)?.durationUs ?? 0) > 60_000, true);
  assert.deepEqual([facts["updates"], facts["backwardPasses"], facts["probeErrors"]], [1230, 1230, undefined]);
});

/** Loops whose steps are not all alike, of 30 epochs: `step` trains on a batch, `grads` only adds gradients. */
const unlike: Record<string, { loop: string; perEpoch: [steps: number, samples: number, updates: number] }> = {
  "left after a step": {
    loop: `
    for i, a in enumerate(train):
        step(a)
        if i == 36: break`,
    perEpoch: [37, 592, 37],
  },
  "left with a batch that is not used": {
    loop: `
    for i, a in enumerate(train):
        if i == 37: break
        step(a)`,
    perEpoch: [37, 592, 37],
  },
  "with skipped batches": {
    loop: `
    for i, a in enumerate(train):
        try:
            if i % 5 == 4: raise ValueError
            step(a)
        except ValueError: pass`,
    perEpoch: [32, 512, 32],
  },
  "that accumulates gradients": {
    loop: `
    for i, a in enumerate(train):
        grads(a)
        if i % 4 == 3: optimizer.step(); optimizer.zero_grad()`,
    perEpoch: [40, 640, 10],
  },
  "that evaluates while it accumulates": {
    loop: `
    for i, a in enumerate(train):
        grads(a)
        if i % 4 == 3: optimizer.step(); optimizer.zero_grad()
        if i % 10 == 9: evaluate(9)`,
    perEpoch: [40, 640, 10],
  },
  "that evaluates some batches between a batch and its step": {
    loop: `
    for i, a in enumerate(train):
        if i % 10 == 9: evaluate(2)
        step(a)`,
    perEpoch: [40, 640, 40],
  },
};

for (const [name, { loop, perEpoch }] of Object.entries(unlike))
  test(`a sampled PyTorch loop ${name}: steps, samples and updates are counted`, async (t) => {
    const found = await pythonWith("torch");
    if (typeof found === "string") return t.skip(loudly(found));
    using folder = new TestFolder();
    const code = `
import torch
from torch.utils.data import DataLoader
torch.set_num_threads(1)
train, held = DataLoader(torch.randn(640, 8), batch_size=16), DataLoader(torch.randn(64, 8), batch_size=16)
model = torch.nn.Linear(8, 1)
optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
def grads(a): model(a).square().mean().backward()
def step(a): optimizer.zero_grad(); grads(a); optimizer.step()
@torch.no_grad()
def evaluate(batches):
    for i, a in enumerate(held):
        model(a)
        if i + 1 == batches: break
for epoch in range(30):${loop}
`;
    const { epochs, steps, facts } = recorded(found.python, folder.path, code);
    const [count, samples, updates] = perEpoch;
    assert.deepEqual(
      epochs.map((r) => [r["steps"], r["samples"]]),
      Array.from({ length: 30 }, () => [count, samples]),
    );
    assert.deepEqual([facts["updates"], facts["backwardPasses"]], [30 * updates, 30 * count]);
    assert.ok(facts["stepSampling"]! > 1 && steps.length < 30 * count);
    assert.equal(facts["probeErrors"], undefined);
  });
