// The ranks of a run: sums and gathers over all of them inside a jitted step, and a barrier outside.
import { distributed, rankFromEnvironment } from "@weft/cluster/internal";
import type { Executable } from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import { type Tensor, tensor } from "@weft/core/internal/tensor";

/** The ranks of a run. */
export interface RankGroup {
  /** Rank of this process, from 0. */
  readonly rank: number;
  /** Number of ranks. */
  readonly size: number;
  /** Transport between the ranks: "local" (one rank), "shm", "mpi", "nccl". */
  readonly kind: string;
  /** The sum over ranks, inside jit. All ranks must issue their sums in the same order. */
  sum(value: Tensor): Tensor;
  /** The text of rank 0, on every rank; outside a jitted step. */
  agree(text: string): string;
  /** The largest number of all ranks; outside a jitted step. */
  most(value: number): number;
  /**
   * Seconds spent in collectives and waiting for them since the start: in total, and exposed (with nothing else to do).
   * With shared memory the computing cores also move the data, so the two are equal. null if not measured: on GPUs
   * measuring would cost too much.
   */
  times(): { total: number; exposed: number } | null;
  /** Waits for all ranks; outside a jitted step. */
  barrier(): void;
  /** Leaves the group. */
  close(): void;
}

/** The group of a run with one rank. */
export const singleRank: RankGroup = {
  rank: 0,
  size: 1,
  kind: "local",
  sum: (value) => value,
  agree: (text) => text,
  most: (value) => value,
  times: () => ({ total: 0, exposed: 0 }),
  barrier: () => {},
  close: () => {},
};

/** Whether a launcher (weft train, mpirun, srun) started this process as one of several ranks. */
export const isRank = (): boolean => rankFromEnvironment().launcher !== "none";

/** Sends a text from rank 0 to all. */
function fromFirst(text: string, rank: number): string {
  const own = Buffer.from(rank === 0 ? text : "", "utf8");
  const [length] = distributed
    .allReduce(tensor(Int32Array.from([own.length]), { dtype: "int32" }))
    .dataSync() as Int32Array;
  const bytes = new Int32Array(Math.ceil(length / 4));
  new Uint8Array(bytes.buffer).set(own);
  const sent = distributed.allReduce(tensor(bytes, { dtype: "int32" })).dataSync() as Int32Array;
  return Buffer.from(sent.buffer, sent.byteOffset, length).toString("utf8");
}

/** Joins the other ranks and attaches the current device to the group. `ranks`: as many as the configuration says. */
export async function joinGroup(ranks?: number): Promise<RankGroup> {
  const place = rankFromEnvironment();
  if (ranks !== undefined && place.size !== ranks)
    throw new WeftError(
      `this process is rank ${place.rank} of ${place.size} (${place.launcher}), the configuration says ${ranks} devices; start as many processes as --devices says`,
    );
  if (place.size === 1) return singleRank;
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
    agree: (text) => fromFirst(text, joined.rank),
    most: (value) => distributed.allReduce(tensor([value], { dtype: "float64" }), "max").dataSync()[0] as number,
    times: () => (measures ? { total: seconds, exposed: seconds } : null),
    barrier: () => distributed.barrier(),
    close: () => {
      here.watchers.delete(watch);
      distributed.shutdown();
    },
  };
}
