// Models that users define: from TypeScript and by the path of a module, on one rank and on several.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { readFileSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "@weft/core";
import { scratch } from "../data/testkit.js";
import { type TrainDefinition, train } from "./train.js";
import type { TrainResult } from "./trainer.js";

const folder = scratch();
weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
/** Several ranks on one host exchange data by a compiled library. */
const needsCompiler = { skip: weft.CpuDevice.available() ? false : "no C compiler" };
const mlp = fileURLToPath(new URL("../../testdata/models/mlp.mjs", import.meta.url));
const cli = fileURLToPath(new URL("../../../cli/dist/main.js", import.meta.url));

type Line = { w: weft.Tensor };
const x = [1, 2, 3, 4, 5, 6, 7];
const line = (parts: Partial<TrainDefinition<Line>> = {}): TrainDefinition<Line> => ({
  model: { init: () => ({ w: weft.tensor([0.5], { dtype: "float64" }) }) },
  loss: (params, batch: { x: weft.Tensor; y: weft.Tensor }) => params.w.mul(batch.x).sub(batch.y).square().mean(),
  data: {
    x: weft.tensor(x, { dtype: "float64" }),
    y: weft.tensor(
      x.map((v) => 3 * v),
      { dtype: "float64" },
    ),
  },
  training: { epochs: 2, global_batch: 7 },
  optimizer: { type: "sgd", learning_rate: 0.01 },
  precision: { compute: "float64" },
  ...parts,
});

test("a model defined in TypeScript has the losses of the closed form, in whole batches and in micro-steps", async () => {
  // Mean of (w x - 3 x)^2 is s (w - 3)^2 with s the mean of x^2, and a step multiplies w - 3 by 1 - 2 rate s.
  const s = x.reduce((n, v) => n + v * v, 0) / x.length;
  const expected = [s * 2.5 ** 2, s * (2.5 * (1 - 0.02 * s)) ** 2];
  for (const accumulation of [1, 3]) {
    const output = join(folder, `line-${accumulation}`);
    const training = { epochs: 2, global_batch: 7, accumulation };
    const { losses } = await train(line({ training, output }));
    losses.forEach((loss, i) => {
      assert.ok(Math.abs(loss - expected[i]) < 1e-12 * expected[i], `${loss}, expected ${expected[i]}`);
    });
  }
});

test("data by sample number gives the batches of arrays; each sample is used once per epoch", async () => {
  const used: number[] = [];
  const source = {
    rows: 7,
    batch: (samples: Uint32Array) => {
      used.push(...samples);
      const values = Array.from(samples, (i) => x[i]);
      const [a, b] = [values, values.map((v) => 3 * v)].map((v) => weft.tensor(v, { dtype: "float64" }));
      return { x: a, y: b };
    },
  };
  const training = { epochs: 1, global_batch: 3 };
  const arrays = await train(line({ training, output: join(folder, "arrays") }));
  const sampled = await train(line({ training, data: source, output: join(folder, "sampled") }));
  assert.deepEqual(sampled.losses, arrays.losses);
  assert.equal(sampled.steps, 3, "3 + 3 + 1 samples");
  // The first batch is also made to compile for its shape.
  assert.deepEqual([...new Set(used)].sort(), [0, 1, 2, 3, 4, 5, 6]);
});

