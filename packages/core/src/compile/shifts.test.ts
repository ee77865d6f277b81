// Sums of shifted tensors (stencils, products with the diagonals of a matrix): one loop, whose rows read ahead where they stay in
// memory. Values against loops in JavaScript.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice } from "../device/index.js";
import * as weft from "../index.js";

const skip = CpuDevice.available() ? false : "no C compiler on this machine";
if (skip === false) weft.setDevice("cpu");

const shift = (x: weft.Tensor, axis: number, offset: number): weft.Tensor =>
  x
    .slice(
      x.shape.map((_, k) => (k === axis ? Math.max(0, offset) : 0)),
      x.shape.map((d, k) => (k === axis ? Math.min(d, d + offset) : d)),
    )
    .pad(x.shape.map((_, k) => (k === axis ? [Math.max(0, -offset), Math.max(0, offset)] : [0, 0])));

const cases: { shape: [number, number]; rows: number[]; columns: number[] }[] = [
  { shape: [9, 17], rows: [1, -2, 4], columns: [1, -1, 3, -5, 16] },
  { shape: [3, 70], rows: [2, -1], columns: [1, -2, 7, -30, 69, -69] },
  { shape: [40, 9], rows: [-39, 13, 1], columns: [8, -8, 2, -3, 4] },
  { shape: [1, 33], rows: [], columns: [1, -1, 5, -5, 20] },
];

for (const dtype of ["float64", "float32", "complex128"] as const)
  for (const { shape, rows, columns } of cases)
    test(`shifts of ${dtype} ${shape.join("x")}`, { skip }, () => {
      const [n, m] = shape;
      const x = weft
        .arange(0, n * m, 1, { dtype: "float64" })
        .reshape([n, m])
        .add(1)
        .cast(dtype)
        .realize();
      const f = weft.jit((a: weft.Tensor) => {
        const parts = [
          ...rows.map((o, k) => shift(a, 0, o).mul(k + 1)),
          ...columns.map((o, k) => shift(a, 1, o).mul(10 + k)),
          ...rows.map((o, k) => shift(shift(a, 1, columns[k]), 0, o)),
        ];
        return parts.reduce((s, p) => s.add(p), a);
      });
      const at = (i: number, j: number): number => (i < 0 || i >= n || j < 0 || j >= m ? 0 : i * m + j + 1);
      const got = f(x).cast("complex128").real().dataSync() as Float64Array;
      for (let i = 0; i < n; i++)
        for (let j = 0; j < m; j++) {
          let want = at(i, j);
          rows.forEach((o, k) => {
            want += at(i + o, j) * (k + 1) + at(i + o, j + columns[k]);
          });
          columns.forEach((o, k) => {
            want += at(i, j + o) * (10 + k);
          });
          assert.equal(got[i * m + j], want, `row ${i}, column ${j}`);
        }
      assert.equal(f.kernels(x).length, 1);
    });

test("a shifted value that is not finite stays where the shift reads it", { skip }, () => {
  const x = weft.tensor(
    [[1, 2, Number.NaN, 4, 5, 6, 7, 8, 9, 10]].concat(
      Array.from({ length: 4 }, () => Array.from({ length: 10 }, () => 1)),
    ),
    { dtype: "float64" },
  );
  const f = weft.jit((a: weft.Tensor) => [3, -3, 1, -1, 8].reduce((s, o) => s.add(shift(a, 1, o)), a));
  const rows = f(x).arraySync() as number[][];
  assert.ok(rows.slice(1).flat().every(Number.isFinite));
  assert.deepEqual(
    rows[0].map((v) => Number.isNaN(v)),
    [false, true, true, true, false, true, false, false, false, false],
  );
});
