// The model of a configuration: initial parameters, and logits of a packed batch. It knows nothing of steps and ranks.

import type { DType } from "@weft/core/internal/graph";
import { arange, type Key, type PrecisionName, type Tensor, where, withPrecision } from "@weft/core/internal/tensor";
import * as nn from "@weft/core/nn";
import { columns, headColumns } from "../data/index.js";
import type { RawConfig } from "./config.js";

interface UnpackedBatch {
  /** [rows, length]. */
  ids: Tensor;
  /** Whether a position holds a token. */
  mask: Tensor;
  labels: Tensor;
  /** bool [rows]: whether a row holds a sample. */
  real: Tensor;
  /** One random key per row, [rows, 2]. */
  keys: Key;
  /** int32 [rows]: samples of the step, in every row. */
  total: Tensor;
}

/**
 * Unpacks a batch [rows, headColumns + length]. With a vocabulary, padding positions get ids spread over it instead of
 * 0: they are never read and their gradients are zero, but a scatter-add of thousands of zeros to one row would be
 * serialized.
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
    total: column(columns.total),
  };
}

export interface ClassifierModel {
  vocabulary: number;
  init(key: Key): nn.TextClassifier;
  /** Without keys there is no dropout. `tokens`: embeddings of the ids, if already looked up. */
  logits(
    params: nn.TextClassifier,
    batch: Pick<UnpackedBatch, "ids" | "mask">,
    keys: Key | null,
    tokens?: Tensor,
  ): Tensor;
}

/** The half-precision dtype of a configuration, or null. */
export function halfOf({ precision }: Pick<RawConfig, "precision">): "bfloat16" | "float16" | null {
  const { compute } = precision;
  return compute === "bfloat16" || compute === "float16" ? compute : null;
}

/** Precision of float32 products: float32, unless the configuration says tf32 or a half type. */
const productsOf = ({ precision }: Pick<RawConfig, "precision">): PrecisionName | null =>
  precision.compute === "float64" || precision.compute === "float32" ? null : precision.compute;

/** `dtype` is the parameters' dtype; with `half` they are cast to it, and logits are returned in float32. */
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
      // Learned positions are scaled with the token embeddings, so that neither dominates.
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
