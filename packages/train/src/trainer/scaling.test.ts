// Loss scaling: an overflow skips the step and halves the scale, a long streak doubles it, and training is otherwise
// unchanged.
import assert from "node:assert/strict";
import { join } from "node:path";
import { test } from "node:test";
import * as weft from "@weft/core";
import * as nn from "@weft/core/nn";
import { lossScaled } from "@weft/core/optim";
import { assertClose } from "@weft/testing/compare";
import { columns, headColumns } from "../data/index.js";
import { scratch } from "../data/testkit.js";
import { findCheckpoint } from "./checkpoint.js";
import { type ClassifierModel, makeModel } from "./model.js";
import { makeOptimizer } from "./optimizer.js";
import { freshState, StepExecutables, stepLog, type TrainState } from "./step.js";
import { type ConfigParts, rankBatch, textStepOptions, tiny, tinyRaw } from "./testkit.js";
import { train } from "./train.js";

weft.setDevice(weft.CpuDevice.available() ? "cpu" : "reference");
const raw = tinyRaw({ model: { dropout: 0 }, optimizer: { warmup_steps: 0 } });
const [rows, length] = [4, 6];

function packed(): weft.Tensor {
  const width = headColumns + length;
  const data = Int32Array.from({ length: rows * width }, (_, i) => 1 + ((i * 31) % 290));
  for (let row = 0; row < rows; row++) {
    data[row * width + columns.label] = row % 4;
    data[row * width + columns.length] = length;
    data[row * width + columns.total] = rows;
  }
  return weft.tensor(data, { shape: [rows, width], dtype: "int32" });
}

/** The same logits with a thousand times the gradient of the last bias: gradients overflow before the loss. */
const steep = (model: ClassifierModel): ClassifierModel => ({
  ...model,
  logits: (params, batch, keys) => {
    const bias = params.classifier.bias as weft.Tensor;
    return model.logits(params, batch, keys).add(bias.sub(weft.stopGradient(bias)).mul(1000));
  },
});

function start(scale: { initial: number; dynamic: boolean } | null): {
  programs: StepExecutables<nn.TextClassifier>;
  state: TrainState<nn.TextClassifier>;
} {
  const model = steep(makeModel(raw, 4, "float32"));
  const { optimizer } = makeOptimizer(raw, 100);
  const scaling =
    scale === null ? null : { optimizer: lossScaled(optimizer, { initial: scale.initial }), dynamic: scale.dynamic };
  const options = textStepOptions(raw, { model, scaling });
  const params = model.init(weft.key(3));
  return { programs: new StepExecutables(options), state: freshState(options, params) };
}

const flat = (state: TrainState): Record<string, number[]> =>
  Object.fromEntries(
    Object.entries(nn.stateDict(state.params)).map(([n, t]) => [n, Array.from(t.dataSync() as Float32Array)]),
  );

test("an overflow skips the step and halves the scale until gradients are finite; then training is as without a scale", () => {
  const batch = rankBatch(packed());
  // Overflows float32 when multiplied with a gradient.
  const { programs, state: fresh } = start({ initial: 2 ** 127, dynamic: true });
  const before = flat(fresh);
  let state = fresh;
  const scales: number[] = [];
  for (let i = 0; ; i++) {
    assert.ok(i < 40, "the scale never became small enough");
    state = programs.whole(state, batch);
    const v = state.log.dataSync() as Float32Array;
    scales.push(v[stepLog.scale]);
    assert.ok(Number.isFinite(v[stepLog.loss]) && v[stepLog.good] === 1);
    if (Number.isFinite(v[stepLog.norm])) break;
    assert.deepEqual(flat(state), before, "nothing moved");
  }
  assert.ok(scales.length > 5, `left out ${scales.length - 1} steps`);
  const plain = start(null);
  const once = plain.programs.whole(plain.state, batch);
  for (const [name, t] of Object.entries(nn.stateDict(once.params)))
    assertClose(nn.stateDict(state.params)[name], t, { name, rtol: 1e-3, atol: 1e-4 });
  scales.slice(1).forEach((scale, i) => {
    assert.equal(scale, scales[i] / 2);
  });
});

test("a scale without overflow changes rounding only; a fixed scale that overflows ends the run", () => {
  const batch = rankBatch(packed());
  const [plain, scaled] = [start(null), start({ initial: 2 ** 10, dynamic: true })];
  let [a, b] = [plain.state, scaled.state];
  for (let i = 0; i < 3; i++) {
    a = plain.programs.whole(a, batch);
    b = scaled.programs.whole(b, batch);
    const [x, y] = [a.log.index(0), b.log.index(0)];
    assertClose(y.index(stepLog.loss), x.index(stepLog.loss), { rtol: 1e-5, atol: 1e-6 });
    assertClose(y.index(stepLog.norm), x.index(stepLog.norm), { rtol: 1e-4, atol: 1e-6 });
  }
  const fixed = start({ initial: 2 ** 127, dynamic: false });
  const { log } = fixed.programs.whole(fixed.state, batch);
  assert.equal((log.dataSync() as Float32Array)[stepLog.good], 0);
});

test("half-precision training is close to float32, and resumes with the scale of the checkpoint", async () => {
  const folder = scratch();
  const parts: ConfigParts = { training: { epochs: 1 }, model: { dropout: 0 } };
  const full = await train(tiny(folder, "full", parts));
  for (const compute of ["bfloat16", "float16"] as const) {
    const precision = { compute };
    const { losses } = await train(tiny(folder, compute, { ...parts, precision }));
    losses.forEach((loss, i) => {
      assert.ok(
        Math.abs(loss - full.losses[i]) < 0.05 * full.losses[i],
        `${compute}, step ${i}: ${loss}, float32 ${full.losses[i]}`,
      );
    });
    assert.notDeepEqual(losses, full.losses);
    const abort = new AbortController();
    const cut = await train(tiny(folder, `${compute}-cut`, { ...parts, precision }), {
      signal: abort.signal,
      onStep: (e) => e.step === 4 && abort.abort(),
    });
    const rest = await train(tiny(folder, `${compute}-cut`, { ...parts, precision }), { resume: true });
    assert.deepEqual([...cut.losses, ...rest.losses], losses);
    const saved = (await weft.io.load(
      join(findCheckpoint(join(folder, compute))!.folder, "optimizer.safetensors"),
    )) as Record<string, weft.Tensor>;
    assert.equal("scale" in saved, compute === "float16");
  }
});
