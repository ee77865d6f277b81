// The devices of a training step, where they may differ in speed and memory: which rows of a batch and which part of divided state
// each of them has, and which few of them decide how long a step takes and whether it fits.
import { range, WeftError } from "../graph/index.js";
import { Mesh } from "./mesh.js";
import type { RowDivision, StepSplit } from "./step-model.js";

/** Devices of a step in the order of their ranks. */
export interface StepDevices {
  count: number;
  /** How fast each is, relative to the first one, which the rates describe. */
  speeds: readonly number[];
  /** Bytes that each may use. */
  memory: readonly number[];
}

/** What one device has of a step. */
export interface DeviceShare {
  rank: number;
  rows: number;
  speed: number;
  memory: number;
}

const isUneven = (values: readonly number[]): boolean => values.some((value) => value !== values[0]);

/** Devices from the options of a plan: a number stands for all of them. */
export function stepDevices(
  count: number,
  speeds: readonly number[] | undefined,
  memory: number | readonly number[] = Number.POSITIVE_INFINITY,
): StepDevices {
  const limits = typeof memory === "number" ? new Array<number>(count).fill(memory) : memory;
  for (const [name, list] of [["speeds", speeds ?? limits] as const, ["limits of memory", limits] as const])
    if (list.length !== count || !list.every((value) => value > 0))
      throw new WeftError(`plan of a step: ${count} devices need ${count} ${name} above 0, got [${list}]`);
  const given = speeds ?? new Array<number>(count).fill(1);
  return { count, speeds: given.map((speed) => speed / given[0]), memory: limits };
}

/** The divisions of rows that make a difference. */
export function divisionsOf({ speeds, memory }: StepDevices): RowDivision[] {
  return [
    ...(isUneven(speeds) ? ["speed" as const] : []),
    "equal" as const,
    ...(isUneven(memory) ? ["memory" as const] : []),
  ];
}

/** The devices of a split as a grid. */
export class DeviceGrid {
  /** By what every device's part of a divided dimension is weighted: rows, and state. */
  readonly #rows: Mesh;
  readonly #state: Mesh;

  constructor(
    readonly devices: StepDevices,
    split: StepSplit,
  ) {
    const { count, speeds, memory } = devices;
    const axes = [
      { name: "data", size: split.data },
      { name: "model", size: split.model },
    ];
    const weights = { equal: null, speed: speeds, memory };
    this.#rows = new Mesh(axes, range(count), weights[split.division ?? "equal"]);
    // State that is divided fills the memory that there is.
    this.#state = new Mesh(axes, range(count), isUneven(memory) ? memory : null);
  }

  /** The part of a batch of `rows` rows that a device has. */
  part(rank: number, rows: number): DeviceShare {
    const bounds = this.#rows.bounds(rows, ["data"]);
    const at = this.#rows.position(rank, ["data"]);
    const { speeds, memory } = this.devices;
    return { rank, rows: bounds[at + 1] - bounds[at], speed: speeds[rank], memory: memory[rank] };
  }

  /** Share of a dimension of state that a device has, if the axes divide it. */
  stateShare(rank: number, size: number, axes: readonly string[]): number {
    const bounds = this.#state.bounds(size, axes);
    const at = this.#state.position(rank, axes);
    return (bounds[at + 1] - bounds[at]) / size;
  }

  /**
   * The devices that may decide: the one that needs most time per row it has, the ones with most rows, least memory, most rows for
   * their memory, and least speed. Alike devices are one.
   */
  deciding(rows: number): DeviceShare[] {
    const parts = range(this.devices.count).map((rank) => this.part(rank, rows));
    const measures: ((part: DeviceShare) => number)[] = [
      ({ rows: own }) => own,
      ({ rows: own, speed }) => own / speed,
      ({ memory }) => -memory,
      ({ rows: own, memory }) => own / memory,
      ({ speed }) => -speed,
      // The largest part of the state, and of what comes with it.
      ({ memory }) => memory,
    ];
    // Of equals the first: its parts are the larger ones.
    return [...new Set(measures.map((of) => parts.reduce((a, b) => (of(b) > of(a) ? b : a))))];
  }
}
