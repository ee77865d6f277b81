// A process group between hosts: one local socket per member. The owner of the other end forwards its bytes to that member's host (the
// cluster's links do so, encrypted). Members of one host sum over shared memory first.
import { type OpAttrs, range, type Shape, WeftError } from "../../graph/index.js";
import { type ProcessGroup, StoppedError } from "../contract.js";
import { describeFor } from "./descriptor.js";
import { GroupError, type GroupErrorCode } from "./errors.js";
import { groupLibrary } from "./native/library.js";
import { barrierOf, endedCode, ShmGroup } from "./shm.js";

interface LinkOptions {
  name: string;
  rank: number;
  /** The host of every member: members with the same text share memory. */
  hosts: readonly string[];
  /** Processes of the members, where they are known; of other hosts they are not used. */
  pids?: readonly number[];
  /** This process's ends of the sockets, by rank; the group closes them. */
  sockets: readonly number[];
  /** Seconds to wait for all members, and for one of them in a collective. */
  joinTimeout: number;
  timeout: number;
  /** Threads for sums over shared memory. */
  threads?: number;
  /** The process may end when it has left the group: leaving then waits until its bytes are on their way. */
  drain?: boolean;
}

const drainSeconds = 2;

/** Two connected local sockets, as file descriptors: one for the group, one for whoever forwards its bytes. */
export function linkPair(): [number, number] {
  const fds = new Int32Array(2);
  const error = groupLibrary().linkPair(fds) as number;
  if (error !== 0) throw new WeftError(`no local sockets are left (system error ${error}); raise the limit: ulimit -n`);
  return [fds[0], fds[1]];
}

type Explain = (name: string, rank: number, seconds: number) => string;
/** By the E_ numbers of native/shm.h. */
const reasons: Readonly<Record<number, readonly [GroupErrorCode, Explain]>> = {
  1: ["timeout", (name, rank, seconds) => `rank ${rank} of group ${name} did not come within ${seconds} s`],
  2: ["peer-dead", (name, rank) => `rank ${rank} of group ${name} is gone, or its host cannot be reached`],
  4: ["aborted", (name, rank) => `group ${name} was given up after an error on rank ${rank}`],
  5: ["mismatch", (name, rank) => `rank ${rank} of group ${name} is at another collective than this one`],
  6: ["memory", (name) => `group ${name}: no memory for the messages of a collective`],
};

export class LinkGroup implements ProcessGroup {
  readonly kind = "links";
  readonly native: { call: bigint; group: bigint };
  readonly rank: number;
  readonly size: number;
  readonly #local: ShmGroup | null;
  #open = true;

  private constructor(
    readonly options: LinkOptions,
    handle: bigint,
    local: ShmGroup | null,
  ) {
    this.rank = options.rank;
    this.size = options.hosts.length;
    this.#local = local;
    this.native = { call: BigInt(groupLibrary().linkCollectiveAddress() as number), group: handle };
  }

  /** Waits until all members are connected. */
  static join(options: LinkOptions): LinkGroup {
    const { name, rank, hosts, sockets, joinTimeout, timeout, threads } = options;
    const library = groupLibrary();
    const places = [...new Set(hosts)];
    const numbers = Int32Array.from(hosts, (host) => places.indexOf(host));
    const handle = library.linkGroup(rank, hosts.length, Int32Array.from(sockets), numbers, timeout) as number;
    if (handle === 0) throw new WeftError(`a group has 1 to 256 ranks, not ${hosts.length}`);
    const near = range(hosts.length).filter((other) => hosts[other] === hosts[rank]);
    let local: ShmGroup | null = null;
    try {
      if (near.length > 1)
        local = ShmGroup.join(`${name}.${numbers[rank]}`, near.indexOf(rank), near.length, {
          joinTimeout,
          timeout,
          threads,
          pids: near.map((other) => options.pids?.[other] ?? 0),
        });
      const group = new LinkGroup(options, BigInt(handle), local);
      if (local !== null) library.linkLocal(handle, local.native.group);
      const code = library.linkMeet(handle, joinTimeout) as number;
      if (code === 0) return group;
      throw group.#failureWithin(code, joinTimeout);
    } catch (error) {
      library.linkAbort(handle);
      library.linkClose(handle, 0);
      local?.abort();
      local?.close();
      throw error;
    }
  }

  failure(code: number): WeftError {
    return this.#failureWithin(code, this.options.timeout);
  }

  #failureWithin(code: number, seconds: number): WeftError {
    if (code === endedCode) return new StoppedError();
    const rank = groupLibrary().linkFailedRank(this.native.group) as number;
    const [kind, explain] = reasons[code] ?? ["internal", (name: string): string => `group ${name}: error ${code}`];
    return new GroupError(explain(this.options.name, rank, seconds), kind);
  }

  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void {
    if (!this.#open) throw new WeftError(`group ${this.options.name} is closed`);
    const descriptor = describeFor(attrs, input, output, operand);
    const code = groupLibrary().linkCollective(this.native.group, descriptor, input, output, 0) as number;
    if (code !== 0) throw this.failure(code);
  }

  barrier(): void {
    const one = Uint8Array.of(1);
    this.collective(barrierOf(this.rank, this.size), one, one, [1]);
  }

  /** Aborts the group: pending waits of the other members end with an error. */
  abort(): void {
    if (!this.#open) return;
    groupLibrary().linkAbort(this.native.group);
    this.#local?.abort();
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    groupLibrary().linkClose(this.native.group, this.options.drain ? drainSeconds : 0);
    this.#local?.close();
  }
}
