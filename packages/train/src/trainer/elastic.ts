// Elastic runs: when a rank dies, the run continues from its last checkpoint with fewer ranks, and later with all of them
// again. It decides how many ranks to start; ranks.ts starts them.
import { launchRanks, RankDeath, type RanksOptions } from "./ranks.js";

/** Options of `launchElastic`. */
interface ElasticOptions extends Omit<RanksOptions, "command" | "size"> {
  /** Ranks to train on, and the fewest to continue with. */
  most: number;
  /** Smallest number of ranks to continue with. */
  least: number;
  /** The program and arguments of one rank, for a number of ranks. `again`: the run continues from a checkpoint. */
  command(size: number, again: boolean): readonly string[];
  /** Seconds after which a run with fewer ranks is interrupted at a checkpoint to use all of them again. */
  regrowSeconds?: number;
  /** Starts the ranks; on this machine by default. */
  launch?(options: RanksOptions): Promise<void>;
  /** Called when ranks are lost or come back. */
  onNote(text: string): void;
}

/** Runs to the end with between `least` and `most` ranks. Rejects if fewer are left, or a rank reports an error. */
export async function launchElastic(options: ElasticOptions): Promise<void> {
  const { most, least, signal, command, onNote, regrowSeconds = 60, launch = launchRanks, ...rest } = options;
  let [size, again, patience] = [most, false, regrowSeconds];
  for (;;) {
    const interrupt = new AbortController();
    const stop = (): void => interrupt.abort();
    signal?.addEventListener("abort", stop, { once: true });
    let regrow = false;
    const timer =
      size === most
        ? null
        : setTimeout(() => {
            regrow = true;
            interrupt.abort();
          }, patience * 1e3);
    const begun = performance.now();
    try {
      await launch({ ...rest, size, command: command(size, again), signal: interrupt.signal });
      if (!regrow || signal?.aborted) return;
      onNote(`the run continues with all ${most} ranks`);
      size = most;
    } catch (error) {
      if (!(error instanceof RankDeath) || signal?.aborted || size - 1 < least) throw error;
      // A rank that dies again soon after its return is left out for longer.
      patience = size === most && again && performance.now() - begun < patience * 1e3 ? 2 * patience : regrowSeconds;
      size--;
      onNote(
        `${error.message.split(/[;\n]/)[0]}; the run continues with ${size} of ${most} ranks from the last checkpoint`,
      );
    } finally {
      if (timer !== null) clearTimeout(timer);
      signal?.removeEventListener("abort", stop);
    }
    again = true;
  }
}
