// The largest and smallest of elements and their updates on every device: dtypes, NaN, indices out of range, rows, ties and gradients.
// Oracles are loops in plain JavaScript.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { device as emulated, skip as noEmulator, prepareEmulator } from "../device/cuda/emulated/testkit.js";
import * as weft from "../index.js";

const devices: [name: string, use: () => weft.Device, skip: false | string][] = [
  ["reference", () => weft.setDevice(new weft.ReferenceDevice()), false],
  ["cpu", () => weft.setDevice("cpu"), weft.CpuDevice.available() ? false : "no C compiler"],
  ["emulated cuda", () => weft.setDevice(emulated()), noEmulator],
];
const modes = ["max", "min"] as const;
before(prepareEmulator);

const pseudo = (i: number): number => Math.floor(Math.abs(Math.sin(i * 12.9898) * 43758.5453) % 1000);
const pick = (mode: "max" | "min", a: number, b: number): number =>
  Number.isNaN(a) || Number.isNaN(b) ? Number.NaN : mode === "max" ? Math.max(a, b) : Math.min(a, b);

/** Slices of [before, n, after] and updates [before, count, after] at indices that all slices share. */
function expected(
  mode: "max" | "min",
  x: number[],
  at: number[],
  u: number[],
  [before, n, after]: [number, number, number],
): number[] {
  const out = [...x];
  for (let p = 0; p < before; p++)
    for (let i = 0; i < at.length; i++)
      for (let k = 0; k < after; k++) {
        if (at[i] < 0 || at[i] >= n) continue;
        const place = (p * n + at[i]) * after + k;
        out[place] = pick(mode, out[place], u[(p * at.length + i) * after + k]);
      }
  return out;
}

for (const [name, use, skip] of devices) {
  test(`extremes of single numbers in every real dtype (${name})`, { skip }, () => {
    use();
    const [n, count] = [37, 500];
    const at = Array.from({ length: count }, (_, i) => pseudo(i) % (n + 3));
    for (const dtype of [
      "int8",
      "uint16",
      "int32",
      "uint32",
      "int64",
      "float16",
      "bfloat16",
      "float32",
      "float64",
    ] as const)
      for (const mode of modes) {
        const low = dtype.startsWith("u") ? 0 : -50;
        const [x, u] = [1, 7].map((seed) =>
          Array.from({ length: seed === 1 ? n : count }, (_, i) => low + (pseudo(i + 31 * seed) % 100)),
        );
        const found = weft.scatter(
          weft.tensor(x, { dtype }),
          weft.tensor(at, { dtype: "int32" }),
          weft.tensor(u, { dtype }),
          { mode },
        );
        assert.equal(found.dtype, dtype);
        const got = Array.from(found.cast("float64").dataSync() as Float64Array);
        assert.deepEqual(got, expected(mode, x, at, u, [1, n, 1]), `${dtype} ${mode}`);
      }
  });

  test(`extremes of rows, of slices, and beside NaN and infinities (${name})`, { skip }, () => {
    use();
    const [count, width, segments] = [300, 5, 11];
    const ids = Array.from({ length: count }, (_, i) => (pseudo(i) % (segments + 4)) - 2);
    const u = Array.from({ length: count * width }, (_, i) =>
      i % 97 === 5 ? Number.NaN : i % 41 === 3 ? (i % 2 === 0 ? Infinity : -Infinity) : pseudo(i) - 500,
    );
    for (const mode of modes) {
      const start = new Array<number>(segments * width).fill(mode === "max" ? -Infinity : Infinity);
      const reduced = weft.segmentReduce(
        weft.tensor(Float32Array.from(u), { shape: [count, width] }),
        weft.tensor(ids, { dtype: "int32" }),
        segments,
        { mode },
      );
      assert.deepEqual(
        Array.from(reduced.dataSync() as Float32Array),
        expected(mode, start, ids, u, [1, segments, width]),
        `segments ${mode}`,
      );
      // Along the middle axis, with the same indices in every slice; a base with NaN, -0 and 0.
      const base = Array.from({ length: 2 * 4 * 3 }, (_, i) => (i % 7 === 2 ? Number.NaN : i % 5 === 1 ? -0 : i - 12));
      const some = [3, 0, 3, 9];
      const more = Array.from({ length: 2 * some.length * 3 }, (_, i) => (i % 8 === 4 ? Number.NaN : 11 - i));
      const indices = weft
        .tensor(some, { dtype: "int32" })
        .reshape([1, some.length, 1])
        .add(weft.zeros([2, some.length, 3], { dtype: "int32" }));
      const found = weft.scatter(
        weft.tensor(Float64Array.from(base), { shape: [2, 4, 3] }),
        indices,
        weft.tensor(Float64Array.from(more), { shape: [2, some.length, 3] }),
        { axis: 1, mode },
      );
      const got = Array.from(found.dataSync() as Float64Array, (v) => v + 0);
      assert.deepEqual(
        got,
        expected(mode, base, some, more, [2, 4, 3]).map((v) => v + 0),
        `slices ${mode}`,
      );
    }
  });

  test(`elements and updates that are equal to the result share its gradient (${name})`, { skip }, () => {
    use();
    const at = weft.tensor([0, 1, 1, 2, 7], { dtype: "int32" });
    const weights = weft.tensor([3, 6, 12]);
    const [gx, gu] = weft.grad(
      (x: weft.Tensor, u: weft.Tensor) => weft.scatter(x, at, u, { mode: "max" }).mul(weights).sum(),
      { argument: [0, 1] },
    )(weft.tensor([5, 1, 2]), weft.tensor([4, 9, 9, 2, 100])) as weft.Tensor[];
    assert.deepEqual(Array.from(gx.dataSync() as Float32Array), [3, 0, 6]);
    assert.deepEqual(Array.from(gu.dataSync() as Float32Array), [0, 3, 3, 6, 0]);
  });
}

test("the gradient of interpolation is the transposed matrix", () => {
  weft.setDevice(new weft.ReferenceDevice());
  for (const options of [
    { size: 7, mode: "linear" },
    { size: 3, mode: "linear", alignCorners: true },
    { scale: 2, mode: "cubic" },
    { size: 8, mode: "nearest" },
    { size: 150, mode: "linear" },
  ] as const) {
    const n = 5;
    const columns = Array.from({ length: n }, (_, i) =>
      Array.from(weft.interpolate(weft.eye(n).index(i).reshape([1, 1, n]), options).dataSync() as Float32Array),
    );
    const cotangent = columns[0].map((_, j) => Math.sin(j + 1));
    const g = weft.grad((x: weft.Tensor) =>
      weft
        .interpolate(x, options)
        .mul(weft.tensor(cotangent).reshape([1, 1, -1]))
        .sum(),
    )(weft.arange(n).reshape([1, 1, n]).cast("float32")) as weft.Tensor;
    const wanted = columns.map((column) => column.reduce((sum, w, j) => sum + w * cotangent[j], 0));
    Array.from(g.dataSync() as Float32Array).forEach((value, i) => {
      assert.ok(Math.abs(value - wanted[i]) < 1e-4, `${JSON.stringify(options)}, element ${i}: ${value}, ${wanted[i]}`);
    });
  }
});
