// The optimizer of a configuration, with its schedule inside the jitted step.
import {
  adam,
  adamW,
  type LearningRateSchedule,
  type LossScaled,
  lossScaled,
  type Optimizer,
  schedule,
  sgd,
} from "@weft/core/optim";
import type { RawConfig } from "./config.js";

interface ConfiguredOptimizer {
  optimizer: Optimizer<unknown>;
  /** float16: the optimizer with a scaled loss. */
  scaling: { optimizer: LossScaled<unknown>; dynamic: boolean } | null;
  /** For logs: the learning rate of a step, from 1. */
  rate: LearningRateSchedule;
}

/** A fixed scale does not change; the factor must be below 1, and an overflow ends the run anyway. */
const hardly = 1 - 2 ** -20;

export function makeOptimizer(
  config: Pick<RawConfig, "optimizer" | "precision">,
  totalSteps: number,
): ConfiguredOptimizer {
  const given = config.optimizer;
  const rate = schedule({
    shape: given.schedule,
    learningRate: given.learning_rate,
    // A run shorter than its warm-up ends during it.
    warmupSteps: Math.min(given.warmup_steps, Math.max(0, totalSteps - 1)),
    totalSteps,
    ...(given.min_ratio !== undefined && { minRatio: given.min_ratio }),
  });
  const constant = given.schedule === "constant" && given.warmup_steps === 0;
  const learningRate = constant ? given.learning_rate : rate;
  const common = {
    learningRate,
    ...(given.weight_decay !== undefined && { weightDecay: given.weight_decay }),
  };
  const moments = {
    ...(given.betas !== undefined && { betas: given.betas }),
    ...(given.epsilon !== undefined && { epsilon: given.epsilon }),
  };
  const makers: Record<typeof given.type, () => Optimizer<never>> = {
    adamw: () => adamW({ ...common, ...moments }) as Optimizer<never>,
    adam: () => adam({ ...common, ...moments }) as Optimizer<never>,
    sgd: () =>
      sgd({ ...common, ...(given.momentum !== undefined && { momentum: given.momentum }) }) as Optimizer<never>,
  };
  const optimizer = makers[given.type]() as unknown as Optimizer<unknown>;
  const { compute, loss_scale: scale } = config.precision;
  const fixed = typeof scale === "number" ? { initial: scale, growth: 1, backoff: hardly } : {};
  const scaling =
    compute === "float16" ? { optimizer: lossScaled(optimizer, fixed), dynamic: typeof scale !== "number" } : null;
  return { optimizer, scaling, rate };
}
