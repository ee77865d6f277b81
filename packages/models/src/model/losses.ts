// Losses of the tasks, as the published implementations define them: labels of -100 have no loss.
import { binaryCrossEntropyWithLogits, concat, crossEntropy, full, mseLoss, type Tensor } from "@weft/core";
import type { Batch, ModelTask, Outputs } from "../architectures/index.js";
import { ModelError } from "../config/index.js";

/** Label of a token that has no loss. */
export const ignoredLabel = -100;

/** Mean cross-entropy over the labels that are not ignored; 0 if there are none. */
function tokenLoss(logits: Tensor, labels: Tensor): Tensor {
  const wanted = labels.cast("int32");
  const counts = wanted.notEqual(ignoredLabel);
  const losses = crossEntropy(logits, wanted.where(counts, 0).cast("int32"), { reduction: "none" });
  const used = counts.cast(losses.dtype);
  return losses.where(counts, 0).sum().div(used.sum().maximum(1));
}

/** Labels of the next tokens: shifted by one to the left; the last token has none, nor has the last of a packed sequence. */
export function nextLabels(labels: Tensor, segments: Tensor | undefined): Tensor {
  const rows = labels.shape[0];
  const none = full([rows, 1], ignoredLabel, { dtype: "int32" });
  const shifted = concat([labels.cast("int32").index(":", "1:"), none], 1);
  if (segments === undefined) return shifted;
  const own = segments.cast("int32");
  const next = concat([own.index(":", "1:"), full([rows, 1], -1, { dtype: "int32" })], 1);
  return shifted.where(own.equal(next), ignoredLabel).cast("int32");
}

/** Kinds of classification, as `problem_type` of config.json names them. */
export const problemTypes = ["single_label_classification", "multi_label_classification", "regression"] as const;
/** See {@link problemTypes}. */
export type ProblemType = (typeof problemTypes)[number];

const floats: readonly string[] = ["float16", "bfloat16", "float32", "float64"];

/** The kind that labels have if the configuration names none: classes are integers, and several per row are numbers. */
function problemOf(logits: Tensor, labels: Tensor): ProblemType {
  if (logits.shape.at(-1) === 1) return "regression";
  return floats.includes(labels.dtype) ? "multi_label_classification" : "single_label_classification";
}

function classLoss(logits: Tensor, labels: Tensor, given: ProblemType | null): Tensor {
  const problem = given ?? problemOf(logits, labels);
  // Shapes that only broadcast would give a loss that nobody meant.
  const shape = problem === "single_label_classification" ? logits.shape.slice(0, -1) : logits.shape;
  const isFlat = problem === "regression" && logits.shape.at(-1) === 1 && labels.shape.length === 1;
  if (labels.shape.join() !== shape.join() && !(isFlat && labels.shape[0] === logits.shape[0]))
    throw new ModelError(
      `loss: labels have shape [${labels.shape.join(", ")}], expected [${shape.join(", ")}]: ${problem} (problem_type of the configuration, or by the dtype of the labels)`,
    );
  if (problem === "single_label_classification" && floats.includes(labels.dtype))
    throw new ModelError(`loss: labels are ${labels.dtype}; classes are whole numbers (int32)`);
  if (problem === "regression")
    return mseLoss(logits.cast("float32").reshape([...labels.shape]), labels.cast("float32"));
  if (problem === "multi_label_classification")
    return binaryCrossEntropyWithLogits(logits.cast("float32"), labels.cast("float32"));
  return tokenLoss(logits, labels);
}

/** The loss of a task: a scalar in float32. */
export function taskLoss(outputs: Outputs, batch: Batch, task: ModelTask, problem: ProblemType | null): Tensor {
  const { logits } = outputs;
  const { labels } = batch;
  if (logits === undefined)
    throw new ModelError('loss: the task "base" has no head; load the model with a task, such as "classification"');
  if (labels === undefined)
    throw new ModelError("loss: the batch has no labels; add them to the batch, int32 for classes and tokens");
  if (task === "classification") return classLoss(logits, labels, problem);
  return tokenLoss(logits, task === "causal-lm" ? nextLabels(labels, batch.segmentIds) : labels);
}
