// The process group of a program's members, as the dispatcher announces it to them.
import { hash } from "node:crypto";
import { WeftError } from "@weft/core/internal/graph";
import type { MemberGroup } from "./dispatcher-state.js";
import { groupKey } from "./identity.js";
import type { WorkerInfo } from "./protocol.js";
import { reachability } from "./reach.js";

/**
 * One group per client, set of workers and generation: a client that fails disturbs no other. Between hosts it uses MPI where the
 * workers are ranks of one job, and links otherwise.
 */
export function groupOf(prefix: string, infos: readonly Omit<WorkerInfo, "key">[], secret: string): MemberGroup {
  const members = infos.map(({ id }) => id).join();
  const name = `${prefix}-${hash("sha256", members, "hex").slice(0, 32)}`;
  const one = { name, pids: infos.map((info) => info.process.pid), mpi: null, links: null };
  if (new Set(infos.map((info) => info.process.host)).size === 1) return one;
  const [{ mpi: first }] = infos;
  if (first !== null && infos.every(({ mpi }) => mpi?.job === first.job))
    return { ...one, mpi: infos.map(({ mpi }) => mpi!.rank) };
  if (reachability(infos).size > 1)
    throw new WeftError(
      "some of these workers can be reached from their own machine only; start them with --data-host and certificates",
    );
  const places = infos.map(({ process: { host }, data, links: port }) => ({ host, data: { ...data, port } }));
  return { ...one, links: { key: groupKey(secret, name), members: places } };
}

/** The groups of a client's programs that a worker is a member of, with all members. */
export function groupsWith(
  worker: string,
  programs: Iterable<{ members: readonly string[]; group: string | null }>,
): Map<string, readonly string[]> {
  const groups = new Map<string, readonly string[]>();
  for (const { members, group } of programs) if (group !== null && members.includes(worker)) groups.set(group, members);
  return groups;
}
