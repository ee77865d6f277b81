// Losses of class numbers: cross-entropy of logits, and negative log likelihood of log probabilities.
import { checkOptions, DTypeError, isHalf, kindOf, ShapeError, showShape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, nodeOf, wrap } from "./convert.js";
import { add, greaterEqual, less, logicalAnd, mul, neg, notEqual, where } from "./math.js";
import { type LossOptions, logSoftmax, reduceLoss } from "./nnfunctions.js";
import { sum } from "./reduce.js";
import type { Tensor } from "./tensor.js";

/** Options of losses of class numbers, with the meaning of PyTorch's `ignore_index` and `weight`. @inline */
interface ClassLossOptions extends LossOptions {
  /** Class number of positions that do not count, such as -100 for padding. By default every position counts. */
  ignoreIndex?: number;
  /** Weight of every class, [classes]. "mean" then divides by the sum of the weights of the targets. */
  weight?: Tensor;
}

/** The losses of class numbers under log probabilities, reduced; `smoothing` moves a share of each target to all classes. */
function classLoss(op: string, logp: Tensor, targets: Tensor, options: ClassLossOptions, smoothing: number): Tensor {
  if (kindOf(targets.dtype) !== "int")
    throw new DTypeError(`${op}: class numbers are integers, got ${targets.dtype}; use cast("int32")`);
  const { ignoreIndex, weight, reduction = "mean" } = options;
  const counts = ignoreIndex === undefined ? null : notEqual(targets, ignoreIndex);
  const classes = logp.shape[logp.rank - 1];
  const labels = build.toIndex(nodeOf(op, counts === null ? targets : where(counts, targets, 0).cast(targets.dtype)));
  const wide = build.expand(build.reshape(labels, [...labels.shape, 1]), logp.shape);
  const hit = wrap(build.eq(wide, build.iota(logp.shape, logp.rank - 1, "int32")));
  const weighted = weight === undefined ? logp : mul(logp, weight);
  // A class that does not exist must not count as a perfect prediction.
  const exists = logicalAnd(greaterEqual(wrap(labels), 0), less(wrap(labels), classes));
  const chosen = where(exists, sum(where(hit, weighted, 0), -1), Number.NaN);
  const smooth =
    smoothing === 0 ? chosen : add(mul(chosen, 1 - smoothing), mul(sum(weighted, -1), smoothing / classes));
  const losses = counts === null ? neg(smooth) : where(counts, neg(smooth), 0);
  if (reduction !== "mean" || (counts === null && weight === undefined)) return reduceLoss(op, losses, { reduction });
  const shares = weight === undefined ? 1 : sum(where(hit, weight, 0), -1);
  return sum(losses).div(sum(counts === null ? shares : where(counts, shares, 0)).cast(losses.dtype));
}

function checkWeight(op: string, classes: number, { weight }: ClassLossOptions): void {
  if (weight !== undefined && showShape(weight.shape) !== showShape([classes]))
    throw new ShapeError(`${op}: weight has shape [${classes}], one per class, got ${showShape(weight.shape)}`);
}

/**
 * Softmax cross-entropy of logits [..., classes] against class indices [...] (integers) or probabilities [..., classes].
 *
 * @example
 * ```ts
 * import { crossEntropy, tensor } from "@weft/core";
 *
 * const logits = tensor([[2, 0, 0], [0, 3, 0]]);
 * const classes = tensor([0, 1], { dtype: "int32" });
 * console.log(await crossEntropy(logits, classes).item()); // about 0.167
 * ```
 */
export function crossEntropy(
  logits: Tensor,
  targets: Tensor,
  options: ClassLossOptions & { labelSmoothing?: number } = {},
): Tensor {
  checkArguments("crossEntropy", "tensor", { logits, targets });
  checkOptions("crossEntropy", options, ["reduction", "labelSmoothing", "ignoreIndex", "weight"]);
  const { labelSmoothing = 0, ignoreIndex, weight, reduction = "mean" } = options;
  const classes = logits.shape[logits.shape.length - 1];
  const isClass = targets.shape.length === logits.shape.length - 1;
  const fits = showShape(targets.shape) === showShape(isClass ? logits.shape.slice(0, -1) : logits.shape);
  if (!fits)
    throw new ShapeError(
      `crossEntropy: logits ${showShape(logits.shape)} need class numbers ${showShape(logits.shape.slice(0, -1))} ` +
        `or probabilities ${showShape(logits.shape)}, got ${showShape(targets.shape)}`,
    );
  checkWeight("crossEntropy", classes, options);
  const logp = logSoftmax(isHalf(logits.dtype) ? logits.cast("float32") : logits);
  if (isClass) return classLoss("crossEntropy", logp, targets, options, labelSmoothing);
  if (ignoreIndex !== undefined)
    throw new DTypeError("crossEntropy: ignoreIndex needs class numbers as targets, not probabilities");
  const weighted = weight === undefined ? logp : mul(logp, weight);
  const chosen = sum(mul(targets, weighted), -1);
  const smooth =
    labelSmoothing === 0
      ? chosen
      : add(mul(chosen, 1 - labelSmoothing), mul(sum(weighted, -1), labelSmoothing / classes));
  return reduceLoss("crossEntropy", mul(smooth, -1), { reduction });
}

/** Mean of -logProbabilities[..., class]: the loss of classes (integers) whose log probabilities are given along the last axis. */
export function nllLoss(logProbabilities: Tensor, classes: Tensor, options: ClassLossOptions = {}): Tensor {
  checkArguments("nllLoss", "tensor", { logProbabilities, classes });
  checkOptions("nllLoss", options, ["reduction", "ignoreIndex", "weight"]);
  const { shape } = logProbabilities;
  if (showShape(classes.shape) !== showShape(shape.slice(0, -1)))
    throw new ShapeError(
      `nllLoss: classes ${showShape(classes.shape)} for log probabilities ${showShape(shape)}; they have all axes but the last`,
    );
  checkWeight("nllLoss", shape[shape.length - 1], options);
  return classLoss("nllLoss", logProbabilities, classes, options, 0);
}
