// The workload and the facts of a rank, as the record format names them.

import { treeLeaves } from "@weft/core/internal/tensor";
import { countParameters } from "@weft/core/nn";
import type { ProbeFacts, Workload } from "@weft/formats/internal";
import type { RunConfig } from "./config.js";
import type { RankGroup } from "./group.js";
import type { Task } from "./task.js";

const precisionNames = {
  float32: "fp32",
  tf32: "tf32",
  float64: "fp64",
  bfloat16: "amp-bf16",
  float16: "amp-fp16",
} as const;

/** The workload of a training run. */
export function workloadOf(config: RunConfig, task: Task, params: unknown, stepsPerEpoch: number): Workload {
  const parameters = countParameters(params);
  return {
    ...task.workload,
    datasetSamples: task.samples.train as number,
    batchPerRank: config.batchPerRank,
    accumulation: config.training.accumulation,
    stepsPerEpoch,
    dropLast: false,
    parameters,
    gradientBytes: parameters * (config.precision.compute === "float64" ? 8 : 4),
    precision: precisionNames[config.precision.compute],
    learningRate: config.optimizer.learning_rate,
    optimizer: config.optimizer.type,
    seed: config.seed,
    // An epoch is one pass over the same rows at every global batch size.
    scaling: "strong",
  };
}

/** The facts of one rank. */
export const factsOf = (config: RunConfig, group: RankGroup, task: Task, params: unknown): ProbeFacts => ({
  framework: "weft",
  worldSize: group.size,
  ...(group.size > 1 && { backend: group.kind }),
  samplerSharded: group.size > 1,
  samplerClass: "weft",
  loaderWorkers: task.loaders,
  persistentWorkers: true,
  shuffle: true,
  parallelism: group.size > 1 ? "ddp" : "none",
  parameterElements: treeLeaves(params).map((leaf) => leaf.size),
  cores: config.distributed.cores_per_rank,
});
