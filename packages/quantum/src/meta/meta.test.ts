// Meta-learning: adaptation and meta-gradients against closed forms and finite differences, kernel counts, and training that is
// reproducible and resumes bit for bit.
import assert from "node:assert/strict";
import { mkdtempSync, rmSync, writeFileSync } from "node:fs";
import { tmpdir } from "node:os";
import { join } from "node:path";
import { after, describe, test } from "node:test";
import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { assertClose } from "@weft/testing/compare";
import { onEachDevice } from "@weft/testing/devices";
import { controlInfidelity, prepareProblem, qubitFlip } from "../control/index.js";
import { drawTasks, gammaTasks, type Tasks } from "../noise/index.js";
import {
  adapt,
  adaptationCurves,
  compareBaselines,
  type MetaSettings,
  MetaTrainer,
  metaConfig,
  metaGradient,
  type PolicyParameters,
  parseMetaFile,
  policy,
} from "./index.js";

const f64 = (data: number | number[]): Tensor => weft.tensor(data, { dtype: "float64" });
const flat = (tree: unknown): number[] =>
  weft.treeLeaves(tree).flatMap((leaf) => Array.from(leaf.dataSync() as ArrayLike<number>, Number));

/** a (x - c)^2 / 2: K steps multiply the distance by (1 - rate a)^K. */
const bowl = (x: { x: Tensor }, task: { a: Tensor; c: Tensor }): Tensor => x.x.sub(task.c).square().mul(task.a).div(2);

const small = { width: 4, hidden: 0, segments: 3, controls: 2 } as const;
const smallProblem = prepareProblem(qubitFlip({ segments: 3 }));
const smallLoss = (params: PolicyParameters, task: Tasks): Tensor =>
  controlInfidelity(
    smallProblem,
    { method: "rk4", perSegment: 1 },
    policy.apply(params, task.features, small),
    task.rates,
  );
const smallStart = (): PolicyParameters =>
  weft.treeMap((p) => p.cast("float64"), policy.init({ ...small, gain: 1.5 }, weft.key(4)));

const debug: MetaSettings = { preset: "debug", policy: { width: 8 }, problem: qubitFlip({ segments: 10 }) };

