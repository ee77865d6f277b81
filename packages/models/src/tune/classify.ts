// Classes of texts by a model with a classification head.
import { jit, sigmoid, softmax, type Tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import type { Batch, Params } from "../architectures/index.js";
import type { PretrainedModel } from "../checkpoint/index.js";
import { ModelError } from "../config/index.js";
import type { TextTokenizer } from "../text/index.js";
import { encodeInputs, type TextInput } from "./encode-rows.js";

/** Predicted class of a text. */
export interface TextPrediction {
  /** The most likely class. */
  label: string;
  /** Probability by class. They add up to 1, unless a text may have several classes (`problem_type`). */
  probabilities: Record<string, number>;
  /** Classes with a probability above one half, of models whose texts may have several. */
  labels?: string[];
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

/** Scores of texts by a trained head [texts, labels], row by row. */
async function* scoresOf(
  name: "classifyTexts" | "predictNumbers",
  model: PretrainedModel,
  tokenizer: TextTokenizer,
  texts: readonly TextInput[],
  options: ClassifyOptions,
  activation: (logits: Tensor) => Tensor,
): AsyncGenerator<Float32Array> {
  checkOptions(name, options, ["maxLength", "batch"]);
  const { batch: rows = 32, maxLength = model.config.maxPositions } = options;
  if (!Number.isInteger(rows) || rows < 1)
    throw new ModelError(`${name}: batch is a positive whole number, got ${rows}`);
  const isPair = (text: unknown): boolean =>
    Array.isArray(text) && text.length === 2 && text.every((part) => typeof part === "string");
  if (!Array.isArray(texts) || !texts.every((text) => typeof text === "string" || isPair(text)))
    throw new ModelError(`${name}: texts is a list of texts, such as ["A good film"], or of pairs of texts`);
  if (model.task !== "classification")
    throw new ModelError(
      `${name}: the task of the model is ${model.task}; load it with task: "classification", and fine-tune it if it has no such head`,
    );
  if (model.initialized.length > 0)
    throw new ModelError(
      `${name}: ${model.folder} has no trained classification head (${model.initialized[0]} is missing); fine-tune the model first`,
    );
  const wantsNumbers = name === "predictNumbers";
  if (isRegression(model) !== wantsNumbers)
    throw new ModelError(
      wantsNumbers
        ? "predictNumbers: the model predicts classes, not numbers; use classifyTexts"
        : "classifyTexts: the model predicts numbers, not classes (a regression); use predictNumbers",
    );
  const forward = jit((params: Params, batch: Batch) =>
    activation((model.apply(params, batch).logits as Tensor).cast("float32")),
  );
  const most = Math.min(maxLength, model.config.maxPositions);
  const encoded = (text: TextInput): number =>
    typeof text === "string"
      ? tokenizer.encode(text, { maxLength: most }).ids.length
      : tokenizer.encode(text[0], { pair: text[1], maxLength: most }).ids.length;
  for (let from = 0; from < texts.length; from += rows) {
    const own = texts.slice(from, from + rows);
    const longest = Math.max(1, ...own.map(encoded));
    const inputs = encodeInputs(model, tokenizer, own, rounded(longest, most));
    const values = (await forward(model.params, inputs).data()) as Float32Array;
    for (let row = 0; row < own.length; row++) {
      const scores = values.subarray(row * model.labels.length, (row + 1) * model.labels.length);
      if (scores.some(Number.isNaN))
        throw new ModelError(
          `${name}: the scores of text ${from + row + 1} are not numbers (NaN); are weights of ${model.folder} damaged?`,
        );
      yield scores;
    }
  }
}

/** Whether a model predicts numbers, not classes. */
export const isRegression = ({ problem, labels }: Pick<PretrainedModel, "problem" | "labels">): boolean =>
  problem === "regression" || (problem === null && labels.length === 1);

const byName = (names: readonly string[], values: Float32Array): Record<string, number> =>
  Object.fromEntries(names.map((name, i) => [name, values[i]]));

/**
 * Classifies texts, or pairs of texts.
 *
 * @param model - A model with a classification head that was trained.
 */
export async function classifyTexts(
  model: PretrainedModel,
  tokenizer: TextTokenizer,
  texts: readonly TextInput[],
  options: ClassifyOptions = {},
): Promise<TextPrediction[]> {
  const isMany = (): boolean => model.problem === "multi_label_classification";
  const activation = (logits: Tensor): Tensor => (isMany() ? sigmoid(logits) : softmax(logits, -1));
  const results: TextPrediction[] = [];
  for await (const values of scoresOf("classifyTexts", model, tokenizer, texts, options, activation))
    results.push({
      label: model.labels[values.indexOf(Math.max(...values))],
      probabilities: byName(model.labels, values),
      ...(isMany() && { labels: model.labels.filter((_, i) => values[i] > 0.5) }),
    });
  return results;
}

/**
 * Predicts the numbers of texts, or of pairs of texts, by name of the output.
 *
 * @param model - A regression that was trained.
 */
export async function predictNumbers(
  model: PretrainedModel,
  tokenizer: TextTokenizer,
  texts: readonly TextInput[],
  options: ClassifyOptions = {},
): Promise<Record<string, number>[]> {
  const results: Record<string, number>[] = [];
  for await (const values of scoresOf("predictNumbers", model, tokenizer, texts, options, (logits) => logits))
    results.push(byName(model.labels, values));
  return results;
}
