// More loss functions, with PyTorch's names and definitions, and connectionist temporal classification.
import { checkOptions, DTypeError, kindOf, ShapeError, showShape, WeftError } from "../graph/index.js";
import { checkArguments, type TensorLike } from "./convert.js";
import { arange, full } from "./create.js";
import { logaddexp } from "./elementwise.js";
import { gather } from "./indexing.js";
import { norm } from "./linalg.js";
import { scan } from "./mapping.js";
import { cast, equal, exp, log, logicalAnd, maximum, mul, notEqual, sub, where } from "./math.js";
import { cosineSimilarity, huberLoss, type LossOptions, reduceLoss } from "./nnfunctions.js";
import { pad } from "./padding.js";
import { stopGradient } from "./reduce.js";
import { expand, reshape, stack, transpose } from "./shape.js";
import { xlogy } from "./special-functions.js";
import type { Tensor } from "./tensor.js";

/** Kullback-Leibler divergence of targets (probabilities) from predicted log probabilities, per element; "mean" is over elements. */
export const klDivLoss = (logProbabilities: Tensor, targets: Tensor, options: LossOptions = {}): Tensor =>
  reduceLoss("klDivLoss", sub(xlogy(targets, targets), mul(targets, logProbabilities)), options);

/** Negative log likelihood of counts under Poisson distributions with predicted logarithms of their rates, without log(target!). */
export const poissonNllLoss = (logRates: Tensor, targets: TensorLike, options: LossOptions = {}): Tensor =>
  reduceLoss("poissonNllLoss", sub(exp(logRates), mul(logRates, targets)), options);

/** Negative log likelihood under normal distributions with predicted means and variances, without its constant. */
export function gaussianNllLoss(
  means: Tensor,
  targets: TensorLike,
  variances: Tensor,
  options: LossOptions & { epsilon?: number } = {},
): Tensor {
  checkArguments("gaussianNllLoss", "tensor", { means, variances });
  // Variances below epsilon count as epsilon in the value; the gradient flows as if they did not, as in PyTorch.
  const { epsilon: low = 1e-6 } = checkOptions("gaussianNllLoss", options, ["reduction", "epsilon"]);
  const spread = variances.add(stopGradient(maximum(sub(low, variances), 0)));
  const error = sub(means, targets);
  return reduceLoss("gaussianNllLoss", log(spread).add(mul(error, error).div(spread)).mul(0.5), options, ["epsilon"]);
}

/** Quadratic up to an error of `beta`, linear beyond: the {@link huberLoss} divided by beta. */
export const smoothL1Loss = (
  prediction: Tensor,
  target: TensorLike,
  options: LossOptions & { beta?: number } = {},
): Tensor => {
  const { beta = 1, ...rest } = checkOptions("smoothL1Loss", options, ["reduction", "beta"]);
  return huberLoss(prediction, target, { ...rest, delta: beta }).div(beta);
};

/** max(0, margin - target (first - second)) for targets 1 (the first ranks higher) and -1. */
export const marginRankingLoss = (
  first: Tensor,
  second: Tensor,
  targets: Tensor,
  options: LossOptions & { margin?: number } = {},
): Tensor => {
  const { margin = 0 } = checkOptions("marginRankingLoss", options, ["reduction", "margin"]);
  return reduceLoss("marginRankingLoss", maximum(mul(targets, sub(second, first)).add(margin), 0), options, ["margin"]);
};

/** x where the target is 1, and max(0, margin - x) where it is -1. */
export const hingeEmbeddingLoss = (
  x: Tensor,
  targets: Tensor,
  options: LossOptions & { margin?: number } = {},
): Tensor => {
  const { margin = 1 } = checkOptions("hingeEmbeddingLoss", options, ["reduction", "margin"]);
  return reduceLoss("hingeEmbeddingLoss", where(equal(targets, 1), x, maximum(sub(margin, x), 0)), options, ["margin"]);
};

/** 1 - cosine of the angle between vectors where the target is 1, and max(0, cosine - margin) where it is -1. */
export function cosineEmbeddingLoss(
  a: Tensor,
  b: Tensor,
  targets: Tensor,
  options: LossOptions & { margin?: number } = {},
): Tensor {
  const { margin = 0 } = checkOptions("cosineEmbeddingLoss", options, ["reduction", "margin"]);
  const similarity = cosineSimilarity(a, b);
  const losses = where(equal(targets, 1), sub(1, similarity), maximum(sub(similarity, margin), 0));
  return reduceLoss("cosineEmbeddingLoss", losses, options, ["margin"]);
}

/** max(0, |anchor - positive| - |anchor - negative| + margin) with Euclidean distances along the last axis. */
export function tripletMarginLoss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  options: LossOptions & { margin?: number } = {},
): Tensor {
  const { margin = 1 } = checkOptions("tripletMarginLoss", options, ["reduction", "margin"]);
  const distance = (other: Tensor): Tensor => norm(sub(anchor, other).add(1e-6), -1);
  return reduceLoss("tripletMarginLoss", maximum(sub(distance(positive), distance(negative)).add(margin), 0), options, [
    "margin",
  ]);
}

