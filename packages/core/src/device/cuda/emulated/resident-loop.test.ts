// Loops of generated kernels as one cooperative launch, on the emulated driver against the reference device: carries that
// alternate between two buffers, slices of xs and ys, both directions, and sums between barriers.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);
type Tensor = weft.Tensor;

const neighbors = (x: Tensor): Tensor => {
  const [n, m] = x.shape;
  const [left, up] = [
    x.slice([0, 1], [n, m]).pad([
      [0, 0],
      [0, 1],
    ]),
    x.slice([0, 0], [n - 3, m]).pad([
      [3, 0],
      [0, 0],
    ]),
  ];
  return left.add(up);
};
/** Two dependent stages per step. */
const step = (x: Tensor, u: Tensor): Tensor => {
  const middle = x.add(neighbors(x).mul(u.mul(0.1)));
  return x.mul(0.5).add(neighbors(middle).mul(0.2));
};
const state = (): Tensor => data([70, 101], 1);
const inputs = (steps: number): Tensor => data([steps], 2);

for (const steps of [5, 8])
  test(`${steps} steps with results of every step`, { skip }, () => {
    const f = weft.jit((x: Tensor, us: Tensor) =>
      weft.scan((c: Tensor, u: Tensor): [Tensor, Tensor] => [step(c, u), c.index(3, 4).mul(u)], x, us),
    );
    const log = agree(() => f(state(), inputs(steps)));
    assert.equal(f.kernels(state(), inputs(steps)).filter((name) => name.startsWith("scan")).length, 1);
    const launches = log.filter((name) => /^k\d+$/.test(name));
    assert.ok(launches.length <= 2, `one launch for all steps, not ${launches.join(" ")}`);
  });

test("the gradient: a loop that runs backwards and sums over the state", { skip }, () => {
  const loss = (x: Tensor, us: Tensor): Tensor =>
    weft
      .scan((c: Tensor, u: Tensor): [Tensor, null] => [step(c, u), null], x, us)[0]
      .square()
      .sum();
  const f = weft.jit((x: Tensor, us: Tensor) => {
    const [value, gradients] = weft.valueAndGrad(loss, { argument: [0, 1] })(x, us);
    return [value, ...gradients];
  });
  const log = agree(() => f(state(), inputs(6)), 1e-4);
  assert.ok(log.length < 24, `few launches, not ${log.length}`);
});

test("fewer steps than a launch is worth stay kernels", { skip }, () => {
  const f = weft.jit(
    (x: Tensor, us: Tensor) => weft.scan((c: Tensor, u: Tensor): [Tensor, null] => [step(c, u), null], x, us)[0],
  );
  agree(() => f(state(), inputs(2)));
  weft.setDevice(device() as never);
});
