// Configuration of meta-training: defaults, presets and validation.
import { WeftError } from "@weft/core/internal/graph";
import { z } from "zod";
import { type ControlProblem, type Integration, qubitFlip } from "../control/index.js";
import { integrationSchema } from "../control/internal.js";
import { checkDistribution, gammaTasks, type TaskDistribution } from "../noise/index.js";
import { above, choiceOf, number, readValue, strict, wholeNumber } from "../schema/index.js";
import type { PolicyOptions } from "./policy.js";

/** Configuration of a meta-training run. */
export interface MetaConfig {
  /** The control problem. */
  problem: ControlProblem;
  /** Distribution of environments. */
  tasks: TaskDistribution;
  /** The policy network. */
  policy: Omit<PolicyOptions, "segments" | "controls">;
  /** Number of tasks per meta-batch. */
  batch: number;
  /** Adaptation of each task. */
  inner: { steps: number; rate: number };
  /** Order of the meta-gradient. */
  order: 1 | 2;
  /** Adam on the initial parameters, with gradients clipped to a global norm. */
  outer: { rate: number; clip: number };
  /** Number of iterations. */
  iterations: number;
  /** Number of validation tasks, and iterations between validations. */
  validation: { tasks: number; every: number };
  /** Steps of training and evaluation. */
  integration: { training: Integration; evaluation: Integration };
  /** Seed of parameters and tasks. */
  seed: number;
}

/** Names of presets. */
export const presetNames = ["training", "evaluation", "debug"] as const;
/** Name of a preset. */
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

/** Presets: training as published, evaluation with more tasks and steps and finer integration, debug for short runs. */
const presets: Record<MetaPreset, MetaConfig> = {
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

/** Changes to a preset; nested groups are merged one level deep. */
export type MetaSettings = { preset?: MetaPreset } & {
  [K in keyof MetaConfig]?: K extends "tasks" | "problem"
    ? MetaConfig[K]
    : MetaConfig[K] extends object
      ? Partial<MetaConfig[K]>
      : MetaConfig[K];
};

const integration = integrationSchema.optional();
/** Settings with the same form in files and programs. */
export const settingsShape = {
  preset: choiceOf(presetNames).optional(),
  seed: wholeNumber(0, 2 ** 32 - 1).optional(),
  policy: strict({
    width: wholeNumber(1).optional(),
    hidden: wholeNumber(0).optional(),
    activation: choiceOf(["tanh", "relu", "silu", "gelu"]).optional(),
    outputScale: number.optional(),
    gain: number.optional(),
  }).optional(),
  batch: wholeNumber(1).optional(),
  inner: strict({ steps: wholeNumber(0).optional(), rate: above("zero").optional() }).optional(),
  order: z.literal([1, 2], { error: (issue) => `must be 1 or 2, got ${String(issue.input)}` }).optional(),
  outer: strict({ rate: above("positive").optional(), clip: above("positive").optional() }).optional(),
  iterations: wholeNumber(0).optional(),
  validation: strict({ tasks: wholeNumber(1).optional(), every: wholeNumber(1).optional() }).optional(),
  integration: strict({ training: integration, evaluation: integration }).optional(),
};
const settingsSchema = strict({
  ...settingsShape,
  problem: z.custom<ControlProblem>().optional(),
  tasks: z.custom<TaskDistribution>().optional(),
});

/** The configuration of settings over a preset; invalid settings are errors. */
export function metaConfig(settings: MetaSettings = {}): MetaConfig {
  const { preset = "training", ...rest } = readValue(settingsSchema, settings, "meta");
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
  if (config.problem.channels.length !== 2)
    throw new WeftError(
      `meta: the problem has ${config.problem.channels.length} channels; tasks bring two rates, dephasing and relaxation`,
    );
  return config;
}
