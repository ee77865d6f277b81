// Basic layers: linear, embedding, layer norm, dropout. A layer is two pure functions: `init` initializes a tree of parameters (names and
// shapes as in PyTorch), `apply` computes with it.
import { checkOptions, type DType, DTypeError, kindOf, ShapeError, showShape } from "../graph/index.js";
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
import { fanInUniform, keysOf, requireCount, requireFlag, requireRate, requireWidth } from "./init.js";

/** Parameters of {@link linear}. */
export interface Linear {
  /** [out, in]. */
  weight: Tensor;
  /** [out]; absent without a bias. */
  bias?: Tensor;
}

/** Initialization options of {@link linear}. @inline */
interface LinearOptions {
  /** Width of the input. */
  in: number;
  /** Width of the output. */
  out: number;
  /** Whether the layer adds a bias; true by default. */
  bias?: boolean;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/**
 * Fully connected layer x W^T + b on the last axis.
 *
 * @example
 * ```ts
 * import { key, ones } from "@weft/core";
 * import * as nn from "@weft/core/nn";
 *
 * const params = nn.linear.init({ in: 3, out: 2 }, key(0));
 * console.log(nn.linear.apply(params, ones([4, 3])).shape); // [4, 2]
 * ```
 */
export const linear = {
  init(options: LinearOptions, key: Key): Linear {
    const optionNames = ["in", "out", "bias", "dtype"] as const;
    const { in: inputs, out, bias = true, dtype = "float32" } = checkOptions("linear.init", options, optionNames);
    requireCount("linear.init", "in", inputs);
    requireCount("linear.init", "out", out);
    requireFlag("linear.init", "bias", bias);
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

/** Parameters of {@link embedding}. */
export interface Embedding {
  /** [vocabulary, width]. */
  weight: Tensor;
}

/** Initialization options of {@link embedding}. @inline */
interface EmbeddingOptions {
  /** Number of rows of the table. */
  vocabulary: number;
  /** Width of a row. */
  width: number;
  /** Dtype of the table; float32 by default. */
  dtype?: DType;
}

/** Embedding table: one row per id. Ids beyond the table are clamped to its last row. */
export const embedding = {
  init(options: EmbeddingOptions, key: Key): Embedding {
    const optionNames = ["vocabulary", "width", "dtype"] as const;
    const { vocabulary, width, dtype = "float32" } = checkOptions("embedding.init", options, optionNames);
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

/** Parameters of {@link layerNorm}. */
export interface LayerNorm {
  /** Factor of the normalized values, [width]. */
  weight: Tensor;
  /** Added after the factor, [width]. */
  bias: Tensor;
}

/** Initialization options of {@link layerNorm}. @inline */
interface LayerNormOptions {
  /** Size of the last axis, which is normalized. */
  width: number;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** Normalizes the last axis to mean 0 and standard deviation 1, then scales and shifts. */
export const layerNorm = {
  init(options: LayerNormOptions): LayerNorm {
    const { width, dtype = "float32" } = checkOptions("layerNorm.init", options, ["width", "dtype"]);
    requireCount("layerNorm.init", "width", width);
    return { weight: ones([width], { dtype }), bias: zeros([width], { dtype }) };
  },

  apply(params: LayerNorm, x: Tensor, options: { epsilon?: number } = {}): Tensor {
    const { epsilon = 1e-5 } = checkOptions("layerNorm", options, ["epsilon"]);
    requireWidth("layerNorm", x, params.weight.shape[0]);
    return normalize(x, { ...params, epsilon });
  },
};

/**
 * Dropout rate, and the key of the mask. Without a key (evaluation) nothing is dropped. With one key per example ([batch, 2] for
 * x [batch, ...]) the mask of an example does not depend on its batch.
 *
 * @inline
 */
export interface DropoutOptions {
  /** Probability that an element becomes zero. */
  rate: number;
  /** The key of the mask; null or absent means no dropout. */
  key?: Key | null;
}

/** The validated dropout mask; null if nothing is dropped. */
function maskOf(op: string, x: Tensor, options: DropoutOptions): Tensor | null {
  const { rate, key } = checkOptions(op, options, ["rate", "key"]);
  requireRate(op, rate);
  if (rate === 0 || key === undefined || key === null) return null;
  const lead = key.rank - 1;
  if (showShape(key.shape.slice(0, lead)) !== showShape(x.shape.slice(0, lead)))
    throw new ShapeError(
      `${op}: keys ${showShape(key.shape)} are one for each of ${showShape(key.shape.slice(0, lead))} examples, but x is ${showShape(x.shape)}; give one key, or one per example of x`,
    );
  return dropoutMask(x.shape.slice(lead), rate, key);
}

/** Sets each element to zero with probability `rate` and scales the others by 1 / (1 - rate). */
export function dropout(x: Tensor, options: DropoutOptions): Tensor {
  const mask = maskOf("dropout", x, options);
  return mask === null ? x : x.mul(keptScale(options.rate)).where(mask, 0);
}

/** Dropout that keeps mean 0 and variance 1 of what `selu` makes, as torch.nn.AlphaDropout. */
export function alphaDropout(x: Tensor, options: DropoutOptions): Tensor {
  const mask = maskOf("alphaDropout", x, options);
  if (mask === null) return x;
  // What selu makes of very negative numbers takes the place of dropped elements.
  const [rate, low] = [options.rate, -1.7580993408473766];
  const scale = 1 / Math.sqrt((1 - rate) * (1 + rate * low * low));
  return x
    .where(mask, low)
    .mul(scale)
    .add(-scale * rate * low);
}

/**
 * dropout(relu(x)) with a gradient that reads only the result: it is positive exactly where the gradient passes, so neither x nor
 * the mask is stored.
 */
export function reluDropout(x: Tensor, options: DropoutOptions): Tensor {
  const mask = maskOf("dropout", x, options);
  if (mask === null) return relu(x);
  const scale = keptScale(options.rate);
  const apply = customVjp(
    (value: Tensor, mask: Tensor): Tensor => relu(value).mul(scale).where(mask, 0),
    (_, result, cotangent) => [cotangent.mul(scale).where(result.greater(0), 0), null],
  );
  return apply(x, mask);
}