test("micro-steps are weighted by the terms of the loss; half-precision data and counts of correct rows", async () => {
  const w = weft.tensor([1, 2, 3, 1, 4, 1, 6], { dtype: "float64" });
  const weighted = (accumulation: number, more: Partial<TrainDefinition<Line>> = {}): Promise<TrainResult> => {
    const plain = line();
    const data = { ...(plain.data as object), w };
    return train(
      line({
        data: { train: data, validation: data },
        loss: (p: Line, b: { x: weft.Tensor; y: weft.Tensor; w: weft.Tensor }) =>
          p.w.mul(b.x).sub(b.y).square().mul(b.w).sum().div(b.w.sum()),
        weight: (b: { w: weft.Tensor }) => b.w.sum(),
        training: { epochs: 3, global_batch: 7, accumulation },
        output: join(folder, `weighted-${accumulation}${Object.keys(more)}`),
        ...more,
      } as never),
    );
  };
  const [one, three] = [await weighted(1), await weighted(3)];
  one.losses.forEach((loss, i) => {
    assert.ok(Math.abs(loss - three.losses[i]) < 1e-12 * loss, `${loss}, ${three.losses[i]}`);
  });
  // Weights that add up to less than 1 count as well.
  const scaled = { data: { train: { ...(line().data as object), w: w.div(100) } } };
  const [small, parts] = [await weighted(1, scaled), await weighted(3, scaled)];
  small.losses.forEach((loss, i) => {
    assert.ok(Math.abs(loss - parts.losses[i]) < 1e-12 * loss, `${loss}, ${parts.losses[i]}`);
  });
  // A correct row is one whose product is at least 0: all of them.
  const counted = await weighted(1, {
    correct: (p: Line, b: { x: weft.Tensor }) => p.w.mul(b.x).greaterEqual(0).sum(),
  } as never);
  assert.equal(counted.epochs[0].valAccuracy, 1);
  const half = { x: weft.tensor(x).cast("bfloat16") };
  const { losses } = await train(
    line({
      data: half,
      loss: (p: Line, b: { x: weft.Tensor }) => b.x.cast("float64").mean().add(p.w.sum().mul(0)),
      output: join(folder, "half"),
    } as never),
  );
  assert.equal(losses[0], 4, "the mean of 1 to 7");
});

test("every micro-step draws with a key of its own", async () => {
  // The loss is a draw: with equal keys, the mean over micro-steps would be that of one step.
  const drawn = async (accumulation: number): Promise<number[]> => {
    const { losses } = await train(
      line({
        loss: (p: Line, _: never, { key }: { key: weft.Key }) => p.w.sum().mul(0).add(weft.rand([], { key })),
        training: { epochs: 2, global_batch: 7, accumulation },
        output: join(folder, `drawn-${accumulation}`),
      } as never),
    );
    return losses;
  };
  const [one, three] = [await drawn(1), await drawn(3)];
  assert.notEqual(one[0], one[1]);
  one.forEach((loss, i) => {
    assert.ok(Math.abs(loss - three[i]) > 1e-6, `${loss} in one step and in three`);
  });
});

test("wrong models, losses and data are errors that name the argument", async () => {
  const attempt = (parts: object): Promise<unknown> => train({ ...line(parts), output: join(folder, "wrong") });
  await assert.rejects(attempt({ model: {} }), /model: \{ init\(key\) \}/);
  await assert.rejects(attempt({ model: { init: () => ({}) } }), /model\.init returned no tensors/);
  await assert.rejects(
    attempt({ loss: (p: Line, b: { x: weft.Tensor }) => p.w.mul(b.x) }),
    /loss returned a tensor of shape \[7\]; return the mean/,
  );
  await assert.rejects(attempt({ loss: (p: Line) => p.w.sum().cast("int32") }), /loss returned int32, .* no gradient/);
  await assert.rejects(
    attempt({ loss: (p: Line) => p.w.sum().cast("complex64") }),
    /loss returned complex64, .* no gradient/,
  );
  await assert.rejects(
    attempt({ loss: (_: Line, b: { x: weft.Tensor }) => b.x.mean() }),
    /the loss depends on no parameter, so nothing would be trained/,
  );
  const shared = weft.tensor([1], { dtype: "float64" });
  await assert.rejects(
    attempt({ model: { init: () => ({ w: shared, deep: [shared] }) } }),
    /one tensor as w and as deep\.0, which would be trained apart/,
  );
  const { data } = line();
  await assert.rejects(attempt({ data: { train: data, valid: data } }), /data\.valid is not known/);
  await assert.rejects(
    attempt({ data: { train: data, validation: data }, correct: (_: Line, b: { x: weft.Tensor }) => b.x.greater(0) }),
    /correct returned a tensor of shape \[7\]; return the number of rows/,
  );
  const same = { x: weft.ones([7]), y: weft.ones([7]) };
  await assert.rejects(attempt({ data: { rows: 7, batch: () => same } }), /a tensor that it had returned before/);
  await assert.rejects(attempt({ data: {} }), /data has no tensors/);
  await assert.rejects(
    attempt({ data: { x: weft.zeros([3]), y: weft.zeros([4]) } }),
    /one row per sample; got .* 3, 4/,
  );
  await assert.rejects(attempt({ data: { rows: 7, batch: () => ({ x: weft.zeros([2]) }) } }), /for 7 samples/);
  await assert.rejects(attempt({ training: { epochs: 1, global_batch: 9 } }), /larger than the data of 7 rows/);
  await assert.rejects(
    attempt({
      loss: (p: Line, b: { x: weft.Tensor }) =>
        p.w
          .mul(b.x)
          .mul(weft.rand([7]))
          .mean(),
      distributed: { devices: 2 },
    }),
    /start the program once per rank/,
  );
});

