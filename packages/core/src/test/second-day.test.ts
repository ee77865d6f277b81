// Results that a user of NumPy, PyTorch or JAX compares on the second day, and that were wrong or refused once: masks among indices,
// derivatives at kinks, logarithms of powers, statistics of large integers, updates of another dtype, tails of distributions, trees.
// Expected values are theirs, or closed forms.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../index.js";
import { type Tensor, tensor, useDevice } from "../index.js";
import { testDevices } from "./devices.js";

const f64 = (data: Parameters<typeof tensor>[0]): Tensor => tensor(data, { dtype: "float64" });
const int = (data: Parameters<typeof tensor>[0]): Tensor => tensor(data, { dtype: "int32" });
const { Infinity: inf, NaN: nan } = globalThis;
const cube = (): Tensor => weft.arange(24).reshape([2, 3, 4]);
const isTrue = (x: readonly boolean[]): Tensor => tensor([...x]);
const slopes = (fn: (x: Tensor) => Tensor, at: number[]): Tensor => weft.grad((x: Tensor) => fn(x).sum())(f64(at));
/** Numbers of one integer after another, of which float32 has every second one at most. */
const large = (): Tensor => int([100000001, 100000002, 100000004]);

const rows: [name: string, result: () => Tensor, shape: number[], expected: number[]][] = [
  ["a mask among indices", () => cube().index(1, isTrue([true, false, true]), 0), [2], [12, 20]],
  ["a mask of two axes", () => cube().index("...", cube().index(0).equal(5), null), [2, 1, 1], [5, 17]],
  ["a mask as an array", () => cube().index(0, "1:", [true, false, false, true]), [2, 2], [4, 8, 7, 11]],
  ["new axes beside an index array", () => cube().index(null, [1], 2, "::-3"), [1, 1, 2], [23, 20]],
  ["new axes between index arrays", () => cube().index([0, 1], null, [0, 2], 1), [2, 1], [1, 21]],
  [
    "an ellipsis of no axes between indices",
    () => cube().index(":", [0, 1, 1], "...", 1),
    [3, 2],
    [1, 13, 5, 17, 5, 17],
  ],
  ["the same with a mask", () => cube().index(":", [true, false, true], "...", 1), [2, 2], [1, 13, 9, 21]],
  ["slopes of hardtanh at its bounds", () => slopes(weft.hardtanh, [-1, 0, 1, 2]), [4], [0, 1, 0, 0]],
  ["slopes of relu6 at its bounds", () => slopes(weft.relu6, [0, 3, 6]), [3], [0, 1, 0]],
  ["slopes of hardSilu at its bounds", () => slopes(weft.hardSilu, [-3, 0, 3]), [3], [0, 0.5, 1]],
  ["slopes of fmax at a tie", () => slopes((x) => weft.fmax(x, x.mul(2)), [0, 1]), [2], [1, 2]],
  [
    "slopes of a norm of order 1/2 at 0",
    () => slopes((x) => weft.vectorNorm(x, { order: 0.5 }), [4, 0, 4]),
    [3],
    [2, 0, 2],
  ],
  ["a threshold keeps NaN", () => weft.threshold(f64([nan, 0, 2]), 1, 9), [3], [nan, 9, 2]],
  ["log2 of powers", () => weft.log2(f64([8, 2 ** 29, 2 ** -31, 0, inf, -1])), [6], [3, 29, -31, -inf, inf, nan]],
  ["log2 of powers in float32", () => weft.log2(tensor([8, 2 ** 29, 2 ** -31, 5e-324])), [4], [3, 29, -31, -inf]],
  ["log10 of powers", () => weft.log10(f64([1e3, 1e-5, 1e15, 1e-300])), [4], [3, -5, 15, -300]],
  [
    "slope of log10",
    () =>
      weft
        .grad((x: Tensor) => weft.log10(x).sum())(f64([2]))
        .mul(Math.LN10),
    [1],
    [0.5],
  ],
  ["softmax beside Infinity", () => weft.softmax(f64([inf, 0])), [2], [nan, nan]],
  ["logsumexp with Infinity", () => weft.logsumexp(f64([inf, 0])), [], [inf]],
  ["cov of large integers", () => weft.cov(large()), [], [7 / 3]],
  ["median of large integers", () => weft.median(int([16777217, 16777219])), [], [16777218]],
  ["gradient of large integers", () => weft.gradient(large()), [3], [1, 1.5, 2]],
  ["histogram of large integers", () => weft.histogram(large(), 3).counts, [3], [1, 1, 1]],
  ["interp at large integers", () => weft.interp(large().add(1), large(), int([0, 10, 20])), [3], [10, 15, 20]],
  [
    "interp beside Infinity",
    () => weft.interp(f64([0, 0.5, 1, 1.5, 2]), f64([0, 1, 2]), f64([1, inf, 2])),
    [5],
    [1, inf, inf, inf, 2],
  ],
  ["einsum with an axis of size 1", () => weft.einsum("ij,ij->j", weft.ones([3, 2]), int([[1, 2]])), [2], [3, 6]],
  ["beta with small parameters", () => weft.isNaN(weft.beta(1e-3, 1e-3, [200], { seed: 1 })).any(), [], [0]],
  [
    "a tail of the normal distribution",
    () => weft.truncatedNormal(9, 10, [2000], { seed: 1 }).mean().sub(9.1086).abs().less(0.01),
    [],
    [1],
  ],
  [
    "categorical of halves",
    () => weft.categorical(tensor([-20, 0], { dtype: "bfloat16" }), { shape: [5000], seed: 1 }).sum(),
    [],
    [5000],
  ],
];

