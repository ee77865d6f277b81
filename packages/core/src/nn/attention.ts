// Multi-head attention as in PyTorch's nn.MultiheadAttention (batch first): one projection matrix [3 width, width] for
// queries, keys and values.
import { checkOptions, type DType, ShapeError, showShape } from "../graph/index.js";
import { arange, type Key, packedAttention, scaledDotProductAttention, type Tensor, zeros } from "../tensor/index.js";
import { keysOf, requireCount, requireHeads, requireWidth, xavierUniform } from "./init.js";
import { type Linear, linear } from "./layers.js";

/** Parameters of {@link attention}. */
export interface Attention {
  /** `[3 width, width]`: the rows of queries, then keys, then values. */
  in_proj_weight: Tensor;
  /** `[3 width]`: the bias of queries, then keys, then values. */
  in_proj_bias: Tensor;
  /** Output projection of the concatenated heads. */
  out_proj: Linear;
}

/** Initialization options of {@link attention}. @inline */
interface AttentionInit {
  /** Width of queries, keys and values. */
  width: number;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** Call options of {@link attention}. @inline */
interface MultiHeadAttentionOptions {
  /** Number of heads; divides the width. */
  heads: number;
  /** Source of keys and values [..., length, width]; x by default. */
  memory?: Tensor;
  /**
   * Broadcasts to [..., heads, queries, keys]. bool: true where a query may attend to a key (fully masked queries
   * give zeros). Float: added to the scores.
   */
  mask?: Tensor;
  /** Position i attends to positions j <= i only. */
  causal?: boolean;
  /** Dropout of the attention weights; needs a key. */
  dropout?: number;
  /** Key of the dropout; null or absent means no dropout. */
  key?: Key | null;
}

/** Causal attention mask [length, length]: true where position i may attend to position j <= i. */
export const causalMask = (length: number): Tensor => {
  const position = arange(0, length, 1, { dtype: "int32" });
  return position.unsqueeze(1).greaterEqual(position.unsqueeze(0));
};

/** Projects x by the rows [from, to) of the joint projection matrix: [...lead, length, part, heads, size]. */
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

/** Queries, keys or values (one part of the projections) as [...lead, heads, length, size]. */
function part(projected: Tensor, at: number): Tensor {
  const n = projected.rank - 4;
  const [length, , heads, size] = projected.shape.slice(-4);
  return projected
    .index("...", `${at}:${at + 1}`, ":", ":")
    .reshape([...projected.shape.slice(0, n), length, heads, size])
    .transpose(n, n + 1);
}

/** Multi-head self-attention, as torch.nn.MultiheadAttention with batch_first. */
export const attention = {
  init(options: AttentionInit, key: Key): Attention {
    const { width, dtype = "float32" } = checkOptions("attention.init", options, ["width", "dtype"]);
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
  apply(params: Attention, x: Tensor, options: MultiHeadAttentionOptions): Tensor {
    const optionNames = ["heads", "memory", "mask", "causal", "dropout", "key"] as const;
    const { heads, memory, mask, causal, dropout: rate = 0, key } = checkOptions("attention", options, optionNames);
    const width = params.in_proj_weight.shape[1];
    requireHeads("attention", width, heads);
    requireWidth("attention", x, width);
    if (x.rank < 2) throw new ShapeError(`attention: x is [..., length, ${width}], got ${showShape(x.shape)}`);
    if (memory !== undefined) requireWidth("attention (memory)", memory, width);
    const how = { mask, causal, dropout: rate, key };
    let attended: Tensor;
    if (memory === undefined) attended = packedAttention(project(params, x, heads, 0, 3), how);
    else {
      const queries = part(project(params, x, heads, 0, 1), 0);
      const others = project(params, memory, heads, 1, 3);
      const n = x.rank - 2;
      attended = scaledDotProductAttention(queries, part(others, 0), part(others, 1), how).transpose(n, n + 1);
    }
    const joined = attended.reshape([...x.shape]);
    return linear.apply(params.out_proj, joined);
  },
};
