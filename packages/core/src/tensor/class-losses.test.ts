// Losses of class numbers with positions that do not count and weights per class, against PyTorch's definition written out.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

const f64 = { dtype: "float64" } as const;
const logits = [
  [0.3, -1.2, 2],
  [1, 0.5, -0.4],
  [-2, 0.1, 0.7],
  [0, 3, 1],
];
const targets = [2, -100, 0, 1];
const weights = [0.5, 2, 3];
const logp = logits.map((row) => {
  const total = Math.log(row.reduce((sum, x) => sum + Math.exp(x), 0));
  return row.map((x) => x - total);
});
const counted = targets.flatMap((c, i) => (c < 0 ? [] : [{ row: logp[i], c }]));
const total = (list: readonly number[]): number => list.reduce((a, b) => a + b, 0);

function expected(weight: readonly number[], smoothing: number): { losses: number[]; shares: number[] } {
  const losses = counted.map(
    ({ row, c }) => -(1 - smoothing) * weight[c] * row[c] - (smoothing / 3) * total(row.map((x, k) => weight[k] * x)),
  );
  return { losses, shares: counted.map(({ c }) => weight[c]) };
}

const near = (got: weft.Tensor, want: number): void =>
  assert.ok(Math.abs(got.itemSync() - want) < 1e-12, `${got.itemSync()} instead of ${want}`);

test("crossEntropy and nllLoss with ignoreIndex, weight and labelSmoothing", () => {
  const x = weft.tensor(logits, f64);
  const weight = weft.tensor(weights, f64);
  for (const dtype of ["int32", "int64", "int8"] as const) {
    const classes = weft.tensor(targets, { dtype });
    for (const labelSmoothing of [0, 0.2])
      for (const given of [undefined, weight]) {
        const { losses, shares } = expected(given === undefined ? [1, 1, 1] : weights, labelSmoothing);
        const options = { ignoreIndex: -100, labelSmoothing, ...(given === undefined ? {} : { weight: given }) };
        near(weft.crossEntropy(x, classes, options), total(losses) / total(shares));
        near(weft.crossEntropy(x, classes, { ...options, reduction: "sum" }), total(losses));
        const each = weft.crossEntropy(x, classes, { ...options, reduction: "none" }).arraySync() as number[];
        assert.equal(each[1], 0);
        if (labelSmoothing > 0) continue;
        const { labelSmoothing: _, ...rest } = options;
        near(weft.nllLoss(weft.logSoftmax(x), classes, rest), total(losses) / total(shares));
      }
  }
  // Ignored positions get no gradient; without the option their class does not exist.
  const classes = weft.tensor(targets, { dtype: "int32" });
  const slope = weft.grad((t: weft.Tensor) => weft.crossEntropy(t, classes, { ignoreIndex: -100 }))(x);
  assert.deepEqual((slope.arraySync() as number[][])[1], [0, 0, 0]);
  assert.ok(Number.isNaN(weft.crossEntropy(x, classes).itemSync()));
  assert.throws(() => weft.crossEntropy(x, classes, { weight: weft.ones([2]) }), /one per class, got \[2\]/);
  assert.throws(() => weft.crossEntropy(x, x, { ignoreIndex: 0 }), /needs class numbers/);
});

test("binaryCrossEntropyWithLogits with positiveWeight", () => {
  const [x, t, w] = [0.7, 0.25, 3];
  const sigmoid = 1 / (1 + Math.exp(-x));
  const want = -(w * t * Math.log(sigmoid) + (1 - t) * Math.log(1 - sigmoid));
  near(weft.binaryCrossEntropyWithLogits(weft.tensor([x], f64), t, { positiveWeight: w }), want);
});
