// The plan of a training step on the GPU, made without one: how many launches it is, and that no score matrix is in it.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import * as nn from "../../nn/index.js";
import * as optim from "../../optim/index.js";
import { assertSmallerThan, fusedOf, Recorder } from "./plan.testkit.js";

test("a training step of two layers is some sixty launches, one of them for all updates, none with scores", () => {
  const device = new Recorder();
  weft.setDevice(device);
  const [batch, length, heads] = [2, 40, 2];
  const params = nn.textClassifier.init(
    { vocabulary: 30, width: 8, heads, layers: 2, feedForward: 12, classes: 3 },
    weft.key(0),
  );
  const optimizer = optim.adam();
  const step = weft.jit(
    (p: nn.TextClassifier, state: optim.AdamState, ids: weft.Tensor, labels: weft.Tensor, key: weft.Key) => {
      const loss = (q: nn.TextClassifier): weft.Tensor =>
        weft.crossEntropy(nn.textClassifier.apply(q, ids, { heads, dropout: 0.1, key }), labels);
      const [value, grads] = weft.valueAndGrad(loss)(p);
      return [...optimizer.update(p, grads, state), value];
    },
    { donate: [0, 1] },
  );
  const ids = weft.zeros([batch, length], { dtype: "int32" });
  step(params, optimizer.init(params), ids, weft.zeros([batch], { dtype: "int32" }), weft.key(1));
  const plan = device.plan((options) => options.donated?.some(Boolean) ?? false);
  assert.ok(plan.steps.length <= 66, `${plan.steps.length} launches`);
  assert.equal(fusedOf(plan).length, 4, "attention and its gradient in each layer");
  const largest = Math.max(...plan.steps.map((s) => (s.kind === "batch" ? s.kernels.length : 0)));
  assert.ok(largest >= 28, `the largest batch has ${largest} kernels, the model 28 parameters`);
  assertSmallerThan(plan, batch * heads * length * length);
});
