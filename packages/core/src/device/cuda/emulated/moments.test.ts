// Variances in one pass on the emulated GPU: every place of the reduced axes in tensors with more axes before and after them, and short
// rows in great number. Oracles are plain loops in two passes.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { narrowRows } from "../../../compile/index.js";
import * as weft from "../../../index.js";
import { device as emulated, prepareEmulator, skip } from "./testkit.js";

const usual = narrowRows.rows;
before(() => {
  prepareEmulator();
  narrowRows.rows = 100;
});
after(() => {
  narrowRows.rows = usual;
});

const valueAt = (i: number): number => Math.fround(Math.sin(i * 12.9898) * 2 + ((i * 7) % 5) + 30);

const tensorOf = (shape: number[]): weft.Tensor => {
  const length = shape.reduce((a, b) => a * b, 1);
  return weft.tensor(
    Float32Array.from({ length }, (_, i) => valueAt(i)),
    { shape },
  );
};

/** Means and variances over axes, element by element. */
function expected(shape: readonly number[], axes: readonly number[]): { means: number[]; variances: number[] } {
  const left = shape.map((_, axis) => axis).filter((axis) => !axes.includes(axis));
  const strides = shape.map((_, axis) => shape.slice(axis + 1).reduce((a, b) => a * b, 1));
  const total = shape.reduce((a, b) => a * b, 1);
  const groups = left.reduce((n, axis) => n * shape[axis], 1);
  const place = (i: number): number =>
    left.reduce((n, axis) => n * shape[axis] + (Math.floor(i / strides[axis]) % shape[axis]), 0);
  const means = new Array<number>(groups).fill(0);
  const variances = new Array<number>(groups).fill(0);
  for (let i = 0; i < total; i++) means[place(i)] += (valueAt(i) * groups) / total;
  for (let i = 0; i < total; i++) variances[place(i)] += ((valueAt(i) - means[place(i)]) ** 2 * groups) / total;
  return { means, variances };
}

const cases: [shape: number[], axes: number[]][] = [
  // Columns of a middle axis with several axes before and after it.
  [[2, 3, 1024, 2, 5], [2]],
  [[2, 3, 1031, 4], [2]],
  // Reduced axes that are neighbors, and that are not.
  [
    [3, 32, 32, 2, 2],
    [1, 2],
  ],
  [
    [2, 3, 40, 4, 40],
    [2, 4],
  ],
  [
    [6, 4, 30, 30],
    [0, 2, 3],
  ],
  [[4096, 2, 3], [0]],
  // Pieces of one run of axes keep the axes of the other.
  [
    [2, 3, 2, 8192],
    [0, 3],
  ],
  [
    [2, 2, 3, 4096, 2],
    [1, 3],
  ],
  [
    [3, 2, 64, 96],
    [0, 2, 3],
  ],
  [[500, 50, 2], [1]],
  [
    [200, 20, 3, 4],
    [1, 3],
  ],
  // Rows: few and long, many and short.
  [[2, 3, 4099], [2]],
  [
    [2, 2, 64, 64],
    [2, 3],
  ],
  [[20, 15, 50], [2]],
  [
    [20, 15, 5, 7],
    [2, 3],
  ],
];

test("means and variances over axes anywhere", { skip }, () => {
  const gpu = emulated();
  weft.useDevice(gpu);
  for (const [shape, axes] of cases) {
    const label = `axes ${axes.join()} of ${shape.join("x")}`;
    const x = tensorOf(shape);
    const both = weft.jit((t: weft.Tensor) => [t.mean(axes), t.var(axes), t.var(axes, { keepDims: true })]);
    const [mean, variance, kept] = both(x);
    const want = expected(shape, axes);
    assert.deepEqual(
      mean.shape,
      shape.filter((_, axis) => !axes.includes(axis)),
      label,
    );
    assert.deepEqual(
      kept.shape,
      shape.map((n, axis) => (axes.includes(axis) ? 1 : n)),
    );
    const near = (got: weft.Tensor, values: number[], tolerance: number): void =>
      (got.dataSync() as Float32Array).forEach((g, i) => {
        assert.ok(
          Math.abs(g - values[i]) < tolerance * (1 + Math.abs(values[i])),
          `${label}: ${g}, expected ${values[i]}`,
        );
      });
    near(mean, want.means, 1e-5);
    near(variance, want.variances, 1e-5);
    near(kept, want.variances, 1e-5);
  }
});
