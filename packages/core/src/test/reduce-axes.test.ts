// Reductions over every choice of axes of a tensor with many: kernels know one run of neighboring axes, the rest is split.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { onEachDevice } from "./devices.js";

const shape = [2, 3, 2, 1, 3, 2];
const strides = shape.map((_, i) => shape.slice(i + 1).reduce((a, b) => a * b, 1));
const value = (i: number): number => Math.sin(i + 1);

/** The sum over axes, element by element. */
function expected(axes: readonly number[]): number[] {
  const kept = shape.map((_, i) => i).filter((i) => !axes.includes(i));
  const out = new Array<number>(kept.reduce((n, a) => n * shape[a], 1)).fill(0);
  for (let at = 0; at < 72; at++) {
    const digit = (axis: number): number => Math.floor(at / strides[axis]) % shape[axis];
    out[kept.reduce((n, a) => n * shape[a] + digit(a), 0)] += value(at);
  }
  return out;
}

onEachDevice(() => {
  test("sums over all 63 choices of six axes", () => {
    const x = weft.tensor(
      Float64Array.from({ length: 72 }, (_, i) => value(i)),
      { shape },
    );
    const choices = Array.from({ length: 63 }, (_, k) => shape.map((_d, i) => i).filter((i) => ((k + 1) >> i) & 1));
    const sums = weft.jit((t: weft.Tensor) => choices.map((axes) => t.sum(axes)))(x);
    sums.forEach((sum, k) => {
      const want = expected(choices[k]);
      const got = sum.dataSync() as Float64Array;
      assert.deepEqual(got.length, want.length);
      got.forEach((g, i) => {
        assert.ok(Math.abs(g - want[i]) < 1e-12, `axes ${choices[k].join()}: ${g} at ${i}, wanted ${want[i]}`);
      });
    });
  });

  for (const dtype of ["bfloat16", "float16"] as const)
    test(`sums of ${dtype} over axes that are not neighbors are rounded once`, () => {
      // Rounded sums of rows would lose the small numbers beside the large ones, which cancel.
      const numbers = Float32Array.from({ length: 960 }, (_, i) => (i % 32 === 0 ? 0.5 : i < 480 ? 128 : -128));
      const x = weft.tensor(numbers, { shape: [10, 3, 32] }).cast(dtype);
      const sums = weft.jit((t: weft.Tensor) => [t.sum([0, 2]), t.mean([0, 2])])(x);
      const stored = x.cast("float32").dataSync() as Float32Array;
      const want = [0, 0, 0];
      stored.forEach((v, i) => {
        want[Math.floor(i / 32) % 3] += v;
      });
      for (const [k, count] of [1, 320].entries())
        Array.from(sums[k].cast("float32").dataSync() as Float32Array).forEach((g, c) => {
          const exact = want[c] / count;
          assert.ok(Math.abs(g - exact) <= 2 ** -8 * Math.abs(exact), `column ${c}: ${g}, expected ${exact}`);
        });
    });

  test("means of long columns in single precision have its digits", () => {
    // Added one after the other, 200,000 numbers of about 128 lose three of seven digits.
    const rows = 200_000;
    const values = Float32Array.from({ length: 3 * rows }, (_, i) => (Math.imul(i, 2654435761) >>> 13) % 256);
    const sums = [0, 0, 0];
    values.forEach((v, i) => {
      sums[i % 3] += v;
    });
    const x = weft.tensor(values, { shape: [rows / 200, 200, 3] });
    const means = weft.jit((t: weft.Tensor) => [t.mean([0, 1]), t.reshape([rows, 3]).mean(0)])(x);
    for (const mean of means)
      (mean.dataSync() as Float32Array).forEach((m, c) => {
        assert.ok(Math.abs((m * rows) / sums[c] - 1) < 1e-6, `column ${c}: ${m}, expected ${sums[c] / rows}`);
      });
  });
});
