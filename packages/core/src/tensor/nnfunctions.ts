// Functions of neural networks, composed of primitives; fusion turns them into single kernels.
import { checkOptions, DTypeError, isComplex, isHalf, type Node, toInexact } from "../graph/index.js";
import { build, composed } from "../ops/index.js";
import {
  checkArguments,
  commonDType,
  inexactNode,
  resolveAxes,
  resolveAxis,
  type TensorLike,
  wrap,
} from "./convert.js";
import { vecdot } from "./einsum.js";
import { norm } from "./linalg.js";
import {
  abs,
  add,
  cast,
  div,
  erfc,
  exp,
  expm1,
  greater,
  greaterEqual,
  less,
  lessEqual,
  log1p,
  maximum,
  mul,
  neg,
  rsqrt,
  sub,
  tanh,
  where,
} from "./math.js";
import { mean, sum, variance } from "./reduce.js";
import type { Tensor } from "./tensor.js";

/** max(x, 0). NaN stays NaN, and the derivative at 0 is 0. */
export const relu = (x: TensorLike): Tensor => {
  const t = wrap(inexactNode("relu", x));
  return where(lessEqual(t, 0), 0, t);
};

/** x where x > 0, and slope * x elsewhere. */
export const leakyRelu = (x: Tensor, slope = 0.01): Tensor => where(greater(x, 0), x, mul(x, slope));

/** x where x > 0, and alpha (exp(x) - 1) elsewhere. */
export function elu(x: TensorLike, alpha = 1): Tensor {
  const t = wrap(inexactNode("elu", x));
  // The other branch must stay finite, because 0 times infinity would be NaN in the gradient.
  return where(greater(t, 0), t, mul(expm1(where(greater(t, 0), 0, t)), alpha));
}

/** Scaled {@link elu} that keeps mean 0 and variance 1 through layers. */
export const selu = (x: TensorLike): Tensor => mul(elu(x, 1.6732632423543772), 1.0507009873554805);

/** x tanh(softplus(x)). */
export const mish = (x: TensorLike): Tensor => {
  const t = wrap(inexactNode("mish", x));
  return mul(t, tanh(softplus(t)));
};

/** Cosine of the angle between vectors along an axis, with broadcasting; lengths below epsilon count as epsilon. */
export function cosineSimilarity(a: Tensor, b: Tensor, options: { axis?: number; epsilon?: number } = {}): Tensor {
  const { axis = -1, epsilon = 1e-8 } = checkOptions("cosineSimilarity", options, ["axis", "epsilon"]);
  const dtype = commonDType("cosineSimilarity", [a, b]);
  // Products of halves leave the range of float16, and epsilon is 0 in it.
  const [x, y] = [a, b].map((t) => (isHalf(dtype) ? t.cast("float32") : t));
  const lengths = mul(maximum(norm(x, axis), epsilon), maximum(norm(y, axis), epsilon));
  return cast(div(vecdot(x, y, axis), lengths), toInexact(dtype));
}

/** -|x| with slope -1 at 0: |x| itself would take the middle of both slopes there. */
const minusSize = (x: Tensor): Tensor => where(less(x, 0), x, neg(x));

/** 1 / (1 + exp(-x)), evaluated without overflow and accurate in both tails. */
export const sigmoid = (x: TensorLike): Tensor => {
  const t = wrap(inexactNode("sigmoid", x));
  const e = exp(minusSize(t));
  return div(where(less(t, 0), e, 1), add(e, 1));
};

/** x sigmoid(x), also called swish; evaluated without premature underflow. */
export const silu = (x: TensorLike): Tensor => {
  const t = wrap(inexactNode("silu", x));
  const root = exp(mul(minusSize(t), 0.5));
  return div(where(less(t, 0), mul(mul(t, root), root), t), add(mul(root, root), 1));
};

/** Gaussian error linear unit x Phi(x); `approximate` uses the tanh formula. */
export function gelu(x: TensorLike, options: { approximate?: boolean } = {}): Tensor {
  checkOptions("gelu", options, ["approximate"]);
  const given = inexactNode("gelu", x);
  if (isHalf(given.dtype) && !options.approximate) return wrap(build.cast(gelu(wide(given)).node, given.dtype));
  if (options.approximate) {
    const inner = mul(add(x, mul(mul(mul(x, x), x), 0.044715)), Math.sqrt(2 / Math.PI));
    return mul(mul(x, 0.5), add(tanh(inner), 1));
  }
  return mul(mul(x, 0.5), erfc(mul(x, -Math.SQRT1_2)));
}

/** log(1 + exp(x)), evaluated without overflow. */
export const softplus = (x: TensorLike): Tensor => {
  const t = wrap(inexactNode("softplus", x));
  return add(log1p(exp(minusSize(t))), where(less(t, 0), 0, t));
};

/** log(sigmoid(x)), accurate in both tails. */
export const logSigmoid = (x: TensorLike): Tensor => neg(softplus(neg(x)));

/** Half types are summed and normalized in float32: with 8 or 11 bits a sum stops growing after a few hundred terms. */
const wide = (node: Node): Tensor => wrap(build.cast(node, "float32"));

