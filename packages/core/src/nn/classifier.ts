// A text classifier: embedding, positions (sinusoidal or learned), Transformer encoder, mean over the sequence, linear. The
// model of the data-parallel training study.
import { checkOptions, type DType, ShapeError, showShape, WeftError } from "../graph/index.js";
import type { Key, Tensor } from "../tensor/index.js";
import { keysOf, requireCount } from "./init.js";
import { dropout, type Embedding, embedding, type Linear, linear } from "./layers.js";
import { type Activation, type Encoder, encoder, positions } from "./transformer.js";

/** Parameters of {@link textClassifier}. */
export interface TextClassifier {
  /** Embedding of the token ids. */
  embedding: Embedding;
  /** Learned positions; absent if they are sinusoidal. */
  positions?: Embedding;
  /** The transformer encoder. */
  encoder: Encoder;
  /** Maps the mean of the tokens to one score per class. */
  classifier: Linear;
}

/** Initialization options of {@link textClassifier}. */
export interface TextClassifierInit {
  /** Number of token ids. */
  vocabulary: number;
  /** Width of embeddings and layers. */
  width: number;
  /** Number of attention heads; divides the width. */
  heads: number;
  /** Number of encoder layers. */
  layers: number;
  /** Width of the hidden layer of the feed-forward part. */
  feedForward: number;
  /** Number of classes. */
  classes: number;
  /** "sinusoidal" (default), or "learned": a table of `maxLength` rows. */
  positions?: "sinusoidal" | "learned";
  /** Number of learned positions; required with `positions: "learned"`. */
  maxLength?: number;
  /** Adds a norm after the last layer, as pre-norm encoders need. */
  finalNorm?: boolean;
  /** Dtype of the parameters; float32 by default. */
  dtype?: DType;
}

/** Call options of {@link textClassifier}. @inline */
interface TextClassifierOptions {
  /** Number of attention heads, as at initialization. */
  heads: number;
  /** Activation of the feed-forward part. */
  activation?: Activation;
  /** "post" normalizes after each residual sum, "pre" before each part. */
  norm?: "post" | "pre";
  /** Embeddings of the ids [..., length, width], if they were looked up before, for example to differentiate with respect to them. */
  tokens?: Tensor;
  /** [batch, length], false for padding, which attention and pooling ignore. By default no token is padding. */
  mask?: Tensor;
  /** Dropout rate; needs a key. */
  dropout?: number;
  /** Key of the dropout; null or absent means no dropout. */
  key?: Key | null;
}

/** Mean over the sequence, excluding masked tokens. */
function average(x: Tensor, mask: Tensor | undefined): Tensor {
  if (mask === undefined) return x.mean(-2);
  const weights = mask.cast(x.dtype).unsqueeze(-1);
  return x.mul(weights).sum(-2).div(weights.sum(-2).maximum(1));
}

/** The first rows of the learned table, or sines: [length, width]. */
function positionsOf(params: TextClassifier, length: number, table: Tensor): Tensor {
  const learned = params.positions?.weight;
  if (learned === undefined) return positions(length, table.shape[1], { dtype: table.dtype });
  if (length > learned.shape[0])
    throw new ShapeError(`textClassifier: a sequence of ${length} tokens, learned positions for ${learned.shape[0]}`);
  return learned.index(`0:${length}`);
}

const initNames = [
  ...(["vocabulary", "width", "heads", "layers", "feedForward", "classes"] as const),
  ...(["positions", "maxLength", "finalNorm", "dtype"] as const),
];

/** Transformer text classifier: embedding, positions, encoder, pooling and a linear head. */
export const textClassifier = {
  init(options: TextClassifierInit, key: Key): TextClassifier {
    checkOptions("textClassifier.init", options, initNames);
    const { vocabulary, width, heads, layers, feedForward, finalNorm, classes, dtype, maxLength = 0 } = options;
    const [forTable, forEncoder, forClasses, forPositions] = keysOf(key, 4);
    const { positions: kind = "sinusoidal" } = options;
    if (kind !== "sinusoidal" && kind !== "learned")
      throw new WeftError(`textClassifier.init: positions are "sinusoidal" or "learned", got ${JSON.stringify(kind)}`);
    const learned = kind === "learned";
    if (learned) requireCount("textClassifier.init", "maxLength", maxLength);
    return {
      embedding: embedding.init({ vocabulary, width, dtype }, forTable),
      ...(learned && { positions: embedding.init({ vocabulary: maxLength, width, dtype }, forPositions) }),
      encoder: encoder.init({ width, heads, layers, feedForward, finalNorm, dtype }, forEncoder),
      classifier: linear.init({ in: width, out: classes, dtype }, forClasses),
    };
  },

  /** ids: integers [..., length] -> logits [..., classes]. */
  apply(params: TextClassifier, ids: Tensor, options: TextClassifierOptions): Tensor {
    const optionNames = ["heads", "activation", "norm", "tokens", "mask", "dropout", "key"] as const;
    const {
      mask,
      tokens: given,
      dropout: rate = 0,
      key = null,
      ...layer
    } = checkOptions("textClassifier", options, optionNames);
    if (mask !== undefined && showShape(mask.shape) !== showShape(ids.shape))
      throw new ShapeError(
        `textClassifier: mask ${showShape(mask.shape)} must have the shape of ids ${showShape(ids.shape)}`,
      );
    const [inEncoder, atEnd] = key === null || rate === 0 ? [null, null] : keysOf(key, 2);
    const table = params.embedding.weight;
    const where = positionsOf(params, ids.shape[ids.rank - 1], table);
    const found = given ?? embedding.apply(params.embedding, ids);
    // In mixed precision the table stays in float32 and its rows are cast.
    const tokens = found.add(where).cast(params.classifier.weight.dtype);
    const looked = mask?.cast("bool").unsqueeze(-2).unsqueeze(-3);
    const encoded = encoder.apply(params.encoder, tokens, { ...layer, mask: looked, dropout: rate, key: inEncoder });
    return linear.apply(params.classifier, dropout(average(encoded, mask), { rate, key: atEnd }));
  },
};
