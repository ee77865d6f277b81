// A Llama-shaped causal language model for tests of the planner: RMS norm, rotary positions, grouped queries, SwiGLU.

import type { Tensor } from "@weft/core";
import * as weft from "@weft/core";

/** Sizes of a model. */
export interface LlamaShape {
  layers: number;
  width: number;
  heads: number;
  groups: number;
  hidden: number;
  vocabulary: number;
}

/** Llama 3 8B. */
export const llama8b: LlamaShape = { layers: 32, width: 4096, heads: 32, groups: 8, hidden: 14336, vocabulary: 128256 };

interface Layer {
  norm1: Tensor;
  q: Tensor;
  k: Tensor;
  v: Tensor;
  o: Tensor;
  norm2: Tensor;
  gate: Tensor;
  up: Tensor;
  down: Tensor;
}

export interface Llama {
  embedding: Tensor;
  layers: Layer[];
  norm: Tensor;
  head: Tensor;
}

export function initLlama(shape: LlamaShape, key: Tensor): Llama {
  const { width, heads, groups, hidden, vocabulary } = shape;
  const size = width / heads;
  let next = 0;
  const keys = weft.splitKey(key, 7 * shape.layers + 2);
  const normal = (...dims: number[]): Tensor => weft.randn(dims, { key: keys.index(next++) }).mul(dims[0] ** -0.5);
  const layer = (): Layer => ({
    norm1: weft.ones([width]),
    q: normal(width, width),
    k: normal(width, groups * size),
    v: normal(width, groups * size),
    o: normal(width, width),
    norm2: weft.ones([width]),
    gate: normal(width, hidden),
    up: normal(width, hidden),
    down: normal(hidden, width),
  });
  return {
    embedding: normal(vocabulary, width),
    layers: Array.from({ length: shape.layers }, layer),
    norm: weft.ones([width]),
    head: normal(width, vocabulary),
  };
}

const rms = (x: Tensor, weight: Tensor): Tensor =>
  x.mul(x.square().mean(-1, { keepDims: true }).add(1e-5).rsqrt()).mul(weight);

function rotate(x: Tensor): Tensor {
  const [length, , size] = x.shape.slice(-3);
  const half = size / 2;
  const rates = weft
    .arange(0, half, 1, { dtype: "float32" })
    .mul(-Math.log(10000) / half)
    .exp();
  const angles = weft.arange(0, length, 1, { dtype: "float32" }).unsqueeze(1).mul(rates).unsqueeze(1);
  const [a, b] = [x.index("...", `0:${half}`), x.index("...", `${half}:`)];
  const [cos, sin] = [angles.cos(), angles.sin()];
  return weft.concat([a.mul(cos).sub(b.mul(sin)), b.mul(cos).add(a.mul(sin))], -1);
}

/** Mean cross-entropy of the next token. */
export function llamaLoss(shape: LlamaShape, params: Llama, ids: Tensor): Tensor {
  const { heads, groups, width } = shape;
  const size = width / heads;
  const [batch, length] = ids.shape;
  let x = weft.take(params.embedding, ids, 0);
  for (const p of params.layers) {
    const y = rms(x, p.norm1);
    const split = (t: Tensor, count: number): Tensor => t.reshape([batch, length, count, size]);
    const repeat = (t: Tensor): Tensor =>
      t
        .unsqueeze(3)
        .expand([batch, length, groups, heads / groups, size])
        .reshape([batch, length, heads, size]);
    const q = rotate(split(y.matmul(p.q), heads)).permute([0, 2, 1, 3]);
    const k = repeat(rotate(split(y.matmul(p.k), groups))).permute([0, 2, 3, 1]);
    const v = repeat(split(y.matmul(p.v), groups)).permute([0, 2, 1, 3]);
    const mask = weft.tril(weft.ones([length, length])).equal(0);
    const scores = weft.where(mask, -1e9, q.matmul(k).mul(size ** -0.5));
    const attended = weft.softmax(scores).matmul(v).permute([0, 2, 1, 3]).reshape([batch, length, width]);
    x = x.add(attended.matmul(p.o));
    const z = rms(x, p.norm2);
    x = x.add(weft.silu(z.matmul(p.gate)).mul(z.matmul(p.up)).matmul(p.down));
  }
  const logits = rms(x, params.norm)
    .matmul(params.head)
    .index(":", `0:${length - 1}`);
  return weft.crossEntropy(
    logits.reshape([batch * (length - 1), shape.vocabulary]),
    ids.index(":", "1:").reshape([batch * (length - 1)]),
  );
}
