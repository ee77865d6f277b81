// Stochastic gradient descent with momentum: torch.optim.SGD.
import { checkOptions, WeftError } from "../graph/index.js";
import { type Tensor, tensor, treeMap, where, zeros } from "../tensor/index.js";
import {
  checkRate,
  decayRule,
  inPrecision,
  type LearningRate,
  type Optimizer,
  rateAt,
  requireNumber,
  withDecay,
  zerosOf,
} from "./common.js";

/** Options of {@link sgd}. @inline */
interface SgdOptions {
  /** A number, a tensor, or a function of the step. */
  learningRate: LearningRate;
  /** Decay of the running sum of gradients; 0 means no momentum. */
  momentum?: number;
  /** Share of a gradient that the running sum leaves out, except in the first step; 0 by default. */
  dampening?: number;
  /** Whether the step looks ahead along the momentum (Nesterov). */
  nesterov?: boolean;
  /** Factor of the parameters that is added to the gradient (L2). */
  weightDecay?: number;
  /** false: parameters with fewer than two dimensions (biases, norms) do not decay; true by default, as in PyTorch. */
  decayVectors?: boolean;
}

/** State of {@link sgd}. */
export interface SgdState {
  /** Steps taken, int32. */
  step: Tensor;
  /** The running sum of gradients, shaped like the parameters; null without momentum. */
  momentum: unknown;
}

/** Stochastic gradient descent with momentum, as torch.optim.SGD. */
export function sgd(options: SgdOptions): Optimizer<SgdState> {
  checkOptions("sgd", options, ["learningRate", "momentum", "dampening", "nesterov", "weightDecay", "decayVectors"]);
  const { learningRate, momentum = 0, dampening = 0, nesterov = false, weightDecay = 0 } = options;
  checkRate("sgd", learningRate);
  requireNumber("sgd", "momentum", momentum, 0);
  requireNumber("sgd", "dampening", dampening, 0);
  requireNumber("sgd", "weightDecay", weightDecay, 0);
  const decayOf = decayRule("sgd", weightDecay, options.decayVectors);
  if (nesterov && (momentum === 0 || dampening !== 0))
    throw new WeftError("sgd: nesterov needs a momentum above 0 and no dampening");
  return {
    init: (params) => ({ step: zeros([], { dtype: "int32" }), momentum: momentum === 0 ? null : zerosOf(params) }),

    update(params, grads, state) {
      const step = state.step.add(1);
      const rate = rateAt(learningRate, step);
      const decayed = treeMap((g, p) => withDecay(g, p, decayOf(p)), grads, params);
      const damped = (g: Tensor): Tensor =>
        dampening === 0 ? g : g.mul(where(step.equal(1), 1, tensor(1 - dampening, { dtype: g.dtype })));
      const buffer = momentum === 0 ? null : treeMap((b, g) => b.mul(momentum).add(damped(g)), state.momentum, decayed);
      const direction =
        buffer === null ? decayed : nesterov ? treeMap((g, b) => g.add(b.mul(momentum)), decayed, buffer) : buffer;
      return [treeMap((p, d) => p.sub(d.mul(inPrecision(rate, p))), params, direction), { step, momentum: buffer }];
    },
  };
}
