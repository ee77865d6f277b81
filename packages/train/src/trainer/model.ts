// The model of a configuration: fresh parameters, and logits from a packed batch. Knows nothing of steps and ranks.

import type { DType } from "@weft/core/internal/graph";
import { arange, type Key, type PrecisionName, type Tensor, where, withPrecision } from "@weft/core/internal/tensor";
import * as nn from "@weft/core/nn";
import { columns, headColumns } from "../data/index.js";
import type { RawConfig } from "./config.js";

export interface UnpackedBatch {
  /** [rows, length]. */
  ids: Tensor;
  /** true where there is a token. */
  mask: Tensor;
  labels: Tensor;
  /** bool [rows]: rows that hold a sample. */
  real: Tensor;
  /** One key a row, [rows, 2]. */
  keys: Key;
  /** int32 scalars. */
  total: Tensor;
  stop: Tensor;
  place: Tensor;
}

/**
 * Takes a packed batch [rows, headColumns + length] apart. With a vocabulary, places without a token get numbers from all over
 * it instead of 0: nothing is read from them and their gradients are zeros, but thousands of zeros for one row of the
 * table are added one after another.
 */
export function unpackBatch(packed: Tensor, vocabulary?: number): UnpackedBatch {
  const rows = packed.shape[0];
  const length = packed.shape[1] - headColumns;
  const column = (at: number): Tensor => packed.index(":", at);
  const lengths = column(columns.length);
  const given = packed.index(":", `${headColumns}:`);
  const mask = arange(0, length, 1, { dtype: "int32" }).unsqueeze(0).less(lengths.unsqueeze(1));
  const places = (): Tensor => arange(0, rows * length, 1, { dtype: "int32" }).reshape([rows, length]);
  return {
    ids: vocabulary === undefined ? given : where(mask, given, places().mod(vocabulary)),
    mask,
    labels: column(columns.label),
    real: lengths.greater(0),
    keys: packed.index(":", `${columns.key0}:${columns.key1 + 1}`),
    total: packed.index(0, columns.total),
    stop: packed.index(0, columns.stop),
    place: packed.index(0, columns.place),
  };
}

export interface ClassifierModel {
  vocabulary: number;
  init(key: Key): nn.TextClassifier;
  /** Without keys nothing is dropped. `tokens`: the embeddings of the ids, where they were looked up before. */
  logits(
    params: nn.TextClassifier,
    batch: Pick<UnpackedBatch, "ids" | "mask">,
    keys: Key | null,
    tokens?: Tensor,
  ): Tensor;
}

/** The half type that a configuration computes in, or null. */
export function halfOf({ precision }: Pick<RawConfig, "precision">): "bfloat16" | "float16" | null {
  const { compute } = precision;
  return compute === "bfloat16" || compute === "float16" ? compute : null;
}

/** How exactly products of float32 are asked for: as float32, except that half types and tf32 say so. */
const productsOf = ({ precision }: Pick<RawConfig, "precision">): PrecisionName | null =>
  precision.compute === "float64" || precision.compute === "float32" ? null : precision.compute;

/** `dtype` is that of the parameters; with `half` they are used in that type and the logits come back in float32. */
export function makeModel(
  { model, precision }: Pick<RawConfig, "model" | "precision">,
  classes: number,
  dtype: DType,
  half: "bfloat16" | "float16" | null = null,
): ClassifierModel {
  const options: nn.TextClassifierInit = {
    vocabulary: model.vocab_size,
    width: model.d_model,
    heads: model.n_heads,
    layers: model.num_layers,
    feedForward: model.dim_feedforward,
    classes,
    positions: model.positions,
    maxLength: model.max_seq_len,
    finalNorm: model.norm === "pre",
    dtype,
  };
  return {
    vocabulary: model.vocab_size,
    init(key) {
      const fresh = nn.textClassifier.init(options, key);
      if (model.embedding_std === 1) return fresh;
      // Learned positions shrink with the tokens: the larger of the two would drown the other.
      const smaller = (table: nn.Embedding): nn.Embedding => ({ weight: table.weight.mul(model.embedding_std) });
      return {
        ...fresh,
        embedding: smaller(fresh.embedding),
        ...(fresh.positions !== undefined && { positions: smaller(fresh.positions) }),
      };
    },
    logits: (params, { ids, mask }, keys, tokens) =>
      withPrecision(productsOf({ precision }), () => {
        const used = half === null ? params : nn.castParameters(params, half);
        const logits = nn.textClassifier.apply(used, ids, {
          ...(tokens !== undefined && { tokens }),
          heads: model.n_heads,
          activation: model.activation,
          norm: model.norm,
          mask,
          dropout: model.dropout,
          key: keys,
        });
        return half === null ? logits : logits.cast("float32");
      }),
  };
}
