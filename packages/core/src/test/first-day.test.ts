// Results that a newcomer from NumPy, PyTorch or JAX compares on the first day, and that were wrong once: singular matrices, infinities,
// half types, operands of two dtypes, empty axes. Expected values are theirs, or closed forms.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const f64 = (data: Parameters<typeof tensor>[0]): Tensor => tensor(data, { dtype: "float64" });
const half = (data: number[]): Tensor => tensor(data, { dtype: "float16" });
/** Diagonal 0, 1, 2, ...: singular, with one cofactor that is not 0. */
const singular = (n: number): Tensor => weft.diag(weft.arange(0, n, 1, { dtype: "float64" }));
const slopeOfDet = (x: Tensor): Tensor => weft.grad(weft.det)(x) as Tensor;
const { Infinity: inf, NaN: nan } = globalThis;

const rows: [name: string, result: () => Tensor, expected: number[]][] = [
  [
    "gradient of det, rank 1",
    () =>
      slopeOfDet(
        f64([
          [1, 2],
          [2, 4],
        ]),
      ),
    [4, -2, -2, 1],
  ],
  [
    "gradient of det, rank 0",
    () =>
      slopeOfDet(
        f64([
          [0, 0],
          [0, 0],
        ]),
      ),
    [0, 0, 0, 0],
  ],
  ["gradient of det, 3 rows", () => slopeOfDet(singular(3)), [2, 0, 0, 0, 0, 0, 0, 0, 0]],
  ["gradient of det, 5 rows", () => weft.diagonal(slopeOfDet(singular(5))), [24, 0, 0, 0, 0]],
  [
    "second derivative of det",
    () =>
      weft
        .grad((x: Tensor) => slopeOfDet(x).index(0, 0))(singular(5))
        .index(1, 1) as Tensor,
    [24],
  ],
  ["median beside -Infinity", () => weft.median(f64([-inf, -inf, 1, 2])), [-inf]],
  ["median of infinities", () => weft.median(f64([inf, inf])), [inf]],
  ["nanmedian beside Infinity", () => weft.nanmedian(f64([1, nan, 3, inf])), [3]],
  ["nanvar with Infinity", () => weft.nanvar(f64([1, nan, inf])), [nan]],
  ["median along an axis beside an empty one", () => weft.median(weft.zeros([0, 3]), 1), []],
  ["norm of halves", () => weft.norm(half([300, 400])), [500]],
  ["vectorNorm of halves", () => weft.vectorNorm(half([300, 300, 300]), { order: 3 }), [432.75]],
  ["std of halves", () => weft.std(half([0, 800])), [400]],
  ["logaddexp2 of two dtypes", () => weft.logaddexp2(f64([7]), tensor([7])), [8]],
  ["lstsq of two dtypes", () => weft.lstsq(tensor([[3]]), f64([1])).solution, [1 / 3]],
  ["i1 near 0", () => weft.special.i1(f64([1e-30])).mul(1e30), [0.5]],
  ["gamma of a negative parameter", () => weft.gamma(tensor([-1]), [1], { seed: 1 }), [nan]],
];

for (const device of testDevices())
  test(`first results on ${device.name}`, () => {
    useDevice(device.make());
    const results = weft.jit(() => rows.map(([, result]) => result()))();
    const wrong = rows.flatMap(([name, , expected], i) => {
      const got = Array.from(results[i].dataSync() as ArrayLike<number>, Number);
      const close = (a: number, b: number): boolean => Object.is(a, b) || Math.abs(a - b) <= 1e-12 * Math.abs(b);
      return got.length === expected.length && got.every((x, k) => close(x + 0, expected[k]))
        ? []
        : [`${name}: ${got}, expected ${expected}`];
    });
    assert.deepEqual(wrong, []);
  });
