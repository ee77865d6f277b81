// The public function `train`: for configurations, and for models that are defined in the calling program.

import { checkOptionNames, WeftError } from "@weft/core/internal/graph";
import { type Config, checkAnyConfig, type ModuleConfig, type RawModuleConfig, resolveModuleConfig } from "./config.js";
import { isRank, joinGroup, singleRank } from "./group.js";
import { type TrainOptions, type TrainResult, trainConfig, trainTask } from "./trainer.js";
import { type UserDefinition, UserTask } from "./user-task.js";

/** A model that the calling program defines, and how to train it. */
export interface TrainDefinition<P = unknown, S = unknown> extends UserDefinition<P, S> {
  /** Name of the run (default "model"). */
  name?: string;
  /** Folder of the run; runs/NAME by default. */
  output?: string;
  /** Seed of parameters, order and dropout. */
  seed?: number;
  /** Epochs, batch (`global_batch` or `batch_per_rank`), accumulation, step limit, clipping: as in a YAML file. */
  training: Partial<RawModuleConfig["training"]> & { epochs: number };
  /** Optimizer, learning rate and schedule: as in a YAML file. */
  optimizer: Partial<RawModuleConfig["optimizer"]> & { learning_rate: number };
  /** Precision of the computation and loss scaling. */
  precision?: Partial<RawModuleConfig["precision"]>;
  /** Ranks, buckets and the memory limit of a device. */
  distributed?: Partial<RawModuleConfig["distributed"]>;
  /** When checkpoints are written and how many are kept. */
  checkpoint?: Partial<RawModuleConfig["checkpoint"]>;
}

const trainNames: (keyof TrainOptions)[] = [
  ...(["group", "resume", "signal", "readEvery", "tapeSteps", "probeFolder"] as const),
  ...(["onStep", "onEpoch", "onNote"] as const),
];

/**
 * Trains a model on this process's device, or as one of several ranks.
 *
 * A model is plain functions over a tree of tensors. The loss is the mean over the whole batch, written as for one device;
 * with several ranks (started by `weft train`, `srun` or `mpirun`) each computes its share of it, and the losses are those
 * of one device.
 *
 * @param given - A configuration, or a model with its loss and its data.
 * @returns status, losses and evaluations of the run.
 *
 * @example
 * ```ts
 * import { mkdtempSync } from "node:fs";
 * import { tmpdir } from "node:os";
 * import { join } from "node:path";
 * import * as weft from "@weft/core";
 * import { train } from "@weft/train";
 *
 * const x = weft.randn([64, 3], { seed: 1 });
 * const y = x.matmul(weft.tensor([[1], [-2], [0.5]]));
 * const { losses } = await train({
 *   model: { init: (key) => ({ w: weft.randn([3, 1], { key }) }) },
 *   loss: (params: { w: weft.Tensor }, batch: { x: weft.Tensor; y: weft.Tensor }) =>
 *     batch.x.matmul(params.w).sub(batch.y).square().mean(),
 *   data: { x, y },
 *   training: { epochs: 20, global_batch: 16 },
 *   optimizer: { learning_rate: 0.1 },
 *   output: join(mkdtempSync(join(tmpdir(), "weft-")), "run"),
 * });
 * console.log(losses[0] > 1, losses.at(-1)! < 0.01); // true true
 * ```
 */
export async function train<P = unknown, S = unknown>(
  given: Config | ModuleConfig | TrainDefinition<P, S>,
  options: TrainOptions = {},
): Promise<TrainResult> {
  checkOptionNames("train", options, trainNames);
  if (!("loss" in given)) return trainConfig(given as Config | ModuleConfig, options);
  const { model, loss, data, correct, classes, scored, weight, name = "model", ...sections } = given;
  if (typeof model?.init !== "function" || typeof loss !== "function")
    throw new WeftError("train: give model: { init(key) }, loss(params, batch, { key, train }) and data");
  const raw = checkAnyConfig({ ...sections, name, model: name, options: {} }, "train") as RawModuleConfig;
  const isOne = options.group !== undefined || !isRank();
  if (isOne && options.group === undefined && raw.distributed.devices > 1)
    throw new WeftError(
      `train: distributed.devices is ${raw.distributed.devices}, and this is one process; start the program once per rank (mpirun -n ${raw.distributed.devices} node program.mjs), or put the model into a module and use weft train`,
    );
  const group = options.group ?? (isOne ? singleRank : await joinGroup());
  const config: ModuleConfig = { ...resolveModuleConfig(raw, { devices: group.size }), model: name };
  try {
    const counted = { ...(correct && { correct }), ...(classes && { classes }), ...(scored && { scored }) };
    const definition = { model, loss, data, ...counted, ...(weight && { weight }) };
    return await trainTask(config, async () => new UserTask(definition as never, config) as never, {
      ...options,
      group,
    });
  } finally {
    if (options.group === undefined) group.close();
  }
}
