// Segment ids of attention: sequences that are packed into one row give what each gives alone, with gradients.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

weft.useDevice(new weft.ReferenceDevice());

const lengths = [3, 1, 4];
const total = 8;
const ids = weft.tensor(
  lengths.flatMap((n, i) => Array.from({ length: n }, () => i)),
  { dtype: "int32" },
);
const numbers = (shape: number[], seed: number): weft.Tensor => weft.randn(shape, { seed, dtype: "float64" });

type Attend = (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor) => weft.Tensor;
const bySegments =
  (options: NonNullable<Parameters<typeof weft.scaledDotProductAttention>[3]>): Attend =>
  (q, k, v) => {
    let at = 0;
    const parts = lengths.map((n) => {
      const rows = `${at}:${(at += n)}`;
      const [a, b, c] = [q, k, v].map((x) => x.index(":", rows));
      return weft.scaledDotProductAttention(a, b, c, options);
    });
    return weft.concat(parts, 1);
  };

function agree(one: Attend, other: Attend): void {
  const inputs = [1, 2, 3].map((seed) => numbers([2, total, 4], seed)) as [weft.Tensor, weft.Tensor, weft.Tensor];
  const weights = numbers([2, total, 4], 9);
  const results = [one, other].map((f) => {
    const grads = weft.grad((q: weft.Tensor, k: weft.Tensor, v: weft.Tensor) => f(q, k, v).mul(weights).sum(), {
      argument: [0, 1, 2],
    });
    return [f(...inputs), ...grads(...inputs)].flatMap((t) => Array.from(t.dataSync() as Float64Array));
  });
  results[0].forEach((x, i) => {
    assert.ok(Math.abs(x - results[1][i]) < 1e-12, `number ${i}: ${x}, expected ${results[1][i]}`);
  });
}

test("packed sequences give what each gives alone, causal or not", () => {
  for (const causal of [false, true])
    agree((q, k, v) => weft.scaledDotProductAttention(q, k, v, { segments: ids, causal }), bySegments({ causal }));
});

test("segments combine with masks of both kinds", () => {
  const bias = numbers([total, total], 7);
  const mask = weft.tril(weft.ones([total, total], { dtype: "bool" }));
  const same = ids.unsqueeze(1).equal(ids.unsqueeze(0));
  agree(
    (q, k, v) => weft.scaledDotProductAttention(q, k, v, { segments: [ids, ids], mask }),
    (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: mask.logicalAnd(same) }),
  );
  agree(
    (q, k, v) => weft.scaledDotProductAttention(q, k, v, { segments: ids, mask: bias }),
    (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: bias.where(same, -1e30) }),
  );
});

test("segments of another shape or dtype are refused", () => {
  const x = numbers([2, total, 4], 1);
  const attend = (segments: weft.Tensor) => () => weft.scaledDotProductAttention(x, x, x, { segments });
  assert.throws(
    attend(weft.zeros([7], { dtype: "int32" })),
    /segments are whole numbers of the shape \[8\].*int32 \[7\]/,
  );
  assert.throws(attend(weft.zeros([total])), /segments are whole numbers of the shape \[8\].*float32 \[8\]/);
  assert.throws(attend(weft.zeros([5, total], { dtype: "int32" })), /got int32 \[5, 8\]/);
});
