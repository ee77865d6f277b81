// Which workers can exchange data: all that reach each other, on one host over shared memory, on several over links or MPI.
import type { WorkerInfo } from "./protocol.js";
import { isLoopback } from "./security.js";

type Facts = Pick<WorkerInfo, "data" | "mpi" | "process">;

const positionsBy = <T>(workers: readonly T[], key: (worker: T) => string): Map<string, number[]> => {
  const found = new Map<string, number[]>();
  workers.forEach((worker, rank) => {
    const list = found.get(key(worker));
    if (list === undefined) found.set(key(worker), [rank]);
    else list.push(rank);
  });
  return found;
};

/** Positions of workers that reach each other: those of a loopback address are on the machine of the dispatcher. */
export const reachability = (workers: readonly Facts[]): Map<string, number[]> =>
  positionsBy(workers, ({ data }) => (isLoopback(data.host) ? "loopback" : "network"));

/** Positions of workers that share memory. */
export const hostsOf = (workers: readonly Facts[]): number[][] => [
  ...positionsBy(workers, ({ process: { host } }) => host).values(),
];

/** Positions of workers that can exchange data. */
export function islandsOf(workers: readonly Facts[]): number[][] {
  const jobs = positionsBy(workers, ({ mpi }) => mpi?.job ?? "");
  if (jobs.size === 1 && !jobs.has("")) return [...jobs.values()];
  return [...reachability(workers).values()];
}
