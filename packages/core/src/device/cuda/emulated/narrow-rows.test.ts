// Reductions of many short rows on the emulated GPU: one thread per row, through shared memory. Every element size, lengths that are
// padded and that are not, numbers of rows that do not fill the last block. The oracle is the reference device.
import assert from "node:assert/strict";
import { after, before, test } from "node:test";
import { narrowRows } from "../../../compile/index.js";
import * as weft from "../../../index.js";
import { build } from "../../../ops/index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

const usual = narrowRows.rows;
before(() => {
  prepareEmulator();
  narrowRows.rows = 100;
});
after(() => {
  narrowRows.rows = usual;
});

const dtypes = ["uint8", "int32", "int64", "float16", "bfloat16", "float32", "float64", "complex64"] as const;

test("sums of short rows of every element size", { skip }, () => {
  for (const dtype of dtypes) {
    const sizes =
      dtype === "float32"
        ? [
            [257, 17],
            [129, 32],
            [100, 96],
          ]
        : [[257, 18]];
    for (const [rows, columns] of sizes)
      agree(() => {
        const x = data([rows, columns], 1, 100).cast("int32").cast(dtype);
        const sums = weft.jit((t: weft.Tensor) => t.sum(-1))(x);
        return dtype === "complex64" ? weft.real(sums) : sums;
      }, 1e-2);
  }
});

test("several passes, results of the shape of the rows, operands per row and per column", { skip }, () => {
  agree(() => weft.jit((t: weft.Tensor) => weft.softmax(t))(data([300, 50], 1)));
  agree(() => weft.jit((t: weft.Tensor) => weft.softmax(t.cast("bfloat16")).cast("float32"))(data([300, 34], 1)), 1e-2);
  agree(() =>
    weft.jit((t: weft.Tensor, row: weft.Tensor, column: weft.Tensor) => {
      const centered = t.mul(column).sub(row.unsqueeze(1));
      return centered
        .sub(centered.mean(-1, { keepDims: true }))
        .div(centered.square().sum(-1, { keepDims: true }).add(1).sqrt());
    })(data([260, 40], 1), data([260], 2), data([40], 3)),
  );
  agree(() => weft.jit((t: weft.Tensor) => weft.argmax(t, -1))(data([300, 21], 1)));
  agree(() => weft.jit((t: weft.Tensor) => t.sum([2, 3]))(data([20, 13, 5, 7], 1)));
});

test("short rows take one thread each, where they are many", { skip }, () => {
  const gpu = device();
  const sourceOf = (rows: number): string => {
    const x = build.input([rows, 50], "float32", "x");
    return gpu.source({ params: [x], outputs: [build.sum(x, [1])] }, {});
  };
  assert.match(sourceOf(300), /__launch_bounds__\(128\)/);
  assert.doesNotMatch(sourceOf(99), /__launch_bounds__\(128\)/);
});
