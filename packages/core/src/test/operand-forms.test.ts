// Ops that need an operand in memory, with operands that have none: constants, positions, random numbers, values repeated by
// broadcasting, and views of these. Every op takes every form on every device and must give what the reference gives.
import assert from "node:assert/strict";
import { describe, test } from "node:test";
import { device as emulated, prepareEmulator, skip as skipEmulated } from "../device/cuda/emulated/testkit.js";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";

const { CpuDevice, ReferenceDevice } = weft;
type Make = (shape: number[], seed?: number) => Tensor;
const count = (shape: number[]): number => shape.reduce((a, b) => a * b, 1);

/** Operands between -1 and 1, by where their elements come from. */
const forms: Record<string, Make> = {
  memory: (shape, seed = 0) =>
    weft.tensor(Float32Array.from({ length: count(shape) }, (_, i) => Math.sin(3 * i + seed))).reshape(shape),
  constant: (shape) => weft.full(shape, 0.5),
  "folded constant": (shape) => weft.full(shape, 2).mul(0.25).neg(),
  positions: (shape) => weft.arange(count(shape)).reshape(shape).div(count(shape)),
  "positions as they are": (shape) =>
    weft.arange(0, count(shape), 1, { dtype: "float64" }).reshape(shape).cast("float32").mul(0.0625),
  "transposed positions": (shape) =>
    weft
      .arange(count(shape))
      .reshape([...shape].reverse())
      .permute([...shape.keys()].reverse())
      .div(count(shape)),
  "random numbers": (shape, seed = 0) => weft.rand(shape, { seed }),
  "flipped random numbers": (shape, seed = 0) => weft.rand(shape, { seed }).flip(shape.length - 1),
  "one number repeated": (shape) => weft.tensor(0.75).expand(shape),
  "a row repeated": (shape) =>
    weft
      .arange(shape[shape.length - 1])
      .mul(0.1)
      .expand(shape),
  "padded constant": (shape) =>
    weft
      .full([...shape.slice(0, -1), shape[shape.length - 1] - 1], 0.5)
      .pad(shape.map((_, i) => [0, i === shape.length - 1 ? 1 : 0])),
  "joined constants": (shape) =>
    weft.concat(
      [
        weft.full([...shape.slice(0, -1), 1], 0.25),
        weft
          .arange(count([...shape.slice(0, -1), shape[shape.length - 1] - 1]))
          .reshape([...shape.slice(0, -1), -1])
          .mul(0.05),
      ],
      shape.length - 1,
    ),
  "identity rows": (shape) =>
    weft
      .eye(Math.max(...shape))
      .index(`:${shape[shape.length - 2] ?? 1}`, `:${shape[shape.length - 1]}`)
      .reshape(shape.slice(-2))
      .expand(shape),
};

const ids = (values: number[]): Tensor => weft.tensor(values, { dtype: "int32" });
/** Indices without memory. */
const positions = (n: number): Tensor => weft.arange(0, n, 1, { dtype: "int32" });
const solid = (a: Tensor): Tensor => a.add(weft.eye(a.shape[a.shape.length - 1]).mul(5));
const symmetric = (a: Tensor): Tensor => a.add(a.transpose()).add(weft.eye(a.shape[0]).mul(7));
const graded = (a: Tensor): Tensor => a.add(weft.arange(a.shape[0]).add(1).mul(weft.eye(a.shape[0])).mul(8));
const loss = (x: Tensor): Tensor => x.mul(x).sum();

