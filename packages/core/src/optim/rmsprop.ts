// RMSprop: torch.optim.RMSprop.
import { checkOptions } from "../graph/index.js";
import { type Tensor, treeMap, zeros } from "../tensor/index.js";
import {
  checkRate,
  inPrecision,
  type LearningRate,
  type Optimizer,
  rateAt,
  refuseComplex,
  requireNumber,
  withDecay,
  zerosOf,
} from "./common.js";

/** Options of {@link rmsprop}. @inline */
interface RmspropOptions {
  /** A number, a tensor, or a function of the step; 0.01 by default. */
  learningRate?: LearningRate;
  /** Decay of the running mean of squared gradients. */
  alpha?: number;
  /** Added to the square root of the running mean. */
  epsilon?: number;
  /** Decay of the running sum of steps; 0 means no momentum. */
  momentum?: number;
  /** Whether the running mean of the gradient is subtracted, so that its variance counts. */
  centered?: boolean;
  /** Factor of the parameters that is added to the gradient (L2). */
  weightDecay?: number;
}

/** State of {@link rmsprop}: trees shaped like the parameters; null where an option is off. */
export interface RmspropState {
  /** Steps taken, int32. */
  step: Tensor;
  /** Running means of squared gradients. */
  square: unknown;
  /** Running means of gradients, if centered. */
  mean: unknown;
  /** Running sums of steps, with momentum. */
  momentum: unknown;
}

/** The RMSprop optimizer, as torch.optim.RMSprop. */
export function rmsprop(options: RmspropOptions = {}): Optimizer<RmspropState> {
  checkOptions("rmsprop", options, ["learningRate", "alpha", "epsilon", "momentum", "centered", "weightDecay"]);
  const {
    learningRate = 0.01,
    alpha = 0.99,
    epsilon = 1e-8,
    momentum = 0,
    centered = false,
    weightDecay = 0,
  } = options;
  checkRate("rmsprop", learningRate);
  requireNumber("rmsprop", "alpha", alpha, 0, 1);
  requireNumber("rmsprop", "epsilon", epsilon, 0);
  requireNumber("rmsprop", "momentum", momentum, 0);
  requireNumber("rmsprop", "weightDecay", weightDecay, 0);
  return {
    init(params) {
      refuseComplex("rmsprop", params);
      return {
        step: zeros([], { dtype: "int32" }),
        square: zerosOf(params),
        mean: centered ? zerosOf(params) : null,
        momentum: momentum > 0 ? zerosOf(params) : null,
      };
    },

    update(params, grads, state) {
      const step = state.step.add(1);
      const rate = rateAt(learningRate, step);
      const used = treeMap((g, p) => withDecay(g, p, weightDecay), grads, params);
      const square = treeMap((v, g) => v.mul(alpha).add(g.mul(g).mul(1 - alpha)), state.square, used);
      const mean = centered ? treeMap((m, g) => m.add(g.sub(m).mul(1 - alpha)), state.mean, used) : null;
      const spread = mean === null ? square : treeMap((v, m) => v.sub(m.mul(m)), square, mean);
      const scaled = treeMap((g, v) => g.div(v.sqrt().add(epsilon)), used, spread);
      const buffer = momentum > 0 ? treeMap((b, d) => b.mul(momentum).add(d), state.momentum, scaled) : null;
      const direction = (buffer ?? scaled) as typeof params;
      return [
        treeMap((p, d) => p.sub(d.mul(inPrecision(rate, p))), params, direction),
        { step, square, mean, momentum: buffer },
      ];
    },
  };
}
