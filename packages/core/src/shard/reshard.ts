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
    const { most, total } = receivedElements(move, this.shape);
    const size = bytesOf(this.dtype);
    move.bytes = most * size;
    move.total = total * size;
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

/** Elements that a device holds before and after a move, in both, and the devices per group. */
type Received = (had: number, gets: number, both: number, members: number) => number;

const received: Record<Exclude<Move["kind"], "slice" | "zeros">, Received> = {
  allReduce: (had, _, _both, members) => (2 * (members - 1) * had) / members,
  reduceScatter: (_, gets, _both, members) => (members - 1) * gets,
  allGather: (had, gets) => gets - had,
  allToAll: (_, gets, both) => gets - both,
  // Others hold every element that the device itself does not.
  exchange: (_, gets, both) => gets - both,
};

/** Elements that a device receives from others: at most, and all devices together. One pass, because there may be thousands. */
function receivedElements(move: Move, shape: Shape): { most: number; total: number } {
  const { kind, from, to, members } = move;
  if (kind === "slice" || kind === "zeros") return { most: 0, total: 0 };
  const rule = received[kind];
  const columns = (placement: Placement) =>
    placement.dims.map((split) => split && { bounds: split.bounds, at: placement.mesh.positions(split.axes) });
  const [before, after] = [columns(from), columns(to)];
  let [most, total] = [0, 0];
  to.mesh.ranks.forEach((rank, i) => {
    const source = from.mesh.indexOf(rank);
    let [had, gets, both] = source < 0 ? [0, 1, 0] : [1, 1, 1];
    for (let dim = 0; dim < shape.length; dim++) {
      const [a, b] = [before[dim], after[dim]];
      const low = a === null || source < 0 ? 0 : a.bounds[a.at[source]];
      const high = a === null || source < 0 ? shape[dim] : a.bounds[a.at[source] + 1];
      const start = b === null ? 0 : b.bounds[b.at[i]];
      const stop = b === null ? shape[dim] : b.bounds[b.at[i] + 1];
      had *= high - low;
      gets *= stop - start;
      both *= Math.max(0, Math.min(high, stop) - Math.max(low, start));
    }
    const count = rule(had, gets, both, members);
    most = Math.max(most, count);
    total += count;
  });
  return { most, total };
}

const volume = ({ start, stop }: IndexBox): number => numel(stop.map((to, i) => Math.max(0, to - start[i])));

const intersect = (a: IndexBox, b: IndexBox): IndexBox => {
  const start = a.start.map((from, i) => Math.max(from, b.start[i]));
  return { start, stop: a.stop.map((to, i) => Math.max(start[i], Math.min(to, b.stop[i]))) };
};

interface Delivery {
  source: number;
  target: number;
  /** In the whole tensor. */
  box: IndexBox;
}

interface Holder {
  box: IndexBox;
  ranks: number[];
  /** Its place among the holders. */
  order: number;
}

/** The parts of a split that overlap [start, stop). */
function overlapping({ bounds }: DimensionSplit, start: number, stop: number): number[] {
  let [low, high] = [0, bounds.length - 1];
  while (low < high) {
    const middle = (low + high) >> 1;
    if (bounds[middle + 1] <= start) low = middle + 1;
    else high = middle;
  }
  const parts: number[] = [];
  for (let k = low; k < bounds.length - 1 && bounds[k] < stop; k++) if (bounds[k + 1] > bounds[k]) parts.push(k);
  return parts;
}

/** Sender and receiver of every box. Among several holders a receiver prefers itself, then alternates. */
function transfers(from: Placement, to: Placement, shape: Shape): Delivery[] {
  // Partial sums differ per device: each goes to the device that continues it.
  const share = (rank: number): number => (from.pending === null ? 0 : from.mesh.position(rank, from.pending.axes));
  // Found by their parts: comparing every device with every other takes minutes for thousands of them.
  const keyOf = (parts: readonly number[], part: number): string => `${parts}:${part}`;
  const holders = new Map<string, Holder>();
  for (const rank of from.mesh.ranks) {
    const parts = from.dims.map((split) => (split === null ? 0 : from.mesh.position(rank, split.axes)));
    const key = keyOf(parts, share(rank));
    const holder = holders.get(key);
    if (holder !== undefined) holder.ranks.push(rank);
    else holders.set(key, { box: from.box(rank, shape), ranks: [rank], order: holders.size });
  }
  const list: Delivery[] = [];
  to.mesh.ranks.forEach((target, round) => {
    const wanted = to.box(target, shape);
    if (shape.length > 0 && volume(wanted) === 0) return;
    let places: number[][] = [[]];
    from.dims.forEach((split, dim) => {
      const parts = split === null ? [0] : overlapping(split, wanted.start[dim], wanted.stop[dim]);
      places = places.flatMap((place) => parts.map((part) => [...place, part]));
    });
    const part = from.pending === null ? 0 : share(target);
    const found = places.map((place) => holders.get(keyOf(place, part))!).sort((a, b) => a.order - b.order);
    for (const { box, ranks } of found) {
      const source = ranks.includes(target) ? target : ranks[round % ranks.length];
      list.push({ source, target, box: intersect(box, wanted) });
    }
  });
  return list;
}

function groupedBy<T>(list: readonly T[], keyOf: (item: T) => number): Map<number, T[]> {
  const groups = new Map<number, T[]>();
  for (const item of list) {
    const group = groups.get(keyOf(item));
    if (group === undefined) groups.set(keyOf(item), [item]);
    else group.push(item);
  }
  return groups;
}

/** Ranks that communicate, directly or transitively; one list per connected component. */
function talking(deliveries: readonly Delivery[], ranks: readonly number[]): number[][] {
  const parent = new Map(ranks.map((rank) => [rank, rank]));
  const find = (rank: number): number => {
    let root = rank;
    while (parent.get(root) !== root) {
      parent.set(root, parent.get(parent.get(root)!)!);
      root = parent.get(root)!;
    }
    return root;
  };
  for (const { source, target } of deliveries) parent.set(find(source), find(target));
  return [
    ...groupedBy(
      [...ranks].sort((a, b) => a - b),
      find,
    ).values(),
  ];
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
    const sent = groupedBy(deliveries, ({ source }) => source);
    const got = groupedBy(deliveries, ({ target }) => target);
    for (const rank of ranks) {
      const sends = (sent.get(rank) ?? []).map(({ target, box }) => inside(box, from.box(rank, shape), target));
      const receives = (got.get(rank) ?? []).map(({ source, box }) => inside(box, to.box(rank, shape), source));
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
