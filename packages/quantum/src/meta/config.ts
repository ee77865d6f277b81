// What a meta-training run is made of: every number has a default, the three presets are written out, and bad values are
// named. Knows no tensors.
import { WeftError } from "@weft/core/internal/graph";
import { type ControlProblem, type Integration, qubitFlip } from "../control/index.js";
import { checkDistribution, gammaTasks, type TaskDistribution } from "../noise/index.js";
import { checkAdaptation } from "./maml.js";
import type { PolicyOptions } from "./policy.js";

export interface MetaConfig {
  problem: ControlProblem;
  tasks: TaskDistribution;
  policy: Omit<PolicyOptions, "segments" | "controls">;
  /** Tasks in a meta-batch. */
  batch: number;
  /** Adaptation of each task; order 1 or 2 of the meta-gradient. */
  inner: { steps: number; rate: number };
  order: 1 | 2;
  /** Adam on the start, gradients clipped to this norm. */
  outer: { rate: number; clip: number };
  iterations: number;
  validation: { tasks: number; every: number };
  integration: { training: Integration; evaluation: Integration };
  seed: number;
}

export const presetNames = ["training", "evaluation", "debug"] as const;
export type MetaPreset = (typeof presetNames)[number];

const base: MetaConfig = {
  problem: qubitFlip(),
  tasks: gammaTasks,
  policy: { width: 128, hidden: 2, activation: "tanh", outputScale: 1 },
  batch: 32,
  inner: { steps: 5, rate: 0.01 },
  order: 1,
  outer: { rate: 1e-3, clip: 1 },
  iterations: 2000,
  validation: { tasks: 20, every: 50 },
  integration: { training: { method: "rk4", tolerance: 1e-5 }, evaluation: { method: "rk4", tolerance: 1e-9 } },
  seed: 0,
};

/** training: as published for rates; evaluation: more tasks and steps, finer integration; debug: small and quick. */
export const presets: Record<MetaPreset, MetaConfig> = {
  training: base,
  evaluation: {
    ...base,
    inner: { ...base.inner, steps: 10 },
    validation: { tasks: 100, every: 50 },
    integration: { ...base.integration, training: { method: "rk4", tolerance: 1e-7 } },
  },
  debug: {
    ...base,
    batch: 4,
    inner: { ...base.inner, steps: 3 },
    iterations: 50,
    policy: { ...base.policy, width: 32 },
    validation: { tasks: 8, every: 10 },
  },
};

/** Settings over a preset; nested groups are merged one level deep. */
export type MetaSettings = { preset?: MetaPreset } & {
  [K in keyof MetaConfig]?: K extends "tasks" | "problem"
    ? MetaConfig[K]
    : MetaConfig[K] extends object
      ? Partial<MetaConfig[K]>
      : MetaConfig[K];
};

const whole = (name: string, value: number, low: number): void => {
  if (!Number.isInteger(value) || value < low)
    throw new WeftError(`meta: ${name} must be a whole number >= ${low}, got ${value}`);
};

export function metaConfig(settings: MetaSettings = {}): MetaConfig {
  const { preset = "training", ...rest } = settings;
  if (!Object.hasOwn(presets, preset))
    throw new WeftError(`meta: there is no preset "${preset}"; known: ${presetNames.join(", ")}`);
  const from = presets[preset];
  const config: MetaConfig = {
    ...from,
    ...(rest as Partial<MetaConfig>),
    policy: { ...from.policy, ...rest.policy },
    inner: { ...from.inner, ...rest.inner },
    outer: { ...from.outer, ...rest.outer },
    validation: { ...from.validation, ...rest.validation },
    integration: { ...from.integration, ...rest.integration },
  };
  checkDistribution(config.tasks);
  checkAdaptation(config.inner);
  whole("batch", config.batch, 1);
  whole("iterations", config.iterations, 0);
  whole("validation.tasks", config.validation.tasks, 1);
  whole("validation.every", config.validation.every, 1);
  whole("seed", config.seed, 0);
  if (config.order !== 1 && config.order !== 2) throw new WeftError(`meta: order must be 1 or 2, got ${config.order}`);
  for (const name of ["rate", "clip"] as const)
    if (!(config.outer[name] > 0))
      throw new WeftError(`meta: outer.${name} must be above 0, got ${config.outer[name]}`);
  if (config.problem.channels.length !== 2)
    throw new WeftError(
      `meta: the problem has ${config.problem.channels.length} channels; tasks bring two rates, dephasing and relaxation`,
    );
  return config;
}
