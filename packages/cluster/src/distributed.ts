// SPMD programs: one process per device. init joins the processes; the collectives are tensor functions that work
// inside jit. Without a launcher there is a single process and every collective returns its argument.
import { availableParallelism, cpus } from "node:os";
import { barrierOf, type Device, LocalGroup, MpiGroup, type ProcessGroup, ShmGroup } from "@weft/core/internal/device";
import { checkOptionNames, type OpAttrs, type ReduceFn, ShapeError, WeftError } from "@weft/core/internal/graph";
import { make } from "@weft/core/internal/ops";
import { nextCollective, session } from "@weft/core/internal/runtime";
import { settings } from "@weft/core/internal/settings";
import { div, reshape, slice, Tensor } from "@weft/core/internal/tensor";
import { type RankEnvironment, rankFromEnvironment } from "./environment.js";
import { joinRendezvous } from "./rendezvous.js";
import { clusterSettings } from "./settings.js";

/** Options of `distributed.init`. */
export interface InitOptions {
  /** Rank of this process, from 0; the launcher's by default. */
  rank?: number;
  /** Number of processes; the launcher's by default. */
  size?: number;
  /** Group name shared by the processes of one job. */
  name?: string;
  /** "auto": links or shared memory where there is a rendezvous; else shared memory on one host, MPI on several. */
  backend?: "auto" | "shm" | "mpi";
  /** host:port at which the ranks find each other; rank 0 listens there (WEFT_RENDEZVOUS). */
  rendezvous?: string;
  /** Seconds to wait for the other processes. */
  joinTimeout?: number;
}

let current: ProcessGroup | null = null;
let place: RankEnvironment | null = null;
let ownDevice: Device | null = null;

/**
 * Joins this process with the others of its job and attaches the current device to the group.
 *
 * @example
 * ```ts
 * import { distributed } from "@weft/cluster";
 * import * as weft from "@weft/core";
 *
 * await distributed.init(); // under mpirun or srun: one of several ranks
 * const sum = distributed.allReduce(weft.ones([2]));
 * console.log(distributed.rank(), await sum.array());
 * distributed.shutdown();
 * ```
 */
export async function init(options: InitOptions = {}): Promise<ProcessGroup> {
  checkOptionNames("distributed.init", options, ["rank", "size", "name", "backend", "rendezvous", "joinTimeout"]);
  if (current !== null) throw new WeftError("distributed.init was called before; shutdown() first");
  place = rankFromOptions(options);
  if (place.size > 1 && !settings.threads.isSet() && availableParallelism() === cpus().length)
    // Processes on one host divide its cores; a launcher that binds processes has done so already.
    process.env.WEFT_THREADS = String(Math.max(1, Math.floor(cpus().length / place.localSize)));
  const host = await open(place, options);
  ownDevice = session().device;
  const group = ownDevice.joinGroup?.(host) ?? host;
  ownDevice.group = group;
  current = group;
  process.once("exit", shutdown);
  return group;
}

function rankFromOptions({ rank, size, name }: InitOptions): RankEnvironment {
  if (rank === undefined && size === undefined) return rankFromEnvironment();
  if (rank === undefined || size === undefined || (size > 1 && name === undefined))
    throw new WeftError("distributed.init: give rank, size and name together, or none of them");
  return { rank, size, name: name ?? "alone", localSize: size, localRank: rank, launcher: "weft" };
}

async function open(where: RankEnvironment, options: InitOptions): Promise<ProcessGroup> {
  const { rank, size, localSize, name } = where;
  const { backend = "auto", joinTimeout, rendezvous = clusterSettings.rendezvous.get() } = options;
  if (size === 1) return new LocalGroup();
  if (backend === "auto" && rendezvous !== undefined)
    return await joinRendezvous(where, { at: rendezvous, joinTimeout: joinTimeout ?? settings.joinTimeout.get() });
  const chosen = backend === "auto" ? (localSize === size ? "shm" : "mpi") : backend;
  if (chosen === "mpi") return MpiGroup.join();
  return ShmGroup.join(name, rank, size, { joinTimeout, threads: settings.threads.get() ?? 1 });
}

/** Leaves the group. The next collective of the other processes fails. */
export function shutdown(): void {
  if (current === null) return;
  process.removeListener("exit", shutdown);
  if (ownDevice !== null) ownDevice.group = null;
  ownDevice = null;
  current.close();
  current = null;
}

/** The process group; call init() first. */
export function group(): ProcessGroup {
  if (current === null) throw new WeftError("distributed: this process has no group; await distributed.init() first");
  return current;
}

/** Whether `init` was called. */
export const isInitialized = (): boolean => current !== null;
/** Rank of this process, from 0. */
export const rank = (): number => group().rank;
/** Number of processes of the group. */
export const size = (): number => group().size;
/** Rank among the processes of this host; selects the GPU. */
export const localRank = (): number => {
  group();
  return place?.localRank ?? 0;
};

type Attrs = OpAttrs["collective"];

function allRanks(): number[] {
  return Array.from({ length: group().size }, (_, i) => i);
}

/** Validates the ranks of a collective. */
function membersOf(op: string, ranks: readonly number[] | undefined): readonly number[] {
  const members = ranks ?? allRanks();
  if (!members.includes(group().rank))
    throw new WeftError(`${op}: rank ${group().rank} is not in ranks [${members.join(", ")}]; only members may call`);
  const valid = members.every((r, i) => Number.isInteger(r) && r >= 0 && r < group().size && members.indexOf(r) === i);
  if (!valid) throw new WeftError(`${op}: ranks [${members.join(", ")}] must be different ranks below ${group().size}`);
  return members;
}