const ops: Record<string, (x: Make) => Tensor | Tensor[]> = {
  take: (x) => [x([5]).take(ids([3, 1])), x([4, 4]).take(ids([3, 1]), 0), x([4, 4]).take(ids([2, 0, 2]), 1)],
  "take at positions": (x) => [x([5]).take(positions(3)), x([4, 4]).take(positions(2).add(1), 0)],
  "take at constants": (x) => [
    x([5]).take(weft.full([3], 2, { dtype: "int32" })),
    x([4, 4]).take(weft.full([2], 1, { dtype: "int32" }), 1),
  ],
  "take of a take": (x) =>
    x([4, 4])
      .take(ids([3, 1]), 0)
      .take(ids([2, 2, 0]), 1),
  "take, then more": (x) =>
    x([4, 4])
      .take(ids([3, 1]), 0)
      .mul(2)
      .sum(1),
  "take of a pad": (x) =>
    x([4, 4])
      .pad([
        [1, 1],
        [0, 2],
      ])
      .take(ids([0, 3, 5]), 0)
      .add(1),
  gather: (x) => weft.gather(x([3, 4]), ids([0, 3, 1, 2, 2, 2]).reshape([3, 2]), 1),
  scatterAdd: (x) => [
    weft.indexAdd(x([4, 4]), ids([1, 1, 3]), x([3, 4], 1), 0),
    weft.scatterAdd(weft.zeros([4]), ids([1, 1, 3]), x([3])),
    weft.scatterAdd(x([6]), positions(3), x([3], 1)),
  ],
  "gradient of take": (x) => weft.grad((u: Tensor) => loss(u.take(ids([3, 1, 1]), 0)))(x([4, 4])) as Tensor,
  "gradient of scatterAdd": (x) => [
    weft.grad((u: Tensor) => weft.scatterAdd(weft.zeros([3]), ids([0, 1, 1]), u).index(1))(x([3])) as Tensor,
    weft.grad((u: Tensor) => loss(weft.scatterAdd(u, ids([0, 1, 1]), x([3], 1))))(x([4])) as Tensor,
  ],
  sort: (x) => [x([7]).sort(), x([3, 4]).sort(0, { descending: true }), x([7]).argsort().cast("float32")],
  topk: (x) => weft.topk(x([3, 5]), 2).values,
  cumsum: (x) => [x([7]).cumsum(), x([3, 4]).cumsum(0)],
  matmul: (x) => [
    x([3, 4]).matmul(x([4, 5], 1)),
    x([2, 3, 4]).matmul(x([4, 2], 1)),
    x([4]).matmul(x([4, 3], 1)),
    x([4, 3])
      .transpose()
      .matmul(x([4, 3], 1)),
    weft.outer(x([3]), x([4], 1)),
  ],
  "matmul with bias": (x) =>
    x([3, 4])
      .matmul(x([4, 5], 1))
      .add(x([5], 2))
      .relu(),
  einsum: (x) => weft.einsum("bij,bjk->bik", x([2, 3, 4]), x([2, 4, 3], 1)),
  conv: (x) => [
    weft.conv1d(x([2, 3, 8]), x([4, 3, 3], 1), { padding: 1 }),
    weft.conv2d(x([1, 2, 6, 6]), x([3, 2, 3, 3], 1)),
  ],
  "gradient of conv": (x) =>
    weft.grad((w: Tensor) => loss(weft.conv2d(x([1, 2, 5, 5]), w, { padding: 1 })))(x([3, 2, 3, 3], 1)) as Tensor,
  solve: (x) => [weft.solve(solid(x([3, 3])), x([3, 2], 1)), weft.solve(solid(x([2, 3, 3])), x([3, 2], 1))],
  triangularSolve: (x) => weft.triangularSolve(solid(x([3, 3])), x([3, 2], 1)),
  cholesky: (x) => weft.cholesky(symmetric(x([3, 3]))),
  "inv and det": (x) => [weft.inv(solid(x([3, 3]))), weft.det(solid(x([3, 3])))],
  "eigh values": (x) => weft.eigh(symmetric(graded(x([3, 3])))).values,
  svd: (x) => weft.svd(graded(x([3, 3]))).s,
  qr: (x) => {
    const { q, r } = weft.qr(graded(x([3, 3])));
    return q.matmul(r);
  },
  expm: (x) => weft.expm(x([3, 3])),
  scan: (x) => {
    const [end, ys] = weft.scan((c: Tensor, v: Tensor) => [c.mul(0.5).add(v), c.sum()], x([4]), x([6, 4], 1));
    return [end, ys as Tensor];
  },
  "scan over matrices": (x) => {
    const w = x([40, 40]);
    const [end] = weft.scan((c: Tensor, v: Tensor) => [w.matmul(c).mul(0.01).add(v), null], x([40]), x([3, 40], 1));
    return end;
  },
  attention: (x) => weft.scaledDotProductAttention(x([2, 2, 5, 8]), x([2, 2, 5, 8], 1), x([2, 2, 5, 8], 2)),
  "masked attention": (x) =>
    weft.scaledDotProductAttention(x([2, 2, 5, 8]), x([2, 2, 5, 8], 1), x([2, 2, 5, 8], 2), {
      mask: weft.tril(weft.ones([5, 5])).greater(0),
    }),
  "vmap of take": (x) => weft.vmap((v: Tensor) => v.take(ids([1, 0])))(x([3, 4])) as Tensor,
  "argmax and index": (x) =>
    x([3, 4])
      .argmax(1)
      .cast("float32")
      .add(x([3])),
  crossEntropy: (x) => weft.crossEntropy(x([3, 4]), positions(3)),
  roll: (x) => [x([7]).roll(2), x([3, 4]).roll(1, 0)],
};

type Outcome = { shape: readonly number[]; data: number[] }[] | string;

function outcome(make: () => Tensor | Tensor[]): Outcome {
  try {
    return tensorsOf(make()).map((t) => ({
      shape: t.shape,
      data: Array.from(t.dataSync() as ArrayLike<number>, Number),
    }));
  } catch (error) {
    return `${(error as Error).name}: ${(error as Error).message.split("\n").slice(0, 3).join(" | ")}`;
  }
}

function difference(got: Outcome, want: Outcome): string | null {
  if (typeof want === "string" || typeof got === "string") return got === want ? null : `${got}, expected ${want}`;
  for (const [k, { data, shape }] of want.entries()) {
    assert.deepEqual(got[k].shape, shape);
    const bad = data.findIndex(
      (x, i) => !(Object.is(x, got[k].data[i]) || Math.abs(x - got[k].data[i]) <= 2e-4 * (1 + Math.abs(x))),
    );
    if (bad >= 0) return `result ${k}, element ${bad}: ${got[k].data[bad]}, expected ${data[bad]}`;
  }
  return null;
}

const tensorsOf = (made: Tensor | Tensor[]): Tensor[] => (Array.isArray(made) ? made : [made]);

/** All forms of an op in one compiled function, which makes its operands itself: one call of the compiler per op. */
function suite(name: string, device: () => unknown, skip: string | false): void {
  describe(`operands without memory on ${name}`, { skip }, () => {
    for (const [op, make] of Object.entries(ops))
      test(op, () => {
        const all = (): Tensor[] => Object.values(forms).flatMap((x) => tensorsOf(make(x)));
        weft.useDevice(new ReferenceDevice());
        const expected = outcome(all);
        assert.ok(typeof expected !== "string", `on the reference device: ${expected}`);
        weft.useDevice(device() as never);
        const each = expected.length / Object.keys(forms).length;
        const found = difference(
          outcome(() => weft.jit(all)()),
          expected,
        );
        assert.equal(found, null, `${each} results per form of ${Object.keys(forms).join(", ")}`);
      });
  });
}

suite("cpu", () => new CpuDevice(), CpuDevice.available() ? false : "no C compiler on this machine");
suite(
  "the emulated GPU",
  () => {
    prepareEmulator();
    return emulated();
  },
  skipEmulated,
);
