// Gradient accumulation: an optimizer that takes one step with the mean of every k gradients and otherwise leaves the
// parameters unchanged.
import { type Tensor, treeMap, where, zeros } from "../tensor/index.js";
import { type Optimizer, requireNumber, zerosOf } from "./common.js";

/** State of {@link accumulate}. */
export interface AccumulateState<S> {
  /** Gradients since the last step, int32. */
  count: Tensor;
  /** The sum of these gradients, shaped like the parameters. */
  sum: unknown;
  /** State of the inner optimizer. */
  inner: S;
}

/** Gradient accumulation: takes a step of `optimizer` with the mean of every `every` gradients. */
export function accumulate<S>(optimizer: Optimizer<S>, every: number): Optimizer<AccumulateState<S>> {
  requireNumber("accumulate", "every", every, 1);
  return {
    init: (params) => ({ count: zeros([], { dtype: "int32" }), sum: zerosOf(params), inner: optimizer.init(params) }),

    update(params, grads, state) {
      const count = state.count.add(1);
      const now = count.greaterEqual(every);
      const sum = treeMap((s, g) => s.add(g), state.sum, grads);
      const mean = treeMap((s) => s.div(every), sum) as typeof grads;
      const [stepped, inner] = optimizer.update(params, mean, state.inner);
      const choose = <T>(yes: T, no: T): T => treeMap((a, b) => where(now, a, b), yes, no);
      return [
        choose(stepped, params),
        {
          count: where(now, 0, count).cast("int32"),
          sum: treeMap((s) => where(now, 0, s), sum),
          inner: choose(inner, state.inner),
        },
      ];
    },
  };
}
