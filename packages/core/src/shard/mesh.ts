// A mesh: devices as a grid with named axes, e.g. 2 x 4 "batch" x "model". Devices are identified by rank.
import { range, WeftError } from "../graph/index.js";

interface MeshAxis {
  readonly name: string;
  readonly size: number;
}

/** Boundaries of parts whose sizes differ by at most one, the larger parts first. */
export function evenBounds(size: number, parts: number): number[] {
  const small = Math.floor(size / parts);
  const more = size % parts;
  return range(parts + 1).map((k) => k * small + Math.min(k, more));
}

/** Identifies a list of whole numbers by its runs of equal steps, so that the text of an even split of any size is short. */
export function listKey(values: readonly number[]): string {
  const runs: string[] = [];
  for (let i = 0; i < values.length; ) {
    const step = values[i + 1] - values[i];
    let end = i + 1;
    while (end < values.length && values[end] - values[end - 1] === step) end++;
    runs.push(end > i + 2 ? `${values[i]}+${step}x${end - i}` : values.slice(i, end).join());
    i = end;
  }
  return runs.join();
}

export class Mesh {
  readonly axes: readonly MeshAxis[];
  /** Ranks in row-major order of the grid. */
  readonly ranks: readonly number[];
  /** How many times faster than the slowest device each one is, in the order of the ranks; null where all are alike. */
  readonly speeds: readonly number[] | null;
  readonly key: string;
  readonly #index: ReadonlyMap<number, number>;
  readonly #coordinates = new Map<number, Record<string, number>>();
  readonly #positions = new Map<string, Int32Array>();
  readonly #bounds = new Map<string, readonly number[]>();

  constructor(axes: readonly MeshAxis[], ranks?: readonly number[], speeds: readonly number[] | null = null) {
    const size = axes.reduce((n, axis) => n * axis.size, 1);
    for (const { name, size: extent } of axes)
      if (!Number.isSafeInteger(extent) || extent < 1)
        throw new WeftError(`mesh: axis "${name}" has ${extent} devices; give a whole number >= 1`);
    if (new Set(axes.map(({ name }) => name)).size !== axes.length)
      throw new WeftError(`mesh: the axes ${axes.map(({ name }) => `"${name}"`).join(", ")} repeat a name`);
    this.axes = axes;
    this.ranks = ranks ?? range(size);
    if (this.ranks.length !== size || new Set(this.ranks).size !== size)
      throw new WeftError(`mesh: a grid of ${size} devices needs ${size} different ranks, not [${this.ranks}]`);
    if (speeds !== null && (speeds.length !== size || !speeds.every((speed) => speed > 0 && Number.isFinite(speed))))
      throw new WeftError(`mesh: ${size} devices need ${size} speeds above 0, not [${speeds}]`);
    this.speeds = speeds?.some((speed) => speed !== speeds[0]) ? speeds : null;
    const different = [...new Set(this.speeds)];
    const uneven = this.speeds?.map((speed) => different.indexOf(speed));
    this.key = `${axes.map(({ name, size: extent }) => `${name}=${extent}`).join("x")}@${listKey(this.ranks)}${
      uneven === undefined ? "" : `/${different}:${listKey(uneven)}`
    }`;
    this.#index = new Map(this.ranks.map((rank, i) => [rank, i]));
  }

  /** `Mesh.of({ batch: 2, model: 4 })`. */
  static of(sizes: Record<string, number>, ranks?: readonly number[]): Mesh {
    return new Mesh(
      Object.entries(sizes).map(([name, size]) => ({ name, size })),
      ranks,
    );
  }

  get size(): number {
    return this.ranks.length;
  }

  has(rank: number): boolean {
    return this.#index.has(rank);
  }

  /** The place of a device in `ranks`; -1 where it is not in the mesh. */
  indexOf(rank: number): number {
    return this.#index.get(rank) ?? -1;
  }

  sizeOf(names: readonly string[]): number {
    return names.reduce((n, name) => n * this.axis(name).size, 1);
  }

  axis(name: string): MeshAxis {
    const found = this.axes.find((axis) => axis.name === name);
    if (found === undefined)
      throw new WeftError(
        `there is no mesh axis "${name}"; the mesh has ${this.axes.map((a) => `"${a.name}"`).join(", ")}`,
      );
    return found;
  }

  /** The position of a device along each axis. */
  coordinates(rank: number): Record<string, number> {
    const cached = this.#coordinates.get(rank);
    if (cached !== undefined) return cached;
    let rest = this.#index.get(rank);
    if (rest === undefined) throw new WeftError(`rank ${rank} is not in the mesh ${this}`);
    const at: Record<string, number> = {};
    for (const { name, size } of [...this.axes].reverse()) {
      at[name] = rest % size;
      rest = Math.floor(rest / size);
    }
    this.#coordinates.set(rank, at);
    return at;
  }

  /** The position of a device among those that differ along the given axes, the first axis slowest. */
  position(rank: number, names: readonly string[]): number {
    const at = this.coordinates(rank);
    return names.reduce((n, name) => n * this.axis(name).size + at[name], 0);
  }

  /** The positions of all devices along the given axes, in the order of the ranks. */
  positions(names: readonly string[]): Int32Array {
    const key = JSON.stringify(names);
    let found = this.#positions.get(key);
    if (found === undefined) {
      found = Int32Array.from(this.ranks, (rank) => this.position(rank, names));
      this.#positions.set(key, found);
    }
    return found;
  }

  /** The speed of every part of a dimension that these axes split: that of its slowest device. Null where all are alike. */
  partSpeeds(names: readonly string[]): number[] | null {
    const { speeds } = this;
    if (speeds === null) return null;
    const parts = new Array<number>(this.sizeOf(names)).fill(Number.POSITIVE_INFINITY);
    this.ranks.forEach((rank, i) => {
      const k = this.position(rank, names);
      parts[k] = Math.min(parts[k], speeds[i]);
    });
    return parts;
  }

  /** Boundaries of a dimension that these axes split: parts of equal size, or as large as their devices are fast. */
  bounds(size: number, names: readonly string[]): readonly number[] {
    const key = JSON.stringify([size, ...names]);
    let found = this.#bounds.get(key);
    if (found === undefined) {
      found = this.#makeBounds(size, names);
      this.#bounds.set(key, found);
    }
    return found;
  }

  #makeBounds(size: number, names: readonly string[]): number[] {
    const speeds = this.partSpeeds(names);
    if (speeds === null) return evenBounds(size, this.sizeOf(names));
    const total = speeds.reduce((sum, speed) => sum + speed, 0);
    let before = 0;
    return [
      0,
      ...speeds.map((speed, k) => {
        before += speed;
        return k === speeds.length - 1 ? size : Math.round((size * before) / total);
      }),
    ];
  }

  /** Groups of devices that differ only along the given axes, ordered by position. */
  groups(names: readonly string[]): number[][] {
    const lists = new Map<string, number[]>();
    for (const rank of this.ranks) {
      const at = this.coordinates(rank);
      const key = this.axes.map(({ name }) => (names.includes(name) ? "*" : at[name])).join(",");
      const list = lists.get(key);
      if (list === undefined) lists.set(key, [rank]);
      else list.push(rank);
    }
    return [...lists.values()].map((list) => list.sort((a, b) => this.position(a, names) - this.position(b, names)));
  }

  toString(): string {
    return this.axes.map(({ name, size }) => `${name}=${size}`).join(" x ");
  }
}