for (const device of testDevices())
  test(`results of the second day on ${device.name}`, () => {
    useDevice(device.make());
    const close = (a: number, b: number): boolean => Object.is(a, b) || Math.abs(a - b) <= 4e-7 * Math.abs(b);
    const wrong = rows.flatMap(([name, result, shape, expected]) => {
      const exact = name.startsWith("log");
      const t = result();
      const got = Array.from(t.dataSync() as ArrayLike<number>, Number);
      const isRight = got.every((x, i) => (exact ? Object.is(x, expected[i]) : close(x, expected[i])));
      return isRight && String(t.shape) === String(shape) && got.length === expected.length
        ? []
        : [`${name}: ${t} instead of ${expected}`];
    });
    assert.deepEqual(wrong, []);
  });

test("what would be rounded, cut off or left out in silence is refused", () => {
  const at = int([0]);
  class Layer {
    w = f64([1]);
  }
  const refused: [() => unknown, RegExp][] = [
    [() => weft.scatterAdd(weft.zeros([2]), at, f64([1])), /scatterAdd: updates \(a float64 tensor.*do not fit/],
    [() => weft.indexAdd(int([1, 2]), at, tensor([1.5])), /indexAdd: updates/],
    [() => weft.scatter(int([1, 2]), at, 1.5), /scatter: updates \(number 1.5\) do not fit a tensor of int32/],
    [() => weft.setMask(int([1, 2]), isTrue([true, false]), 1.5), /setMask: updates/],
    [() => weft.pad(tensor([1], { dtype: "uint8" }), [[1, 0]], 300), /pad: updates/],
    [() => int([2]).pow(-1), /pow: int32 to the power -1 is not an integer/],
    [() => tensor([1n, 2] as never), /bigints and other numbers are mixed/],
    [() => weft.treeMap((a, b) => a.add(b), { w: at, b: at }, { b: at, c: at }), /the trees differ/],
    [() => weft.treeMap((a) => a, { layer: new Layer() }), /a Layer that holds tensors/],
    [() => weft.jit((x: Tensor) => new Map([["y", x]]))(at), /a Map that holds tensors/],
    [
      () => weft.jit((x: Tensor, k: Float64Array) => x.mul(k[0]))(at, Float64Array.of(2)),
      /an argument is a Float64Array/,
    ],
    [() => weft.choice(2, [1], { p: f64([-1, 2]) }), /at least 0, got -1/],
    [() => weft.choice(2, [1], { p: f64([nan, 1]) }), /at least 0, got NaN/],
    [() => weft.choice(2, [1], { p: f64([1, 1]) }), /add up to 2/],
    [() => weft.choice(2, [2], { p: f64([1, 0]), replace: false }), /only 1 have a probability above 0/],
  ];
  for (const [call, expected] of refused) assert.throws(call, expected);
  // What fits is not refused.
  const kept = weft.pad(isTrue([true]), [[1, 0]]).setMask(isTrue([true, false]), 1);
  assert.deepEqual(kept.arraySync(), [true, true]);
  assert.equal(weft.scatterAdd(f64([1]), at, tensor([1])).dtype, "float64");
});

test("a shape is copied from its caller", () => {
  const shape = [2, 1];
  const made = [weft.zeros(shape), weft.rand(shape), weft.zeros([1]).expand(shape), weft.zeros([2]).reshape(shape)];
  shape[0] = 5;
  for (const x of made) assert.deepEqual(x.add(1).shape, [2, 1]);
});