/**
 * Builds the collective. Outside a trace it runs at once, because all processes must issue collectives in the same
 * order.
 */
function collective(
  x: Tensor,
  attrs: Partial<Attrs> & Pick<Attrs, "kind" | "shape">,
  members: readonly number[],
): Tensor {
  const sequence = nextCollective();
  const { rank: own, size: all } = group();
  const node = make("collective", [x.node], {
    ...barrierOf(own, all),
    fn: "sum",
    groups: [members],
    sequence: sequence ?? 0,
    dtype: x.dtype,
    ...attrs,
  });
  if (sequence === null) session().realize([node]);
  return new Tensor(node);
}

/** Options of all collectives. */
export interface CollectiveOptions {
  /** Participating ranks, in the order of reduction and concatenation; all by default. Each of them must call. */
  ranks?: readonly number[];
}

/**
 * Elementwise reduction over all processes; every process gets the same bits. "mean" divides the sum by their number.
 */
export function allReduce(x: Tensor, fn: ReduceFn | "mean" = "sum", options: CollectiveOptions = {}): Tensor {
  checkOptionNames("allReduce", options, ["ranks"]);
  const members = membersOf("allReduce", options.ranks);
  if (members.length === 1) return x;
  const reduced = collective(x, { kind: "allReduce", fn: fn === "mean" ? "sum" : fn, shape: x.shape }, members);
  return fn === "mean" ? div(reduced, members.length) : reduced;
}

function axisOf(op: string, x: Tensor, axis: number): number {
  const at = axis < 0 ? axis + x.rank : axis;
  if (!Number.isInteger(axis) || at < 0 || at >= x.rank)
    throw new ShapeError(`${op}: axis ${axis} is not an axis of a tensor of rank ${x.rank}`);
  return at;
}

const total = (sizes: readonly number[]): number => sizes.reduce((n, s) => n + s, 0);
const resized = (x: Tensor, axis: number, size: number): number[] => x.shape.map((d, i) => (i === axis ? size : d));

/** Concatenates the tensors of all processes along an axis. `sizes` gives every process's extent if they differ. */
export function allGather(
  x: Tensor,
  axis = 0,
  options: CollectiveOptions & { sizes?: readonly number[] } = {},
): Tensor {
  checkOptionNames("allGather", options, ["ranks", "sizes"]);
  const members = membersOf("allGather", options.ranks);
  if (members.length === 1) return x;
  const at = axisOf("allGather", x, axis);
  const sizes = options.sizes ?? members.map(() => x.shape[at]);
  const mine = sizes[members.indexOf(group().rank)];
  if (sizes.length !== members.length || mine !== x.shape[at])
    throw new ShapeError(
      `allGather: sizes [${sizes.join(", ")}] of ${members.length} processes do not say ${x.shape[at]} for this one`,
    );
  return collective(x, { kind: "allGather", axis: at, sizes, shape: resized(x, at, total(sizes)) }, members);
}

/** Reduces over all processes and returns this process's slice along an axis, split evenly unless `sizes` is given. */
export function reduceScatter(
  x: Tensor,
  fn: ReduceFn = "sum",
  axis = 0,
  options: CollectiveOptions & { sizes?: readonly number[] } = {},
): Tensor {
  checkOptionNames("reduceScatter", options, ["ranks", "sizes"]);
  const members = membersOf("reduceScatter", options.ranks);
  if (members.length === 1) return x;
  const at = axisOf("reduceScatter", x, axis);
  const sizes = options.sizes ?? evenSizes(x.shape[at], members.length);
  if (sizes.length !== members.length || total(sizes) !== x.shape[at])
    throw new ShapeError(
      `reduceScatter: sizes [${sizes.join(", ")}] do not cut ${x.shape[at]} into ${members.length} parts`,
    );
  const mine = sizes[members.indexOf(group().rank)];
  return collective(x, { kind: "reduceScatter", fn, axis: at, sizes, shape: resized(x, at, mine) }, members);
}

/** Splits n into `parts` integers that differ by at most one, larger ones first. */
const evenSizes = (n: number, parts: number): number[] =>
  Array.from({ length: parts }, (_, i) => Math.floor(n / parts) + (i < n % parts ? 1 : 0));

/** Sends the tensor of process `root` to all; the other processes' tensors give shape and dtype. */
export function broadcast(x: Tensor, root = 0, options: CollectiveOptions = {}): Tensor {
  checkOptionNames("broadcast", options, ["ranks"]);
  const members = membersOf("broadcast", options.ranks);
  if (!members.includes(root)) throw new WeftError(`broadcast: root ${root} is not in ranks [${members.join(", ")}]`);
  if (members.length === 1) return x;
  // An all-gather to which the root alone contributes: between hosts it crosses the network once per host.
  const sizes = members.map((member) => Number(member === root));
  const whole = reshape(x, [1, ...x.shape]);
  const none = slice(
    whole,
    whole.shape.map(() => 0),
    [0, ...x.shape],
  );
  const own = group().rank === root ? whole : none;
  return reshape(allGather(own, 0, { ...options, sizes }), x.shape);
}

/** Waits until all processes have reached the barrier. */
export function barrier(): void {
  group().barrier();
}
