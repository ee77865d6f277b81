// Attention and products of generation on a real GPU, where libraries take part, against the reference device: biases of every shape
// and their gradients, padding, single queries, a few rows. Half types: the emulated device covers the own kernels in float32.
import assert from "node:assert/strict";
import { test } from "node:test";
import * as weft from "../../index.js";
import { data } from "./emulated/testkit.js";

const skip = weft.CudaDevice.available() ? false : "no GPU";
const device = skip === false ? new weft.CudaDevice() : null;
const dtype = "float16";

/** Runs the same on both devices; elements may differ by a part of the root mean square of a result. */
function agreeOnGpu(name: string, tolerance: number, make: () => weft.Tensor[]): void {
  test(name, { skip }, () => {
    const on = (where: weft.Device): Float32Array[] => {
      weft.setDevice(where);
      return make().map((t) => t.cast("float32").dataSync() as Float32Array);
    };
    const [want, got] = [on(new weft.ReferenceDevice()), on(device!)];
    want.forEach((numbers, k) => {
      const size = Math.sqrt(numbers.reduce((sum, x) => sum + x * x, 0) / numbers.length);
      const worst = Math.max(...numbers.map((x, i) => Math.abs(x - got[k][i]) / size));
      assert.ok(worst <= tolerance, `result ${k}: off by ${worst}`);
    });
  });
}

type Attend = (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor, mask: weft.Tensor) => weft.Tensor;
const attend: Attend = (q, k, v, mask) => weft.scaledDotProductAttention(q, k, v, { mask });
const heads = (count: number, length: number, size: number, seed: number): weft.Tensor =>
  data([2, count, length, size], seed, 3).cast(dtype);
const gradients = (fn: Attend) =>
  weft.jit(
    (...args: [weft.Tensor, weft.Tensor, weft.Tensor, weft.Tensor]) =>
      weft.grad(
        (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor) => fn(q, k, v, args[3]).cast("float32").square().sum(),
        { argument: [0, 1, 2] },
      )(args[0], args[1], args[2]) as unknown as weft.Tensor[],
  );

for (const shape of [[4, 66, 136], [2, 1, 1, 136], [66, 136], [2, 1, 66, 136], [136]])
  for (const bias of [dtype, "float32"] as const)
    agreeOnGpu(`a bias [${shape}] of ${bias} and gradients`, 4e-2, () => {
      const operands = [heads(4, 66, 64, 1), heads(4, 136, 64, 2), heads(4, 136, 64, 3)] as const;
      const added = data(shape, 5, 6).cast(bias);
      return [weft.jit(attend)(...operands, added), ...gradients(attend)(...operands, added)];
    });

const open = (rows: ((key: number) => boolean)[], keys: number): weft.Tensor =>
  weft.tensor(
    rows.map((row) => [[Array.from({ length: keys }, (_, j) => row(j))]]),
    { dtype: "bool" },
  );
agreeOnGpu("padding and gradients, grouped heads", 4e-2, () => {
  const mask = open([(j) => j < 70, (j) => j >= 128 && j % 3 > 0], 200);
  const operands = [heads(4, 200, 64, 1), heads(2, 200, 64, 2), heads(2, 200, 64, 3)] as const;
  return [weft.jit(attend)(...operands, mask), ...gradients(attend)(...operands, mask)];
});

for (const [count, shared, size, keys] of [
  [8, 2, 128, 90],
  [8, 1, 64, 1500],
  [6, 2, 128, 1500],
])
  agreeOnGpu(`one query of ${count}/${shared} heads of ${size}, ${keys} keys`, 1e-2, () => {
    const operands = [heads(count, 1, size, 1), heads(shared, keys, size, 2), heads(shared, keys, size, 3)] as const;
    const mask = open([(j) => j < 70, (j) => j % 3 > 0], keys);
    return [weft.jit(attend)(...operands, mask), weft.jit(attend)(...operands, data([2, 1, 1, keys], 4, 4))];
  });

agreeOnGpu("a few rows times the weights of a linear layer", 1e-2, () =>
  [
    [2, 136, 21],
    [8, 2048, 333],
  ].map(([rows, k, m]) =>
    weft.jit((x: weft.Tensor, w: weft.Tensor) => weft.relu(x.matmul(w.transpose())))(
      data([rows, k], 1, 2).cast(dtype),
      data([m, k], 2, 2).cast(dtype),
    ),
  ),
);
