// Adam and AdamW: torch.optim.Adam and torch.optim.AdamW. They differ only in weight decay.

import { checkOptions } from "../graph/index.js";
import { sub, type Tensor, treeMap, zeros } from "../tensor/index.js";
import {
  checkRate,
  decayRule,
  inPrecision,
  type LearningRate,
  type Optimizer,
  rateAt,
  refuseComplex,
  requireNumber,
  withDecay,
  zerosOf,
} from "./common.js";

/** Options of {@link adam} and {@link adamW}. @inline */
interface AdamOptions {
  /** A number, a tensor, or a function of the step. */
  learningRate?: LearningRate;
  /** Decay of the running mean of gradients and of their squares. */
  betas?: readonly [number, number];
  /** Added to the square root of the corrected second moment. */
  epsilon?: number;
  /** Adam: added to the gradient (L2). AdamW: subtracted from the parameter, scaled by the learning rate. */
  weightDecay?: number;
  /** false: parameters with fewer than two dimensions (biases, norms) do not decay; true by default, as in PyTorch. */
  decayVectors?: boolean;
  /** Whether the largest second moment so far counts instead of the last one; false by default. */
  amsgrad?: boolean;
}

/** State of {@link adam}, {@link adamW} and the other adaptive optimizers; null where one has no such running mean. */
export interface AdamState {
  /** Steps taken, int32. */
  step: Tensor;
  /** Running means of the gradients, shaped like the parameters. */
  mean: unknown;
  /** Running means of the squared gradients, shaped like the parameters. */
  square: unknown;
  /** The largest of these means so far; absent without amsgrad. */
  largest?: unknown;
  /** The product of the momenta so far, float64; only in NAdam. */
  product?: Tensor;
}

function make(name: "adam" | "adamW", options: AdamOptions, defaultDecay: number): Optimizer<AdamState> {
  checkOptions(name, options, ["learningRate", "betas", "epsilon", "weightDecay", "decayVectors", "amsgrad"]);
  const {
    learningRate = 1e-3,
    betas = [0.9, 0.999],
    epsilon = 1e-8,
    weightDecay = defaultDecay,
    amsgrad = false,
  } = options;
  const [beta1, beta2] = betas;
  const decoupled = name === "adamW";
  checkRate(name, learningRate);
  requireNumber(name, "betas[0]", beta1, 0, 1);
  requireNumber(name, "betas[1]", beta2, 0, 1);
  requireNumber(name, "epsilon", epsilon, 0);
  requireNumber(name, "weightDecay", weightDecay, 0);
  const decayOf = decayRule(name, weightDecay, options.decayVectors);

  return {
    init(params) {
      refuseComplex(name, params);
      return {
        step: zeros([], { dtype: "int32" }),
        mean: zerosOf(params),
        square: zerosOf(params),
        ...(amsgrad ? { largest: zerosOf(params) } : {}),
      };
    },

    update(params, grads, state) {
      const step = state.step.add(1);
      const count = step.cast("float64");
      const rate = rateAt(learningRate, step);
      // beta^t as exp(t log beta), in float64.
      const correction1 = sub(1, count.mul(Math.log(beta1)).exp());
      // Scalar factors, which save a division per element.
      const perRoot = sub(1, count.mul(Math.log(beta2)).exp()).rsqrt();
      const stepSize = correction1.reciprocal().mul(rate);
      const used = decoupled ? grads : treeMap((g, p) => withDecay(g, p, decayOf(p)), grads, params);
      const mean = treeMap((m, g) => m.add(g.sub(m).mul(1 - beta1)), state.mean, used);
      const square = treeMap((v, g) => v.mul(beta2).add(g.mul(g).mul(1 - beta2)), state.square, used);
      const largest = amsgrad ? treeMap((top, v) => top.maximum(v), state.largest, square) : undefined;
      const shrink = (p: Tensor): Tensor =>
        decoupled && decayOf(p) !== 0 ? p.mul(inPrecision(shrinkage(rate, decayOf(p)), p)) : p;
      const updated = treeMap(
        (p, m, v) => {
          const denominator = v.sqrt().mul(inPrecision(perRoot, v)).add(epsilon);
          return shrink(p).sub(m.div(denominator).mul(inPrecision(stepSize, p)));
        },
        params,
        mean,
        largest ?? square,
      );
      return [updated, { step, mean, square, ...(amsgrad ? { largest } : {}) }];
    },
  };
}

/** The factor of a parameter in a step with decoupled weight decay. */
export const shrinkage = (rate: Tensor | number, decay: number): Tensor | number =>
  typeof rate === "number" ? 1 - rate * decay : sub(1, rate.mul(decay));

/**
 * The Adam optimizer, as torch.optim.Adam.
 *
 * @example
 * ```ts
 * import { type Tensor, tensor, valueAndGrad } from "@weft/core";
 * import * as optim from "@weft/core/optim";
 *
 * const optimizer = optim.adam({ learningRate: 0.1 });
 * let params = { w: tensor([4, -3]) };
 * let state = optimizer.init(params);
 * const loss = (p: { w: Tensor }): Tensor => p.w.sub(1).square().sum();
 * for (let step = 0; step < 50; step++) {
 *   const [, grads] = valueAndGrad(loss)(params);
 *   [params, state] = optimizer.update(params, grads, state);
 * }
 * console.log((await loss(params).item()) < 1); // true
 * ```
 */
export const adam = (options: AdamOptions = {}): Optimizer<AdamState> => make("adam", options, 0);
/** The AdamW optimizer (decoupled weight decay, 0.01 by default), as torch.optim.AdamW. */
export const adamW = (options: AdamOptions = {}): Optimizer<AdamState> => make("adamW", options, 0.01);
