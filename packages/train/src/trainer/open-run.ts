// What a configuration says, opened: its task, the options of its step, and the explanation of its placement.
import type { Compression } from "@weft/core/internal/shard";
import { type Config, isModuleConfig, type ModuleConfig, type RunConfig } from "./config.js";
import { withFeedback } from "./feedback.js";
import type { RankGroup } from "./group.js";
import { makeOptimizer } from "./optimizer.js";
import { explainStep, nothingFits, planRun } from "./plan-run.js";
import { parseMemory } from "./state-placement.js";
import type { StepOptions } from "./step.js";
import type { Task } from "./task.js";
import { openTextTask } from "./text-task.js";
import { openModuleTask } from "./user-task.js";

/** How a configuration says that gradients are sent. */
const compressionOf = (given: RunConfig["distributed"]["compression"]): Compression | undefined =>
  given === undefined ? undefined : typeof given === "string" ? { dtype: given } : { topK: given.top_k };

/** What the step of a run needs. */
export function stepOptionsOf(
  config: RunConfig,
  task: Task,
  group: Pick<RankGroup, "rank" | "size">,
  { optimizer, scaling }: Pick<StepOptions, "optimizer" | "scaling">,
  window: number,
): StepOptions {
  // With one rank nothing is sent.
  const compression = group.size === 1 ? undefined : compressionOf(config.distributed.compression);
  return {
    window,
    task,
    optimizer: compression === undefined ? optimizer : withFeedback(optimizer, group.size),
    compression,
    group,
    dtype: config.precision.compute === "float64" ? "float64" : "float32",
    seed: config.seed,
    gradientClip: config.training.gradient_clip,
    scaling,
    // A single bucket is ready only after the backward pass: no overlap.
    bucketBytes: config.distributed.overlap ? config.distributed.bucket_mb * 2 ** 20 : Number.POSITIVE_INFINITY,
  };
}

/** Opens model and data of a configuration. */
export const openTask = (config: Config | ModuleConfig): Promise<Task> =>
  isModuleConfig(config) ? openModuleTask(config) : openTextTask(config);

/** Explains how the step of a configuration is placed on its devices: the candidates, their memory and predicted times. */
export async function explainTraining(config: Config | ModuleConfig): Promise<string> {
  const task = await openTask(config);
  const group = { rank: 0, size: config.ranks };
  const options = stepOptionsOf(config, task, group, makeOptimizer(config, 1), 1);
  const [batch] = task.shapesAhead({ rank: 0, ranks: config.ranks }, { epoch: 0, index: 0 }, 1);
  const { memory: given, shares } = config.distributed;
  const memory = given === undefined ? undefined : parseMemory(given, config.ranks);
  const { accumulation } = config.training;
  const speeds = Array.isArray(shares) ? shares : undefined;
  const { plan } = planRun(options, batch, config.ranks, memory, undefined, { accumulation, speeds, orLeast: true });
  if (!plan.fits) throw nothingFits(options, batch, plan, memory!, { accumulation, speeds });
  const unknown =
    shares === "measured" ? "\n\nThe speeds of the ranks are measured when the run starts; here they are alike." : "";
  return explainStep(plan) + unknown;
}
