// Values derived from a configuration: read interval, prefetch depth, cores, and a description of the batch.
import { availableParallelism } from "node:os";
import { headColumns } from "../data/index.js";
import type { Config, RunConfig } from "./config.js";
import type { RankGroup } from "./group.js";

/**
 * Number of steps read together on a GPU. A single rank also reads once per second; several ranks decide by step count,
 * because their clocks differ, and read often enough to react to SIGTERM.
 */
export const windowOf = (everySteps: number, group: RankGroup): number =>
  group.size === 1 ? everySteps : Math.min(everySteps, 16);

/** Cores of the run. Pinned ranks see only their own cores; a single rank or unpinned ranks see all. */
export function coresOf({ ranks, distributed: { cores_per_rank: own } }: RunConfig): number {
  const seen = availableParallelism();
  return ranks > 1 && seen === own ? ranks * own : seen;
}

/** Describes the global batch with the keys that the user wrote. */
export const batchInWords = ({ training, batchPerRank, ranks, globalBatch }: Config): string =>
  training.global_batch === undefined
    ? `the global batch of ${globalBatch} (training.batch_per_rank ${batchPerRank} x ${ranks} rank${ranks === 1 ? "" : "s"} x accumulation ${training.accumulation})`
    : `training.global_batch ${globalBatch}`;

/** Default number of prefetched batches: about one mebibyte, because waking a loader costs more than a small batch. */
export const prefetched = ({ batchPerRank, model }: Config): number =>
  Math.min(64, Math.max(8, Math.ceil(2 ** 20 / (4 * batchPerRank * (headColumns + model.max_seq_len)))));
