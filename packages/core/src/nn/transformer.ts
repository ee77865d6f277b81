// The Transformer encoder as in PyTorch's nn.TransformerEncoderLayer and nn.TransformerEncoder (batch first), and the
// sinusoidal positions that go with it.
import { checkOptions, type DType, WeftError } from "../graph/index.js";
import { gelu, type Key, type Tensor, tensor } from "../tensor/index.js";
import { type Attention, attention } from "./attention.js";
import { keysOf, requireCount, requireHeads } from "./init.js";
import { type DropoutOptions, dropout, type LayerNorm, type Linear, layerNorm, linear, reluDropout } from "./layers.js";

/** Activation of the hidden layer, followed by dropout. */
const activations = { relu: reluDropout, gelu: (x: Tensor, drop: DropoutOptions) => dropout(gelu(x), drop) };
/** Names of activation functions. */
export type Activation = keyof typeof activations;

/** Parameters of {@link encoderLayer}. */
export interface EncoderLayer {
  /** Self-attention. */
  self_attn: Attention;
  /** First layer of the feed-forward part. */
  linear1: Linear;
  /** Second layer of the feed-forward part. */
  linear2: Linear;
  /** Norm of the attention part. */
  norm1: LayerNorm;
  /** Norm of the feed-forward part. */
  norm2: LayerNorm;
}

/** Initialization options of {@link encoderLayer}. @inline */
interface EncoderLayerInit {
  /** Width of the layer. */
  width: number;
  /** Number of attention heads; divides the width. */
  heads: number;
  /** Width of the hidden layer of the feed-forward part. */
  feedForward: number;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** Call options of {@link encoderLayer} and {@link encoder}. @inline */
interface EncoderLayerOptions {
  /** Number of attention heads, as at initialization. */
  heads: number;
  /** Activation of the feed-forward part. */
  activation?: Activation;
  /** "post" normalizes after each residual sum (PyTorch's default), "pre" before each part. */
  norm?: "post" | "pre";
  /** Added to the variance by the norms. */
  epsilon?: number;
  /** See attention's mask. */
  mask?: Tensor;
  /** Position i attends to positions j <= i only. */
  causal?: boolean;
  /** Dropout of attention weights, hidden units and both residual branches; needs a key. */
  dropout?: number;
  /** Key of the dropout; null or absent means no dropout. */
  key?: Key | null;
}

const layerNames = ["heads", "activation", "norm", "epsilon", "mask", "causal", "dropout", "key"] as const;

const droppers = (key: Key | null | undefined, rate: number, count: number): (Key | null)[] =>
  key === undefined || key === null || rate === 0 ? new Array<null>(count).fill(null) : keysOf(key, count);

/** Transformer encoder layer, as torch.nn.TransformerEncoderLayer with batch_first. */
export const encoderLayer = {
  init(options: EncoderLayerInit, key: Key): EncoderLayer {
    const optionNames = ["width", "heads", "feedForward", "dtype"] as const;
    const { width, heads, feedForward, dtype = "float32" } = checkOptions("encoderLayer.init", options, optionNames);
    requireHeads("encoderLayer.init", width, heads);
    requireCount("encoderLayer.init", "feedForward", feedForward);
    const [forAttention, forFirst, forSecond] = keysOf(key, 3);
    return {
      self_attn: attention.init({ width, dtype }, forAttention),
      linear1: linear.init({ in: width, out: feedForward, dtype }, forFirst),
      linear2: linear.init({ in: feedForward, out: width, dtype }, forSecond),
      norm1: layerNorm.init({ width, dtype }),
      norm2: layerNorm.init({ width, dtype }),
    };
  },

  apply(params: EncoderLayer, x: Tensor, options: EncoderLayerOptions): Tensor {
    checkOptions("encoderLayer", options, layerNames);
    const { heads, activation = "relu", norm = "post", epsilon = 1e-5, mask, causal, dropout: rate = 0, key } = options;
    const activate = activations[activation];
    if (activate === undefined)
      throw new WeftError(
        `encoderLayer: activation "${activation}" is not one of ${Object.keys(activations).join(", ")}`,
      );
    if (norm !== "post" && norm !== "pre") throw new WeftError(`encoderLayer: norm is "post" or "pre", got "${norm}"`);
    const [inAttention, afterAttention, hidden, afterForward] = droppers(key, rate, 4);
    const attend = (t: Tensor): Tensor =>
      dropout(attention.apply(params.self_attn, t, { heads, mask, causal, dropout: rate, key: inAttention }), {
        rate,
        key: afterAttention,
      });
    const forward = (t: Tensor): Tensor => {
      const inner = activate(linear.apply(params.linear1, t), { rate, key: hidden });
      return dropout(linear.apply(params.linear2, inner), { rate, key: afterForward });
    };
    const norm1 = (t: Tensor): Tensor => layerNorm.apply(params.norm1, t, { epsilon });
    const norm2 = (t: Tensor): Tensor => layerNorm.apply(params.norm2, t, { epsilon });
    if (norm === "post") {
      const attended = norm1(x.add(attend(x)));
      return norm2(attended.add(forward(attended)));
    }
    const attended = x.add(attend(norm1(x)));
    return attended.add(forward(norm2(attended)));
  },
};

/** Parameters of {@link encoder}. */
export interface Encoder {
  /** The layers, first to last. */
  layers: EncoderLayer[];
  /** Final norm; present with the option `finalNorm`. */
  norm?: LayerNorm;
}

/** Initialization options of {@link encoder}. @inline */
interface EncoderInit extends EncoderLayerInit {
  /** Number of layers. */
  layers: number;
  /** Adds a norm after the last layer, as pre-norm encoders need. */
  finalNorm?: boolean;
}

/** Stack of transformer encoder layers, as torch.nn.TransformerEncoder. */
export const encoder = {
  init(options: EncoderInit, key: Key): Encoder {
    const optionNames = ["layers", "finalNorm", "width", "heads", "feedForward", "dtype"] as const;
    const { layers, finalNorm = false, ...layer } = checkOptions("encoder.init", options, optionNames);
    requireCount("encoder.init", "layers", layers);
    const made = keysOf(key, layers).map((k) => encoderLayer.init(layer, k));
    return finalNorm
      ? { layers: made, norm: layerNorm.init({ width: layer.width, dtype: layer.dtype }) }
      : { layers: made };
  },

  apply(params: Encoder, x: Tensor, options: EncoderLayerOptions): Tensor {
    checkOptions("encoder", options, layerNames);
    const keys = droppers(options.key, options.dropout ?? 0, params.layers.length);
    let state = x;
    params.layers.forEach((layer, i) => {
      state = encoderLayer.apply(layer, state, { ...options, key: keys[i] });
    });
    return params.norm === undefined ? state : layerNorm.apply(params.norm, state, { epsilon: options.epsilon });
  },
};

/**
 * Sinusoidal position encodings [length, width]: sines in even columns, cosines in odd ones, wavelengths from 2 pi to
 * 10000 x 2 pi.
 */
export function positions(length: number, width: number, options: { dtype?: DType } = {}): Tensor {
  checkOptions("positions", options, ["dtype"]);
  requireCount("positions", "length", length);
  requireCount("positions", "width", width);
  const table = new Float64Array(length * width);
  for (let column = 0; column < width; column++) {
    const frequency = 10000 ** (-(column - (column % 2)) / width);
    for (let row = 0; row < length; row++)
      table[row * width + column] = column % 2 === 0 ? Math.sin(row * frequency) : Math.cos(row * frequency);
  }
  return tensor(table, { shape: [length, width], dtype: options.dtype ?? "float32" });
}