onEachDevice((_, name) => {
  test("adaptation and meta-gradients of both orders equal closed forms", () => {
    const [rate, steps, start] = [0.1, 3, 2];
    const tasks = { a: f64([1, 2, 0.5]), c: f64([0, 1, -1]) };
    const shrink = [1, 2, 0.5].map((a) => (1 - rate * a) ** steps);
    const distance = [2, 1, 3];
    const params = { x: f64(start) };
    const one = adapt(bowl, params, { a: f64(2), c: f64(1) }, { steps, rate });
    assertClose(one.x, 1 + shrink[1]!);
    const mean = (f: (i: number) => number): number => (f(0) + f(1) + f(2)) / 3;
    const a = [1, 2, 0.5];
    const first = metaGradient(bowl, params, tasks, { steps, rate, order: 1 });
    const second = metaGradient(bowl, params, tasks, { steps, rate, order: 2 });
    assertClose(
      first.loss,
      mean((i) => (a[i]! * (shrink[i]! * distance[i]!) ** 2) / 2),
    );
    assertClose(second.loss, first.loss.itemSync());
    assertClose(
      first.grads.x,
      mean((i) => a[i]! * shrink[i]! * (start - [0, 1, -1][i]!)),
    );
    assertClose(
      second.grads.x,
      mean((i) => a[i]! * shrink[i]! ** 2 * (start - [0, 1, -1][i]!)),
    );
    const curves = adaptationCurves(bowl, params, tasks, { steps, rate }).arraySync() as number[][];
    assertClose(curves[1]![2]!, ((1 - rate * 2) ** 4 * 2 * 1) / 2);
    assert.deepEqual([curves.length, curves[0]!.length], [3, 4]);
  });

  test("the meta-gradient of a batch is the mean over its tasks", () => {
    const params = smallStart();
    const tasks = drawTasks(gammaTasks, weft.key(1), 3);
    for (const order of [1, 2] as const) {
      const options = { steps: order === 1 ? 2 : 1, rate: 0.5, order };
      const gradient = weft.jit((p: PolicyParameters, t: Tasks) => metaGradient(smallLoss, p, t, options));
      const batch = gradient(params, tasks);
      const singles = [0, 1, 2].map((i) => {
        const pick = `${i}:${i + 1}`;
        const one = { rates: tasks.rates.index(pick), features: tasks.features.index(pick) };
        return flat(gradient(params, one).grads);
      });
      const expected = singles[0]!.map((_, k) => (singles[0]![k]! + singles[1]![k]! + singles[2]![k]!) / 3);
      assertClose(f64(flat(batch.grads)), expected, { rtol: 1e-9, atol: 1e-13 });
    }
  });

  test("the second-order gradient equals finite differences of the adapted loss; the first-order one does not", () => {
    const params = smallStart();
    const tasks = drawTasks(gammaTasks, weft.key(2), 2);
    const options = { steps: 2, rate: 0.5 };
    const adapted = weft.jit((p: PolicyParameters) => metaGradient(smallLoss, p, tasks, { ...options, order: 1 }).loss);
    const value = (p: PolicyParameters): number => adapted(p).itemSync();
    const direction = weft.treeMap((p) => weft.randn(p.shape, { seed: p.size, dtype: "float64" }), params);
    const along = (h: number): PolicyParameters => weft.treeMap((p, d) => p.add(d.mul(h)), params, direction);
    const h = 1e-4;
    const slope = (8 * (value(along(h)) - value(along(-h))) - (value(along(2 * h)) - value(along(-2 * h)))) / (12 * h);
    const dot = (order: 1 | 2): number => {
      const gradient = weft.jit(
        (p: PolicyParameters) => metaGradient(smallLoss, p, tasks, { ...options, order }).grads,
      );
      const g = flat(gradient(params));
      return flat(direction).reduce((sum, d, i) => sum + d * g[i]!, 0);
    };
    assertClose(dot(2), slope, { rtol: 1e-6 });
    assert.ok(Math.abs(dot(1) / slope - 1) > 1e-2, `first order ${dot(1)}, slope ${slope}`);
  });

  test("an iteration is one program with one lane kernel per adaptation step", () => {
    const trainer = new MetaTrainer({ ...debug, inner: { steps: 3 }, batch: 4 });
    trainer.step();
    const { runs } = weft.session();
    for (let i = 0; i < 5; i++) trainer.step();
    assert.equal(weft.session().runs - runs, 5);
    if (name === "reference") return;
    const kernels = trainer.kernels();
    // Three adaptation steps and the final loss: one kernel each with a forward and a backward loop, for any number of tasks.
    assert.equal(kernels.filter((k) => k.startsWith("lanes_4x20x2")).length, 4, kernels.join());
    const larger = new MetaTrainer({ ...debug, inner: { steps: 3 }, batch: 9 }).kernels();
    assert.ok(Math.abs(larger.length - kernels.length) <= 3, `${kernels.length} for 4 tasks, ${larger.length} for 9`);
    assert.ok(kernels.length < 140, `${kernels.length} kernels`);
    // Second order: no loop is split into small kernels.
    const second = new MetaTrainer({ ...debug, order: 2 }).kernels();
    assert.ok(second.length < 300, `${second.length} kernels`);
  });

  test("training lowers the loss and is reproducible by seed", () => {
    const run = (seed: number, until: number): MetaTrainer => {
      const trainer = new MetaTrainer({ ...debug, seed, iterations: 30, outer: { rate: 0.02 }, policy: { width: 16 } });
      trainer.run({ until });
      return trainer;
    };
    const trainer = run(1, 30);
    const losses = trainer.metrics.map((m) => m.loss);
    assert.equal(losses.length, 30);
    assert.ok(losses[0]! > 0.5 && losses[29]! < 0.2, `from ${losses[0]} to ${losses[29]}`);
    const last = trainer.validations.at(-1)!;
    assert.deepEqual(
      trainer.validations.map((v) => v.iteration),
      [10, 20, 30],
    );
    assert.equal(last.curve.length, 4);
    assertClose(last.gain, last.after - last.before);
    assert.ok(last.after > 0.8 && last.after <= 1 && last.trainingError < 1e-5);
    assert.deepEqual(run(1, 5).metrics, trainer.metrics.slice(0, 5));
    assert.notDeepEqual(run(2, 2).metrics, trainer.metrics.slice(0, 2));
  });
});

