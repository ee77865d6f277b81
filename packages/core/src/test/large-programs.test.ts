// Random training steps with values of more than 64 KiB: from this size on, steps of a schedule move to where they need less memory, and
// GPU kernels write over operands that nothing reads afterwards. Values and gradients must be those of the reference device.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import * as weft from "../index.js";
import { emulatedDevice, type TestDevice, testDevices } from "./devices.js";

type Tensor = weft.Tensor;
const n = 96;
const order = Array.from({ length: n }, (_, i) => (i * 7) % n);
const half = n / 2;

/** All have slopes of about 1: rounding must not grow. */
const ops: ((x: Tensor, y: Tensor) => Tensor)[] = [
  (x, y) => x.add(y).mul(0.5),
  (x, y) => x.tanh().mul(y),
  (x, y) => x.matmul(y).mul(1 / n),
  (x, y) => x.T.sub(y),
  (x, y) => x.sub(y.mean(1, { keepDims: true })),
  (x, y) => weft.softmax(x).mul(y),
  (x, y) => weft.concat([x.slice([0, 0], [half, n]), y.slice([half, 0], [n, n])], 0),
  (x, y) => weft.checkpoint((p: Tensor, q: Tensor) => p.tanh().mul(q).sin())(x, y),
  (x, y) => x.take(order, 0).add(y).mul(0.5),
  (x, y) => weft.layerNorm(x).add(y).mul(0.5),
];

function stepOf(seed: number): (...xs: Tensor[]) => Tensor[] {
  let state = seed;
  const below = (limit: number): number => {
    state = (Math.imul(state, 1664525) + 1013904223) >>> 0;
    return Math.floor((state / 2 ** 32) * limit);
  };
  const plan = Array.from({ length: 12 }, () => [below(ops.length), below(6), below(6)]);
  const loss = (...xs: Tensor[]): Tensor => {
    const values = [...xs];
    const recent = (k: number): Tensor => values[Math.max(0, values.length - 1 - k)];
    for (const [op, a, b] of plan) values.push(ops[op](recent(a), recent(b)));
    return recent(0).square().mean().add(recent(1).mean());
  };
  return (p, q) => {
    const [dp, dq] = [weft.grad((t: Tensor) => loss(t, q))(p), weft.grad((t: Tensor) => loss(p, t))(q)];
    return [loss(p, q), dp, dq, p.sub(dp.mul(0.1)), q.sub(dq.mul(0.1))];
  };
}

function results(device: TestDevice, seed: number): number[][] {
  weft.useDevice(device.make());
  const xs = [1, 2].map((k) => weft.randn([n, n], { seed: 10 * seed + k, dtype: "float64" }).realize());
  return weft
    .jit(stepOf(seed))(...xs)
    .map((t) => Array.from(t.dataSync() as Float64Array));
}

const [reference, ...others] = testDevices();
for (const device of [...others, ...(emulatedDevice.available() ? [emulatedDevice] : [])])
  describe(`large programs on ${device.name}`, {
    skip: reference?.name !== "reference" && "needs the reference",
  }, () => {
    for (const seed of [1, 2, 3, 4])
      test(`program ${seed}`, () => {
        const [expected, found] = [results(reference, seed), results(device, seed)];
        expected.forEach((list, i) => {
          const apart = Math.max(...list.map((value, j) => Math.abs(value - found[i][j])));
          assert.ok(apart < 1e-10, `result ${i} differs by ${apart}`);
        });
      });
  });
