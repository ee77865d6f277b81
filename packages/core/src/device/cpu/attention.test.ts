// Attention without stored scores on the CPU, against the separate operations in float64 on the reference device: forward and gradients,
// masks of all kinds, grouped heads, sizes beside those of tiles, with and without the instructions for bfloat16 products.
import assert from "node:assert/strict";
import { spawnSync } from "node:child_process";
import { test } from "node:test";
import { fileURLToPath } from "node:url";
import * as weft from "../../index.js";
import { CpuDevice } from "./index.js";

const skip = CpuDevice.available() ? false : "no C compiler";
type Tensor = weft.Tensor;
type Options = NonNullable<Parameters<typeof weft.scaledDotProductAttention>[3]>;

const device = skip === false ? new CpuDevice() : null;
const reference = new weft.ReferenceDevice();

interface Case {
  /** [batch, heads, heads of keys, queries, keys, size] */
  shape: [number, number, number, number, number, number];
  options?: () => Options;
  /** Shape of an added mask, which is differentiated. */
  bias?: number[];
}

const numbers = (shape: readonly number[], seed: number, dtype: weft.DType): Tensor =>
  weft.randn([...shape], { seed, dtype: "float32" }).cast(dtype);

/** Result and gradients as float64 numbers; operands are those of `dtype`. */
function computed(on: weft.Device, dtype: weft.DType, { shape, options, bias }: Case): number[][] {
  weft.useDevice(on);
  const [batch, heads, shared, queries, keys, size] = shape;
  const wide = on === reference ? "float64" : dtype;
  const operands = [
    numbers([batch, heads, queries, size], 1, dtype),
    numbers([batch, shared, keys, size], 2, dtype),
    numbers([batch, shared, keys, size], 3, dtype),
    ...(bias === undefined ? [] : [numbers(bias, 4, "float32")]),
  ].map((x, i) => (on === reference || i < 3 ? x.cast(on === reference ? "float64" : wide) : x));
  const w = numbers([batch, heads, queries, size], 5, "bfloat16").cast(on === reference ? "float64" : "float32");
  const attend = (q: Tensor, k: Tensor, v: Tensor, mask?: Tensor): Tensor =>
    weft.scaledDotProductAttention(q, k, v, { ...options?.(), ...(mask !== undefined && { mask }) });
  const program = weft.jit((...x: Tensor[]) => {
    const loss = (...y: Tensor[]): Tensor => attend(y[0], y[1], y[2], y[3]).cast(w.dtype).mul(w).sum();
    const grads = weft.grad(loss, { argument: operands.map((_, i) => i) })(...x) as unknown as Tensor[];
    return [attend(x[0], x[1], x[2], x[3]), ...grads].map((t) => t.cast("float64"));
  });
  return program(...operands).map((t) => Array.from(t.dataSync() as Float64Array));
}

/** Largest difference relative to the largest number. */
function check(name: string, dtype: weft.DType, given: Case, tolerance: number): void {
  const expected = computed(reference, dtype, given);
  const found = computed(device!, dtype, given);
  expected.forEach((numbers, i) => {
    const most = numbers.reduce((top, x) => Math.max(top, Math.abs(x)), 1e-3);
    numbers.forEach((x, at) => {
      const off = Math.abs(found[i][at] - x) / most;
      assert.ok(off <= tolerance, `${name} ${dtype}, result ${i}, number ${at}: ${found[i][at]}, expected ${x}`);
    });
  });
}

const ids = (lengths: number[][]): Tensor =>
  weft.tensor(
    lengths.map((row) => row.flatMap((n, i) => new Array<number>(n).fill(i))),
    { dtype: "int32" },
  );
const lengthsMask = (batch: number, keys: number, lengths: number[]): Tensor =>
  weft
    .arange(0, keys, 1, { dtype: "int32" })
    .unsqueeze(0)
    .less(weft.tensor(lengths, { dtype: "int32" }).unsqueeze(1))
    .reshape([batch, 1, 1, keys]);

const cases: Record<string, Case> = {
  "one tile": { shape: [2, 3, 3, 64, 70, 8] },
  "odd sizes": { shape: [1, 1, 1, 131, 261, 33] },
  "several tiles, causal": { shape: [1, 1, 1, 260, 260, 16], options: () => ({ causal: true }) },
  "more keys than queries": { shape: [1, 1, 1, 60, 530, 4], options: () => ({ causal: true }) },
  "a window": { shape: [1, 1, 1, 290, 290, 4], options: () => ({ causal: true, window: [37, 0] }) },
  "grouped heads": { shape: [2, 4, 2, 65, 70, 5], options: () => ({ causal: true }) },
  "one head of keys": { shape: [1, 2, 1, 20, 300, 64] },
  "lengths of which one is zero": {
    shape: [3, 1, 1, 130, 150, 4],
    options: () => ({ mask: lengthsMask(3, 150, [150, 0, 17]) }),
  },
  segments: {
    shape: [2, 1, 1, 290, 290, 4],
    options: () => ({
      segments: ids([
        [100, 150, 40],
        [1, 280, 9],
      ]),
      causal: true,
    }),
  },
  "an added mask for all": { shape: [2, 1, 1, 70, 140, 4], bias: [70, 140] },
  "an added mask per head, causal": {
    shape: [1, 2, 2, 140, 140, 4],
    bias: [1, 2, 140, 140],
    options: () => ({ causal: true }),
  },
};

for (const [name, given] of Object.entries(cases))
  test(`attention without scores: ${name}`, { skip }, () => {
    check(name, "float32", given, 2e-5);
    check(name, "bfloat16", given, 2e-2);
    check(name, "float16", given, 3e-3);
  });

test("programs have one kernel for attention and one for its gradient, also where it is written by hand", {
  skip,
}, () => {
  weft.useDevice(device!);
  const operands = [1, 2, 3].map((seed) => numbers([2, 4, 80, 16], seed, "float32"));
  const byHand = (q: Tensor, k: Tensor, v: Tensor): Tensor => weft.softmax(q.matmul(k.transpose()).div(4)).matmul(v);
  const step = weft.jit((...x: Tensor[]) =>
    weft.grad((...y: Tensor[]) => byHand(y[0], y[1], y[2]).square().sum(), { argument: [0, 1, 2] })(...x),
  );
  const names = step.kernels(...operands).filter((name) => /^attention|^gemm|^mm/.test(name));
  assert.deepEqual(names, ["attention_2x80x4x16", "attentionGradient_2x80x4x16"]);
});

test("the same without the instructions for bfloat16 products, and without vectors", {
  skip: skip || process.env.WEFT_NO_PAIRS === "1",
}, () => {
  const plain = process.arch === "x64" ? "-mno-avx512f -mno-avx2 -mno-avx" : "";
  const flags = `-O1 ${plain} -DW_NO_BF16`;
  const env = { ...process.env, WEFT_CC_FLAGS: flags, WEFT_NO_PAIRS: "1", NODE_TEST_CONTEXT: undefined };
  const done = spawnSync(process.execPath, ["--test", fileURLToPath(import.meta.url)], { env, encoding: "utf8" });
  assert.equal(done.status, 0, done.stdout.slice(-3000));
});
