// Resharding: the collectives that lead from one placement of a tensor to another, with their groups and bytes. Describes
// the moves (for cost estimates) and builds them into every device's graph.

import type { Node } from "../graph/index.js";
import {
  bareCollective,
  bytesOf,
  type DType,
  numel,
  type OpAttrs,
  type ReduceFn,
  type Shape,
  type Transfer,
} from "../graph/index.js";
import { build, make, zeroed } from "../ops/index.js";
import type { Mesh } from "./mesh.js";
import { type DimensionSplit, type IndexBox, Placement } from "./placement.js";

/** One step of resharding. `bytes`: received by the device that receives most; `total`: received by all devices. */
export interface Move {
  kind: "slice" | "zeros" | OpAttrs["collective"]["kind"];
  fn: ReduceFn;
  /** Mesh axes along which devices communicate. */
  axes: readonly string[];
  dim: number;
  splitDim: number;
  from: Placement;
  to: Placement;
  /** Devices per group. */
  members: number;
  bytes: number;
  total: number;
}

const sameSplit = (a: DimensionSplit | null, b: DimensionSplit | null): boolean =>
  a === b || (a !== null && b !== null && String(a.axes) === String(b.axes) && String(a.bounds) === String(b.bounds));

/** The axes by which `fine` splits more finely than `coarse`; null where their boundaries are incompatible. */
function finerBy(coarse: DimensionSplit | null, fine: DimensionSplit | null, mesh: Mesh): string[] | null {
  if (fine === null) return null;
  if (coarse === null) return [...fine.axes];
  if (fine.axes.length <= coarse.axes.length || coarse.axes.some((axis, i) => fine.axes[i] !== axis)) return null;
  const more = fine.axes.slice(coarse.axes.length);
  const step = mesh.sizeOf(more);
  return coarse.bounds.every((bound, k) => bound === fine.bounds[k * step]) ? more : null;
}

class Resharding {
  readonly moves: Move[] = [];

  constructor(
    public at: Placement,
    readonly to: Placement,
    readonly shape: Shape,
    readonly dtype: DType,
  ) {}

  #move(kind: Move["kind"], to: Placement, extra: Partial<Move>): void {
    const move: Move = {
      kind,
      fn: "sum",
      axes: [],
      dim: 0,
      splitDim: 0,
      from: this.at,
      to,
      members: this.at.mesh.sizeOf(extra.axes ?? []),
      bytes: 0,
      total: 0,
      ...extra,
    };
    const received = receivedElements(move, this.shape);
    const size = bytesOf(this.dtype);
    move.bytes = Math.max(0, ...received) * size;
    move.total = received.reduce((n, count) => n + count, 0) * size;
    this.moves.push(move);
    this.at = to;
  }

  /** Slices what is replicated and need not be: no traffic, and less to move afterwards. */
  cut(): void {
    const { mesh } = this.at;
    this.to.dims.forEach((split, dim) => {
      const more = finerBy(this.at.dims[dim], split, mesh);
      const used = [...this.at.splitAxes, ...(this.at.pending?.axes ?? [])];
      if (more !== null && !more.some((axis) => used.includes(axis)))
        this.#move("slice", this.at.withDim(dim, split), {});
    });
  }

  /** Completes reductions that may no longer be pending: by reduce-scatter where the result is split along the same axis. */
  settle(): void {
    const { mesh } = this.at;
    const { pending } = this.at;
    if (pending === null) return;
    const stays = this.to.pending?.fn === pending.fn ? this.to.pending.axes : [];
    const scatter = (axis: string): boolean => {
      const dim = this.to.dims.findIndex((split, i) => {
        const more = finerBy(this.at.dims[i], split, mesh);
        return more !== null && more.length === 1 && more[0] === axis;
      });
      if (dim < 0) return false;
      const left = this.at.pending!.axes.filter((name) => name !== axis);
      const to = new Placement(
        mesh,
        this.at.dims.map((old, i) => (i === dim ? this.to.dims[dim] : old)),
        left.length > 0 ? { axes: left, fn: pending.fn } : null,
      );
      this.#move("reduceScatter", to, { fn: pending.fn, axes: [axis], dim });
      return true;
    };
    const rest = pending.axes.filter((axis) => !stays.includes(axis) && !scatter(axis));
    if (rest.length === 0) return;
    const left = this.at.pending!.axes.filter((axis) => !rest.includes(axis));
    this.#move("allReduce", this.at.withPending({ axes: left, fn: pending.fn }), { fn: pending.fn, axes: rest });
  }

  /** Moves one group of axes from one dimension to another. */
  transposeAxes(): void {
    const { at, to } = this;
    const dim = at.dims.findIndex((split, i) => split !== null && to.dims[i] === null);
    if (dim < 0) return;
    const axes = at.dims[dim]!.axes;
    const splitDim = to.dims.findIndex(
      (split, i) => split !== null && at.dims[i] === null && String(split.axes) === String(axes),
    );
    if (splitDim < 0) return;
    const moved = new Placement(
      at.mesh,
      at.dims.map((old, i) => (i === dim ? null : i === splitDim ? to.dims[splitDim] : old)),
      at.pending,
    );
    this.#move("allToAll", moved, { axes, dim, splitDim });
  }

  /** Gathers what is split here and whole in the target, if nothing else is left to do. */
  join(): void {
    const { mesh } = this.at;
    const steps = this.to.dims.map((split, dim) => {
      if (sameSplit(this.at.dims[dim], split)) return [];
      return finerBy(split, this.at.dims[dim], mesh);
    });
    if (steps.some((axes) => axes === null)) return;
    steps.forEach((axes, dim) => {
      if (axes!.length > 0) this.#move("allGather", this.at.withDim(dim, this.to.dims[dim]), { axes: axes!, dim });
    });
  }

  exchange(): void {
    const boxes = this.to.withPending(this.at.pending);
    if (this.at.equals(boxes)) return;
    const ranks = new Set([...this.at.mesh.ranks, ...this.to.mesh.ranks]);
    this.#move("exchange", boxes, { members: ranks.size });
  }

  /** A pending sum from a replicated value: the first device keeps it, the others hold zeros. */
  spread(): void {
    if (this.at.equals(this.to)) return;
    const axes = this.to.pending!.axes.filter((axis) => !(this.at.pending?.axes ?? []).includes(axis));
    this.#move("zeros", this.to, { axes });
  }
}

