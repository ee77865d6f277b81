// Attention as users write it, in every form that must be found, and programs that only look like it.
import assert from "node:assert/strict";
import * as weft from "../../index.js";
import * as nn from "../../nn/index.js";
import type { Device } from "../contract.js";
import { data } from "./emulated/testkit.js";

type Tensor = weft.Tensor;
export type Attend = (q: Tensor, k: Tensor, v: Tensor) => Tensor;

export interface RecognitionCase {
  attend: Attend;
  /** Shapes of queries, keys and values. */
  shapes?: [number[], number[], number[]];
  /** How many scores there are, where it is not as many as in the first. */
  scores?: number;
  dtype?: weft.DType;
  tolerance?: number;
}

export const [batch, heads, length, keys, size] = [2, 3, 36, 40, 4];
export const four: [number[], number[], number[]] = [
  [batch, heads, length, size],
  [batch, heads, keys, size],
  [batch, heads, keys, size],
];
export const square: [number[], number[], number[]] = [
  [batch, heads, keys, size],
  [batch, heads, keys, size],
  [batch, heads, keys, size],
];
const root = Math.sqrt(size);
export const scored = (q: Tensor, k: Tensor): Tensor => q.matmul(k.transpose()).div(root);
const position = (n: number): Tensor => weft.arange(0, n, 1, { dtype: "int32" });
export const causal = (): Tensor => position(keys).unsqueeze(1).greaterEqual(position(keys).unsqueeze(0));
/** Two examples of different length, a value an example and key: data, so nobody knows that no row is closed. */
const padding = (lengths = [40, 17]): Tensor =>
  position(keys)
    .unsqueeze(0)
    .less(weft.tensor(lengths, { dtype: "int32" }).unsqueeze(1))
    .reshape([batch, 1, 1, keys]);

/** Result and gradients of a form on a device, and the kernels that they took there. */
export function differentiated(
  { attend, shapes = four, dtype = "float32" }: RecognitionCase,
  device: Device,
): { results: number[][]; kernels: string[] } {
  weft.useDevice(device);
  const args = shapes.map((shape, i) => data(shape, i + 1, 2).cast(dtype));
  for (const x of args) x.dataSync();
  const argument = shapes[1].length === 1 ? [0] : [0, 1, 2];
  const loss = (...x: Tensor[]): [Tensor, Tensor] => {
    const y = attend(x[0], x[1], x[2]).cast("float32");
    return [y.mul(data([...y.shape], 9)).sum(), y];
  };
  const program = weft.jit((...x: Tensor[]): Tensor[] => {
    const [[, y], grads] = weft.valueAndGrad(loss, { argument, hasAux: true })(...x);
    return [y, ...(grads as unknown as Tensor[]).map((g) => g.cast("float32"))];
  });
  const results = program(...args).map((t) => Array.from(t.dataSync() as ArrayLike<number>, Number));
  return { results, kernels: program.kernels(...args) };
}

export function assertClose(got: number[][], want: number[][], tolerance: number): void {
  got.forEach((numbers, k) => {
    assert.equal(numbers.length, want[k].length);
    numbers.forEach((value, i) => {
      const expected = want[k][i];
      const equal = Object.is(value, expected) || Math.abs(value - expected) <= tolerance * (1 + Math.abs(expected));
      assert.ok(equal, `result ${k}, element ${i}: ${value}, expected ${expected}`);
    });
  });
}

export const byHand = (s: Tensor): Tensor => {
  const e = s.sub(s.max(-1, { keepDims: true })).exp();
  return e.div(e.sum(-1, { keepDims: true }));
};

