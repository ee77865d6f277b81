// Models with a state that no gradient trains (running statistics): values, micro-steps, ranks, checkpoints, evaluation.
import assert from "node:assert/strict";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { scratch } from "../data/testkit.js";
import { findCheckpoint } from "./checkpoint.js";
import { loadAnyConfig } from "./config.js";
import { exportRun } from "./export.js";
import { launchRanks } from "./ranks.js";
import { type TrainDefinition, train } from "./train.js";
import type { RankTrained, RankTraining } from "./trained-ranks.testkit.js";
import { trainConfig } from "./trainer.js";

const folder = scratch();
weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
/** Several ranks on one host exchange data by a compiled library. */
const needsCompiler = { skip: weft.CpuDevice.available() ? false : "no C compiler" };
// Small programs are interpreted, which is quicker than to compile them for every rank.
delete process.env.WEFT_INTERPRET;

type Params = { w: weft.Tensor };
type State = { norm: nn.BatchNormState; steps: weft.Tensor };
type Rows = { x: weft.Tensor };
const values = [1, 5, 2, 8, 3, 13, 4, -6];
const double = { dtype: "float64" as const };

/** Batch norm of the data itself, so that its statistics do not depend on what is trained. */
const normed = (seen: number[][], parts: Partial<TrainDefinition<Params, State>>): TrainDefinition<Params, State> => ({
  model: {
    init: () => ({ w: weft.tensor([0.5], double) }),
    state: () => ({ norm: nn.batchNorm.state({ channels: 1, ...double }), steps: weft.tensor(0, { dtype: "int32" }) }),
  },
  loss: (params, batch: Rows, { train: training, state }) => {
    const affine = { weight: params.w, bias: weft.zeros([1], double) };
    const [y, norm] = nn.batchNorm.apply(affine, batch.x, { state: state.norm, training, momentum: 0.25 });
    return { loss: y.sub(1).square().mean(), state: { norm, steps: state.steps.add(1) } };
  },
  data: {
    train: {
      rows: values.length,
      batch: (samples: Uint32Array) => {
        seen.push([...samples]);
        return { x: weft.tensor(Float64Array.from(samples, (i) => values[i])).reshape([samples.length, 1]) };
      },
    },
    validation: { x: weft.tensor(Float64Array.from(values)).reshape([values.length, 1]) },
  },
  training: { epochs: 2, global_batch: 4 },
  optimizer: { type: "sgd", learning_rate: 0.01 },
  precision: { compute: "float64" },
  ...parts,
});

const stateOf = async (run: string, file = "state.safetensors"): Promise<Record<string, number[]>> => {
  const tensors = (await weft.io.load(join(findCheckpoint(run)!.folder, file))) as Record<string, weft.Tensor>;
  return Object.fromEntries(Object.entries(tensors).map(([name, t]) => [name, [...t.dataSync()].map(Number)]));
};
const close = (got: number, expected: number, what: string, off = 1e-12): void =>
  assert.ok(Math.abs(got - expected) <= off * Math.max(1, Math.abs(expected)), `${what}: ${got}, expected ${expected}`);

for (const accumulation of [1, 2])
  test(`running statistics are moving averages over the batches, with ${accumulation} micro-steps`, async () => {
    const seen: number[][] = [];
    const output = join(folder, `norm-${accumulation}`);
    const training = { epochs: 2, global_batch: 4, accumulation };
    const { epochs } = await train(normed(seen, { output, training }));
    // The first batch is also made to compile for its shape.
    const batches = seen.slice(1);
    assert.equal(batches.length, 4 * accumulation);
    let [mean, variance] = [0, 1];
    for (const samples of batches) {
      const x = samples.map((i) => values[i]);
      const average = x.reduce((a, b) => a + b) / x.length;
      const population = x.reduce((n, v) => n + (v - average) ** 2, 0) / (x.length - 1);
      mean = 0.75 * mean + 0.25 * average;
      variance = 0.75 * variance + 0.25 * population;
    }
    const state = await stateOf(output);
    close(state["norm.mean"][0], mean, "mean");
    close(state["norm.variance"][0], variance, "variance");
    assert.deepEqual(state["steps"], [4 * accumulation]);
    // The evaluation normalizes by them.
    const [w] = (await stateOf(output, "model.safetensors"))["w"];
    const losses = values.map((v) => ((w * (v - mean)) / Math.sqrt(variance + 1e-5) - 1) ** 2);
    close(epochs[1].valLoss!, losses.reduce((a, b) => a + b) / losses.length, "validation loss", 1e-9);
  });