/** The moves that lead from one placement of a tensor to another; none where they are equal. */
export function planReshard(from: Placement, to: Placement, shape: Shape, dtype: DType): Move[] {
  if (from.equals(to)) return [];
  const work = new Resharding(from, to, shape, dtype);
  if (from.mesh.key !== to.mesh.key) {
    if (from.pending !== null) {
      const { pending } = from;
      work.moves.push(...planReshard(from, from.withPending(null), shape, dtype));
      work.at = from.withPending(null);
      if (pending.axes.length === 0) return work.moves;
    }
    work.exchange();
    return work.moves;
  }
  work.cut();
  work.settle();
  work.cut();
  work.transposeAxes();
  work.join();
  work.exchange();
  work.spread();
  return work.moves;
}

/** Elements that each device receives from others. */
function receivedElements(move: Move, shape: Shape): number[] {
  const { from, to, members } = move;
  const count = (placement: Placement, rank: number): number =>
    placement.mesh.has(rank) ? numel(placement.localShape(rank, shape)) : 0;
  const { ranks } = from.mesh;
  switch (move.kind) {
    case "slice":
    case "zeros":
      return [0];
    case "allReduce":
      return ranks.map((rank) => (2 * (members - 1) * count(from, rank)) / members);
    case "reduceScatter":
      return ranks.map((rank) => (members - 1) * count(to, rank));
    case "allGather":
      return ranks.map((rank) => count(to, rank) - count(from, rank));
    case "allToAll":
      return ranks.map((rank) => count(to, rank) - overlap(from.box(rank, shape), to.box(rank, shape)));
    case "exchange": {
      const got = new Map<number, number>();
      for (const { source, target, box } of transfers(from, to, shape))
        if (source !== target) got.set(target, (got.get(target) ?? 0) + volume(box));
      return [0, ...got.values()];
    }
  }
}

const volume = ({ start, stop }: IndexBox): number => numel(stop.map((to, i) => Math.max(0, to - start[i])));

const intersect = (a: IndexBox, b: IndexBox): IndexBox => {
  const start = a.start.map((from, i) => Math.max(from, b.start[i]));
  return { start, stop: a.stop.map((to, i) => Math.max(start[i], Math.min(to, b.stop[i]))) };
};

const overlap = (a: IndexBox, b: IndexBox): number => volume(intersect(a, b));

interface Delivery {
  source: number;
  target: number;
  /** In the whole tensor. */
  box: IndexBox;
}

/** Sender and receiver of every box. Among several holders a receiver prefers itself, then alternates. */
function transfers(from: Placement, to: Placement, shape: Shape): Delivery[] {
  // Partial sums differ per device: each goes to the device that continues it.
  const share = (rank: number): number => (from.pending === null ? 0 : from.mesh.position(rank, from.pending.axes));
  const holders = new Map<string, { box: IndexBox; ranks: number[]; share: number }>();
  for (const rank of from.mesh.ranks) {
    const box = from.box(rank, shape);
    const key = `${box.start}:${box.stop}:${share(rank)}`;
    const holder = holders.get(key) ?? { box, ranks: [], share: share(rank) };
    holder.ranks.push(rank);
    holders.set(key, holder);
  }
  const list: Delivery[] = [];
  to.mesh.ranks.forEach((target, round) => {
    const wanted = to.box(target, shape);
    for (const { box, ranks, share: part } of holders.values()) {
      if (from.pending !== null && part !== share(target)) continue;
      const piece = intersect(box, wanted);
      if (volume(piece) === 0 && !(shape.length === 0)) continue;
      const source = ranks.includes(target) ? target : ranks[round % ranks.length];
      list.push({ source, target, box: piece });
      if (shape.length === 0) break;
    }
  });
  return list;
}