export const recognitionCases: Record<string, RecognitionCase> = {
  "q k^T / sqrt(d)": { attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v) },
  "no scale": { attend: (q, k, v) => weft.softmax(q.matmul(k.transpose())).matmul(v) },
  "scale on the scores": { attend: (q, k, v) => weft.softmax(q.matmul(k.transpose()).mul(0.3)).matmul(v) },
  "scale on q": { attend: (q, k, v) => weft.softmax(q.mul(1 / root).matmul(k.transpose())).matmul(v) },
  "scale on k": { attend: (q, k, v) => weft.softmax(q.matmul(k.div(root).transpose())).matmul(v) },
  "scale on both": { attend: (q, k, v) => weft.softmax(q.mul(0.7).matmul(k.transpose().mul(0.7))).matmul(v) },
  "a scale that is data": {
    attend: (q, k, v) =>
      weft.softmax(q.matmul(k.transpose()).mul(weft.tensor([0.2, 0.4, 0.6]).reshape([3, 1, 1]))).matmul(v),
  },
  "a scale that is data, inside a mask": {
    shapes: square,
    attend: (q, k, v) => {
      const scale = weft.tensor([0.2, 0.4, 0.6]).reshape([3, 1, 1]);
      return weft.softmax(q.matmul(k.transpose()).div(scale).where(causal(), -1e9)).matmul(v);
    },
  },
  "permute instead of transpose": {
    attend: (q, k, v) => weft.softmax(q.matmul(k.permute([0, 1, 3, 2])).div(root)).matmul(v),
  },
  einsum: {
    attend: (q, k, v) =>
      weft.einsum("bhqk,bhkd->bhqd", weft.softmax(weft.einsum("bhqd,bhkd->bhqk", q, k).div(root)), v),
  },
  "einsum the other way round": {
    attend: (q, k, v) =>
      weft.einsum("bhkd,bhqk->bhqd", v, weft.softmax(weft.einsum("bhkd,bhqd->bhqk", k, q).div(root))),
  },
  "einsum of [batch, length, heads, size]": {
    shapes: [
      [batch, length, heads, size],
      [batch, keys, heads, size],
      [batch, keys, heads, size],
    ],
    attend: (q, k, v) =>
      weft.einsum("bqhk,bkhd->bqhd", weft.softmax(weft.einsum("bqhd,bkhd->bqhk", q, k).div(root)), v),
  },
  "softmax by hand": { attend: (q, k, v) => byHand(scored(q, k)).matmul(v) },
  "softmax by hand, the scores computed twice": {
    attend: (q, k, v) => {
      const s = scored(q, k);
      const e = s.sub(scored(q, k).max(-1).unsqueeze(-1)).exp();
      return e.mul(e.sum(-1, { keepDims: true }).reciprocal()).matmul(v);
    },
  },
  "softmax by hand, no shift": {
    attend: (q, k, v) => {
      const e = scored(q, k).exp();
      return e.div(e.sum(-1, { keepDims: true })).matmul(v);
    },
  },
  "softmax by hand, the shift a constant": {
    attend: (q, k, v) => {
      const s = scored(q, k);
      const e = s.sub(weft.stopGradient(s.max(-1, { keepDims: true }))).exp();
      return e.div(e.sum(-1, { keepDims: true })).matmul(v);
    },
  },
  "causal, -inf": {
    shapes: square,
    attend: (q, k, v) => weft.softmax(scored(q, k).where(causal(), Number.NEGATIVE_INFINITY)).matmul(v),
  },
  "causal, -1e9, before the scale": {
    shapes: square,
    attend: (q, k, v) => weft.softmax(q.matmul(k.transpose()).where(causal(), -1e9).mul(0.5)).matmul(v),
  },
  "causal, closed where true, softmax by hand": {
    shapes: square,
    attend: (q, k, v) => byHand(weft.where(causal().logicalNot(), Number.NEGATIVE_INFINITY, scored(q, k))).matmul(v),
  },
  "causal, added": {
    shapes: square,
    attend: (q, k, v) => weft.softmax(scored(q, k).add(weft.where(causal(), 0, Number.NEGATIVE_INFINITY))).matmul(v),
  },
  "padding, -inf": {
    attend: (q, k, v) => weft.softmax(scored(q, k).where(padding(), Number.NEGATIVE_INFINITY)).matmul(v),
  },
  "padding, -1e9": { attend: (q, k, v) => weft.softmax(scored(q, k).where(padding(), -1e9)).matmul(v) },
  "padding, an example without keys, -1e9: the mean of the values": {
    attend: (q, k, v) => weft.softmax(scored(q, k).where(padding([40, 0]), -1e9)).matmul(v),
  },
  "padding, added": {
    attend: (q, k, v) => weft.softmax(scored(q, k).add(padding().cast("float32").sub(1).mul(1e9))).matmul(v),
  },
  "padding, subtracted": {
    attend: (q, k, v) => weft.softmax(scored(q, k).sub(padding().logicalNot().cast("float32").mul(1e9))).matmul(v),
  },
  "causal and padding": {
    shapes: square,
    attend: (q, k, v) =>
      weft.softmax(scored(q, k).where(causal().logicalAnd(padding()), Number.NEGATIVE_INFINITY)).matmul(v),
  },
  "causal, then padding": {
    shapes: square,
    attend: (q, k, v) => weft.softmax(scored(q, k).where(causal(), -1e9).where(padding(), -1e9)).matmul(v),
  },
  "numbers added by distance, and causal": {
    shapes: square,
    attend: (q, k, v) => {
      const slope = weft.tensor([0.5, 0.25, 0.125]).reshape([heads, 1, 1]);
      const distance = position(keys).unsqueeze(0).sub(position(keys).unsqueeze(1)).cast("float32");
      return weft.softmax(scored(q, k).add(distance.mul(slope)).where(causal(), -1e30)).matmul(v);
    },
  },
  "two dimensions": {
    scores: length * keys,
    shapes: [
      [length, size],
      [keys, size],
      [keys, size],
    ],
    attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "three dimensions": {
    shapes: [
      [6, length, size],
      [6, keys, size],
      [6, keys, size],
    ],
    attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "five dimensions": {
    shapes: [
      [2, 1, 3, length, size],
      [2, 1, 3, keys, size],
      [2, 1, 3, keys, size],
    ],
    attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "one key and value for all heads": {
    shapes: [
      [batch, heads, length, size],
      [batch, 1, keys, size],
      [batch, 1, keys, size],
    ],
    attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "one key and value for everything": {
    scores: heads * length * keys,
    shapes: [
      [heads, length, size],
      [keys, size],
      [keys, size],
    ],
    attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "batch and heads joined for the products": {
    attend: (q, k, v) => {
      const join = (x: Tensor): Tensor => x.reshape([batch * heads, x.shape[2], size]);
      const s = join(q).matmul(join(k).transpose()).reshape([batch, heads, length, keys]);
      const p = weft.softmax(s.where(padding(), Number.NEGATIVE_INFINITY)).reshape([batch * heads, length, keys]);
      return p.matmul(join(v)).reshape([batch, heads, length, size]);
    },
  },
  "split from one tensor": {
    shapes: [[batch, keys, 3 * heads * size], [1], [1]],
    attend: (x) => {
      const part = (i: number): Tensor =>
        x
          .index(":", ":", `${i * heads * size}:${(i + 1) * heads * size}`)
          .reshape([batch, keys, heads, size])
          .transpose(1, 2);
      return weft
        .softmax(scored(part(0), part(1)))
        .matmul(part(2))
        .transpose(1, 2)
        .reshape([batch, keys, heads * size]);
    },
  },
  vmap: { attend: weft.vmap(weft.vmap((q: Tensor, k: Tensor, v: Tensor) => weft.softmax(scored(q, k)).matmul(v))) },
  "vmap with a mask": {
    attend: (q, k, v) =>
      weft.vmap((a: Tensor, b: Tensor, c: Tensor, m: Tensor) =>
        weft.softmax(scored(a, b).where(m, Number.NEGATIVE_INFINITY)).matmul(c),
      )(q, k, v, padding()),
  },
  "vmap with one query for all": {
    shapes: [
      [length, size],
      [6, keys, size],
      [6, keys, size],
    ],
    attend: (q, k, v) =>
      weft.vmap((a: Tensor, b: Tensor, c: Tensor) => weft.softmax(scored(a, b)).matmul(c), { inAxes: [null, 0, 0] })(
        q,
        k,
        v,
      ),
  },
  "vmap with one key and value for all": {
    shapes: [
      [6, length, size],
      [keys, size],
      [keys, size],
    ],
    attend: (q, k, v) =>
      weft.vmap((a: Tensor, b: Tensor, c: Tensor) => weft.softmax(scored(a, b)).matmul(c), { inAxes: [0, null, null] })(
        q,
        k,
        v,
      ),
  },
  dropout: { attend: (q, k, v) => nn.dropout(weft.softmax(scored(q, k)), { rate: 0.3, key: weft.key(3) }).matmul(v) },
  "dropout with a key an example, and a mask": {
    attend: (q, k, v) => {
      const p = weft.softmax(scored(q, k).where(padding(), Number.NEGATIVE_INFINITY));
      return nn.dropout(p, { rate: 0.1, key: weft.splitKey(weft.key(3), batch) }).matmul(v);
    },
  },
  checkpoint: {
    attend: (q, k, v) => weft.checkpoint((...x: Tensor[]) => weft.softmax(scored(x[0], x[1])).matmul(x[2]))(q, k, v),
  },
  tf32: { attend: (q, k, v) => weft.withPrecision("tf32", () => weft.softmax(scored(q, k)).matmul(v)) },
  bfloat16: { dtype: "bfloat16", tolerance: 5e-2, attend: (q, k, v) => weft.softmax(scored(q, k)).matmul(v) },
  "float16, softmax in float32": {
    dtype: "float16",
    tolerance: 1e-2,
    attend: (q, k, v) => weft.softmax(scored(q, k).cast("float32")).cast("float16").matmul(v),
  },
};

type Left = (q: Tensor, k: Tensor, v: Tensor) => Tensor | Tensor[];
export const leftAlone: Record<string, { run: Left; shapes?: [number[], number[], number[]] }> = {
  "the weights are returned too": {
    run: (q, k, v) => {
      const p = weft.softmax(scored(q, k));
      return [p.matmul(v), p];
    },
  },
  "the scores are used elsewhere": {
    run: (q, k, v) => {
      const s = scored(q, k);
      return weft.softmax(s).matmul(v).sum().add(s.square().mean());
    },
  },
  "the sum of the weights is used elsewhere": {
    run: (q, k, v) => {
      const e = scored(q, k).exp();
      const total = e.sum(-1, { keepDims: true });
      return [e.div(total).matmul(v), total];
    },
  },
  "softmax over the queries": { shapes: square, run: (q, k, v) => weft.softmax(scored(q, k), -2).matmul(v) },
  "the sum over the queries": {
    shapes: square,
    run: (q, k, v) => {
      const e = scored(q, k).exp();
      return e.div(e.sum(-2, { keepDims: true })).matmul(v);
    },
  },
  "the weights of a product the other way round": {
    shapes: square,
    run: (q, k, v) => weft.softmax(scored(q, k)).transpose().matmul(v),
  },
  "a shift by another value": {
    shapes: square,
    run: (q, k, v) => {
      const s = scored(q, k);
      const e = s.sub(s.max(-2, { keepDims: true })).exp();
      return e.div(e.sum(-1, { keepDims: true })).matmul(v);
    },
  },
  "values of another size": {
    shapes: [four[0], four[1], [batch, heads, keys, size + 1]],
    run: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "heads larger than the kernel's": {
    shapes: [
      [1, 3, 160],
      [1, 5, 160],
      [1, 5, 160],
    ],
    run: (q, k, v) => weft.softmax(scored(q, k)).matmul(v),
  },
  "values made of the scores": {
    shapes: square,
    run: (q, k, v) => {
      const s = scored(q, k);
      return weft.softmax(s).matmul(v.add(s.sum(-1, { keepDims: true }).mul(0.01)));
    },
  },
  "a fill that closes nothing": {
    shapes: square,
    run: (q, k, v) => weft.softmax(scored(q, k).where(causal(), -1)).matmul(v),
  },
  "weights masked after softmax": {
    shapes: square,
    run: (q, k, v) => weft.softmax(scored(q, k)).where(causal(), 0).matmul(v),
  },
  "dropout of another kind": {
    run: (q, k, v) =>
      weft
        .softmax(scored(q, k))
        .div(0.7)
        .where(weft.rand([batch, heads, length, keys], { key: weft.key(1) }).less(0.7), 0)
        .matmul(v),
  },
  "a sum of sums without an end": {
    run: (q, k, v) => {
      let s = q.sum(-1, { keepDims: true }).add(k.sum(-1).unsqueeze(-2)).mul(1e-9);
      for (let i = 0; i < 30; i++) s = s.add(s);
      return weft.softmax(s).matmul(v);
    },
  },
  "an activation in between": { run: (q, k, v) => weft.softmax(scored(q, k).tanh()).matmul(v) },
  "two products of different precision": {
    run: (q, k, v) => weft.softmax(q.matmul(k.transpose(), { precision: "tf32" })).matmul(v),
  },
  float64: { run: (q, k, v) => weft.softmax(scored(q.cast("float64"), k.cast("float64"))).matmul(v.cast("float64")) },
  integers: {
    run: (q, k, v) =>
      weft
        .softmax(q.mul(9).cast("int32").matmul(k.mul(9).cast("int32").transpose()).cast("float32").mul(0.02))
        .matmul(v),
  },
};
