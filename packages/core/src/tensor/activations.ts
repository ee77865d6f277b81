// More activation functions, with PyTorch's names and definitions.
import { ShapeError, showShape } from "../graph/index.js";
import { inexactNode, resolveAxis, type TensorLike, wrap } from "./convert.js";
import { abs, expm1, greater, greaterEqual, less, lessEqual, mul, sqrt, sub, tanh, where } from "./math.js";
import { sigmoid } from "./nnfunctions.js";
import { split } from "./shape.js";
import type { Tensor } from "./tensor.js";

const floating = (op: string, x: TensorLike): Tensor => wrap(inexactNode(op, x));

/** Limits x to [low, high], by default [-1, 1]. The derivative at a bound is 0, as in PyTorch (that of `clip` is 1/2). */
export const hardtanh = (x: TensorLike, low = -1, high = 1): Tensor => {
  const t = floating("hardtanh", x);
  return where(lessEqual(t, low), low, where(greaterEqual(t, high), high, t));
};
/** x limited to [0, 6]. The derivative at a bound is 0. */
export const relu6 = (x: TensorLike): Tensor => hardtanh(floating("relu6", x), 0, 6);
/** x / (1 + |x|). */
export const softsign = (x: TensorLike): Tensor => {
  const t = floating("softsign", x);
  return t.div(abs(t).add(1));
};
/** Piecewise linear approximation of the sigmoid: (x + 3) / 6, limited to [0, 1]. */
export const hardSigmoid = (x: TensorLike): Tensor => mul(relu6(floating("hardSigmoid", x).add(3)), 1 / 6);
/** x hardSigmoid(x), also called hard swish. */
export const hardSilu = (x: TensorLike): Tensor => {
  const t = floating("hardSilu", x);
  return where(lessEqual(t, -3), 0, where(greaterEqual(t, 3), t, mul(t, t.add(3)).mul(1 / 6)));
};
/** max(0, x) + min(0, alpha (exp(x / alpha) - 1)). */
export function celu(x: TensorLike, alpha = 1): Tensor {
  const t = floating("celu", x);
  return where(greater(t, 0), t, mul(expm1(where(greater(t, 0), 0, t.div(alpha))), alpha));
}
/** First half of an axis (the last by default) times the sigmoid of its second half. */
export function glu(x: TensorLike, axis = -1): Tensor {
  const t = floating("glu", x);
  const at = resolveAxis("glu", axis, t.rank);
  if (t.shape[at] % 2 !== 0)
    throw new ShapeError(`glu: axis ${axis} of ${showShape(t.shape)} has ${t.shape[at]} elements, which is odd`);
  const [value, gate] = split(t, 2, at);
  return mul(value, sigmoid(gate));
}
/** (x + sqrt(x^2 + b)) / 2, a smooth form of relu. */
export const squareplus = (x: TensorLike, b = 4): Tensor => {
  const t = floating("squareplus", x);
  return mul(t.add(sqrt(mul(t, t).add(b))), 0.5);
};
/** x where x > threshold, and `value` elsewhere. */
export const threshold = (x: TensorLike, limit: number, value: number): Tensor => where(lessEqual(x, limit), value, x);
/** x moved toward 0 by lambda: 0 where |x| <= lambda. */
export const softshrink = (x: TensorLike, lambda = 0.5): Tensor => {
  const t = floating("softshrink", x);
  return where(greater(t, lambda), sub(t, lambda), where(less(t, -lambda), t.add(lambda), mul(t, 0)));
};
/** x, and 0 where |x| <= lambda. */
export const hardshrink = (x: TensorLike, lambda = 0.5): Tensor => {
  const t = floating("hardshrink", x);
  return where(lessEqual(abs(t), lambda), mul(t, 0), t);
};
/** x - tanh(x). */
export const tanhshrink = (x: TensorLike): Tensor => {
  const t = floating("tanhshrink", x);
  return sub(t, tanh(t));
};
/** x where x > 0, and x times a learned slope (a scalar, or one that broadcasts) elsewhere. */
export const prelu = (x: TensorLike, slope: TensorLike): Tensor => where(greater(x, 0), x, mul(x, slope));
