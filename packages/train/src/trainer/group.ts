// The ranks of a run as the trainer sees them: sums over all of them, inside a jitted step and outside. One rank needs
// nothing.
import { distributed, rankFromEnvironment } from "@weft/cluster";
import type { Executable } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import type { Tensor } from "@weft/core/internal/tensor";

export interface RankGroup {
  readonly rank: number;
  readonly size: number;
  /** How the ranks reach each other: "local" (alone), "shm", "mpi", "nccl". */
  readonly kind: string;
  /** The sum over ranks, as part of a graph (inside jit). All ranks issue their sums in one order. */
  sum(value: Tensor): Tensor;
  /** The rows of all ranks, in the order of ranks; as part of a graph. */
  gather(rows: Tensor): Tensor;
  /**
   * Seconds spent in collectives and waiting for them since the start: in all, and with nothing else to do. Where the cores
   * that compute also move the data (shared memory) the two are the same, and overlap hides waiting alone. null where
   * they are not measured: on GPUs it would cost more than it tells.
   */
  times(): { total: number; exposed: number } | null;
  /** Returns when all ranks are here; outside a jitted step. */
  barrier(): void;
  close(): void;
}

export const singleRank: RankGroup = {
  rank: 0,
  size: 1,
  kind: "local",
  sum: (value) => value,
  gather: (rows) => rows,
  times: () => ({ total: 0, exposed: 0 }),
  barrier: () => {},
  close: () => {},
};

/** Whether a launcher (weft train itself, mpirun, srun) made this process a rank among several. */
export const isRank = (): boolean => rankFromEnvironment().launcher !== "none";

/** Which of the devices of its host this process should take. */
export const localDeviceIndex = (): number => rankFromEnvironment().localRank;

/** Joins the other ranks; the current device becomes part of the group. */
export async function joinGroup(ranks: number): Promise<RankGroup> {
  const place = rankFromEnvironment();
  if (place.size !== ranks)
    throw new WeftError(
      `this process is rank ${place.rank} of ${place.size} (${place.launcher}), the configuration says ${ranks} devices; start as many processes as --devices says`,
    );
  if (ranks === 1) return singleRank;
  const joined = await distributed.init();
  const here = session();
  let seconds = 0;
  const watch = ({ kernels, lastTimes }: Executable): void => {
    kernels.forEach((kernel, i) => {
      if (kernel.kind === "collective") seconds += lastTimes?.[i] ?? 0;
    });
  };
  const measures = here.device.traits.usesHostCores;
  if (measures) here.watchers.add(watch);
  return {
    rank: joined.rank,
    size: joined.size,
    kind: joined.kind,
    sum: (value) => distributed.allReduce(value, "sum"),
    gather: (rows) => distributed.allGather(rows, 0),
    times: () => (measures ? { total: seconds, exposed: seconds } : null),
    barrier: () => distributed.barrier(),
    close: () => {
      here.watchers.delete(watch);
      distributed.shutdown();
    },
  };
}
