// Layers of image models against closed forms.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../index.js";
import { ReferenceDevice, useDevice } from "../index.js";
import * as nn from "./index.js";

before(() => void useDevice(new ReferenceDevice()));

const near = (actual: ArrayLike<number>, expected: readonly number[]): void => {
  assert.equal(actual.length, expected.length);
  expected.forEach((x, i) => {
    assert.ok(Math.abs(actual[i] - x) < 1e-5, `${actual[i]} at ${i}, expected ${x}`);
  });
};

test("batch norm uses the batch in training, moves its statistics, and uses them afterwards", () => {
  const params = nn.batchNorm.init({ channels: 2 });
  const state = nn.batchNorm.state({ channels: 2 });
  const x = weft.tensor([
    [[1], [10]],
    [[3], [30]],
  ]);
  const [y, next] = nn.batchNorm.apply(params, x, { state, training: true, epsilon: 0 });
  near(y.dataSync() as Float32Array, [-1, -1, 1, 1]);
  // Means 2 and 20; variances of the population 2 and 200; a tenth of them counts.
  near(next.mean.dataSync() as Float32Array, [0.2, 2]);
  near(next.variance.dataSync() as Float32Array, [0.9 + 0.2, 0.9 + 20]);
  const [z, same] = nn.batchNorm.apply(params, x, { state: next, training: false, epsilon: 0 });
  near(
    z.dataSync() as Float32Array,
    [1, 3].flatMap((a, i) => [(a - 0.2) / Math.sqrt(1.1), ([10, 30][i] - 2) / Math.sqrt(20.9)]),
  );
  assert.equal(same, next);
});

test("the statistics of batch norm carry no gradient", () => {
  const params = nn.batchNorm.init({ channels: 1 });
  const loss = (x: weft.Tensor): weft.Tensor => {
    const state = nn.batchNorm.state({ channels: 1 });
    const [, next] = nn.batchNorm.apply(params, x, { state, training: true });
    return next.mean.sum().add(next.variance.sum());
  };
  near(
    weft
      .grad(loss)(weft.tensor([[[1, 2, 4]]]))
      .dataSync() as Float32Array,
    [0, 0, 0],
  );
});

test("a convolution layer has the shapes and the bound of PyTorch", () => {
  const params = nn.conv.init({ in: 4, out: 6, kernel: [3, 3], groups: 2 }, weft.key(1));
  assert.deepEqual([...params.weight.shape], [6, 2, 3, 3]);
  assert.deepEqual([...params.bias!.shape], [6]);
  const largest = Math.max(...(params.weight.abs().dataSync() as Float32Array));
  assert.ok(largest <= 1 / Math.sqrt(18) && largest > 0.5 / Math.sqrt(18));
  const y = nn.conv.apply(params, weft.ones([1, 4, 5, 5]), { groups: 2, padding: 1, stride: 2 });
  assert.deepEqual([...y.shape], [1, 6, 3, 3]);
});
