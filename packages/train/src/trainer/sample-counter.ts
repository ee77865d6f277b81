// Counts the samples that a rank's batches hold: over all ranks and one epoch each must have been used exactly once. This
// is how a run knows that its work was divided, from the data itself and not from what a sampler promises.

import { jit, type Tensor, tensor } from "@weft/core/internal/tensor";
import { type Batch, columns, headColumns } from "../data/index.js";
import { TrainError } from "./errors.js";
import type { RankGroup } from "./group.js";

/** Batches that the hash of sample numbers covers. */
const hashed = 4;

export class SampleCounter {
  #seen: Int32Array;
  #hash = 2166136261;
  #batches = 0;

  constructor(
    private readonly rows: number,
    private readonly group: RankGroup,
    /** StepResult once: equal on two ranks means that they were given the same data. The lab looks at it too. */
    private readonly onHash: (hash: string) => void,
  ) {
    this.#seen = new Int32Array(rows);
  }

  /** Samples of an unfinished epoch that were used before a checkpoint; to be counted on one rank alone. */
  mark(samples: Uint32Array): void {
    for (const sample of samples) this.#seen[sample]++;
  }

  count(batch: Batch): void {
    const width = headColumns + batch.length;
    for (let row = 0; row < batch.rows; row++) {
      const sample = batch.data[row * width + columns.sample];
      if (sample < 0) continue;
      this.#seen[sample]++;
      this.#hash = Math.imul(this.#hash ^ sample, 16777619);
    }
    if (++this.#batches === hashed) this.onHash((this.#hash >>> 0).toString(16));
  }

  /** At the end of an epoch, on all ranks; starts the next one. */
  close(epoch: number): void {
    const { group } = this;
    const counts =
      group.size === 1
        ? this.#seen
        : (jit((t: Tensor) => group.sum(t))(tensor(this.#seen, { dtype: "int32" })).dataSync() as Int32Array);
    const wrong = counts.findIndex((count) => count !== 1);
    if (wrong >= 0)
      throw new TrainError(
        `epoch ${epoch + 1}: sample ${wrong} was used ${counts[wrong]} times over ${group.size} ranks, not once; this is a fault of Weft, and the run is not valid`,
      );
    this.#seen = new Int32Array(this.rows);
  }
}
