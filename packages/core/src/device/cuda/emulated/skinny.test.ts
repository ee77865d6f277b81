// Products of a few rows with the weights of linear layers in half types: an own kernel reads the weights once. Against the reference
// device, which multiplies in float64.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

const halves = ["bfloat16", "float16"] as const;
const uses = (log: readonly string[]): boolean => log.some((name) => name.startsWith("w_skinny_"));

test("a few rows times transposed weights, of sizes that divide nothing", { skip }, () => {
  for (const dtype of halves)
    for (const [rows, k, m] of [
      [2, 8, 16],
      [3, 136, 21],
      [5, 1032, 100],
      [8, 2048, 33],
    ]) {
      const log = agree(
        () =>
          weft
            .jit((x: weft.Tensor, w: weft.Tensor) => x.matmul(w.transpose()).cast("float32"))(
              data([rows, k], 1, 2).cast(dtype),
              data([m, k], 2, 2).cast(dtype),
            )
            .realize(),
        dtype === "bfloat16" ? 2e-2 : 3e-3,
      );
      assert.ok(uses(log), `${dtype} ${rows} x ${k} x ${m}: ${log}`);
    }
});

test("scale, bias and activation are part of it; rows may lie apart", { skip }, () => {
  const log = agree(
    () =>
      weft.jit((x: weft.Tensor, w: weft.Tensor, b: weft.Tensor) => [
        weft.relu(x.index(":4").matmul(w.transpose()).add(b)).cast("float32"),
        weft.gelu(x.matmul(w.transpose()).add(b), { approximate: true }).cast("float32"),
        x.index("::2", "64:").matmul(w.index(":", "64:").transpose()).mul(-0.25).cast("float32"),
      ])(data([8, 256], 1, 2).cast("float16"), data([40, 256], 2, 2).cast("float16"), data([40], 3, 2).cast("float16")),
    5e-3,
  );
  assert.equal(log.filter((name) => name.startsWith("w_skinny_")).length, 3, `${log}`);
});

test("libraries compute more rows, other layouts and other dtypes", { skip }, () => {
  const product = (rows: number, dtype: weft.DType, transposed: boolean): string[] =>
    agree(
      () =>
        weft.jit((x: weft.Tensor, w: weft.Tensor) => x.matmul(transposed ? w.transpose() : w).cast("float32"))(
          data([rows, 64], 1, 2).cast(dtype),
          data([64, 64], 2, 2).cast(dtype),
        ),
      2e-2,
    );
  assert.ok(!uses([...product(9, "bfloat16", true), ...product(4, "bfloat16", false), ...product(4, "float32", true)]));
});
