// Causal masks, windows and grouped queries on the emulated GPU against the ops: values and gradients, lengths that are no
// multiple of a tile, and that masked tiles are skipped in the kernels rather than read from a mask in memory.
import assert from "node:assert/strict";
import { before, test } from "node:test";
import * as weft from "../../../index.js";
import * as nn from "../../../nn/index.js";
import { agree, data, device, prepareEmulator, skip } from "./testkit.js";

before(prepareEmulator);

type Options = Parameters<typeof weft.scaledDotProductAttention>[3];
interface Sizes {
  heads?: [number, number];
  queries: number;
  keys: number;
  size?: number;
}

/** Result and gradients of a function of queries, keys and values. */
function both(
  { heads = [2, 2], queries, keys, size = 16 }: Sizes,
  attend: (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor) => weft.Tensor,
): weft.Tensor[] {
  const q = data([2, heads[0], queries, size], 1, 2);
  const [k, v] = [data([2, heads[1], keys, size], 2, 2), data([2, heads[1], keys, size], 3, 2)];
  const w = data([2, heads[0], queries, size], 4);
  const program = weft.jit((...args: weft.Tensor[]) => {
    const loss = (...given: weft.Tensor[]): weft.Tensor => attend(given[0], given[1], given[2]).mul(w).sum();
    return [
      attend(args[0], args[1], args[2]),
      ...(weft.grad(loss, { argument: [0, 1, 2] })(...args) as unknown as weft.Tensor[]),
    ];
  });
  return program(q, k, v);
}

/** The CUDA C of the first program with attention, without compiling it. */
function sourceOf(run: () => weft.Tensor[]): string {
  const gpu = device();
  weft.setDevice(gpu);
  weft.session().forgetCompiled();
  const compile = gpu.compile.bind(gpu);
  let source = "";
  gpu.compile = (fn, options) => {
    source = gpu.source(fn, options);
    if (!source.includes("_config")) return compile(fn, options);
    throw new Error("seen");
  };
  try {
    assert.throws(() => run()[0].dataSync(), /seen/);
  } finally {
    gpu.compile = compile;
  }
  return source;
}

const indices = (queries: number, keys: number): [weft.Tensor, weft.Tensor] => [
  weft.arange(0, queries).unsqueeze(1),
  weft.arange(0, keys).unsqueeze(0),
];

const cases: Record<string, [Sizes, () => Options]> = {
  causal: [{ queries: 130, keys: 130 }, () => ({ causal: true })],
  "causal, more keys": [{ queries: 70, keys: 200 }, () => ({ causal: true })],
  "causal, more queries": [{ queries: 200, keys: 70 }, () => ({ causal: true })],
  "causal, bottom right": [
    { queries: 66, keys: 131 },
    () => ({ mask: indices(66, 131)[1].lessEqual(indices(66, 131)[0].add(65)) }),
  ],
  "one query": [{ queries: 1, keys: 67 }, () => ({ window: [0, 66] })],
  window: [{ queries: 150, keys: 150 }, () => ({ causal: true, window: 40 })],
  "window on both sides": [{ queries: 129, keys: 140 }, () => ({ window: [70, 3] })],
  "window that some queries leave": [{ queries: 150, keys: 60 }, () => ({ window: [10, 5] })],
  "grouped queries": [{ heads: [6, 2], queries: 65, keys: 70 }, () => ({})],
  "one head of keys, causal": [{ heads: [3, 1], queries: 130, keys: 130 }, () => ({ causal: true })],
  "causal with padding": [
    { queries: 70, keys: 70 },
    () => ({ mask: nn.causalMask(70).logicalAnd(data([2, 1, 1, 70], 7).greater(-0.5)) }),
  ],
  "causal with added numbers": [{ queries: 70, keys: 70 }, () => ({ causal: true, mask: data([70], 9) })],
  "causal with dropout": [{ queries: 70, keys: 70 }, () => ({ causal: true, dropout: 0.25, key: weft.key(3) })],
};

for (const [name, [sizes, options]] of Object.entries(cases))
  test(`fused attention: ${name}`, { skip }, () => {
    const log = agree(() => both(sizes, (q, k, v) => weft.scaledDotProductAttention(q, k, v, options())), 2e-5);
    assert.ok(
      log.some((kernel) => kernel.endsWith("_k")),
      "the fused gradient ran",
    );
  });

test("causal masks in every form run kernels without a mask in memory", { skip }, () => {
  const n = 70;
  const [i, j] = indices(n, n);
  const scores = (q: weft.Tensor, k: weft.Tensor): weft.Tensor => q.matmul(k.transpose()).mul(0.25);
  const forms: Record<string, (q: weft.Tensor, k: weft.Tensor, v: weft.Tensor) => weft.Tensor> = {
    option: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { causal: true }),
    causalMask: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: nn.causalMask(n) }),
    "added numbers": (q, k, v) =>
      weft.scaledDotProductAttention(q, k, v, { mask: weft.zeros([n, n]).where(i.greaterEqual(j), -1e9) }),
    where: (q, k, v) => weft.softmax(scores(q, k).where(i.greaterEqual(j), Number.NEGATIVE_INFINITY)).matmul(v),
    "where with a number": (q, k, v) => weft.softmax(scores(q, k).where(i.greaterEqual(j), -1e9)).matmul(v),
    tril: (q, k, v) =>
      weft.softmax(scores(q, k).where(weft.tril(weft.ones([n, n])).equal(1), Number.NEGATIVE_INFINITY)).matmul(v),
    triu: (q, k, v) =>
      weft.softmax(scores(q, k).add(weft.triu(weft.full([n, n], -1e9)).where(j.greater(i), 0))).matmul(v),
  };
  for (const [name, attend] of Object.entries(forms)) {
    const source = sourceOf(() => both({ queries: n, keys: n }, attend));
    assert.match(source, /UPPER = 0;/, `${name}: the kernel knows the band`);
    assert.match(source, /MASK = 0;/, `${name}: no mask in memory`);
  }
});
