// Fused attention on the emulated GPU against the ops it stands for: every precision, masks, dropout, tails, gradients;
// and that the scores really are not in memory.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import { four, recognitionCases } from "../recognize.testkit.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

type Options = Parameters<typeof weft.scaledDotProductAttention>[3];

/** The result and the gradients of a program that contains both passes. */
function both(shape: [number, number, number], options: () => Options): weft.Tensor[] {
  const [queries, keys, size] = shape;
  const [q, k, v] = [data([1, 2, queries, size], 1, 3), data([1, 2, keys, size], 2, 3), data([1, 2, keys, size], 3, 3)];
  const w = data([1, 2, queries, size], 4);
  const attend = (...args: weft.Tensor[]): weft.Tensor =>
    weft.scaledDotProductAttention(args[0], args[1], args[2], options());
  const program = weft.jit((...args: weft.Tensor[]) => {
    const loss = (...given: weft.Tensor[]): weft.Tensor =>
      attend(...given)
        .mul(w)
        .sum();
    return [attend(...args), ...(weft.grad(loss, { argument: [0, 1, 2] })(...args) as unknown as weft.Tensor[])];
  });
  return program(q, k, v);
}

const kinds: Record<string, (queries: number, keys: number) => () => Options> = {
  plain: () => () => ({}),
  dropout: () => () => ({ dropout: 0.3, key: weft.key(5) }),
  // The first query may look at nothing.
  "mask of bools": (queries, keys) => () => ({
    mask: data([queries, keys], 9).greater(0.1).logicalAnd(weft.arange(0, queries).unsqueeze(1).greater(0)),
  }),
  "added numbers": (_, keys) => () => ({ mask: data([keys], 9) }),
  // Beside -1e9 the logarithm of a row's sum, which the gradient's kernels read, has no digits left.
  "rows closed by large numbers": (queries) => () => ({
    mask: weft.arange(0, queries).unsqueeze(1).greater(5).cast("float32").mul(-1e9),
  }),
};

/** Queries, keys and the size of a head: wider than 64, where products in float32 go by parts. */
const sizes: Record<string, [number, number, number]> = { dropout: [70, 40, 20], plain: [33, 65, 80] };

for (const [precision, tolerance] of [
  ["float32", 2e-5],
  ["tf32", 2e-3],
  ["bf16", 2e-2],
  ["fp16", 3e-3],
] as const) {
  test(`fused attention in ${precision}: values and gradients`, { skip }, () => {
    for (const [kind, make] of Object.entries(kinds)) {
      // Masks and sums are the same code in every precision.
      if (precision !== "float32" && kind !== "dropout") continue;
      const [queries, keys, size] = sizes[kind] ?? [9, 70, 16];
      const log = agree(() => both([queries, keys, size], () => ({ precision, ...make(queries, keys)() })), tolerance);
      assert.ok(
        log.some((name) => name.endsWith("_k")),
        `${kind}: the fused gradient ran`,
      );
      assert.ok(!log.some((name) => name.startsWith("cublas")), `${kind}: no product outside the kernels`);
    }
  });
}

/** As users write it, [1, heads, length, size]: a mask that repeats over heads, the scale on the scores. */
function byHand(q: weft.Tensor, k: weft.Tensor, v: weft.Tensor, fill: number): weft.Tensor {
  const n = q.shape[2];
  const [i, j] = [weft.arange(0, n).unsqueeze(1), weft.arange(0, k.shape[2]).unsqueeze(0)];
  const scores = q.matmul(k.transpose()).div(Math.sqrt(q.shape[3]));
  return weft.softmax(scores.where(i.greaterEqual(j), fill)).matmul(v);
}

test("attention written by hand runs in the same kernels, in every precision", { skip }, () => {
  for (const [precision, dtype, tolerance] of [
    ["float32", "float32", 2e-5],
    ["tf32", "float32", 2e-3],
    ["bf16", "float32", 2e-2],
    ["float32", "bfloat16", 5e-2],
  ] as const) {
    const log = agree(() => {
      const args = [1, 2, 3].map((seed) => data([1, 2, 70, 16], seed, 3).cast(dtype));
      const w = data([1, 2, 70, 16], 4);
      const attend = (x: weft.Tensor[]): weft.Tensor =>
        weft.withPrecision(precision, () => byHand(x[0], x[1], x[2], Number.NEGATIVE_INFINITY)).cast("float32");
      const program = weft.jit((...x: weft.Tensor[]) => {
        const loss = (...y: weft.Tensor[]): weft.Tensor => attend(y).mul(w).sum();
        const grads = weft.grad(loss, { argument: [0, 1, 2] })(...x) as unknown as weft.Tensor[];
        return [attend(x), ...grads.map((g) => g.cast("float32"))];
      });
      return program(...args);
    }, tolerance);
    assert.equal(log.filter((name) => name.endsWith("_k")).length, 1, `${precision}: the fused gradient ran`);
    assert.ok(!log.some((name) => name.startsWith("cublas")), `${precision}: no product outside the kernels`);
  }
});

