// More loss functions, with PyTorch's names and definitions, and connectionist temporal classification.
import { checkOptions, DTypeError, kindOf, ShapeError, showShape, WeftError } from "../graph/index.js";
import { checkArguments, type TensorLike } from "./convert.js";
import { arange, full } from "./create.js";
import { logaddexp } from "./elementwise.js";
import { gather } from "./indexing.js";
import { scan } from "./mapping.js";
import { cast, equal, exp, greater, log, logicalAnd, maximum, minimum, mul, notEqual, sub, where } from "./math.js";
import { vectorNorm } from "./matrix-functions.js";
import { cosineSimilarity, huberLoss, type LossOptions, l1Loss, reduceLoss, softplus } from "./nnfunctions.js";
import { pad } from "./padding.js";
import { stopGradient } from "./reduce.js";
import { expand, reshape, stack, transpose } from "./shape.js";
import { xlogy } from "./special-functions.js";
import type { Tensor } from "./tensor.js";

/**
 * Kullback-Leibler divergence of targets (probabilities, or with `logTarget` their logarithms) from predicted log probabilities, per
 * element; "mean" is over elements.
 */
export function klDivLoss(
  logProbabilities: Tensor,
  targets: Tensor,
  options: LossOptions & { logTarget?: boolean } = {},
): Tensor {
  const { logTarget = false } = checkOptions("klDivLoss", options, ["reduction", "logTarget"]);
  const losses = logTarget
    ? mul(exp(targets), sub(targets, logProbabilities))
    : sub(xlogy(targets, targets), mul(targets, logProbabilities));
  return reduceLoss("klDivLoss", losses, options, ["logTarget"]);
}

/**
 * Cross-entropy of predicted probabilities against targets in [0, 1]; logarithms below -100 count as -100, as in PyTorch. Of logits,
 * use `binaryCrossEntropyWithLogits`, which loses no digits.
 */
export function binaryCrossEntropy(
  probabilities: Tensor,
  targets: TensorLike,
  options: LossOptions & { weight?: Tensor } = {},
): Tensor {
  const { weight } = checkOptions("binaryCrossEntropy", options, ["reduction", "weight"]);
  const logarithm = (x: Tensor): Tensor => maximum(log(x), -100);
  const hit = mul(targets, logarithm(probabilities));
  const losses = hit.add(mul(sub(1, targets), logarithm(sub(1, probabilities)))).neg();
  return reduceLoss("binaryCrossEntropy", weight === undefined ? losses : losses.mul(weight), options, ["weight"]);
}

/** log(1 + exp(-target x)) for targets 1 and -1. */
export const softMarginLoss = (x: Tensor, targets: Tensor, options: LossOptions = {}): Tensor =>
  reduceLoss("softMarginLoss", softplus(mul(targets, x).neg()), options);

/** Options of {@link poissonNllLoss}. @inline */
interface PoissonOptions extends LossOptions {
  /** false: the rates themselves are given, not their logarithms; true by default. */
  logInput?: boolean;
  /** Whether Stirling's approximation of log(target!) is added for targets above 1. */
  full?: boolean;
  /** Added to rates before their logarithm is taken; 1e-8 by default. */
  epsilon?: number;
}

/** Negative log likelihood of counts under Poisson distributions with predicted logarithms of their rates, without log(target!). */
export function poissonNllLoss(logRates: Tensor, targets: TensorLike, options: PoissonOptions = {}): Tensor {
  const names = ["reduction", "logInput", "full", "epsilon"] as const;
  const { logInput = true, full: isFull = false, epsilon = 1e-8 } = checkOptions("poissonNllLoss", options, names);
  const losses = logInput
    ? sub(exp(logRates), mul(logRates, targets))
    : sub(logRates, mul(targets, log(logRates.add(epsilon))));
  if (!isFull) return reduceLoss("poissonNllLoss", losses, options, names.slice(1));
  const isLarge = greater(targets, 1);
  const safe = where(isLarge, targets, 1);
  const stirling = mul(safe, log(safe))
    .sub(safe)
    .add(log(mul(safe, 2 * Math.PI)).mul(0.5));
  return reduceLoss("poissonNllLoss", losses.add(where(isLarge, stirling, 0)), options, names.slice(1));
}

/** Negative log likelihood under normal distributions with predicted means and variances, without its constant unless `full`. */
export function gaussianNllLoss(
  means: Tensor,
  targets: TensorLike,
  variances: Tensor,
  options: LossOptions & { epsilon?: number; full?: boolean } = {},
): Tensor {
  checkArguments("gaussianNllLoss", "tensor", { means, variances });
  // Variances below epsilon count as epsilon in the value; the gradient flows as if they did not, as in PyTorch.
  const names = ["reduction", "epsilon", "full"] as const;
  const { epsilon: low = 1e-6, full: isFull = false } = checkOptions("gaussianNllLoss", options, names);
  const spread = variances.add(stopGradient(maximum(sub(low, variances), 0)));
  const error = sub(means, targets);
  const losses = log(spread).add(mul(error, error).div(spread)).mul(0.5);
  const constant = isFull ? 0.5 * Math.log(2 * Math.PI) : 0;
  return reduceLoss("gaussianNllLoss", losses.add(constant), options, names.slice(1));
}

/** Quadratic up to an error of `beta`, linear beyond: the {@link huberLoss} divided by beta, or the {@link l1Loss} if it is 0. */
export const smoothL1Loss = (
  prediction: Tensor,
  target: TensorLike,
  options: LossOptions & { beta?: number } = {},
): Tensor => {
  const { beta = 1, ...rest } = checkOptions("smoothL1Loss", options, ["reduction", "beta"]);
  if (beta === 0) return l1Loss(prediction, target, rest);
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

/**
 * max(0, |anchor - positive| - |anchor - negative| + margin) with distances of an order (2 by default) along the last axis. With `swap`
 * the distance of the negative from the positive counts where it is smaller than that from the anchor.
 */
export function tripletMarginLoss(
  anchor: Tensor,
  positive: Tensor,
  negative: Tensor,
  options: LossOptions & { margin?: number; order?: number; swap?: boolean } = {},
): Tensor {
  const names = ["reduction", "margin", "order", "swap"] as const;
  const { margin = 1, order = 2, swap = false } = checkOptions("tripletMarginLoss", options, names);
  const distance = (a: Tensor, b: Tensor): Tensor => vectorNorm(sub(a, b).add(1e-6), { axes: -1, order });
  const apart = distance(anchor, negative);
  const used = swap ? minimum(apart, distance(positive, negative)) : apart;
  const losses = maximum(sub(distance(anchor, positive), used).add(margin), 0);
  return reduceLoss("tripletMarginLoss", losses, options, names.slice(1));
}

/** Options of {@link ctcLoss}. @inline */
interface CtcOptions extends LossOptions {
  /** Class of the blank; 0 by default. */
  blank?: number;
  /** Whether infinite losses, of sequences that do not fit, count as 0, and so do their gradients. */
  zeroInfinity?: boolean;
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
  checkOptions("ctcLoss", options, ["blank", "reduction", "zeroInfinity"]);
  const { blank = 0, reduction = "mean", zeroInfinity = false } = options;
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
  const unfit = zeroInfinity ? 0 : Number.POSITIVE_INFINITY;
  const losses = where(total.less(impossible / 2), unfit, total.neg());
  if (reduction !== "mean") return reduceLoss("ctcLoss", losses, { reduction });
  return losses.div(maximum(cast(labelLengths, dtype), 1)).mean();
}
