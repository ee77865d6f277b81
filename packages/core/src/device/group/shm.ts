// A process group of one host over shared memory. Processes find each other by a name, whoever started them; the name
// exists only until all are there, so that nothing is left behind however they end.
import { createHmac } from "node:crypto";
import { closeSync, constants, lstatSync, openSync, readdirSync, readlinkSync, readSync, unlinkSync } from "node:fs";
import { bareCollective, type OpAttrs, range, type Shape, WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import { userSecret } from "../cache-root.js";
import { type ProcessGroup, StoppedError } from "../contract.js";
import { describeFor } from "./descriptor.js";
import { GroupError, type GroupErrorCode } from "./errors.js";
import { groupLibrary } from "./native/library.js";

interface ShmOptions {
  /** Seconds to wait until all members have joined. */
  joinTimeout?: number;
  /** Seconds that a member may be late in a collective; gone ones are noticed at once, stopped ones after `stopLimit`. */
  timeout?: number;
  stopLimit?: number;
  /** Processes of the members, where they are known: one that is gone is not waited for. */
  pids?: readonly number[];
  /** Threads that may share the work of large collectives. */
  threads?: number;
}

const folder = "/dev/shm";
/** Containers may share the folder and not the process ids: none may take another's files for those of dead processes. */
const processNamespace = ((): string => {
  try {
    return /\d+/.exec(readlinkSync("/proc/self/ns/pid"))?.[0] ?? "0";
  } catch {
    return "0";
  }
})();
const prefix = `weft-${process.getuid?.() ?? 0}-${processNamespace}-`;

/** The file of a group that processes are joining. */
export function groupPath(name: string): string {
  if (!/^[\w.-]{1,100}$/.test(name))
    throw new WeftError(
      `the group name "${name}" may have letters, digits, ".", "_" and "-" alone, at most 100 of them`,
    );
  const path = `${folder}/${prefix}${name}`;
  // Everybody may create files there. A name that another user has taken is replaced by one that nobody else can guess.
  if (isOwn(path) !== false) return path;
  return `${folder}/${prefix}${createHmac("sha256", userSecret()).update(name).digest("hex").slice(0, 40)}`;
}

/** Whether a file is this user's; null if there is none. */
function isOwn(path: string): boolean | null {
  const facts = lstatSync(path, { throwIfNoEntry: false });
  return facts === undefined ? null : facts.uid === (process.geteuid?.() ?? facts.uid);
}

type Explain = (about: { rank: number; pid: number; name: string; seconds: number; size: number }) => string;

/** By the E_ numbers of native/shm.h, from 1. */
const reasons: readonly (readonly [GroupErrorCode, Explain])[] = [
  [
    "timeout",
    ({ rank, name, seconds }) =>
      `rank ${rank} of group ${name} did not come within ${seconds} s; is it running, and does it issue the same collectives? (WEFT_GROUP_TIMEOUT sets the limit)`,
  ],
  [
    "peer-dead",
    ({ rank, pid, name }) =>
      `rank ${rank} of group ${name} is gone${pid > 0 ? ` (process ${pid} ended or left)` : ""}; look at what it printed last, then start all ranks again`,
  ],
  [
    "peer-stopped",
    ({ rank, pid, name }) =>
      `rank ${rank} of group ${name} (process ${pid}) is stopped; continue it (kill -CONT ${pid}) or end it, then start all ranks again`,
  ],
  [
    "aborted",
    ({ rank, name }) =>
      `group ${name} was given up after an error on rank ${rank}; its own message says which, then start all ranks again`,
  ],
  [
    "mismatch",
    ({ rank, name }) =>
      `rank ${rank} of group ${name} is at another collective than this one; all ranks must run the same program in the same order`,
  ],
  ["memory", ({ name }) => `group ${name}: no shared memory left to copy the operands into`],
  ["mismatch", ({ rank, size, name }) => `group ${name} was opened for ${rank} ranks, this process expects ${size}`],
  [
    "setup",
    ({ pid, name }) =>
      `the group name ${name} is in use${pid > 0 ? ` by process ${pid}` : ""}; give every running job a name of its own (WEFT_GROUP)`,
  ],
  [
    "setup",
    ({ rank, pid, name }) =>
      `rank ${rank} of group ${name} is taken by process ${pid}; every process needs a rank of its own`,
  ],
  ["setup", ({ name }) => `group ${name}: ${folder} cannot be written`],
  [
    "setup",
    ({ rank, name }) =>
      `the memory of rank ${rank} of group ${name} cannot be opened; do all ranks run as one user in one container?`,
  ],
];

/** E_CALL of native/shm.h: the call that waited for others is to end. */
export const endedCode = 12;

function failureOf(number: number, about: Parameters<Explain>[0]): WeftError {
  if (number === endedCode) return new StoppedError();
  const [code, explain] = reasons[number - 1] ?? ["internal", ({ name }) => `group ${name}: error ${number}`];
  return new GroupError(explain(about), code);
}

export class ShmGroup implements ProcessGroup {
  readonly kind = "shm";
  readonly native: { call: bigint; group: bigint };
  #open = true;

  private constructor(
    /** Name that the members share. */
    readonly name: string,
    readonly rank: number,
    readonly size: number,
    handle: bigint,
    /** Seconds that a collective waits for a member. */
    readonly timeout: number,
  ) {
    const library = groupLibrary();
    this.native = { call: BigInt(library.collectiveAddress() as number), group: handle };
  }

  /** Waits until `size` processes have joined the group of this name, one of each rank. */
  static join(name: string, rank: number, size: number, options: ShmOptions = {}): ShmGroup {
    if (!Number.isInteger(size) || size < 1 || size > 256)
      throw new WeftError(`a group has 1 to 256 ranks, not ${size}`);
    if (!Number.isInteger(rank) || rank < 0 || rank >= size)
      throw new WeftError(`rank ${rank} is not one of a group of ${size}: 0 to ${size - 1}`);
    const path = groupPath(name);
    const library = groupLibrary();
    const joinTimeout = options.joinTimeout ?? settings.joinTimeout.get();
    const timeout = options.timeout ?? settings.groupTimeout.get();
    const error = new Int32Array(1);
    const detail = new Int32Array(1);
    removeStale();
    const expected = Int32Array.from({ length: size }, (_, other) => options.pids?.[other] ?? 0);
    const handle = library.join(path, rank, size, expected, joinTimeout, options.threads ?? 1, error, detail);
    if (error[0] !== 0) {
      const [at] = detail;
      const pid = error[0] === 8 || error[0] === 9 ? at : 0;
      throw failureOf(error[0], { rank: error[0] === 9 ? rank : at, pid, name, seconds: joinTimeout, size });
    }
    library.limits(handle, timeout, options.stopLimit ?? 5);
    return new ShmGroup(name, rank, size, BigInt(handle), timeout);
  }

  failure(code: number): WeftError {
    const library = groupLibrary();
    const rank = library.failedRank(this.native.group) as number;
    const pid = library.pidOf(this.native.group, rank) as number;
    const { name, size } = this;
    return failureOf(code, { rank, pid, name, seconds: this.timeout, size });
  }

  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void {
    if (!this.#open) throw new WeftError(`group ${this.name} is closed`);
    const descriptor = describeFor(attrs, input, output, operand);
    const code = groupLibrary().collective(this.native.group, descriptor, input, output, 0) as number;
    if (code !== 0) throw this.failure(code);
  }

  barrier(): void {
    const one = Uint8Array.of(1);
    this.collective(barrierOf(this.rank, this.size), one, one, [1]);
  }

  /** Aborts the group: pending waits of the other members end with an error. */
  abort(): void {
    if (this.#open) groupLibrary().abort(this.native.group);
  }

  close(): void {
    if (!this.#open) return;
    this.#open = false;
    groupLibrary().close(this.native.group);
  }
}

/** The smallest collective that all take part in. */
export const barrierOf = (rank: number, size: number): OpAttrs["collective"] => ({
  ...bareCollective,
  kind: "allReduce",
  fn: "max",
  groups: [range(size)],
  rank,
  shape: [1],
  dtype: "uint8",
});

const magic = 0x7765667467727031n;

/** Whoever made a group's name is gone: by what its first bytes say (control_t in native/shm.h). */
function isOrphan(path: string): boolean {
  const library = groupLibrary();
  const head = Buffer.alloc(32);
  // Never a pipe, which would wait for somebody to write to it.
  if (!lstatSync(path).isFile()) return false;
  const file = openSync(path, constants.O_RDONLY | constants.O_NONBLOCK | constants.O_NOFOLLOW);
  try {
    readSync(file, head, 0, head.length, 0);
  } finally {
    closeSync(file);
  }
  const started = (pid: number): bigint => BigInt(library.processStart(pid) as number | bigint);
  if (head.readBigUInt64LE(0) === magic) return started(head.readInt32LE(16)) !== head.readBigUInt64LE(24);
  // Not finished yet: then its name ends with the process that writes it.
  const maker = /\.(\d+)\.[0-9a-f]+$/.exec(path)?.[1];
  return maker !== undefined && started(Number(maker)) === 0n;
}

/** Removes the names of groups whose first process was killed before all had come. */
export function removeStale(): string[] {
  let names: string[];
  try {
    names = groupFiles();
  } catch {
    return [];
  }
  return names.filter((name) => {
    try {
      if (!isOrphan(`${folder}/${name}`)) return false;
      unlinkSync(`${folder}/${name}`);
      return true;
    } catch {
      // Somebody else was quicker.
      return false;
    }
  });
}

/** Names in shared memory that belong to this user's groups. For tests and `weft doctor`. */
export const groupFiles = (): string[] =>
  readdirSync(folder).filter((name) => name.startsWith(prefix) && isOwn(`${folder}/${name}`) === true);
