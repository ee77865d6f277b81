// The process groups that a worker is a member of: joined when a program needs one, aborted when a member fails, closed
// when a client leaves or the set of workers changes.
import {
  type Device,
  findMpi,
  groupLibrary,
  LinkGroup,
  MpiGroup,
  type ProcessGroup,
  ShmGroup,
} from "@weft/core/internal/device";
import { WeftError } from "@weft/core/internal/graph";
import type { BackgroundThread } from "./background.js";
import { logDebug } from "./debug.js";
import { rankFromEnvironment } from "./environment.js";
import type { ToWorker } from "./protocol.js";
import { FailedError, type Failure } from "./store.js";

/** The group of a program, as the dispatcher describes it. */
export type GroupOfProgram = NonNullable<Extract<ToWorker, { t: "define" }>["group"]>;

/** Maximum number of process groups a worker is a member of at once. */
const maxGroups = 1024;
/** Seconds for a member to join a group, or to reach a collective: it may compute for another client. One that is gone or stopped is noticed. */
const memberSeconds = 600;

/** The client and the generation of workers whose group has this name (dispatcher.ts). */
const clientOf = (group: string): number => Number(group.split("-")[2]);
const generationOf = (group: string): string => group.split("-")[1];

export class WorkerGroups {
  readonly #groups = new Map<string, ProcessGroup>();
  /** Groups that failed; they are not joined again. */
  readonly #broken = new Map<string, Failure>();

  constructor(
    readonly device: Device,
    readonly background: () => BackgroundThread,
    readonly onBroken: (name: string) => void,
  ) {}

  /** The group of this name, as the device's; joined with its other members if needed. */
  join(wanted: GroupOfProgram): void {
    const { name } = wanted;
    const failure = this.#broken.get(name);
    if (failure !== undefined) throw new FailedError(failure);
    let group = this.#groups.get(name);
    if (group === undefined) {
      // Groups of earlier generations are obsolete: every member receives the same instructions in the same order.
      for (const [old, other] of [...this.#groups])
        if (clientOf(old) === clientOf(name) && generationOf(old) !== generationOf(name)) this.#close(old, other);
      if (this.#groups.size >= maxGroups)
        throw new WeftError(`this worker is in ${maxGroups} groups already; use fewer sets of workers`);
      logDebug("worker", () => `joins group ${name} as ${wanted.rank} of ${wanted.size}`);
      try {
        const host = this.#connect(wanted);
        group = this.device.joinGroup?.(host) ?? host;
      } catch (error) {
        this.#markBroken(name, { message: (error as Error).message, code: "aborted" });
        throw error;
      }
      this.#groups.set(name, group);
    }
    if (this.device.group !== group) this.device.group = group;
  }

  #connect({ name, rank, size, pids, mpi, links }: GroupOfProgram): ProcessGroup {
    const { threads } = this.device.traits;
    const limits = { joinTimeout: memberSeconds, timeout: memberSeconds, threads, pids };
    // Who waits for a member ends with its client, and when the time of a call is over.
    const { interruption } = this.device;
    if (interruption !== undefined) groupLibrary().stopFlags(interruption.address);
    if (mpi !== null) return MpiGroup.join(mpi);
    if (links === null) return ShmGroup.join(name, rank, size, limits);
    const { key, members } = links;
    const hosts = members.map(({ host }) => host);
    const sockets = this.background().join({ name, key, rank, members: members.map(({ data }) => data) });
    return LinkGroup.join({ name, rank, hosts, sockets, ...limits });
  }

  /** Aborts a group after an error: its other members would wait for this one. */
  breakOff(name: string, reason: string): void {
    const group = this.#groups.get(name);
    if (group === undefined) return;
    abort(group);
    this.#close(name, group);
    this.#markBroken(name, { message: reason, code: "aborted" });
  }

  /** A member hangs: calls of this group fail from now on, and do not wait for it. */
  abandon(name: string, reason: string): void {
    const group = this.#groups.get(name);
    if (group !== undefined) {
      abort(group);
      this.#close(name, group);
    }
    this.#markBroken(name, { message: reason, code: "lost" });
  }

  /** Other members may be in a collective of this client that is no longer issued here. */
  leave(client: number): void {
    for (const [name, group] of [...this.#groups]) {
      if (clientOf(name) !== client) continue;
      abort(group);
      this.#close(name, group);
    }
  }

  closeAll(): void {
    this.device.group = null;
    for (const group of this.#groups.values()) {
      abort(group);
      group.close();
    }
    this.#groups.clear();
  }

  #markBroken(name: string, failure: Failure): void {
    this.#broken.set(name, failure);
    if (this.#broken.size > 64) this.#broken.delete(this.#broken.keys().next().value!);
    this.onBroken(name);
  }

  #close(name: string, group: ProcessGroup): void {
    if (this.device.group === group) this.device.group = null;
    group.close();
    this.#groups.delete(name);
  }
}

/** Notifies the other members that this one will not continue. */
function abort(group: ProcessGroup): void {
  const host = (group as { host?: ProcessGroup }).host ?? group;
  if (host instanceof ShmGroup || host instanceof LinkGroup) host.abort();
}

/**
 * Starts MPI where a launcher started several workers as one job. All ranks must do so before any of them communicates,
 * also those that never take part in a collective.
 */
export function joinJob(): boolean {
  const { launcher, size } = rankFromEnvironment();
  if (size === 1 || (launcher !== "openmpi" && launcher !== "slurm") || findMpi() === null) return false;
  // srun without --mpi=pmix gives tasks no way to find each other: MPI would end the process.
  const { PMIX_RANK, PMI_RANK, PMI_FD } = process.env;
  if (launcher === "slurm" && (PMIX_RANK ?? PMI_RANK ?? PMI_FD) === undefined) return false;
  try {
    MpiGroup.join().close();
    return true;
  } catch (error) {
    logDebug("worker", () => `MPI is not used: ${(error as Error).message}`);
    return false;
  }
}
