// Padding by elements of the tensor in one pass, histograms by arithmetic and running products by runs, against plain loops.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";

weft.setDevice("reference");

const position: Record<string, (i: number, n: number) => number> = {
  edge: (i, n) => Math.min(n - 1, Math.max(0, i)),
  wrap: (i, n) => (i + 4 * n) % n,
  symmetric: (i, n) => (i < 0 ? -1 - i : i < n ? i : 2 * n - 1 - i),
  reflect: (i, n) => (i < 0 ? -i : i < n ? i : 2 * n - 2 - i),
};

test("padding of several axes at once", () => {
  const shape = [2, 3, 4, 5];
  const x = weft.arange(0, 120).reshape(shape);
  for (const [mode, at] of Object.entries(position))
    for (const amounts of [
      [
        [0, 0],
        [0, 0],
        [2, 1],
        [0, 3],
      ],
      [
        [1, 0],
        [0, 0],
        [3, 3],
        [0, 0],
      ],
      [
        [0, 0],
        [2, 2],
        [0, 0],
        [4, 1],
      ],
    ] as [number, number][][]) {
      const y = weft.pad(x, amounts, { mode: mode as "edge" });
      const to = shape.map((n, i) => n + amounts[i][0] + amounts[i][1]);
      assert.deepEqual(y.shape, to);
      const values = y.dataSync();
      for (let flat = 0; flat < y.size; flat++) {
        let rest = flat;
        const index = to.map(() => 0);
        for (let a = 3; a >= 0; a--) {
          index[a] = rest % to[a];
          rest = Math.floor(rest / to[a]);
        }
        const from = index.reduce((sum, i, a) => sum * shape[a] + at(i - amounts[a][0], shape[a]), 0);
        assert.equal(values[flat], from, `${mode} at ${index}`);
      }
      const g = weft.grad((t: weft.Tensor) => weft.pad(t, amounts, { mode: mode as "edge" }).sum())(x);
      assert.equal(Number(g.sum().itemSync()), y.size);
    }
});

test("padding beyond the length of an axis", () => {
  const x = weft.tensor([1, 2, 3]);
  assert.deepEqual([...weft.pad(x, [[4, 5]], { mode: "wrap" }).dataSync()], [3, 1, 2, 3, 1, 2, 3, 1, 2, 3, 1, 2]);
  assert.deepEqual([...weft.pad(x, [[3, 0]], { mode: "reflect" }).dataSync()], [2, 3, 2, 1, 2, 3]);
});

test("bins of elements on and beside the edges", () => {
  for (const dtype of ["float32", "float64", "bfloat16"] as const)
    for (const [low, high, bins] of [
      [0, 1, 10],
      [-3, 7, 7],
      [1000, 1000.01, 9],
      [-1e30, 1e30, 33],
    ]) {
      const made = weft.linspace(low, high, 997, { dtype: "float64" }).cast(dtype);
      const edgesOnly = weft.histogram(made, bins, { range: [low, high] }).edges;
      const x = weft.concat([
        made,
        edgesOnly.cast(dtype),
        weft.tensor([Number.NaN, low - 1e33, high + 1e33]).cast(dtype),
      ]);
      const { counts, edges } = weft.histogram(x, bins, { range: [low, high] });
      const numbers = Array.from(x.cast("float64").dataSync() as Float64Array);
      const at = Array.from(edges.cast("float64").dataSync() as Float64Array);
      const expected = new Array<number>(bins).fill(0);
      for (const v of numbers) {
        if (!(v >= at[0] && v <= at[bins])) continue;
        let bin = at.filter((edge) => edge <= v).length - 1;
        bin = Math.min(bin, bins - 1);
        expected[bin]++;
      }
      assert.deepEqual(
        Array.from(counts.dataSync() as BigInt64Array, Number),
        expected,
        `${dtype} ${low} ${high} ${bins}`,
      );
    }
});

test("running products of any length, with their gradient", () => {
  for (const n of [1, 2, 15, 16, 17, 40, 256, 257, 1000]) {
    const x = weft.linspace(0.97, 1.03, n, { dtype: "float64" });
    const values = x.dataSync() as Float64Array;
    let product = 1;
    const expected = Array.from(values, (v) => (product *= v));
    const got = weft.cumprod(x).dataSync();
    expected.forEach((v, i) => {
      assert.ok(Math.abs(Number(got[i]) - v) <= 1e-12 * v, `${n} at ${i}`);
    });
    // d/dx_i of the sum of products is the sum of the products from i on, divided by x_i.
    const g = weft
      .grad((t: weft.Tensor) => weft.cumprod(t).sum())(x)
      .dataSync();
    let tail = 0;
    for (let i = n - 1; i >= 0; i--) {
      tail += expected[i];
      assert.ok(Math.abs(Number(g[i]) - tail / Number(values[i])) <= 1e-9 * tail);
    }
  }
  const matrix = weft.arange(1, 61, 1, { dtype: "float64" }).reshape([20, 3]).div(20);
  const columns = weft.cumprod(matrix, 0).dataSync();
  assert.ok(Math.abs(Number(columns[59]) - [...Array(20).keys()].reduce((p, i) => p * ((3 * i + 3) / 20), 1)) < 1e-9);
});