test("all baselines are evaluated on the same tasks", () => {
  const trainer = new MetaTrainer({ ...debug, iterations: 40, outer: { rate: 0.02 } });
  trainer.run();
  const rows = compareBaselines(trainer, {
    tasks: 4,
    steps: 3,
    iterations: 60,
    ensemble: 5,
    objectives: ["mean"],
    randomized: 40,
  });
  assert.deepEqual(
    rows.map((r) => r.name),
    [
      "meta-learned, no adaptation",
      "meta-learned, 3 steps",
      "domain randomization",
      "domain randomization, 3 steps",
      "robust pulse (mean)",
      "GRAPE for each task, 60 iterations",
    ],
  );
  for (const r of rows)
    assert.ok(r.mean > 0.8 && r.mean <= 1 && r.worst <= r.mean && r.deviation >= 0, JSON.stringify(r));
  assert.notEqual(rows[0]!.mean, rows[2]!.mean);
});

test("training works with tasks drawn from spectra", () => {
  const trainer = new MetaTrainer({
    ...debug,
    iterations: 3,
    tasks: {
      kind: "psd",
      model: "oneOverF",
      alpha: { law: "uniform", low: 0.5, high: 2 },
      amplitude: { law: "logUniform", low: 0.01, high: 1 },
      cutoff: { law: "uniform", low: 1, high: 30 },
      rates: { duration: 1, frequency: 1, lineWidth: 100 },
    },
  });
  trainer.run();
  assert.equal(trainer.metrics.length, 3);
  assert.ok(trainer.validations.at(-1)!.after > 0 && trainer.validations.at(-1)!.after < 1);
});

