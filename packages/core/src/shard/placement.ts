// A placement: which device holds which part of a tensor. Every dimension is whole or split at explicit boundaries along
// mesh axes, so uneven and empty shards need no special case. Over the remaining axes the tensor is replicated, or each
// device holds a partial result of a pending reduction.
import { numel, type ReduceFn, range, type Shape, WeftError } from "../graph/index.js";
import { evenBounds, listKey, Mesh } from "./mesh.js";

export interface DimensionSplit {
  /** Mesh axes that split the dimension, the slowest first. */
  readonly axes: readonly string[];
  /** One more than there are parts: part k is [bounds[k], bounds[k + 1]). */
  readonly bounds: readonly number[];
}

export interface PendingReduction {
  readonly axes: readonly string[];
  readonly fn: ReduceFn;
}

/** start <= index < stop along each axis. */
export interface IndexBox {
  readonly start: readonly number[];
  readonly stop: readonly number[];
}

/** Keys of lists of boundaries that were checked. Placements share these lists, which have one entry per device. */
const boundsKeys = new WeakMap<readonly number[], string>();

function boundsKey({ bounds }: DimensionSplit, parts: number): string {
  const found = boundsKeys.get(bounds);
  if (found !== undefined && bounds.length === parts + 1) return found;
  const ascend = bounds.every((bound, k) => k === 0 || bound >= bounds[k - 1]);
  if (bounds.length !== parts + 1 || bounds[0] !== 0 || !ascend)
    throw new WeftError(`placement: [${bounds}] are not the boundaries of ${parts} parts`);
  const key = listKey(bounds);
  boundsKeys.set(bounds, key);
  return key;
}

export class Placement {
  readonly key: string;

  constructor(
    readonly mesh: Mesh,
    readonly dims: readonly (DimensionSplit | null)[],
    readonly pending: PendingReduction | null = null,
  ) {
    const used = [...dims.flatMap((split) => split?.axes ?? []), ...(pending?.axes ?? [])];
    if (new Set(used).size !== used.length) throw new WeftError(`placement: a mesh axis is used twice in [${used}]`);
    const wait = pending === null ? "" : `+${pending.fn}:${pending.axes}`;
    const splits = dims.map((split) =>
      split === null ? "" : `${split.axes}:${boundsKey(split, mesh.sizeOf(split.axes))}`,
    );
    this.key = `${mesh.key}|${dims.length}|${splits.join(";")}${wait}`;
  }

  static replicated(mesh: Mesh, rank: number): Placement {
    return new Placement(
      mesh,
      range(rank).map(() => null),
    );
  }

  /** `Placement.split(mesh, [64, 32], { 0: "batch" })`, in equal parts, or by the speeds of the mesh; several axes as a list. */
  static split(mesh: Mesh, shape: Shape, by: Readonly<Record<number, string | readonly string[]>>): Placement {
    for (const dim of Object.keys(by))
      if (!(Number(dim) in shape)) throw new WeftError(`placement: there is no dimension ${dim} in [${shape}]`);
    return new Placement(
      mesh,
      shape.map((size, i) => {
        if (by[i] === undefined) return null;
        const axes = typeof by[i] === "string" ? [by[i]] : [...by[i]];
        return { axes, bounds: mesh.bounds(size, axes) };
      }),
    );
  }

  equals(other: Placement): boolean {
    return this.key === other.key;
  }

  get isReplicated(): boolean {
    return this.pending === null && this.dims.every((split) => split === null);
  }

  get splitAxes(): string[] {
    return this.dims.flatMap((split) => split?.axes ?? []);
  }

  withPending(pending: PendingReduction | null): Placement {
    return new Placement(this.mesh, this.dims, pending !== null && pending.axes.length > 0 ? pending : null);
  }

  withDim(dim: number, split: DimensionSplit | null): Placement {
    return new Placement(
      this.mesh,
      this.dims.map((old, i) => (i === dim ? split : old)),
      this.pending,
    );
  }

  /** The index range of a device's shard. */
  box(rank: number, shape: Shape): IndexBox {
    const parts = this.dims.map((split, i) => {
      if (split === null) return [0, shape[i]];
      const k = this.mesh.position(rank, split.axes);
      return [split.bounds[k], split.bounds[k + 1]];
    });
    return { start: parts.map(([from]) => from), stop: parts.map(([, to]) => to) };
  }

  localShape(rank: number, shape: Shape): number[] {
    const { start, stop } = this.box(rank, shape);
    return stop.map((to, i) => to - start[i]);
  }

  /** Number of elements of the largest shard. */
  largestShare(shape: Shape): number {
    return numel(
      shape.map((size, i) => {
        const split = this.dims[i];
        if (split === null) return size;
        return Math.max(...split.bounds.slice(1).map((bound, k) => bound - split.bounds[k]));
      }),
    );
  }

  /** `[batch, -] +sum over model`; uneven boundaries are shown. */
  toString(): string {
    const dims = this.dims.map((split) => {
      if (split === null) return "-";
      const even = evenBounds(split.bounds[split.bounds.length - 1], split.bounds.length - 1);
      const name = split.axes.join("*");
      return even.every((bound, k) => bound === split.bounds[k]) ? name : `${name}(${split.bounds.join(" ")})`;
    });
    const waits = this.pending === null ? "" : ` +${this.pending.fn} over ${this.pending.axes.join("*")}`;
    return `[${dims.join(", ")}]${waits}`;
  }

  toJSON(): PlacementJSON {
    return {
      mesh: {
        axes: this.mesh.axes,
        ranks: this.mesh.ranks,
        ...(this.mesh.speeds !== null && { speeds: this.mesh.speeds }),
      },
      dims: this.dims,
      pending: this.pending,
    };
  }

  static fromJSON({ mesh, dims, pending }: PlacementJSON): Placement {
    return new Placement(new Mesh(mesh.axes, mesh.ranks, mesh.speeds ?? null), dims, pending);
  }
}

interface PlacementJSON {
  mesh: { axes: Mesh["axes"]; ranks: readonly number[]; speeds?: readonly number[] };
  dims: readonly (DimensionSplit | null)[];
  pending: PendingReduction | null;
}
