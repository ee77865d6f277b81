// Reductions of padded tensors, whose guarded loads are vectors on GPUs, against plain loops: the padding lies along a row, across rows,
// or both, and ends at multiples of a vector's width.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { testDevicesAndEmulator } from "./devices.js";

interface Case {
  sizes: [number, number];
  /** Above, below, left, right. */
  padding: [number, number, number, number];
  axis: 0 | 1 | undefined;
}

const cases: Case[] = (
  [
    [1, 70],
    [3, 64],
    [40, 8],
    [33, 62],
  ] as [number, number][]
).flatMap((sizes) =>
  (
    [
      [0, 0, 2, 0],
      [0, 0, 0, 8],
      [2, 0, 0, 0],
      [1, 3, 4, 4],
    ] as [number, number, number, number][]
  ).flatMap((padding) => ([undefined, 0, 1] as const).map((axis): Case => ({ sizes, padding, axis }))),
);

const valueAt = (i: number): number => ((i * 7) % 11) - 3;

/** Sums of |x - 1|, so that the padding counts too. */
function expected({ sizes: [height, width], padding: [above, below, left, right], axis }: Case): number[] {
  const [rows, columns] = [height + above + below, width + left + right];
  const sums = new Array<number>(axis === undefined ? 1 : axis === 0 ? columns : rows).fill(0);
  for (let i = 0; i < rows; i++)
    for (let j = 0; j < columns; j++) {
      const isInside = i >= above && i < above + height && j >= left && j < left + width;
      const value = isInside ? valueAt((i - above) * width + j - left) : 0;
      sums[axis === undefined ? 0 : axis === 0 ? j : i] += Math.abs(value - 1);
    }
  return sums;
}

for (const device of testDevicesAndEmulator())
  for (const dtype of ["float64", "float32"] as const)
    test(`sums over padded rows and columns, ${dtype} on ${device.name}`, () => {
      weft.useDevice(device.make());
      const inputs = cases.map(({ sizes: [height, width] }) =>
        weft.tensor(
          Array.from({ length: height * width }, (_, i) => valueAt(i)),
          { dtype, shape: [height, width] },
        ),
      );
      const sums = weft.jit((xs: weft.Tensor[]) =>
        xs.map((x, k) => {
          const [above, below, left, right] = cases[k].padding;
          const padded = x.pad([
            [above, below],
            [left, right],
          ]);
          return padded.sub(1).abs().sum(cases[k].axis);
        }),
      )(inputs);
      sums.forEach((sum, k) => {
        assert.deepEqual(
          [...(sum.dataSync() as ArrayLike<number> & Iterable<number>)],
          expected(cases[k]),
          JSON.stringify(cases[k]),
        );
      });
    });
