// The small layers: linear, embedding, layer norm, dropout. A layer is two plain functions: `init` draws a tree of
// parameters (named and shaped as in PyTorch), `apply` computes with it. Nothing holds state.
import { type DType, DTypeError, kindOf, ShapeError, showShape } from "../graph/index.js";
import { keptScale } from "../ops/index.js";
import {
  customVjp,
  dropoutMask,
  type Key,
  layerNorm as normalize,
  ones,
  randn,
  relu,
  type Tensor,
  zeros,
} from "../tensor/index.js";
import { fanInUniform, keysOf, requireCount, requireRate, requireWidth } from "./init.js";

export interface Linear {
  /** [out, in]. */
  weight: Tensor;
  bias?: Tensor;
}

export interface LinearOptions {
  in: number;
  out: number;
  bias?: boolean;
  dtype?: DType;
}

/** x W^T + b on the last axis. */
export const linear = {
  init(options: LinearOptions, key: Key): Linear {
    const { in: inputs, out, bias = true, dtype = "float32" } = options;
    requireCount("linear.init", "in", inputs);
    requireCount("linear.init", "out", out);
    const [forWeight, forBias] = keysOf(key, 2);
    const weight = fanInUniform([out, inputs], inputs, forWeight, dtype);
    return bias ? { weight, bias: fanInUniform([out], inputs, forBias, dtype) } : { weight };
  },

  apply(params: Linear, x: Tensor): Tensor {
    requireWidth("linear", x, params.weight.shape[1]);
    const product = x.matmul(params.weight.transpose());
    return params.bias === undefined ? product : product.add(params.bias);
  },
};

export interface Embedding {
  /** [vocabulary, width]. */
  weight: Tensor;
}

export interface EmbeddingOptions {
  vocabulary: number;
  width: number;
  dtype?: DType;
}

/** One row of the table for every id. Ids beyond the table are clamped to its last row. */
export const embedding = {
  init(options: EmbeddingOptions, key: Key): Embedding {
    const { vocabulary, width, dtype = "float32" } = options;
    requireCount("embedding.init", "vocabulary", vocabulary);
    requireCount("embedding.init", "width", width);
    return { weight: randn([vocabulary, width], { key, dtype }) };
  },

  apply(params: Embedding, ids: Tensor): Tensor {
    if (kindOf(ids.dtype) !== "int")
      throw new DTypeError(`embedding: ids are integers, got ${ids.dtype}; use ids.cast("int32")`);
    return params.weight.take(ids, 0);
  },
};

export interface LayerNorm {
  weight: Tensor;
  bias: Tensor;
}

export interface LayerNormOptions {
  width: number;
  dtype?: DType;
}

/** Normalizes the last axis to mean 0 and deviation 1, then scales and shifts. */
export const layerNorm = {
  init({ width, dtype = "float32" }: LayerNormOptions): LayerNorm {
    requireCount("layerNorm.init", "width", width);
    return { weight: ones([width], { dtype }), bias: zeros([width], { dtype }) };
  },

  apply(params: LayerNorm, x: Tensor, { epsilon = 1e-5 }: { epsilon?: number } = {}): Tensor {
    requireWidth("layerNorm", x, params.weight.shape[0]);
    return normalize(x, { ...params, epsilon });
  },
};

/**
 * How much to drop, and the key that says what. Without a key (evaluation) nothing is dropped. A key an example
 * ([batch, 2] for x [batch, ...]) drops the same places of an example in whatever batch it is.
 */
export interface DropoutOptions {
  rate: number;
  key?: Key | null;
}

/** The mask of kept elements, after checking; null where nothing is dropped. */
function keptOf(op: string, x: Tensor, { rate, key }: DropoutOptions): Tensor | null {
  requireRate(op, rate);
  if (rate === 0 || key === undefined || key === null) return null;
  const lead = key.rank - 1;
  if (showShape(key.shape.slice(0, lead)) !== showShape(x.shape.slice(0, lead)))
    throw new ShapeError(
      `${op}: keys ${showShape(key.shape)} are one for each of ${showShape(key.shape.slice(0, lead))} examples, x is ${showShape(x.shape)}`,
    );
  return dropoutMask(x.shape.slice(lead), rate, key);
}

/** Zeroes each element with probability `rate` and scales the others so that the mean stays. */
export function dropout(x: Tensor, options: DropoutOptions): Tensor {
  const kept = keptOf("dropout", x, options);
  return kept === null ? x : x.mul(keptScale(options.rate)).where(kept, 0);
}

/**
 * dropout(relu(x)). Its result says by itself what the gradient needs, because it is positive where a positive element
 * was kept: neither x nor the mask is read again.
 */
export function reluDropout(x: Tensor, options: DropoutOptions): Tensor {
  const kept = keptOf("dropout", x, options);
  if (kept === null) return relu(x);
  const scale = keptScale(options.rate);
  const apply = customVjp(
    (value: Tensor, mask: Tensor): Tensor => relu(value).mul(scale).where(mask, 0),
    (_, result, cotangent) => [cotangent.mul(scale).where(result.greater(0), 0), null],
  );
  return apply(x, kept);
}