test("a run that stops in an epoch continues with its state, bit for bit; export writes the state", async () => {
  const whole = join(folder, "norm-1");
  const output = join(folder, "stopped");
  await train(normed([], { output, training: { epochs: 2, global_batch: 4, max_steps: 3 } }));
  await train(normed([], { output }), { resume: true });
  assert.deepEqual(await stateOf(output), await stateOf(whole));
  const { files } = await exportRun(output, join(folder, "exported"));
  assert.deepEqual(files, ["model.safetensors", "state.safetensors"]);
  const exported = await weft.io.load(join(folder, "exported", "state.safetensors"));
  assert.deepEqual(Object.keys(exported).sort(), ["norm.mean", "norm.variance", "steps"]);
});

test("a state that is forgotten, changed or missing in the checkpoint is an error", async () => {
  const attempt = (parts: Partial<TrainDefinition<Params, State>>, resume = false): Promise<unknown> =>
    train(normed([], { output: join(folder, resume ? "norm-2" : "attempt"), ...parts }), { resume });
  const plain = (params: Params, { x }: Rows): weft.Tensor => x.mul(params.w).mean();
  await assert.rejects(attempt({ loss: plain as never }), /loss returned no state, and the model has one/);
  const init = (): Params => ({ w: weft.tensor([0.5], double) });
  await assert.rejects(
    attempt({ model: { init } as never, loss: (p, b) => ({ loss: plain(p, b), state: { n: p.w } }) as never }),
    /loss returned a state, and the model has none/,
  );
  await assert.rejects(
    attempt({ loss: (p, b, { state }) => ({ loss: plain(p, b), state: { ...state, steps: weft.zeros([2]) } }) }),
    /state with float32\[2\] at steps, where model\.state has int32\[\]/,
  );
  await assert.rejects(attempt({ model: { init, state: () => new Date() as never } }), /model\.state returned Date/);
  const resumed = { training: { epochs: 3, global_batch: 4, accumulation: 2 } };
  await assert.rejects(
    attempt({ ...resumed, model: { init } as never, loss: plain as never }, true),
    /a tensor norm\.mean that this model has not/,
  );
});

test(
  "a residual network with batch norm has the losses and statistics of one device on 2 and 3 ranks",
  needsCompiler,
  async () => {
    const yaml = join(folder, "resnet.yaml");
    const model = fileURLToPath(new URL("../../testdata/models/resnet.mjs", import.meta.url));
    writeFileSync(
      yaml,
      `name: resnet\nmodel: ${model}\ntraining: { epochs: 2, global_batch: 8 }\noptimizer: { learning_rate: 0.02 }\n`,
    );
    const one = await trainConfig(loadAnyConfig(yaml, { output: join(folder, "resnet") }));
    assert.equal(one.losses.length, 6, "8 + 8 + 5 of 21 samples");
    const wanted = await stateOf(join(folder, "resnet"));
    assert.ok(Math.abs(wanted["stem.mean"][0]) > 0.01, "the statistics moved");
    const program = fileURLToPath(new URL("./trained-ranks.testkit.js", import.meta.url));
    const onRanks = async (size: number, trainings: RankTraining[]): Promise<void> => {
      const [cases, answers] = [join(folder, `cases${size}.json`), join(folder, `answers${size}.json`)];
      writeFileSync(cases, JSON.stringify(trainings));
      await launchRanks({ size, coresPerRank: 1, command: [process.execPath, program, cases, answers] });
      const made = JSON.parse(readFileSync(answers, "utf8")) as RankTrained[];
      for (const [i, { output }] of trainings.entries()) {
        assert.equal(made[i].losses.length, one.losses.length);
        for (const [step, loss] of made[i].losses.entries())
          close(loss, one.losses[step], `${output}, step ${step}`, 2e-6);
        if (trainings[i].set?.some((given) => given.includes("memory"))) continue;
        const state = await stateOf(output);
        for (const [name, list] of Object.entries(wanted))
          for (const [k, value] of list.entries()) close(state[name][k], value, `${output}, ${name}`, 2e-6);
      }
    };
    await onRanks(2, [
      { file: yaml, output: join(folder, "two") },
      { file: yaml, output: join(folder, "planned"), set: ["distributed.memory=60kB"] },
    ]);
    await onRanks(3, [{ file: yaml, output: join(folder, "three"), set: ["distributed.shares=[1, 2, 4]"] }]);
  },
);
