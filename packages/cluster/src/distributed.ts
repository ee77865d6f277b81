// ExecutableCache that run in several processes, one a device (SPMD): init joins the processes, and the collectives are functions
// of tensors, usable inside jit. Without a launcher a process is alone and every collective gives back its argument.
import { availableParallelism, cpus } from "node:os";
import { barrierOf, type Device, LocalGroup, MpiGroup, type ProcessGroup, ShmGroup } from "@weft/core/internal/device";
import { type OpAttrs, type ReduceFn, ShapeError, WeftError } from "@weft/core/internal/graph";
import { make } from "@weft/core/internal/ops";
import { nextCollective, session } from "@weft/core/internal/runtime";
import { div, Tensor } from "@weft/core/internal/tensor";
import { type RankEnvironment, rankFromEnvironment } from "./environment.js";

export interface InitOptions {
  rank?: number;
  size?: number;
  /** The name that the processes of one job share. */
  name?: string;
  /** "auto": shared memory when all processes are on one host, MPI otherwise. */
  backend?: "auto" | "shm" | "mpi";
  /** Seconds to wait for the others. */
  joinTimeout?: number;
}

let current: ProcessGroup | null = null;
let place: RankEnvironment | null = null;
let ownDevice: Device | null = null;

/** Joins this process with the others of its job, and gives the current device to the group. */
export async function init(options: InitOptions = {}): Promise<ProcessGroup> {
  if (current !== null) throw new WeftError("distributed.init was called before; shutdown() first");
  place = rankFromOptions(options);
  if (place.size > 1 && process.env.WEFT_THREADS === undefined && availableParallelism() === cpus().length)
    // Processes that share a host share its cores; those that a launcher bound have theirs already.
    process.env.WEFT_THREADS = String(Math.max(1, Math.floor(cpus().length / place.localSize)));
  const host = open(place, options);
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

function open(where: RankEnvironment, { backend = "auto", joinTimeout }: InitOptions): ProcessGroup {
  const { rank, size, localSize, name } = where;
  if (size === 1) return new LocalGroup();
  const chosen = backend === "auto" ? (localSize === size ? "shm" : "mpi") : backend;
  if (chosen === "mpi") return MpiGroup.join();
  return ShmGroup.join(name, rank, size, { joinTimeout, threads: Number(process.env.WEFT_THREADS) || 1 });
}

/** Leaves the group; the others' next collective with this process is an error. */
export function shutdown(): void {
  if (current === null) return;
  process.removeListener("exit", shutdown);
  if (ownDevice !== null) ownDevice.group = null;
  ownDevice = null;
  current.close();
  current = null;
}

/** The group of this process; init() first. */
export function group(): ProcessGroup {
  if (current === null) throw new WeftError("distributed: this process is in no group; await distributed.init() first");
  return current;
}

export const isInitialized = (): boolean => current !== null;
export const rank = (): number => group().rank;
export const size = (): number => group().size;
/** Which process of its host this is: what picks a GPU. */
export const localRank = (): number => {
  group();
  return place?.localRank ?? 0;
};

type Attrs = OpAttrs["collective"];

function allRanks(): number[] {
  return Array.from({ length: group().size }, (_, i) => i);
}

/** Members as a sorted list with this process in it. */
function membersOf(op: string, ranks: readonly number[] | undefined): readonly number[] {
  const members = ranks ?? allRanks();
  if (!members.includes(group().rank))
    throw new WeftError(`${op}: rank ${group().rank} is not in ranks [${members.join(", ")}]; only members may call`);
  const valid = members.every((r, i) => Number.isInteger(r) && r >= 0 && r < group().size && members.indexOf(r) === i);
  if (!valid) throw new WeftError(`${op}: ranks [${members.join(", ")}] must be different ranks below ${group().size}`);
  return members;
}

/** The node; outside of a trace it runs at once, because all processes must issue their collectives in one order. */
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

export interface CollectiveOptions {
  /** The ranks that take part, in the order of reduction and joining; all by default. Each of them must call. */
  ranks?: readonly number[];
}

/** Element by element over all processes; every one gets the same bits. "mean" divides the sum by their number. */
export function allReduce(x: Tensor, fn: ReduceFn | "mean" = "sum", options: CollectiveOptions = {}): Tensor {
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

/** The parts of all processes joined along an axis. `sizes` where they differ: everybody's extent along it. */
export function allGather(
  x: Tensor,
  axis = 0,
  options: CollectiveOptions & { sizes?: readonly number[] } = {},
): Tensor {
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

/** Reduces over all processes and keeps this one's part along an axis, cut as evenSizes as can be unless `sizes` says. */
export function reduceScatter(
  x: Tensor,
  fn: ReduceFn = "sum",
  axis = 0,
  options: CollectiveOptions & { sizes?: readonly number[] } = {},
): Tensor {
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

/** n in parts of whole numbers that differ by one at most, the larger ones first. */
export const evenSizes = (n: number, parts: number): number[] =>
  Array.from({ length: parts }, (_, i) => Math.floor(n / parts) + (i < n % parts ? 1 : 0));

/** What process `root` has, for all; the others' tensors say only shape and dtype. */
export function broadcast(x: Tensor, root = 0, options: CollectiveOptions = {}): Tensor {
  const members = membersOf("broadcast", options.ranks);
  if (!members.includes(root)) throw new WeftError(`broadcast: root ${root} is not in ranks [${members.join(", ")}]`);
  if (members.length === 1) return x;
  const box = { start: x.shape.map(() => 0), stop: x.shape };
  const sends = group().rank === root ? members.map((member) => ({ rank: member, ...box })) : [];
  return collective(x, { kind: "exchange", sends, receives: [{ rank: root, ...box }], shape: x.shape }, members);
}

/** Returns when all processes have come here. */
export function barrier(): void {
  group().barrier();
}