/** Ranks that communicate, directly or transitively; one list per connected component. */
function talking(deliveries: readonly Delivery[], ranks: readonly number[]): number[][] {
  const parent = new Map(ranks.map((rank) => [rank, rank]));
  const find = (rank: number): number => {
    let root = rank;
    while (parent.get(root) !== root) root = parent.get(root)!;
    return root;
  };
  for (const { source, target } of deliveries) parent.set(find(source), find(target));
  const lists = new Map<number, number[]>();
  for (const rank of [...ranks].sort((a, b) => a - b)) lists.set(find(rank), [...(lists.get(find(rank)) ?? []), rank]);
  return [...lists.values()];
}

const inside = (box: IndexBox, origin: IndexBox, rank: number): Transfer => ({
  rank,
  start: box.start.map((from, i) => from - origin.start[i]),
  stop: box.stop.map((to, i) => to - origin.start[i]),
});

/** Attributes of the collective of a move for each rank of both meshes. */
function collectiveAttrs(move: Move, shape: Shape, dtype: DType, sequence: number): Map<number, OpAttrs["collective"]> {
  const { kind, fn, axes, dim, splitDim, from, to } = move;
  const list = new Map<number, OpAttrs["collective"]>();
  const common = { ...bareCollective, fn, sequence, axis: dim, splitAxis: splitDim, dtype };
  const shapeOn = (rank: number): number[] => (to.mesh.has(rank) ? to.localShape(rank, shape) : shape.map(() => 0));
  if (kind === "slice" || kind === "zeros") return list;
  if (kind === "exchange") {
    const ranks = [...new Set([...from.mesh.ranks, ...to.mesh.ranks])];
    const deliveries = transfers(from, to, shape);
    const groups = talking(deliveries, ranks);
    for (const rank of ranks) {
      const sends = deliveries
        .filter(({ source }) => source === rank)
        .map(({ target, box }) => inside(box, from.box(rank, shape), target));
      const receives = deliveries
        .filter(({ target }) => target === rank)
        .map(({ source, box }) => inside(box, to.box(rank, shape), source));
      list.set(rank, { ...common, kind, axis: 0, groups, rank, sends, receives, shape: shapeOn(rank) });
    }
    return list;
  }
  const groups = from.mesh.groups(axes);
  for (const group of groups) {
    const extents = (placement: Placement, axis: number): number[] =>
      group.map((rank) => placement.localShape(rank, shape)[axis]);
    const sizes =
      kind === "allGather" || kind === "allToAll"
        ? extents(from, dim)
        : kind === "reduceScatter"
          ? extents(to, dim)
          : [];
    const splitSizes = kind === "allToAll" ? extents(to, splitDim) : [];
    for (const rank of group)
      list.set(rank, { ...common, kind, groups, rank, sizes, splitSizes, shape: shapeOn(rank) });
  }
  return list;
}

/** The local part of a move that needs no other device. */
function moveLocally(x: Node, move: Move, rank: number, shape: Shape): Node {
  if (move.kind === "zeros") return move.from.mesh.position(rank, move.axes) === 0 ? x : zeroed(x);
  const had = move.from.box(rank, shape);
  const wants = move.to.box(rank, shape);
  return build.slice(
    x,
    wants.start.map((from, i) => from - had.start[i]),
    wants.stop.map((to, i) => to - had.start[i]),
  );
}

/** The moved tensor on every device; `x` and the result are by rank. */
export function applyMove(
  x: ReadonlyMap<number, Node>,
  move: Move,
  shape: Shape,
  dtype: DType,
  sequence: number,
): Map<number, Node> {
  const attrs = collectiveAttrs(move, shape, dtype, sequence);
  const result = new Map<number, Node>();
  const ranks = attrs.size > 0 ? attrs.keys() : x.keys();
  for (const rank of ranks) {
    const mine = attrs.get(rank);
    const operand =
      x.get(rank) ??
      build.full(
        shape.map(() => 0),
        0,
        dtype,
      );
    result.set(
      rank,
      mine === undefined ? moveLocally(operand, move, rank, shape) : make("collective", [operand], mine),
    );
  }
  return result;
}

export const isCollective = (move: Move): boolean => move.kind !== "slice" && move.kind !== "zeros";
