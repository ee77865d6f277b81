// Batches of texts: encoded, truncated and padded to one length.

import { type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { ModelError } from "../config/index.js";
import type { TextTokenizer } from "./tokenizer.js";

/** Options of {@link encodeBatch}. @inline */
interface BatchOptions {
  /** Maximum number of tokens of a text; longer ones are truncated. */
  maxLength?: number;
  /** Pads to this length instead of that of the longest text, so that programs are compiled once. */
  padTo?: number;
  /** Side of the padding; that of the tokenizer (`padding_side`) by default, or `"right"`. */
  side?: "left" | "right";
  /** Id of padding; that of the tokenizer by default, or 0. */
  padToken?: number;
}

/** Inputs of a model, int32 [texts, length]. */
export interface TextBatch {
  /** Token ids, padded. */
  inputIds: Tensor;
  /** 1 for tokens, 0 for padding. */
  attentionMask: Tensor;
  /** 0 for the first text of a pair, 1 for the second. */
  tokenTypeIds: Tensor;
}

/** Rows of ids as one table, padded. */
export function padRows(
  rows: readonly (readonly number[])[],
  length: number,
  fill: number,
  side: "left" | "right" = "right",
): Int32Array {
  const table = new Int32Array(rows.length * length).fill(fill);
  rows.forEach((row, i) => {
    if (row.length > length) throw new ModelError(`a row of ${row.length} tokens does not fit ${length}`);
    table.set(row, i * length + (side === "left" ? length - row.length : 0));
  });
  return table;
}

/** Encodes texts, or pairs of texts, as one batch. */
export function encodeBatch(
  tokenizer: TextTokenizer,
  texts: readonly (string | readonly [string, string])[],
  options: BatchOptions = {},
): TextBatch {
  checkOptions("encodeBatch", options, ["maxLength", "padTo", "side", "padToken"]);
  const { maxLength, padTo, side = tokenizer.paddingSide, padToken = tokenizer.special.pad ?? 0 } = options;
  if (texts.length === 0) throw new ModelError("encodeBatch: texts is empty; give at least one text");
  const most = Math.min(maxLength ?? Number.POSITIVE_INFINITY, padTo ?? Number.POSITIVE_INFINITY);
  const limit = Number.isFinite(most) ? { maxLength: most } : {};
  const rows = texts.map((text) =>
    typeof text === "string" ? tokenizer.encode(text, limit) : tokenizer.encode(text[0], { pair: text[1], ...limit }),
  );
  const length = padTo ?? Math.max(1, ...rows.map(({ ids }) => ids.length));
  const table = (part: readonly (readonly number[])[], fill: number): Tensor =>
    tensor(padRows(part, length, fill, side), { shape: [texts.length, length] });
  return {
    inputIds: table(
      rows.map(({ ids }) => ids),
      padToken,
    ),
    attentionMask: table(
      rows.map(({ ids }) => ids.map(() => 1)),
      0,
    ),
    tokenTypeIds: table(
      rows.map(({ types }) => types),
      0,
    ),
  };
}
