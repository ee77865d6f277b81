// Products of few rows with a large matrix: against sums in float64, for every layout, number of rows and remainder of a vector.
import assert from "node:assert/strict";
import { test } from "node:test";
import { CpuDevice, jit, randn, setDevice, type Tensor } from "../index.js";

const skip = CpuDevice.available() ? false : "needs the CPU device";

/** Rows times a matrix, both as nested lists. */
const product = (a: number[][], b: number[][]): number[][] =>
  a.map((row) => b[0].map((_, j) => row.reduce((sum, x, p) => sum + x * b[p][j], 0)));

const transposed = (m: number[][]): number[][] => m[0].map((_, j) => m.map((row) => row[j]));

function check(name: string, got: Tensor, expected: number[][], tolerance: number): void {
  const rows = got.arraySync() as number[][];
  expected.forEach((row, i) => {
    row.forEach((value, j) => {
      assert.ok(Math.abs(rows[i][j] - value) <= tolerance, `${name} [${i}, ${j}]: ${rows[i][j]}, expected ${value}`);
    });
  });
}

/** Rows, depth and columns: below and above what a vector holds and what is read at a time, with remainders. */
const sizes = [1, 2, 3, 8, 9].flatMap((m) =>
  [
    [1, 16],
    [7, 17],
    [8, 64],
    [33, 130],
    [100, 600],
  ].map(([k, n]) => [m, k, n] as const),
);

/** The products of one pair by every layout of its operands; the last one is the transposed product. */
const layouts = (a: Tensor, b: Tensor, at: Tensor, bt: Tensor): Tensor[] => [
  a.matmul(b),
  a.matmul(bt.transpose()),
  at.transpose().matmul(b),
  at.transpose().matmul(bt.transpose()),
  bt.matmul(a.transpose()),
];

test("products of up to nine rows have the values of plain sums, whichever way the matrix lies in memory", {
  skip,
}, () => {
  setDevice("cpu");
  for (const dtype of ["float32", "float64"] as const) {
    const draw = (rows: number, columns: number, seed: number): Tensor =>
      randn([rows, columns], { seed, dtype }).realize();
    const pairs = sizes.map(([m, k, n], i) => [draw(m, k, 2 * i), draw(k, n, 2 * i + 1)] as const);
    const turn = jit((list: Tensor[]) => list.map((x) => x.transpose().add(0)));
    const [ats, bts] = [0, 1].map((side) => turn(pairs.map((pair) => pair[side])));
    // One program for all of them.
    const all = jit((as: Tensor[], bs: Tensor[], at: Tensor[], bt: Tensor[]) =>
      as.map((a, i) => layouts(a, bs[i], at[i], bt[i])),
    );
    const results = all(
      pairs.map(([a]) => a),
      pairs.map(([, b]) => b),
      ats,
      bts,
    );
    sizes.forEach(([m, k, n], i) => {
      const [a, b] = pairs[i].map((x) => x.arraySync() as number[][]);
      const expected = product(a, b);
      results[i].forEach((got, layout) => {
        const isTurned = layout === results[i].length - 1;
        const name = `${dtype} ${m} x ${k} x ${n}, layout ${layout}`;
        check(name, got, isTurned ? transposed(expected) : expected, (dtype === "float32" ? 2e-6 : 4e-15) * k);
      });
    });
  }
});

test("a part of a matrix, a batch, and values that are not finite are as in plain sums", { skip }, () => {
  setDevice("cpu");
  const a = randn([3, 1, 40], { seed: 1 }).realize();
  const b = randn([3, 40, 64], { seed: 2 }).realize();
  const batched = jit((x: Tensor, y: Tensor) => x.matmul(y).reshape([3, 64]))(a, b);
  const [as, bs] = [a.arraySync() as number[][][], b.arraySync() as number[][][]];
  check(
    "batch",
    batched,
    as.map((row, i) => product(row, bs[i])[0]),
    1e-4,
  );
  const part = jit((x: Tensor, y: Tensor) => x.index(0, ":", "1:38").matmul(y.index(0, "1:38", "3:60")))(a, b);
  const inner = bs[0].slice(1, 38).map((row) => row.slice(3, 60));
  check("part", part, product([as[0][0].slice(1, 38)], inner), 1e-4);
  // A zero times an infinity is NaN, and an infinity stays in its column.
  const wild = jit((x: Tensor, y: Tensor) => x.matmul(y.index(0)))(a.index(0).mul(0), b.div(0));
  assert.ok((wild.arraySync() as number[][])[0].every(Number.isNaN));
});
