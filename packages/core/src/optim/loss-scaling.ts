// Dynamic loss scaling for float16: the loss is multiplied by a scale, so that small gradients do not underflow, and the gradients
// are divided by it before the step. An overflow skips the step and halves the scale; `interval` steps without one double it. The
// state consists of tensors, so that a jitted step is traced once.

import { checkOptions } from "../graph/index.js";
import { type Tensor, tensor, treeLeaves, treeMap, where } from "../tensor/index.js";
import { type Optimizer, requireNumber } from "./common.js";

/** Options of {@link lossScaled}. @inline */
interface LossScalingOptions {
  /** The scale of the first step. */
  initial?: number;
  /** Factor of the scale after an overflow. */
  backoff?: number;
  /** Factor of the scale after `interval` steps without an overflow. */
  growth?: number;
  /** Steps without an overflow after which the scale grows. */
  interval?: number;
}

/** State of {@link lossScaled}. */
export interface ScaledState<S> {
  /** State of the inner optimizer. */
  inner: S;
  /** float32. */
  scale: Tensor;
  /** Steps since the last overflow or growth, int32. */
  good: Tensor;
  /** Total number of skipped steps, int32. */
  skipped: Tensor;
}

/** An optimizer with dynamic loss scaling. */
export interface LossScaled<S> extends Optimizer<ScaledState<S>> {
  /** The loss to differentiate. */
  scaleLoss(loss: Tensor, state: ScaledState<S>): Tensor;
}

/** One bool: whether every number of a tree is finite. */
function allFinite(tree: unknown): Tensor {
  return treeLeaves(tree)
    .map((leaf) => leaf.isFinite().all())
    .reduce((a, b) => a.logicalAnd(b));
}

/**
 * Adds dynamic loss scaling to an optimizer. Differentiate `scaleLoss(loss, state)`; `update` divides the gradients by the scale,
 * and skips the step if a gradient is not finite.
 */
export function lossScaled<S>(optimizer: Optimizer<S>, options: LossScalingOptions = {}): LossScaled<S> {
  checkOptions("lossScaled", options, ["initial", "backoff", "growth", "interval"]);
  const { initial = 2 ** 16, backoff = 0.5, growth = 2, interval = 2000 } = options;
  requireNumber("lossScaled", "initial", initial, 1);
  requireNumber("lossScaled", "backoff", backoff, 1e-6, 1);
  requireNumber("lossScaled", "growth", growth, 1);
  requireNumber("lossScaled", "interval", interval, 1);
  const int = (value: number): Tensor => tensor(Int32Array.of(value), { shape: [] });
  return {
    init: (params) => ({
      inner: optimizer.init(params),
      scale: tensor(Float32Array.of(initial), { shape: [] }),
      good: int(0),
      skipped: int(0),
    }),

    scaleLoss: (loss, state) => loss.mul(state.scale.cast(loss.dtype === "float64" ? "float64" : "float32")),

    update(params, grads, state) {
      const inverse = state.scale.reciprocal();
      // float16 gradients are divided in float32, where the quotient does not underflow.
      const divided = treeMap(
        (g, p) => {
          const wide = g.dtype === "float64" ? g : g.cast("float32");
          return wide.mul(inverse.cast(wide.dtype)).cast(p.dtype);
        },
        grads,
        params,
      );
      const fine = allFinite(grads);
      const [next, inner] = optimizer.update(params, divided, state.inner);
      const selected = <T>(fresh: T, old: T): T => treeMap((a, b) => where(fine, a, b), fresh, old) as T;
      const good = where(fine, state.good.add(1), 0);
      const grows = good.greaterEqual(interval);
      const scale = where(
        fine,
        where(grows, state.scale.mul(growth), state.scale),
        // A scale below one does not help: the loss itself is not finite.
        state.scale.mul(backoff).maximum(1),
      );
      return [
        selected(next, params),
        {
          inner: selected(inner, state.inner),
          scale,
          good: where(grows, 0, good),
          skipped: state.skipped.add(fine.logicalNot().cast("int32")),
        },
      ];
    },
  };
}