/** Options of {@link ctcLoss}. */
export interface CtcOptions extends LossOptions {
  /** Class of the blank; 0 by default. */
  blank?: number;
}

/** Logarithms below this stand for impossible; finite, so that differences of them are not NaN. */
const impossible = -1e30;

/**
 * Connectionist temporal classification: negative log likelihood of label sequences [batch, labels] under log probabilities [time,
 * batch, classes] of every frame, summed over all alignments. Lengths [batch] say how many frames and labels count. "mean" divides
 * by the number of labels first, as PyTorch does; a sequence that does not fit has an infinite loss.
 */
export function ctcLoss(
  logProbabilities: Tensor,
  labels: Tensor,
  inputLengths: Tensor,
  labelLengths: Tensor,
  options: CtcOptions = {},
): Tensor {
  checkArguments("ctcLoss", "tensor", { logProbabilities, labels, inputLengths, labelLengths });
  checkOptions("ctcLoss", options, ["blank", "reduction"]);
  const { blank = 0, reduction = "mean" } = options;
  if (logProbabilities.rank !== 3 || labels.rank !== 2 || labels.shape[0] !== logProbabilities.shape[1])
    throw new ShapeError(
      `ctcLoss: needs log probabilities [time, batch, classes] and labels [batch, length], got ` +
        `${showShape(logProbabilities.shape)} and ${showShape(labels.shape)}`,
    );
  const [frames, batch, classes] = logProbabilities.shape;
  if (!Number.isInteger(blank) || blank < 0 || blank >= classes)
    throw new WeftError(`ctcLoss: the blank is one of the ${classes} classes, got ${blank}`);
  for (const [name, t] of Object.entries({ labels, inputLengths, labelLengths }))
    if (kindOf(t.dtype) !== "int")
      throw new DTypeError(`ctcLoss: ${name} are integers, got ${t.dtype}; use cast("int32")`);
  for (const [name, t] of Object.entries({ inputLengths, labelLengths }))
    if (showShape(t.shape) !== showShape([batch]))
      throw new ShapeError(`ctcLoss: ${name} have shape [${batch}], one per sequence, got ${showShape(t.shape)}`);
  const count = labels.shape[1];
  // Blanks stand between labels and at both ends: positions 0, 2, 4, ...
  const blanks = full([batch, count + 1], blank, { dtype: "int32" });
  const pairs = stack(
    [
      blanks,
      pad(
        cast(labels, "int32"),
        [
          [0, 0],
          [0, 1],
        ],
        blank,
      ),
    ],
    2,
  );
  const states = 2 * count + 1;
  const path = reshape(pairs, [batch, states + 1]).slice([0, 0], [batch, states]);
  const before = pad(
    path,
    [
      [0, 0],
      [2, 0],
    ],
    -1,
  ).slice([0, 0], [batch, states]);
  // A label may follow the one before it directly unless both are equal.
  const skips = logicalAnd(notEqual(path, blank), notEqual(path, before));
  const scores = transpose(
    gather(transpose(logProbabilities, 0, 1), expand(reshape(path, [batch, 1, states]), [batch, frames, states])),
    0,
    1,
  );
  const dtype = scores.dtype;
  const position = arange(0, states, 1, { dtype: "int32" });
  const never = full([batch, states], impossible, { dtype: dtype as "float32" });
  const shifted = (a: Tensor, by: number): Tensor =>
    pad(
      a,
      [
        [0, 0],
        [by, 0],
      ],
      impossible,
    ).slice([0, 0], [batch, states]);
  const first = where(position.less(1), 0, never);
  const lengths = reshape(cast(inputLengths, "int32"), [batch, 1]);
  const time = arange(0, frames, 1, { dtype: "int32" });
  const [last] = scan(
    (alpha: Tensor, [score, at]: [Tensor, Tensor]): [Tensor, null] => {
      // Before the first frame only the state before the path exists: frame 0 may start at the blank or at the first label.
      const isStart = equal(at, 0);
      const stay = logaddexp(alpha, shifted(alpha, 1));
      const all = logaddexp(stay, where(skips, shifted(alpha, 2), impossible));
      const started = where(position.less(2), 0, never);
      const next = where(isStart, started, all).add(score);
      return [where(at.less(lengths), maximum(next, impossible), alpha), null];
    },
    first,
    [scores, time],
  );
  const ends = reshape(cast(labelLengths, "int32").mul(2), [batch, 1]);
  const pick = (at: Tensor): Tensor => reshape(gather(last, at), [batch]);
  const whole = pick(ends);
  const onLabel = where(reshape(ends, [batch]).greater(0), pick(maximum(ends.sub(1), 0)), impossible);
  const total = logaddexp(whole, onLabel);
  const losses = where(total.less(impossible / 2), Number.POSITIVE_INFINITY, total.neg());
  if (reduction !== "mean") return reduceLoss("ctcLoss", losses, { reduction });
  return losses.div(maximum(cast(labelLengths, dtype), 1)).mean();
}
