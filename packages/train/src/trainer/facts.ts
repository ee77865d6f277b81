// The workload and the facts of a rank, as the record format names them.

import { treeLeaves } from "@weft/core/internal/tensor";
import { countParameters } from "@weft/core/nn";
import type { ProbeFacts, Workload } from "@weft/formats";
import type { TokenSet } from "../data/index.js";
import type { Config } from "./config.js";
import type { RankGroup } from "./group.js";

const precisionNames = {
  float32: "fp32",
  tf32: "tf32",
  float64: "fp64",
  bfloat16: "amp-bf16",
  float16: "amp-fp16",
} as const;

/** The workload of a training run. */
export function workloadOf(config: Config, set: TokenSet, params: unknown, stepsPerEpoch: number): Workload {
  const parameters = countParameters(params);
  return {
    dataset: config.data.dataset,
    datasetSamples: set.rows,
    batchPerRank: config.batchPerRank,
    accumulation: config.training.accumulation,
    stepsPerEpoch,
    dropLast: false,
    sequenceLength: config.model.max_seq_len,
    model: "encoder classifier",
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
export const factsOf = (config: Config, group: RankGroup, params: unknown): ProbeFacts => ({
  framework: "weft",
  worldSize: group.size,
  ...(group.size > 1 && { backend: group.kind }),
  samplerSharded: group.size > 1,
  samplerClass: "weft",
  loaderWorkers: config.data.loaders,
  persistentWorkers: true,
  shuffle: true,
  parallelism: group.size > 1 ? "ddp" : "none",
  parameterElements: treeLeaves(params).map((leaf) => leaf.size),
  cores: config.distributed.cores_per_rank,
});
