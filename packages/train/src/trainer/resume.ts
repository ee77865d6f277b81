// Whether a checkpoint may be continued with a configuration: everything that determines the training curve must be as it was.
import type { Config, ModuleConfig, RunConfig } from "./config.js";
import { TrainError } from "./errors.js";
import type { Progress } from "./progress.js";

/** Options that are paths of data, which is compared by its content. */
const dataPaths = ["data", "validation", "test"];
/** Option of the layout of attention projections, which a memory limit changes. */
const layoutOption = "options.by_head";

/** What determines the training curve, by key; the same on all ranks. */
export function curveOf(config: RunConfig): Record<string, unknown> {
  const { gradient_clip, label_smoothing = 0 } = config.training as Partial<Config["training"]>;
  const options = Object.entries((config as Partial<ModuleConfig>).options ?? {});
  return {
    model: config.model,
    optimizer: config.optimizer,
    seed: config.seed,
    precision: config.precision,
    "distributed.compression": config.distributed.compression,
    "training.gradient_clip": gradient_clip,
    "training.label_smoothing": label_smoothing,
    ...Object.fromEntries(
      options.flatMap(([name, value]) => (dataPaths.includes(name) ? [] : [[`options.${name}`, value]])),
    ),
  };
}

/** Throws if a run cannot continue from a checkpoint; `data` identifies the training data. */
export function checkResume(progress: Progress, config: RunConfig, data: string): void {
  const [before, now] = [curveOf(progress.config), curveOf(config)];
  const problems = Object.keys({ ...before, ...now }).flatMap((name) => {
    const [old, given] = [before[name], now[name]].map((value) => JSON.stringify(value) ?? "none");
    if (old === given) return [];
    const advice = name === layoutOption ? " (set model.by_head as it was; distributed.memory turns it on)" : "";
    return [old.length + given.length > 120 ? `${name} differs` : `${name} was ${old} and is ${given} now${advice}`];
  });
  if (progress.globalBatch !== config.globalBatch)
    problems.push(
      `the global batch was ${progress.globalBatch} and is ${config.globalBatch} now (set training.global_batch to keep it)`,
    );
  if (progress.data.train !== data) problems.push("the training data or the tokenizer differ");
  if (problems.length > 0)
    throw new TrainError(`${config.output} cannot be resumed with this configuration: ${problems.join("; ")}`);
}
