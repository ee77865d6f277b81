// Counts the samples in a rank's batches: over all ranks, each must be used exactly once per epoch. This verifies from
// the data that the work was divided.

import { jit, type Tensor, tensor } from "@weft/core/internal/tensor";
import { TrainError } from "./errors.js";
import type { RankGroup } from "./group.js";

/** Number of batches that the hash of sample numbers covers. */
const hashed = 4;

export class SampleCounter {
  #seen: Int32Array;
  #hash = 2166136261;
  #batches = 0;

  constructor(
    private readonly rows: number,
    private readonly group: RankGroup,
    /** Called once: equal hashes on two ranks mean that both got the same data. The lab checks this too. */
    private readonly onHash: (hash: string) => void,
  ) {
    this.#seen = new Int32Array(rows);
  }

  /** Marks samples of an unfinished epoch that were used before a checkpoint; on one rank only. */
  mark(samples: Uint32Array): void {
    for (const sample of samples) this.#seen[sample]++;
  }

  /** Counts the samples of a batch. */
  count(samples: ArrayLike<number>): void {
    for (let i = 0; i < samples.length; i++) {
      this.#seen[samples[i]]++;
      this.#hash = Math.imul(this.#hash ^ samples[i], 16777619);
    }
    if (++this.#batches === hashed) this.onHash((this.#hash >>> 0).toString(16));
  }

  /** Checks the counts at the end of an epoch, on all ranks, and starts the next epoch. */
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
