// What follows from a configuration where it does not say: how often results are read, how many batches are kept ready, which
// cores a run has, and its batch in the user's words.
import { availableParallelism } from "node:os";
import { headColumns } from "../data/index.js";
import type { Config } from "./config.js";
import type { RankGroup } from "./group.js";

/**
 * Steps that are read together on a GPU. One rank also looks after a second, whatever the number; several cannot, because their
 * clocks differ, and must look often enough for a SIGTERM to be seen in time.
 */
export const windowOf = (everySteps: number, group: RankGroup): number =>
  group.size === 1 ? everySteps : Math.min(everySteps, 16);

/** Ranks that have cores of their own see only these; one alone, or ranks that share, see what there is. */
export function coresOf({ ranks, distributed: { cores_per_rank: own } }: Config): number {
  const seen = availableParallelism();
  return ranks > 1 && seen === own ? ranks * own : seen;
}

/** The global batch by the key that the user wrote. */
export const batchInWords = ({ training, batchPerRank, ranks, globalBatch }: Config): string =>
  training.global_batch === undefined
    ? `the global batch of ${globalBatch} (training.batch_per_rank ${batchPerRank} x ${ranks} rank${ranks === 1 ? "" : "s"} x accumulation ${training.accumulation})`
    : `training.global_batch ${globalBatch}`;

/** Batches kept ready where the configuration does not say: about a mebibyte, because waking a loader costs more than a small batch. */
export const prefetched = ({ batchPerRank, model }: Config): number =>
  Math.min(64, Math.max(8, Math.ceil(2 ** 20 / (4 * batchPerRank * (headColumns + model.max_seq_len)))));