test(
  "a module trains from YAML on 1, 3 and 5 ranks with the same losses, and resumes on another number",
  needsCompiler,
  () => {
    const yaml = join(folder, "mlp.yaml");
    writeFileSync(
      yaml,
      `name: mlp\nmodel: ${mlp}\noptions: { width: 8 }\ntraining: { epochs: 3, global_batch: 13 }\noptimizer: { learning_rate: 0.05 }\n`,
    );
    const run = (devices: number, output: string, ...more: string[]): TrainResult => {
      const args = [
        cli,
        "train",
        yaml,
        "--devices",
        String(devices),
        "--output",
        join(folder, output),
        "--json",
        ...more,
      ];
      const { status, stdout, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
      assert.equal(status, 0, stdout + stderr);
      return JSON.parse(stdout) as TrainResult;
    };
    const one = run(1, "one");
    assert.equal(one.losses.length, 3 * 4, "13 + 13 + 13 + 4 of 43 samples");
    assert.ok(one.losses.at(-1)! < one.losses[0]);
    const compare = (losses: readonly number[], from = 0): void =>
      losses.forEach((loss, i) => {
        const expected = one.losses[from + i];
        assert.ok(
          Math.abs(loss - expected) <= 1e-6 * Math.max(1, expected),
          `step ${i}: ${loss}, one rank ${expected}`,
        );
      });
    const five = run(5, "five");
    compare(five.losses);
    // Counts by class are exact, so that scores do not depend on the ranks: 19 rows in batches of 13.
    assert.deepEqual(five.test?.scores, one.test?.scores);
    const supports = Object.values(five.test?.scores?.classes ?? {}).map(({ support }) => support);
    assert.equal(supports[0] + supports[1], 19);
    assert.ok(Math.abs(five.epochs[2].valLoss! - one.epochs[2].valLoss!) < 1e-6);
    const begun = run(3, "three", "--max-steps", "5");
    compare(begun.losses);
    const rest = run(2, "three", "--resume", "--max-steps", "12");
    compare(rest.losses, 5);
    assert.equal(rest.steps, 12);
    // Options of the module change the model: a run with others does not continue.
    writeFileSync(yaml, readFileSync(yaml, "utf8").replace("width: 8", "width: 8, rows: 44"));
    const args = [cli, "train", yaml, "--output", join(folder, "three"), "--resume", "--max-steps", "14"];
    const changed = spawnSync(process.execPath, args, { encoding: "utf8" });
    assert.notEqual(changed.status, 0);
    assert.match(changed.stderr, /cannot be resumed .*options\.rows was none and is 44 now/);
    const facts = readFileSync(join(folder, "five", "run.json"), "utf8");
    assert.match(facts, /"model": ".*mlp\.mjs"/);
  },
);

test("a module without one of its functions, or without a file, is an error that says what it needs", () => {
  const yaml = join(folder, "bad.yaml");
  const bad = join(folder, "bad.mjs");
  const run = (model: string): string => {
    writeFileSync(
      yaml,
      `name: bad\nmodel: ${model}\ntraining: { epochs: 1, global_batch: 2 }\noptimizer: { learning_rate: 0.1 }\n`,
    );
    const args = [cli, "train", yaml, "--output", join(folder, "bad")];
    const { status, stderr } = spawnSync(process.execPath, args, { encoding: "utf8" });
    assert.notEqual(status, 0);
    return stderr;
  };
  writeFileSync(bad, "export const init = () => ({});\n");
  assert.match(run("./bad.mjs"), /exports no function loss; it needs init\(key, options\)/);
  assert.match(run("./none.mjs"), /none\.mjs is not a file/);
});
