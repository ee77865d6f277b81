// Gathers from tensors with rows of one value around them: the rows are not written to memory, and the values are those of the op.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import { CpuDevice } from "../device/index.js";
import * as weft from "../index.js";
import { build, evaluate } from "../ops/index.js";
import { prepare } from "./prepare.js";

const skip = CpuDevice.available() ? false : "no C compiler on this machine";
type Tensor = weft.Tensor;
before(() => weft.setDevice("reference"));

/** Rows around a tensor [5, 3]: made by a product, so that they are in memory. */
const cases: Record<string, { around: (x: Tensor) => Tensor; axis?: number; copies?: number }> = {
  "a row of zeros at the end": { around: (x) => weft.concat([x, weft.zeros([1, 3])], 0) },
  "rows at both ends": { around: (x) => weft.concat([weft.ones([2, 3]), x, weft.ones([1, 3])], 0) },
  "rows of different values": { around: (x) => weft.concat([weft.zeros([2, 3]), x, weft.ones([1, 3])], 0), copies: 1 },
  "padding before and after": {
    around: (x) =>
      x.pad([
        [1, 2],
        [0, 0],
      ]),
  },
  "padding before": {
    around: (x) =>
      x.pad([
        [2, 0],
        [0, 0],
      ]),
  },
  "padding of columns": {
    around: (x) =>
      x.pad([
        [0, 0],
        [0, 2],
      ]),
    axis: 1,
  },
  "padding of the other axis": {
    around: (x) =>
      x.pad([
        [1, 0],
        [0, 2],
      ]),
    copies: 1,
  },
};

for (const [name, { around, axis = 0, copies = 0 }] of Object.entries(cases))
  test(name, { skip }, () => {
    const make = (a: Tensor, b: Tensor, places: Tensor): Tensor => weft.take(around(a.matmul(b)), places, axis).mul(2);
    const values = (device: string): [number[], string[]] => {
      weft.setDevice(device as "cpu");
      const a = weft.arange(1, 21).cast("float32").reshape([5, 4]);
      const b = weft.arange(-5, 7).cast("float32").reshape([4, 3]);
      // Clamped: below the first and above the last.
      const places = weft.tensor([0, 7, 3, 1, 5, 2, 4, 6, 100, -1, -(2 ** 31)], { dtype: "int32" });
      const f = weft.jit(make);
      const result = Array.from(f(a, b, places).dataSync() as Float32Array);
      return [result, device === "cpu" ? f.kernels(a, b, places) : []];
    };
    const [want] = values("reference");
    const [got, kernels] = values("cpu");
    assert.deepEqual(got, want);
    const { size } = around(weft.zeros([5, 3]));
    const written = kernels.filter((kernel) => kernel.endsWith(`_${size}`));
    assert.equal(written.length, copies, kernels.join(", "));
  });

test("the smallest place counts as the first", () => {
  const first = build.input([3], "float32");
  const places = build.input([4], "int32");
  const fn = { params: [first, places], outputs: [build.gather(build.pad(first, [2], [0]), places, 0, 0)] };
  const args = [
    { shape: [3], dtype: "float32", data: Float32Array.of(1, 2, 3) },
    { shape: [4], dtype: "int32", data: Int32Array.of(-(2 ** 31), 2 ** 31 - 1, 4, 1) },
  ] as const;
  const [got] = evaluate(prepare(fn, { parallelRows: 1024, longReduction: 4096 }), args);
  assert.deepEqual(Array.from(got.data as Float32Array), [0, 3, 3, 0]);
});
