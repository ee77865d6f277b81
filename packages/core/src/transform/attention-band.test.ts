// Masks in the forms that users write them, read as bands. The oracle is the mask itself, evaluated element by element.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { biasBand, narrowed, splitBand } from "./index.js";

const [queries, keys] = [7, 9];
const index = (axis: 0 | 1, dtype: "int32" | "float32" = "int32"): weft.Tensor =>
  weft.arange(0, axis === 0 ? queries : keys, 1, { dtype }).unsqueeze(1 - axis);
const [i, j] = [index(0), index(1)];
const ones = (dtype: weft.DType): weft.Tensor => weft.ones([queries, keys], { dtype });

const bools: Record<string, () => weft.Tensor> = {
  "i >= j": () => i.greaterEqual(j),
  "j <= i": () => j.lessEqual(i),
  "j < i + 1": () => j.less(i.add(1)),
  "not j > i": () => j.greater(i).logicalNot(),
  "i - j >= 0": () => i.sub(j).greaterEqual(0),
  "float indices with a half": () => index(1, "float32").sub(index(0, "float32")).less(0.5),
  "tril of ones": () => weft.tril(ones("float32")).cast("bool"),
  "tril of ones is not zero": () => weft.tril(ones("float32")).notEqual(0),
  "triu is zero": () => weft.triu(ones("int32").index(":", ":")).equal(0),
  "bottom right": () => j.lessEqual(i.add(keys - queries)),
  window: () => j.lessEqual(i).logicalAnd(i.sub(j).less(3)),
  "window by distance": () => weft.abs(i.sub(j)).less(3),
  "twice the distance": () => j.mul(2).lessEqual(i.mul(2).add(3)),
  "slice of a larger mask": () =>
    weft
      .arange(0, 20, 1, { dtype: "int32" })
      .unsqueeze(1)
      .greaterEqual(weft.arange(0, 20, 1, { dtype: "int32" }).unsqueeze(0))
      .index(`2:${2 + queries}`, `0:${keys}`),
  "with two leading axes": () => i.greaterEqual(j).reshape([1, 1, queries, keys]).expand([2, 3, queries, keys]),
  everything: () => ones("bool"),
};

/** Whether a mask is exactly the band. */
function assertBand(mask: weft.Tensor, band: { lower?: number; upper?: number }): void {
  const values = Array.from(mask.cast("int32").dataSync() as Int32Array);
  const { lower = Number.NEGATIVE_INFINITY, upper = Number.POSITIVE_INFINITY } = band;
  values.forEach((value, at) => {
    const [row, column] = [Math.floor(at / keys) % queries, at % keys];
    assert.equal(value, Number(column - row >= lower && column - row <= upper), `element ${row}, ${column}`);
  });
}

for (const [name, make] of Object.entries(bools))
  test(`mask as a band: ${name}`, () => {
    const mask = make();
    const { band, rest } = splitBand(narrowed(mask.node));
    assert.equal(rest, null, "nothing else is left");
    assertBand(mask, band);
  });

const others: Record<string, () => weft.Tensor> = {
  "i > 2": () => i.greater(2).expand([queries, keys]),
  "j < 4": () => j.less(4).expand([queries, keys]),
  "i + j < 5": () => i.add(j).less(5),
  "i or j": () => i.greaterEqual(j).logicalOr(j.equal(0)),
  "not a window": () => weft.abs(i.sub(j)).less(3).logicalNot(),
  "j <= 2 i": () => j.lessEqual(i.mul(2)),
  "half indices": () => i.cast("bfloat16").greaterEqual(j.cast("bfloat16")),
  data: () => weft.randn([queries, keys], { seed: 1 }).greater(0),
};
for (const [name, make] of Object.entries(others))
  test(`mask that is no band: ${name}`, () => {
    const { band, rest } = splitBand(narrowed(make().node));
    assert.deepEqual(band, {});
    assert.ok(rest !== null);
  });

test("a causal mask with padding keeps the padding", () => {
  const padding = weft.tensor([1, 1, 1, 0, 1, 0, 1, 1, 0], { dtype: "int32" }).cast("bool");
  const { band, rest } = splitBand(narrowed(i.greaterEqual(j).logicalAnd(padding.unsqueeze(0)).node));
  assert.deepEqual(band, { upper: 0 });
  assert.deepEqual(rest?.shape, [1, keys]);
});

test("added numbers are a band if they are 0 inside and far below every score outside", () => {
  const zero = weft.zeros([queries, keys]);
  const causal = i.greaterEqual(j);
  for (const fill of [Number.NEGATIVE_INFINITY, -1e9, -65504]) {
    assert.deepEqual(biasBand(narrowed(zero.where(causal, fill).node), -1e4), { upper: 0 });
    assert.deepEqual(biasBand(narrowed(weft.full([queries, keys], fill).where(j.greater(i), 0).node), -1e4), {
      upper: 0,
    });
  }
  assert.deepEqual(biasBand(narrowed(causal.cast("float32").sub(1).mul(1e9).node), -1e4), { upper: 0 });
  assert.equal(biasBand(narrowed(zero.where(causal, -5).node), -1e4), null);
  assert.equal(biasBand(narrowed(weft.ones([queries, keys]).where(causal, -1e9).node), -1e4), null);
});
