// Counts of predictions by class, from which precision, recall, F1 and correlation follow.
import { arange, stack, type Tensor } from "../tensor/index.js";

/**
 * Counts of right predictions, of predictions and of labels by class: [3, classes], float32. Counts of several batches add up.
 *
 * @param predicted - Predicted classes, integers of any shape.
 * @param labels - Classes of the same shape; those outside of 0 to `classes - 1`, such as -100, are not counted.
 *
 * @example
 * ```ts
 * import { tensor } from "@weft/core";
 * import { classCounts } from "@weft/core/nn";
 *
 * const predicted = tensor([0, 1, 1, 2], { dtype: "int32" });
 * const labels = tensor([0, 1, 2, -100], { dtype: "int32" });
 * console.log(await classCounts(predicted, labels, 3).array()); // [ [ 1, 1, 0 ], [ 1, 2, 0 ], [ 1, 1, 1 ] ]
 * ```
 */
export function classCounts(predicted: Tensor, labels: Tensor, classes: number): Tensor {
  const all = arange(classes, { dtype: "int32" });
  const [guess, truth] = [predicted, labels].map((t) => t.cast("int32").reshape([-1, 1]));
  const counted = truth.greaterEqual(0).logicalAnd(truth.less(classes));
  const isGuess = guess.equal(all).logicalAnd(counted);
  const isTruth = truth.equal(all);
  return stack([isGuess.logicalAnd(isTruth), isGuess, isTruth].map((t) => t.cast("float32").sum(0)));
}
