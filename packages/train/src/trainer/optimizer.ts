// The optimizer of a configuration, with its schedule inside the jitted step.
import { stateDict } from "@weft/core/nn";
import {
  adam,
  adamW,
  type LearningRateSchedule,
  type LossScaled,
  layerDecay,
  layerOf,
  lossScaled,
  type Optimizer,
  ratesByName,
  schedule,
  sgd,
  withRates,
} from "@weft/core/optim";
import { ConfigError, type RawConfig } from "./config.js";

interface ConfiguredOptimizer {
  optimizer: Optimizer<unknown>;
  /** float16: the optimizer with a scaled loss. */
  scaling: { optimizer: LossScaled<unknown>; dynamic: boolean } | null;
  /** For logs: the learning rate of a step, from 1. */
  rate: LearningRateSchedule;
}

/** A fixed scale does not change; the factor must be below 1, and an overflow ends the run anyway. */
const hardly = 1 - 2 ** -20;

/** The name of a parameter as users know it: those of a fine-tuning are below `params`. */
const plainName = (name: string): string => name.replace(/^params\./, "");

/** The optimizer with the rates of single parameters that a configuration gives. */
function withOwnRates(
  optimizer: Optimizer<unknown>,
  { rates, layer_decay: decay }: RawConfig["optimizer"],
): Optimizer<unknown> {
  if (rates === undefined && decay === undefined) return optimizer;
  const named = ratesByName(rates ?? {});
  const checked = (params: unknown): ((name: string) => number) => {
    const names = Object.keys(stateDict(params)).map(plainName);
    const unused = Object.keys(rates ?? {}).find((start) => !names.some((name) => name.startsWith(start)));
    if (unused !== undefined)
      throw new ConfigError(
        `optimizer.rates: no trained parameter starts with ${unused}; they are called ${names.slice(0, 3).join(", ")}, ...`,
      );
    const layers = Math.max(-1, ...names.map(layerOf)) + 1;
    if (decay !== undefined && layers === 0)
      throw new ConfigError("optimizer.layer_decay: no parameter has the number of a layer in its name (layer.0, h.0)");
    const byLayer = layerDecay(layers, decay ?? 1);
    return (name) => named(plainName(name)) * byLayer(plainName(name));
  };
  return {
    ...optimizer,
    init: (params) => optimizer.init(params),
    update: (params, grads, state) => withRates(optimizer, checked(params)).update(params, grads, state),
  };
}

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
    ...(given.decay_vectors !== undefined && { decayVectors: given.decay_vectors }),
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
  const optimizer = withOwnRates(makers[given.type]() as Optimizer<unknown>, given);
  const { compute, loss_scale: scale } = config.precision;
  const fixed = typeof scale === "number" ? { initial: scale, growth: 1, backoff: hardly } : {};
  const scaling =
    compute === "float16" ? { optimizer: lossScaled(optimizer, fixed), dynamic: typeof scale !== "number" } : null;
  return { optimizer, scaling, rate };
}