/**
 * Softmax along an axis (the last by default) or over several axes.
 *
 * @example
 * ```ts
 * import { softmax, tensor } from "@weft/core";
 *
 * const p = softmax(tensor([[0, 0], [0, Math.log(3)]]));
 * console.log(await p.array()); // about [[0.5, 0.5], [0.25, 0.75]]
 * ```
 */
export function softmax(x: TensorLike, axis: number | readonly number[] = -1): Tensor {
  const given = inexactNode("softmax", x);
  if (typeof axis !== "number") return exp(logSoftmax(x, axis));
  if (isHalf(given.dtype)) return wrap(build.cast(softmax(wide(given), axis).node, given.dtype));
  const node = given;
  if (isComplex(node.dtype)) throw new DTypeError("softmax: not defined for complex tensors");
  const at = resolveAxis("softmax", axis, node.shape.length);
  return wrap(composed.softmax(node, at));
}

/** Logarithm of the softmax along an axis (the last by default) or over several axes. */
export function logSoftmax(x: TensorLike, axis: number | readonly number[] = -1): Tensor {
  const given = inexactNode("logSoftmax", x);
  if (isHalf(given.dtype)) return wrap(build.cast(logSoftmax(wide(given), axis).node, given.dtype));
  if (isComplex(given.dtype)) throw new DTypeError("logSoftmax: not defined for complex tensors");
  return wrap(composed.logSoftmax(given, resolveAxes("logSoftmax", axis, given.shape.length)));
}

/** Normalizes the last axes to mean 0 and standard deviation 1, then scales and shifts. */
export function layerNorm(
  x: Tensor,
  options: { weight?: Tensor; bias?: Tensor; axes?: number | readonly number[]; epsilon?: number } = {},
): Tensor {
  checkArguments("layerNorm", "tensor", { x });
  checkOptions("layerNorm", options, ["weight", "bias", "axes", "epsilon"]);
  const { weight, bias, axes = -1, epsilon = 1e-5 } = options;
  if (isHalf(x.dtype)) return wrap(build.cast(layerNorm(wide(x.node), options).node, x.dtype));
  const centered = sub(x, mean(x, axes, { keepDims: true }));
  const scaled = mul(centered, rsqrt(add(variance(x, axes, { keepDims: true }), epsilon)));
  const weighted = weight === undefined ? scaled : mul(scaled, weight);
  return bias === undefined ? weighted : add(weighted, bias);
}

/** Options of loss functions. @inline */
export interface LossOptions {
  /** "mean" (default), "sum", or "none" for one number per example. */
  reduction?: "mean" | "sum" | "none";
}

/** Applies the reduction of a loss to losses per example. */
export function reduceLoss<O extends LossOptions>(
  op: string,
  losses: Tensor,
  options: O,
  more: readonly (keyof O & string)[] = [],
): Tensor {
  const { reduction = "mean" } = checkOptions(op, options, ["reduction", ...more]);
  if (reduction === "none") return losses;
  return reduction === "sum" ? sum(losses) : mean(losses);
}

/** Mean squared error. */
export const mseLoss = (prediction: Tensor, target: TensorLike, options: LossOptions = {}): Tensor => {
  const difference = sub(prediction, target);
  return reduceLoss("mseLoss", mul(difference, difference), options);
};

/** Mean absolute error. */
export const l1Loss = (prediction: Tensor, target: TensorLike, options: LossOptions = {}): Tensor =>
  reduceLoss("l1Loss", abs(sub(prediction, target)), options);

/** Huber loss: quadratic up to an error of `delta`, linear beyond. */
export function huberLoss(
  prediction: Tensor,
  target: TensorLike,
  options: LossOptions & { delta?: number } = {},
): Tensor {
  const { delta = 1 } = checkOptions("huberLoss", options, ["reduction", "delta"]);
  const size = abs(sub(prediction, target));
  const losses = where(less(size, delta), mul(mul(size, size), 0.5), mul(sub(size, delta / 2), delta));
  return reduceLoss("huberLoss", losses, options, ["delta"]);
}

/**
 * Cross-entropy of independent binary logits against targets in [0, 1]. `positiveWeight` multiplies the part of the targets, as
 * PyTorch's `pos_weight` does.
 */
export function binaryCrossEntropyWithLogits(
  logits: Tensor,
  targets: TensorLike,
  options: LossOptions & { positiveWeight?: TensorLike; weight?: Tensor } = {},
): Tensor {
  const names = ["reduction", "positiveWeight", "weight"] as const;
  const { positiveWeight, weight } = checkOptions("binaryCrossEntropyWithLogits", options, names);
  // softplus(x) - x t without cancellation: small losses of large logits keep their digits.
  const isHigh = greaterEqual(targets, 0.5);
  const losses =
    positiveWeight === undefined
      ? add(softplus(where(isHigh, neg(logits), logits)), mul(logits, sub(cast(isHigh, logits.dtype), targets)))
      : add(mul(sub(1, targets), softplus(logits)), mul(mul(targets, positiveWeight), softplus(neg(logits))));
  const weighted = weight === undefined ? losses : losses.mul(weight);
  return reduceLoss("binaryCrossEntropyWithLogits", weighted, options, names.slice(1));
}
