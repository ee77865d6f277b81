// Kernels of text generation on the emulated GPU: attention of one query per head, products with one vector, elements sorted
// without their places.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

interface Case {
  heads: number;
  shared: number;
  keys: number;
  size: number;
  dtype: weft.DType;
  mask?: "bool" | "float" | "heads" | "none";
}
const attentionCases: Case[] = [
  { heads: 4, shared: 2, keys: 37, size: 16, dtype: "bfloat16", mask: "bool" },
  { heads: 3, shared: 3, keys: 300, size: 40, dtype: "float16", mask: "float" },
  { heads: 2, shared: 1, keys: 65, size: 24, dtype: "float32", mask: "heads" },
  { heads: 8, shared: 2, keys: 1100, size: 64, dtype: "bfloat16", mask: "bool" },
  { heads: 2, shared: 1, keys: 1030, size: 32, dtype: "float32", mask: "none" },
  { heads: 8, shared: 1, keys: 1100, size: 64, dtype: "float16", mask: "heads" },
  { heads: 6, shared: 2, keys: 300, size: 64, dtype: "float16", mask: "float" },
  { heads: 2, shared: 1, keys: 1037, size: 128, dtype: "bfloat16", mask: "none" },
];

for (const { heads, shared, keys, size, dtype, mask = "none" } of attentionCases)
  test(`one query: ${heads}/${shared} heads of ${size}, ${keys} keys, ${dtype}, mask ${mask}`, { skip }, () => {
    const log = agree(
      () => {
        const part = (h: number, n: number, seed: number): weft.Tensor => data([2, h, n, size], seed, 2).cast(dtype);
        const [q, k, v] = [part(heads, 1, 1), part(shared, keys, 2), part(shared, keys, 3)];
        const seen = data([2, mask === "heads" ? heads : 1, 1, keys], 4);
        const masks = { bool: seen.greater(-0.2), heads: seen.greater(0.1), float: seen.mul(8), none: undefined };
        const f = weft.jit((...[a, b, c]: weft.Tensor[]) =>
          weft.scaledDotProductAttention(a, b, c, { mask: masks[mask] }),
        );
        return f(q, k, v).cast("float32");
      },
      dtype === "float32" ? 1e-5 : 2e-2,
    );
    assert.ok(log.length > 0);
  });

test("a query that sees no key has zeros, and hidden keys are not read, on tensor cores too", { skip }, () => {
  weft.setDevice(device());
  const [q, k, v] = [data([3, 2, 1, 64], 1), data([3, 2, 90, 64], 2), data([3, 2, 90, 64], 3)].map((x) =>
    x.cast("bfloat16"),
  );
  const index = weft.arange(0, 90, 1, { dtype: "int32" });
  const holed = v.where(index.unsqueeze(1).less(40), Number.NaN);
  const seen = index.less(weft.tensor([0, 40, 7], { dtype: "int32" }).reshape([3, 1, 1, 1]));
  const got = weft.scaledDotProductAttention(q, k, holed, { mask: seen }).cast("float32").dataSync() as Float32Array;
  assert.ok(got.every(Number.isFinite));
  assert.ok(got.subarray(0, 128).every((x) => x === 0) && got.subarray(128).every((x) => x !== 0));
});

test("a query that sees no key has zeros, and hidden keys are not read", { skip }, () => {
  agree(() => {
    const [q, k, v] = [data([1, 2, 1, 8], 1), data([1, 2, 9, 8], 2), data([1, 2, 9, 8], 3)];
    const index = weft.arange(0, 9, 1, { dtype: "int32" });
    return [0, 1, 5].map((count) => weft.scaledDotProductAttention(q, k, v, { mask: index.less(count) }));
  });
});

for (const dtype of ["float32", "float64", "bfloat16", "float16"] as const)
  test(`a vector times a matrix in either order, ${dtype}`, { skip }, () => {
    const close = { float32: 1e-5, float64: 1e-12, bfloat16: 1e-2, float16: 2e-3 }[dtype];
    const log = agree(() => {
      const x = data([1, 72], 1).cast(dtype);
      const [rows, columns] = [data([520, 72], 2).cast(dtype), data([72, 520], 3).cast(dtype)];
      const bias = data([520], 4).cast(dtype);
      const f = weft.jit((a: weft.Tensor, r: weft.Tensor, c: weft.Tensor, b: weft.Tensor) => [
        a.matmul(r.transpose()).add(b),
        weft.relu(a.matmul(c).add(b)),
        weft.gelu(a.matmul(c).add(b), { approximate: true }),
        r.matmul(a.transpose()),
        c.transpose().matmul(a.transpose()),
      ]);
      return f(x, rows, columns, bias).map((y) => y.cast("float64"));
    }, close);
    assert.ok(
      log.includes(`w_vector_columns_${{ float32: "f32", float64: "f64", bfloat16: "bf16", float16: "f16" }[dtype]}`),
    );
  });

test("long rows of a matrix are summed by warps", { skip }, () => {
  agree(() => data([2050, 1032], 1).matmul(data([1032], 2)), 1e-4);
});

for (const n of [5, 700, 8500])
  test(`sorted elements without their order, rows of ${n}`, { skip }, () => {
    const isLong = n > 8192;
    for (const descending of isLong ? [true] : [false, true])
      agree(() => {
        const odd = [Number.NaN, -0, 0, Number.POSITIVE_INFINITY, Number.NEGATIVE_INFINITY];
        const x = weft.concat([data([2, n - odd.length], 5, 9), weft.tensor([odd, odd])], 1);
        const others = isLong ? [] : [x.cast("bfloat16"), x.cast("float64"), data([2, n], 6, 500).cast("int8")];
        return [x, ...others].map((y) => weft.sort(y, -1, { descending }).cast("float64"));
      });
  });