test("the kernels agree with the ops on masks, closed rows, shared keys and layouts written by hand", { skip }, () => {
  for (const name of [
    "padding, an example without keys, -1e9: the mean of the values",
    "padding, added",
    "numbers added by distance, and causal",
    "one key and value for all heads",
    "einsum of [batch, length, heads, size]",
  ]) {
    const { attend, shapes = four } = recognitionCases[name];
    const log = agree(() => {
      const args = shapes.map((shape, i) => data(shape, i + 1, 2));
      const program = weft.jit((...x: weft.Tensor[]) => {
        const loss = (...y: weft.Tensor[]): [weft.Tensor, weft.Tensor] => {
          const z = attend(y[0], y[1], y[2]);
          return [z.mul(data([...z.shape], 9)).sum(), z];
        };
        const [[, z], grads] = weft.valueAndGrad(loss, { argument: [0, 1, 2], hasAux: true })(...x);
        return [z, ...(grads as unknown as weft.Tensor[])];
      });
      return program(...args);
    });
    assert.equal(log.filter((kernel) => kernel.endsWith("_k")).length, 1, `${name}: the fused gradient ran`);
    assert.ok(!log.some((kernel) => kernel.startsWith("cublas")), `${name}: no product outside the kernels`);
  }
});

test("half types go through the kernels as they are", { skip }, () => {
  for (const dtype of ["bfloat16", "float16"] as const)
    agree(() => {
      const joint = data([1, 70, 3, 2, 16], 1, 3).cast(dtype);
      const w = data([1, 70, 2, 16], 2);
      const f = (x: weft.Tensor): weft.Tensor =>
        weft.packedAttention(x, { dropout: 0.1, key: weft.key(1) }).cast("float32");
      const g = weft.jit((x: weft.Tensor) => [
        f(x),
        weft
          .grad((y: weft.Tensor) => f(y).mul(w).sum())(x)
          .cast("float32"),
      ]);
      return g(joint);
    }, 3e-2);
});

test("a key an example: the kernel drops what the ops drop, from keys that lie apart", { skip }, () => {
  const log = agree(() => {
    const joint = data([3, 20, 3, 2, 16], 1, 3);
    const w = data([3, 20, 2, 16], 2);
    const f = (x: weft.Tensor): weft.Tensor => {
      // Every second of the keys: rows of two words with a gap between them.
      const key = weft.splitKey(weft.key(7), 6).reshape([3, 2, 2]).index(":", 1, ":");
      return weft.packedAttention(x, { dropout: 0.4, key });
    };
    const g = weft.jit((x: weft.Tensor) => [f(x), weft.grad((y: weft.Tensor) => f(y).mul(w).sum())(x)]);
    return g(joint);
  }, 2e-5);
  assert.ok(
    log.some((name) => name.endsWith("_k")),
    "the fused gradient ran",
  );
  assert.throws(
    () => weft.packedAttention(data([3, 20, 3, 2, 16], 1), { dropout: 0.4, key: weft.splitKey(weft.key(1), 4) }),
    /keys \[4, 2\] are one for each of \[4\] examples/,
  );
});

test("scores are not in memory: one kernel forward, two backward, scratch linear in the length", { skip }, () => {
  weft.setDevice(device());
  const length = 256;
  const program = weft.jit((x: weft.Tensor) => weft.grad((y: weft.Tensor) => weft.packedAttention(y).sum())(x));
  const x = data([1, length, 3, 1, 16], 1);
  const names = program.kernels(x);
  assert.equal(names.filter((name) => name.startsWith("attention_")).length, 1, names.join());
  assert.equal(names.filter((name) => name.startsWith("attentionGradient_")).length, 1, names.join());
  assert.equal(names.filter((name) => name.startsWith("matmul")).length, 0, names.join());
  const before = weft.session().device.memory().usedBytes;
  program(x).dispose();
  const scratch = weft.session().device.memory().usedBytes - before;
  assert.ok(scratch < length * length * 4, `${scratch} bytes more are in use`);
});
