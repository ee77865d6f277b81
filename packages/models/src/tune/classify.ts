// Classes of texts by a model with a classification head.
import { jit, sigmoid, softmax, type Tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import type { Batch, Params } from "../architectures/index.js";
import type { PretrainedModel } from "../checkpoint/index.js";
import { ModelError } from "../config/index.js";
import { encodeBatch, type TextTokenizer } from "../text/index.js";

/** Predicted class of a text. */
export interface TextPrediction {
  /** The most likely class. */
  label: string;
  /** Probability by class. They add up to 1, unless a text may have several classes (`problem_type`). */
  probabilities: Record<string, number>;
}

/** Options of {@link classifyTexts}. @inline */
interface ClassifyOptions {
  /** Tokens per text; longer texts are truncated. All positions of the model by default. */
  maxLength?: number;
  /** Texts per call of the model; 32 by default. */
  batch?: number;
}

/** The next power of two from 16 on: other texts need no other program. */
const rounded = (length: number, most: number): number =>
  Math.min(most, Math.max(16, 2 ** Math.ceil(Math.log2(length))));

/**
 * Classifies texts.
 *
 * @param model - A model with a classification head that was trained.
 */
export async function classifyTexts(
  model: PretrainedModel,
  tokenizer: TextTokenizer,
  texts: readonly string[],
  options: ClassifyOptions = {},
): Promise<TextPrediction[]> {
  checkOptions("classifyTexts", options, ["maxLength", "batch"]);
  const { batch: rows = 32, maxLength = model.config.maxPositions } = options;
  if (!Number.isInteger(rows) || rows < 1)
    throw new ModelError(`classifyTexts: batch is a positive whole number, got ${rows}`);
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string"))
    throw new ModelError('classifyTexts: texts is a list of texts, such as ["A good film"]');
  if (model.task !== "classification")
    throw new ModelError(
      `classifyTexts: the task of the model is ${model.task}; load it with task: "classification", and fine-tune it if it has no such head`,
    );
  if (model.initialized.length > 0)
    throw new ModelError(
      `classifyTexts: ${model.folder} has no trained classification head (${model.initialized[0]} is missing); fine-tune the model first`,
    );
  if (model.problem === "regression" || model.labels.length === 1)
    throw new ModelError("classifyTexts: the model predicts numbers, not classes (a regression); use apply");
  const isMany = model.problem === "multi_label_classification";
  const forward = jit((params: Params, batch: Batch) => {
    const logits = (model.apply(params, batch).logits as Tensor).cast("float32");
    return isMany ? sigmoid(logits) : softmax(logits, -1);
  });
  const most = Math.min(maxLength, model.config.maxPositions);
  const results: TextPrediction[] = [];
  for (let from = 0; from < texts.length; from += rows) {
    const own = texts.slice(from, from + rows);
    const longest = Math.max(1, ...own.map((text) => tokenizer.encode(text, { maxLength: most }).ids.length));
    const { inputIds, attentionMask } = encodeBatch(tokenizer, own, {
      padTo: rounded(longest, most),
      side: "right",
      ...(model.config.padToken !== null && { padToken: model.config.padToken }),
    });
    const shares = (await forward(model.params, { inputIds, attentionMask }).data()) as Float32Array;
    own.forEach((_, row) => {
      const values = shares.subarray(row * model.labels.length, (row + 1) * model.labels.length);
      if (values.some(Number.isNaN))
        throw new ModelError(
          `classifyTexts: the scores of text ${from + row + 1} are not numbers (NaN); are weights of ${model.folder} damaged?`,
        );
      results.push({
        label: model.labels[values.indexOf(Math.max(...values))],
        probabilities: Object.fromEntries(model.labels.map((name, i) => [name, values[i]])),
      });
    });
  }
  return results;
}
