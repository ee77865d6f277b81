// Plans of recurrent layers on a GPU: how many launches a step has, and what the loops carry.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Schedule, ScheduleStep } from "../../compile/index.js";
import * as weft from "../../index.js";
import * as nn from "../../nn/index.js";
import { Recorder } from "./schedule.testkit.js";

type Loop = Extract<ScheduleStep, { kind: "loop" }>;

const [batch, length, width] = [32, 6, 256];

const layers = { lstm: nn.lstm, gru: nn.gru };

/** The plan of the gradient with respect to the parameters of a layer. */
function planOf(layer: keyof typeof layers): Schedule {
  const recorder = new Recorder();
  weft.setDevice(recorder);
  const params = layers[layer].init({ in: 128, out: width }, weft.key(0));
  const x = weft.randn([batch, length, 128], { seed: 1 }).realize();
  const loss = (p: typeof params): weft.Tensor => layers[layer].apply(p, x)[0].square().sum();
  weft.jit(weft.grad(loss))(params);
  return recorder.plan();
}

const products = ({ body }: Loop): number =>
  body.steps.filter((step) => step.kind === "library" && step.node.op === "matmul").length;

for (const [layer, gates] of [
  ["lstm", 4],
  ["gru", 3],
] as const)
  test(`${layer}: a step of the reverse pass has one product, and no step copies or adds to gradients`, () => {
    const plan = planOf(layer);
    const loops = plan.steps.filter((step) => step.kind === "loop");
    assert.equal(loops.length, 2);
    assert.deepEqual(loops.map(products), [1, 1]);
    for (const { body, node } of loops) {
      const { consts, carries } = node.attrs;
      const carried = node.inputs.slice(consts, consts + carries).map(({ shape }) => shape.join());
      assert.deepEqual(new Set(carried), new Set([`${batch},${width}`]), "carries");
      assert.ok(!body.steps.some((step) => step.kind === "copy"), "copies");
      assert.ok(body.steps.length <= 3, `${body.steps.length} steps`);
    }
    // Both biases: one launch.
    const sums = plan.steps.filter((step) =>
      (step.kind === "kernel" ? [step.kernel] : step.kind === "batch" ? step.kernels : []).some(({ name }) =>
        name.startsWith(`col_sum_1x${length * batch}x${gates * width}`),
      ),
    );
    assert.equal(sums.length, 1);
  });