describe("policy, checkpoints, files and errors", () => {
  const folder = mkdtempSync(join(tmpdir(), "weft-meta-"));
  after(() => rmSync(folder, { recursive: true, force: true }));

  test("the policy has the published number of parameters and orthogonal initial weights", () => {
    assert.equal(policy.parameters({ segments: 60, controls: 2 }), 49016);
    assert.equal(policy.parameters({ segments: 20, controls: 2 }), 38696);
    assert.equal(policy.parameters({ segments: 20, controls: 2, width: 64 }), 11176);
    const { layers } = policy.init({ segments: 60, controls: 2 }, weft.key(0));
    assert.deepEqual(
      layers.map((l) => l.weight.shape),
      [
        [128, 3],
        [128, 128],
        [128, 128],
        [120, 128],
      ],
    );
    const gram = weft.matmul(layers[1]!.weight, layers[1]!.weight.transpose());
    assertClose(gram.sub(weft.eye(128).mul(0.25)).abs().max(), 0, { atol: 1e-6 });
    assert.equal(layers[2]!.bias.abs().max().itemSync(), 0);
  });

  test("a resumed run equals an uninterrupted one bit for bit, with its history", async () => {
    const settings: MetaSettings = { ...debug, iterations: 12, validation: { every: 4 } };
    const whole = new MetaTrainer(settings);
    whole.run();
    const half = new MetaTrainer(settings);
    half.run({ until: 8 });
    const path = join(folder, "half.safetensors");
    await half.save(path);
    const resumed = await MetaTrainer.resume(path);
    assert.equal(resumed.iteration, 8);
    resumed.run();
    assert.deepEqual(flat(resumed.state.params), flat(whole.state.params));
    assert.deepEqual(resumed.metrics, whole.metrics);
    assert.deepEqual(resumed.validations, whole.validations);
  });

  test("files that are not checkpoints and corrupt files are errors", async () => {
    const path = join(folder, "broken.safetensors");
    writeFileSync(path, "no");
    await assert.rejects(MetaTrainer.resume(path), /broken.safetensors/);
    await weft.io.save(path, { a: weft.ones([2]) });
    await assert.rejects(MetaTrainer.resume(path), /is not a checkpoint of meta-training/);
    await assert.rejects(new MetaTrainer(debug).save(join(folder, "x.bin")), /must end in .safetensors/);
  });

  test("settings out of range and a non-finite loss are errors", () => {
    const bad = (settings: unknown) => () => metaConfig(settings as MetaSettings);
    assert.throws(bad({ preset: "fast" }), /preset: there is no "fast" \(known: training, evaluation, debug\)/);
    assert.throws(bad({ inner: { steps: -1 } }), /inner.steps: expected a whole number >= 0, got -1/);
    assert.throws(bad({ order: 3 }), /order: must be 1 or 2, got 3/);
    assert.throws(bad({ batch: 0 }), /batch: expected a whole number >= 1/);
    assert.throws(bad({ outer: { rate: 0 } }), /outer.rate: must be above 0/);
    assert.throws(bad({ problem: { ...qubitFlip(), channels: [] } }), /0 channels; tasks bring two rates/);
    const trainer = new MetaTrainer({ ...debug, outer: { rate: 1e38 } });
    assert.throws(() => trainer.run(), /the loss became (NaN|Infinity|-Infinity).*lower outer.rate/);
  });

  test("a YAML file gives a configuration; unknown keys and invalid values are errors", () => {
    const config = parseMetaFile(
      "preset: debug\nproblem: {kind: cz, segments: 7}\ntasks: {kind: rates, dephasing: [0.01, 0.02], relaxation: 0.03}\n" +
        "inner: {rate: 0.5}\nintegration: {training: {method: rk4, dt: 0.01}}\n",
      "meta.yaml",
      { iterations: 7 },
    );
    assert.deepEqual([config.problem.segments, config.problem.controls.length, config.iterations], [7, 6, 7]);
    assert.deepEqual(config.inner, { steps: 3, rate: 0.5 });
    assert.deepEqual(config.tasks, {
      kind: "rates",
      dephasing: { law: "uniform", low: 0.01, high: 0.02 },
      relaxation: { law: "fixed", value: 0.03 },
    });
    assert.deepEqual(config.integration.training, { method: "rk4", dt: 0.01 });
    assert.deepEqual(parseMetaFile("").tasks, gammaTasks);
    const refused = (text: string, message: RegExp): void =>
      assert.throws(() => parseMetaFile(text, "meta.yaml"), message);
    refused("inner: {stepz: 3}", /meta.yaml: inner: there is no key "stepz"; did you mean "steps"/);
    refused("batch: many", /meta.yaml: batch: .*number/);
    refused("batch: -2", /meta.yaml: batch: expected a whole number >= 1, got -2/);
    refused("tasks: {kind: rates, dephasing: [-1, 1], relaxation: 0}", /dephasing can become negative/);
    refused("tasks: {kind: rates, dephasing: {law: unifrom}, relaxation: 0}", /tasks.dephasing.law: .*mean "uniform"/);
    refused("tasks: {kind: rates, dephasing: [1, 2, 3], relaxation: 0}", /tasks.dephasing: expected \[low, high\]/);
    refused("a: [", /meta.yaml: is not YAML/);
    refused("integration: {training: {method: euler}}", /meta.yaml: integration.training: give either dt or tolerance/);
  });

  test("validation refines the integration steps when the error on the policy's pulses exceeds the tolerance", () => {
    const settings = { ...debug, problem: qubitFlip({ segments: 4 }), policy: { width: 8, outputScale: 40 } };
    const trainer = new MetaTrainer({ ...settings, integration: { training: { tolerance: 1e-3 } } });
    const { perSegment } = trainer.training;
    const { trainingError } = trainer.validate();
    assert.ok(trainingError > 1e-3 && trainer.training.perSegment > perSegment, trainer.explain());
    assert.ok(trainer.training.error <= 1e-3);
    assert.match(trainer.explain(), /^training: tolerance = 0.001 -> rk4.*\nevaluation: tolerance = 1e-9/);
  });
});
