// Functions composed of ops that several layers share: numerically stable softmax and relatives, stopGradient, dropout masks.
// Shapes and dtypes must already fit.
import { keepAxes, type Node, type ReduceFn, type Shape } from "../graph/index.js";
import * as build from "./build.js";
import { droppedOf } from "./reference/index.js";

/** Reduces and keeps the reduced axes with size 1. */
const reduceKept = (fn: ReduceFn, x: Node, axes: readonly number[]): Node =>
  build.reshape(build.reduce(fn, x, axes), keepAxes(x.shape, axes));

const stopRule = { name: "stopGradient", backward: () => [null] };

/** Identity with zero gradient. */
export function stopGradient(x: Node): Node {
  const param = build.input(x.shape, x.dtype, "x");
  return build.pick(build.make("custom", [x], { body: { params: [param], outputs: [param] }, rule: stopRule }), 0);
}

/** Maximum along the axes (kept with size 1), or 0 if it is not finite. Subtracting it keeps exp in range. */
function shiftOf(x: Node, axes: readonly number[]): Node {
  const top = reduceKept("max", x, axes);
  const safe = build.where(build.unary("isfinite", top), top, build.zerosLike(top));
  // Constant for the gradient, because the shift cancels.
  return stopGradient(safe);
}

/** The same for shares of a sum: beside +Infinity they do not exist, and a difference of infinities makes all of them NaN. */
function shareShiftOf(x: Node, axes: readonly number[]): Node {
  const top = reduceKept("max", x, axes);
  const isLowest = build.eq(top, build.fullLike(top, Number.NEGATIVE_INFINITY));
  return stopGradient(build.where(isLowest, build.zerosLike(top), top));
}

const shiftedExp = (x: Node, shift: Node): Node => build.unary("exp", build.sub(x, build.expand(shift, x.shape)));

/** exp(x) / sum(exp(x)) along one axis. */
export function softmax(x: Node, axis: number): Node {
  const e = shiftedExp(x, shareShiftOf(x, [axis]));
  return build.div(e, build.expand(reduceKept("sum", e, [axis]), x.shape));
}

/** log(sum(exp(x))) along axes, which are kept with size 1. */
export function logSumExp(x: Node, axes: readonly number[]): Node {
  const shift = shiftOf(x, axes);
  return build.add(build.unary("log", reduceKept("sum", shiftedExp(x, shift), axes)), shift);
}

/**
 * log(softmax(x)) along axes. The maximum is subtracted first: the difference of x and its log-sum has few digits where one element is
 * much larger than the others.
 */
export function logSoftmax(x: Node, axes: readonly number[]): Node {
  const shifted = build.sub(x, build.expand(shiftOf(x, axes), x.shape));
  const total = reduceKept("sum", build.unary("exp", shifted), axes);
  return build.sub(shifted, build.expand(build.unary("log", total), x.shape));
}

/** Softmax of the last axis over positions where the mask is true (fully masked rows are zeros), and its log-sums. */
export function maskedSoftmax(x: Node, mask: Node): { weights: Node; logSum: Node } {
  const axes = [x.shape.length - 1];
  const open = build.where(mask, x, build.fullLike(x, Number.NEGATIVE_INFINITY));
  const shift = shiftOf(open, axes);
  // Of the masked scores, not of all: where a hidden score is far above the others its exponential is infinite, and the gradient
  // would be infinity times zero.
  const e = shiftedExp(open, shift);
  const total = reduceKept("sum", e, axes);
  // The largest unmasked score contributes exp(0) = 1, so the bound affects fully masked rows only.
  const bounded = build.binary("max", total, build.fullLike(total, 0.5));
  const isOpen = build.lt(build.zerosLike(total), total);
  return {
    weights: build.div(e, build.expand(bounded, e.shape)),
    logSum: build.where(isOpen, build.add(build.unary("log", total), shift), build.zerosLike(total)),
  };
}

/** Random dropout mask: true with probability 1 - rate, rounded to 2^-16. `shape` is the shape per key. */
export const dropoutMask = (shape: Shape, rate: number, key: Node): Node =>
  build.make("random", [key], { kind: "dropoutMask", shape, dtype: "bool", threshold: droppedOf(rate) });
