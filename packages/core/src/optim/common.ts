// Shared parts of the optimizers: learning rates, weight decay, and checks.
import { isComplex, WeftError } from "../graph/index.js";
import { Tensor, treeLeaves, treeMap, zerosLike } from "../tensor/index.js";

/**
 * A number, a tensor (which may change without a new trace), or a schedule over the step count, which is 1 at the first step.
 */
export type LearningRate = number | Tensor | ((step: Tensor) => Tensor | number);

/** An optimizer: pure functions on trees of parameters. */
export interface Optimizer<S> {
  /** Returns the state before the first step. */
  init(params: unknown): S;
  /** Returns new parameters and a new state; does not modify its arguments. */
  update<P>(params: P, grads: P, state: S): [P, S];
}

export function requireNumber(
  op: string,
  name: string,
  value: number,
  low: number,
  high = Number.POSITIVE_INFINITY,
): void {
  if (typeof value !== "number" || !(value >= low && value < high))
    throw new WeftError(
      `${op}: ${name} must be at least ${low}${high < 1e300 ? ` and below ${high}` : ""}, got ${value}`,
    );
}

export function checkRate(op: string, rate: LearningRate): void {
  if (typeof rate === "number") requireNumber(op, "learningRate", rate, 0);
  else if (typeof rate !== "function" && !(rate instanceof Tensor))
    throw new WeftError(`${op}: learningRate is a number, a tensor or a function of the step, got ${typeof rate}`);
}

/**
 * The learning rate at a step. Scalars are computed in float64, as in PyTorch: 1 - 0.999^t loses four digits in float32.
 */
export function rateAt(rate: LearningRate, step: Tensor): Tensor | number {
  const now = typeof rate === "function" ? rate(step) : rate;
  return typeof now === "number" ? now : now.cast("float64");
}

/** Casts a float64 scalar (or number) to the dtype of a parameter. */
export const inPrecision = (scalar: Tensor | number, like: Tensor): Tensor | number =>
  typeof scalar === "number" ? scalar : scalar.cast(like.dtype);

/** The weight decay of a parameter. */
export function decayRule(name: string, decay: number, vectors = true): (param: Tensor) => number {
  if (typeof vectors !== "boolean")
    throw new WeftError(`${name}: decayVectors must be true or false, got ${String(vectors)}`);
  return (param) => (vectors || param.shape.length > 1 ? decay : 0);
}

/** grad + decay * param: L2 regularization. */
export const withDecay = (grad: Tensor, param: Tensor, decay: number): Tensor =>
  decay === 0 ? grad : grad.add(param.mul(decay));

export function refuseComplex(op: string, params: unknown): void {
  const complex = treeLeaves(params).find((leaf) => isComplex(leaf.dtype));
  if (complex !== undefined)
    throw new WeftError(
      `${op}: a parameter is ${complex.dtype}; keep its real and imaginary parts as two real parameters`,
    );
}

/** Tree of zeros with the shapes of another tree. */
export const zerosOf = (params: unknown): unknown => treeMap((leaf) => zerosLike(leaf), params);
