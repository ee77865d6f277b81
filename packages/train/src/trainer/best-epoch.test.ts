// The best epoch as the result of a run: which one it is, what is kept and exported, when a run ends early, on one rank and several.
import assert from "node:assert/strict";
import { writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import * as weft from "@weft/core";
import { scratch } from "../data/testkit.js";
import { bestAfter } from "./best-epoch.js";
import { checkpointSteps } from "./checkpoint.js";
import { checkAnyConfig } from "./config.js";
import { exportRun } from "./export.js";
import type { EpochRow } from "./records.js";
import { type TrainDefinition, train } from "./train.js";

const folder = scratch();
weft.setDevice("reference");
const double = { dtype: "float64" as const };
const rows = (x: number): { x: weft.Tensor } => ({ x: weft.full([4], x, double) });

/**
 * One weight that starts at 0 and goes a fifth of the way to 3 in every epoch: 0.6, 1.08, 1.464, ... The validation rows are at 1,
 * so that the second epoch is the best one.
 */
const definition = (output: string, training: Partial<TrainDefinition["training"]>): TrainDefinition => ({
  model: { init: () => ({ w: weft.zeros([1], double) }) },
  loss: (params, batch) =>
    (params as { w: weft.Tensor }).w
      .sub((batch as { x: weft.Tensor }).x)
      .square()
      .mean(),
  data: { train: rows(3), validation: rows(1), test: rows(0) },
  training: { epochs: 8, global_batch: 4, ...training },
  optimizer: { type: "sgd", learning_rate: 0.1 },
  precision: { compute: "float64" },
  checkpoint: { keep: 1 },
  output,
});
const close = (got: number, expected: number): void =>
  assert.ok(Math.abs(got - expected) < 1e-12, `${got}, expected ${expected}`);

test("a run ends when its patience does; its best epoch is evaluated, kept and exported", async () => {
  const output = join(folder, "early");
  const notes: string[] = [];
  const options = { onNote: (note: string) => notes.push(note) };
  const early = await train(definition(output, { best: "loss", patience: 2 }), options);
  assert.deepEqual([early.status, early.epochs.length, early.best], ["done", 4, 2]);
  close(early.test!.loss, 1.08 ** 2);
  assert.match(notes.join("\n"), /ended early after epoch 4: epoch 2 had the best validation loss \(0\.0064\)/);
  assert.deepEqual(checkpointSteps(output), [2, 4]);
  const exported = await exportRun(output, join(folder, "exported"));
  assert.equal(exported.step, 2);
  const { w } = (await weft.io.load(join(exported.folder, exported.files[0]))) as Record<string, weft.Tensor>;
  close(Number(w.dataSync()[0]), 1.08);

  // Without more patience there is nothing to continue; with more the last epoch is continued, not the best one.
  const again = await train(definition(output, { best: "loss", patience: 2 }), { resume: true });
  assert.deepEqual([again.losses.length, again.best], [0, 2]);
  const more = await train(definition(output, { best: "loss", patience: 3 }), { resume: true });
  assert.deepEqual([more.epochs.length, more.best], [5, 2]);
  close(more.epochs[4].trainLoss, (3 * 0.8 ** 4) ** 2);
  close(more.test!.loss, 1.08 ** 2);
});

test("without patience all epochs run, and without a choice the last one is the result", async () => {
  const whole = await train(definition(join(folder, "whole"), { best: "loss" }));
  assert.deepEqual([whole.epochs.length, whole.best], [8, 2]);
  close(whole.test!.loss, 1.08 ** 2);
  const last = await train(definition(join(folder, "last"), {}));
  assert.equal(last.best, null);
  close(last.test!.loss, (3 * (1 - 0.8 ** 8)) ** 2);
  assert.deepEqual(checkpointSteps(join(folder, "last")), [8]);
});

test("a damaged checkpoint of the best epoch is an error, not another model", async () => {
  const output = join(folder, "damaged");
  await train(definition(output, { best: "loss", patience: 1 }));
  writeFileSync(join(output, "checkpoints/step-00000002/model.safetensors"), "no tensors");
  await assert.rejects(
    exportRun(output, join(folder, "none")),
    /epoch 2 was the best one.*model\.safetensors is damaged/,
  );
});

test("epochs that are equal or not a number are not better", () => {
  const row = (epoch: number, valLoss: number): EpochRow => ({
    epoch,
    trainLoss: 0,
    seconds: 0,
    valLoss,
    valAccuracy: 1 - valLoss,
  });
  for (const measure of ["loss", "accuracy"] as const) {
    const config = { training: { epochs: 4, accumulation: 1, evaluate: true, best: measure } };
    const values = [Number.NaN, 0.5, 0.5, Number.NaN, 0.25];
    const found = values.map((_, last) =>
      values
        .slice(0, last + 1)
        .reduce(
          (best, value, i) => bestAfter(best, row(i + 1, value), i + 1, config),
          bestAfter(undefined, row(0, Number.NaN), 0, config),
        ),
    );
    assert.deepEqual(
      found.map((best) => best?.epoch),
      [undefined, 2, 2, 2, 5],
    );
    // The same epoch again, after a limit had cut it short, and worse now.
    assert.equal(bestAfter({ epoch: 1, step: 3, value: 0.5 }, row(1, 0.7), 4, config)!.step, 4);
  }
});

test("a choice that cannot be made is refused", async () => {
  const output = join(folder, "refused");
  const { data, ...rest } = definition(output, { best: "loss" });
  await assert.rejects(
    train({ ...rest, data: (data as { train: object }).train } as never),
    /validation rows, and this run has none/,
  );
  await assert.rejects(train(definition(output, { best: "accuracy" })), /counts correct predictions; use loss/);
  await assert.rejects(train(definition(output, { patience: 3 })), /training\.patience.*training\.best/);
  const classifier = (validation: number): unknown => ({
    name: "a",
    model: { vocab_size: 9, d_model: 4, n_heads: 1, num_layers: 1, dim_feedforward: 4, max_seq_len: 8 },
    data: { dataset: "synthetic", validation },
    training: { epochs: 1, global_batch: 4, best: "accuracy", patience: 1 },
    optimizer: { learning_rate: 0.1 },
  });
  checkAnyConfig(classifier(0.1), "a");
  assert.throws(() => checkAnyConfig(classifier(0), "a"), /training\.best.*data\.validation above 0/);
});
