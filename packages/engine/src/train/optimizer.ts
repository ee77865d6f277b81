// The optimiser of a configuration, with its schedule inside the jitted step.
import { adam, adamW, type Optimizer, type Schedule, schedule, sgd } from "../optim/index.js";
import type { RawConfig } from "./config.js";

export interface ConfiguredOptimizer {
  optimizer: Optimizer<unknown>;
  /** For logs: the rate of a step, from 1. */
  rate: Schedule;
}

export function makeOptimizer(
  { optimizer: given }: Pick<RawConfig, "optimizer">,
  totalSteps: number,
): ConfiguredOptimizer {
  const rate = schedule({
    shape: given.schedule,
    learningRate: given.learning_rate,
    // A run shorter than its warm-up ends in it.
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
  return { optimizer: makers[given.type]() as unknown as Optimizer<unknown>, rate };
}
