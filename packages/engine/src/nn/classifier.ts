// A text classifier: embedding, sinusoidal positions, Transformer encoder, mean over the sequence, linear. The model of
// the data-parallel training study.
import { type DType, ShapeError, showShape } from "../graph/index.js";
import type { Key, Tensor } from "../tensor/index.js";
import { keysOf } from "./init.js";
import { dropout, type Embedding, embedding, type Linear, linear } from "./layers.js";
import { type Activation, type Encoder, encoder, positions } from "./transformer.js";

export interface TextClassifier {
  embedding: Embedding;
  encoder: Encoder;
  classifier: Linear;
}

export interface TextClassifierInit {
  vocabulary: number;
  width: number;
  heads: number;
  layers: number;
  feedForward: number;
  classes: number;
  dtype?: DType;
}

export interface TextClassifierOptions {
  heads: number;
  activation?: Activation;
  norm?: "post" | "pre";
  /** [batch, length], true for real tokens: padding is neither looked at nor averaged. Without it every token counts. */
  mask?: Tensor;
  dropout?: number;
  key?: Key | null;
}

/** The mean over the sequence, of the real tokens alone where there is a mask. */
function average(x: Tensor, mask: Tensor | undefined): Tensor {
  if (mask === undefined) return x.mean(-2);
  const weights = mask.cast(x.dtype).unsqueeze(-1);
  return x.mul(weights).sum(-2).div(weights.sum(-2).maximum(1));
}

export const textClassifier = {
  init(options: TextClassifierInit, key: Key): TextClassifier {
    const { vocabulary, width, classes, dtype } = options;
    const [forTable, forEncoder, forClasses] = keysOf(key, 3);
    return {
      embedding: embedding.init({ vocabulary, width, dtype }, forTable),
      encoder: encoder.init(options, forEncoder),
      classifier: linear.init({ in: width, out: classes, dtype }, forClasses),
    };
  },

  /** ids: integers [..., length] -> logits [..., classes]. */
  apply(params: TextClassifier, ids: Tensor, options: TextClassifierOptions): Tensor {
    const { mask, dropout: rate = 0, key = null, ...layer } = options;
    if (mask !== undefined && showShape(mask.shape) !== showShape(ids.shape))
      throw new ShapeError(
        `textClassifier: mask ${showShape(mask.shape)} must have the shape of ids ${showShape(ids.shape)}`,
      );
    const [inEncoder, atEnd] = key === null || rate === 0 ? [null, null] : keysOf(key, 2);
    const table = params.embedding.weight;
    const where = positions(ids.shape[ids.rank - 1], table.shape[1], { dtype: table.dtype });
    const tokens = embedding.apply(params.embedding, ids).add(where);
    const looked = mask?.cast("bool").unsqueeze(-2).unsqueeze(-3);
    const encoded = encoder.apply(params.encoder, tokens, { ...layer, mask: looked, dropout: rate, key: inEncoder });
    return linear.apply(params.classifier, dropout(average(encoded, mask), { rate, key: atEnd }));
  },
};
