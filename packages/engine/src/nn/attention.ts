// Multi-head attention as in PyTorch's nn.MultiheadAttention (batch first): one projection matrix [3 width, width] for
// queries, keys and values.
import { type DType, ShapeError, showShape } from "../graph/index.js";
import {
  arange,
  exp,
  type Key,
  max,
  maximum,
  softmax,
  stopGradient,
  type Tensor,
  where,
  zeros,
} from "../tensor/index.js";
import { keysOf, requireCount, requireHeads, requireWidth, xavierUniform } from "./init.js";
import { dropout, type Linear, linear } from "./layers.js";

export interface Attention {
  /** [3 width, width]: the rows of queries, then keys, then values. */
  in_proj_weight: Tensor;
  in_proj_bias: Tensor;
  out_proj: Linear;
}

export interface AttentionInit {
  width: number;
  dtype?: DType;
}

export interface AttentionOptions {
  heads: number;
  /** What keys and values are made of; x itself by default. [..., length, width]. */
  memory?: Tensor;
  /**
   * Broadcasts to [..., heads, queries, keys]. bool: true where a query may look at a key (a query that may look at
   * nothing gets zeros). Float: added to the scores.
   */
  mask?: Tensor;
  /** Dropout of the attention weights; needs a key. */
  dropout?: number;
  key?: Key | null;
}

/** true where position i may look at position j <= i; [length, length]. */
export const causalMask = (length: number): Tensor => {
  const position = arange(0, length, 1, { dtype: "int32" });
  return position.unsqueeze(1).greaterEqual(position.unsqueeze(0));
};

/** Softmax of the last axis over the places where the mask is true; rows without any are zeros. */
function maskedSoftmax(scores: Tensor, mask: Tensor): Tensor {
  const open = where(mask, scores, Number.NEGATIVE_INFINITY);
  const top = stopGradient(max(open, -1, { keepDims: true }));
  const e = where(mask, exp(scores.sub(where(top.isFinite(), top, 0))), 0);
  // The largest open score contributes exp(0) = 1, so the bound acts on closed rows alone.
  return e.div(maximum(e.sum(-1, { keepDims: true }), 0.5));
}

function weightsOf(scores: Tensor, mask: Tensor | undefined): Tensor {
  if (mask === undefined) return softmax(scores);
  return mask.dtype === "bool" ? maskedSoftmax(scores, mask) : softmax(scores.add(mask));
}

/** The projections that the rows [from, to) of the joint matrix make, as [...lead, length, part, heads, size]. */
function project(params: Attention, x: Tensor, heads: number, from: number, to: number): Tensor {
  const width = params.in_proj_weight.shape[1];
  const rows = `${from * width}:${to * width}`;
  const whole = from === 0 && to === 3;
  const joint = linear.apply(
    {
      weight: whole ? params.in_proj_weight : params.in_proj_weight.index(rows),
      bias: whole ? params.in_proj_bias : params.in_proj_bias.index(rows),
    },
    x,
  );
  return joint.reshape([...x.shape.slice(0, -1), to - from, heads, width / heads]);
}

/** One part as [...lead, heads, length, size]. */
function part(projected: Tensor, at: number): Tensor {
  const lead = Array.from({ length: projected.rank - 4 }, (_, i) => i);
  const [length, , heads, size] = projected.shape.slice(-4);
  const n = lead.length;
  return projected
    .index("...", `${at}:${at + 1}`, ":", ":")
    .reshape([...projected.shape.slice(0, n), length, heads, size])
    .permute([...lead, n + 1, n, n + 2]);
}

export const attention = {
  init({ width, dtype = "float32" }: AttentionInit, key: Key): Attention {
    requireCount("attention.init", "width", width);
    const [forInput, forOutput] = keysOf(key, 2);
    return {
      in_proj_weight: xavierUniform([3 * width, width], forInput, dtype),
      in_proj_bias: zeros([3 * width], { dtype }),
      out_proj: {
        weight: linear.init({ in: width, out: width, bias: false, dtype }, forOutput).weight,
        bias: zeros([width], { dtype }),
      },
    };
  },

  /** x: [..., length, width] -> [..., length, width]. */
  apply(params: Attention, x: Tensor, options: AttentionOptions): Tensor {
    const { heads, memory, mask, dropout: rate = 0, key } = options;
    const width = params.in_proj_weight.shape[1];
    requireHeads("attention", width, heads);
    requireWidth("attention", x, width);
    if (x.rank < 2) throw new ShapeError(`attention: x is [..., length, ${width}], got ${showShape(x.shape)}`);
    if (memory !== undefined) requireWidth("attention (memory)", memory, width);
    const own = memory === undefined ? project(params, x, heads, 0, 3) : null;
    const queries = own ?? project(params, x, heads, 0, 1);
    const others = own ?? project(params, memory!, heads, 1, 3);
    const first = own === null ? 0 : 1;
    const [q, k, v] = [part(queries, 0), part(others, first), part(others, first + 1)];
    const scores = q.matmul(k.transpose()).mul(1 / Math.sqrt(width / heads));
    const weights = dropout(weightsOf(scores, mask), { rate, key });
    const n = x.rank - 2;
    const lead = Array.from({ length: n }, (_, i) => i);
    const joined = weights
      .matmul(v)
      .permute([...lead, n + 1, n, n + 2])
      .reshape([...x.shape]);
    return linear.apply(params.out_proj, joined);
  },
};
