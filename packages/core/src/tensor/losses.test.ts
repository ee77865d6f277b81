// Options of losses against values of PyTorch, small losses of large logits, and functions at the edges of their domains.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { assertClose } from "../test/compare.js";
import { onEachDevice } from "../test/devices.js";

const f64 = { dtype: "float64" } as const;
const t = (data: number[] | number[][]): weft.Tensor => weft.tensor(data, f64);

onEachDevice(() => {
  test("options of losses", () => {
    const x = t([
      [0.3, -1.2, 2],
      [1, 0.5, -0.4],
    ]);
    const target = t([
      [0.2, 0.9, 0.4],
      [0.7, 0.1, 0.6],
    ]);
    const rate = t([
      [0.3, 1.2, 2],
      [1, 0.5, 0.4],
    ]);
    const counts = t([
      [0, 3, 1],
      [2, 5, 0],
    ]);
    const sum = { reduction: "sum" } as const;
    const losses = [
      weft.klDivLoss(target.log(), rate.log(), { ...sum, logTarget: true }),
      weft.poissonNllLoss(x, counts, { ...sum, full: true }),
      weft.poissonNllLoss(rate, counts, { ...sum, logInput: false, epsilon: 0.1 }),
      weft.gaussianNllLoss(x, target, rate, { ...sum, full: true }),
      weft.tripletMarginLoss(x, target, rate, { ...sum, order: 1, swap: true, margin: 0.7 }),
      weft.tripletMarginLoss(x, target, rate, { ...sum, order: 3, margin: 0.7 }),
      weft.binaryCrossEntropyWithLogits(x, target, {
        ...sum,
        weight: t([0.5, 2, 1.5]),
        positiveWeight: t([3, 0.5, 1]),
      }),
      weft.smoothL1Loss(x, target, { ...sum, beta: 0 }),
    ];
    assertClose(
      weft.stack(losses),
      [
        4.684941701155304, 18.364167343353483, 6.234477621089453, 8.493826876191635, 4.100004, 1.602181638858936,
        7.32423457532826, 5.5,
      ],
      { rtol: 1e-13 },
    );
  });

  test("a sequence that does not fit has no CTC loss with zeroInfinity, and no gradient", () => {
    const logits = weft.randn([2, 1, 3], { seed: 1, ...f64 });
    const int = (data: number[]): weft.Tensor => weft.tensor(data, { dtype: "int32" });
    const loss = (x: weft.Tensor): weft.Tensor =>
      weft.ctcLoss(weft.logSoftmax(x), int([1, 1]).reshape([1, 2]), int([2]), int([2]), { zeroInfinity: true });
    assert.equal(loss(logits).itemSync(), 0);
    assertClose(weft.grad(loss)(logits), weft.zeros([2, 1, 3], f64));
  });

  test("binary cross-entropy keeps the digits of small losses, in both directions", () => {
    const logits = weft.tensor([10, -10, 20, -20, 3]);
    const targets = weft.tensor([1, 0, 1, 0, 1]);
    const expected = [10, 10, 20, 20, 3].map((x) => Math.log1p(Math.exp(-x)));
    const none = { reduction: "none" } as const;
    const close = { rtol: 1e-6, atol: 0 };
    assertClose(weft.binaryCrossEntropyWithLogits(logits, targets, none), expected, close);
    assertClose(weft.binaryCrossEntropyWithLogits(logits, targets, { ...none, positiveWeight: 1 }), expected, close);
    const bend = weft.hessian((x: weft.Tensor) => weft.binaryCrossEntropyWithLogits(x, 1))(t([0]));
    assertClose(bend.reshape([1]), [0.25], { rtol: 1e-14 });
  });

  test("the derivative of fmod is 1 at zeros too", () => {
    const x = t([0, -0, 5.5, -5.5, 7]);
    const [dx, dy] = weft.grad((a: weft.Tensor, b: weft.Tensor) => weft.fmod(a, b).sum(), { argument: [0, 1] })(
      x,
      t([1, 1, 2, 2, -3]),
    );
    assert.deepEqual(dx.arraySync(), [1, 1, 1, 1, 1]);
    assertClose(dy, [0, 0, -2, 2, 2]);
    assert.ok(Object.is(weft.fmod(x, 1).dataSync()[1], -0));
  });

  test("norms of nothing are 0", () => {
    const empty = weft.zeros([3, 0], f64);
    for (const order of [1, 2, 3, Infinity] as number[])
      assert.deepEqual(weft.vectorNorm(empty, { order, axes: 1 }).arraySync(), [0, 0, 0]);
    for (const order of ["fro", "nuc", 1, 2, Infinity] as const)
      assert.equal(weft.matrixNorm(empty, { order }).itemSync(), 0);
  });
});
