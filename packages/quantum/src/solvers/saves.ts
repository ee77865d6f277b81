// Times at which a solver returns states and expectation values: equally spaced (`saves`) or given (`tsave`). Expectation values
// are computed inside the time loop, so that states need not be stored.
import { WeftError } from "@weft/core/internal/graph";
import { concat, linspace, type Tensor, tensor, treeMap } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import type { Grid } from "./problem.js";

/** Options of every solver about what it returns. @inline */
export interface SaveOptions {
  /** Number of equally spaced times at which states are returned. Default: 1, the end. */
  saves?: number;
  /** Ascending times from 0 to the duration at which states are returned. Steps are shortened to end at these times. */
  tsave?: readonly number[];
  /** False: only expectation values are returned at these times, and no states are stored. */
  saveStates?: boolean;
  /** Called about twenty times with the part that is done, from 0 to 1. Not inside jit, grad and vmap. */
  progress?: (done: number) => void;
}

/** Names of the options that every solver of states has. */
export const stateOptionNames = [
  "duration",
  "steps",
  "method",
  "gradient",
  "saves",
  "tsave",
  "saveStates",
  "observables",
  "dtype",
  "progress",
];

/** States and expectation values at the times of a plan. */
export interface Saved {
  states: Tensor | null;
  expectations: Record<string, Tensor>;
}

/** What a time loop returns at one time: the state if it is stored, and expectation values. */
export type Snapshot = { state: Tensor[]; values: Record<string, Tensor> };

/** When to save. */
export interface SavePlan {
  /** Ends of the pieces of time as fractions of the duration; the last is 1. */
  ends: readonly number[];
  /** True if only the final state is returned. */
  isFinalOnly: boolean;
  keepStates: boolean;
  times(grid: Grid): Tensor;
  /** The values at the saved times from those at the ends of all pieces, [pieces, ...]. */
  pick(all: Snapshot, start: () => Snapshot): Saved;
}

/** The number of a duration, or null if it is a tracer. */
const numberOf = (duration: Tensor | number): number | null =>
  typeof duration === "number" ? duration : (concreteValues(duration)?.[0] ?? null);

/** The duration as given, or the last saved time. */
export function durationFor(options: SaveOptions & { duration?: Tensor | number }): Tensor | number {
  const last = options.tsave?.at(-1);
  if (options.duration === undefined && last === undefined)
    throw new WeftError("evolve: give duration, or the times of tsave");
  return options.duration ?? last!;
}

/** Checks what is asked for, and plans the pieces of time. */
export function savePlan(options: SaveOptions, duration: Tensor | number): SavePlan {
  const { saves, tsave, saveStates = true } = options;
  if (saves !== undefined && tsave !== undefined)
    throw new WeftError("evolve: give saves (a number of equal intervals) or tsave (times), not both");
  if (saves !== undefined && (!Number.isInteger(saves) || saves < 1))
    throw new WeftError(`evolve: saves must be a whole number >= 1, got ${saves}`);
  if (tsave === undefined) {
    const count = saves ?? 1;
    return {
      ends: Array.from({ length: count }, (_, k) => (k + 1) / count),
      isFinalOnly: count === 1,
      keepStates: saveStates && count > 1,
      times: (grid) => linspace(1 / count, 1, count, { dtype: grid.real }).mul(grid.duration),
      pick: ({ state, values }) => ({ states: state[0] ?? null, expectations: values }),
    };
  }
  const total = numberOf(duration);
  if (total === null)
    throw new WeftError("evolve: tsave needs a duration that is a number; inside a trace use saves instead");
  const bad = tsave.findIndex((t, k) => !(t >= 0 && t <= total * (1 + 1e-12)) || (k > 0 && t <= tsave[k - 1]));
  if (tsave.length === 0 || bad >= 0)
    throw new WeftError(
      `evolve: tsave must ascend from 0 to the duration ${total}, got ${tsave.length === 0 ? "no times" : `${tsave[bad]} at index ${bad}`}`,
    );
  const withStart = tsave[0] === 0;
  const inner = tsave.slice(withStart ? 1 : 0).map((t) => t / total);
  const isEnd = (x: number | undefined): boolean => x !== undefined && Math.abs(x - 1) <= 1e-12;
  const ends = isEnd(inner.at(-1)) ? [...inner.slice(0, -1), 1] : [...inner, 1];
  return {
    ends,
    isFinalOnly: false,
    keepStates: saveStates,
    times: (grid) => tensor([...tsave], { dtype: "float64" }).cast(grid.real),
    pick: (all, start) => {
      const rows = (x: Tensor): Tensor => (inner.length === ends.length ? x : x.index(`0:${inner.length}`));
      const cut = treeMap(rows, all);
      const whole = withStart
        ? treeMap((x: Tensor, first: Tensor) => concat([first.unsqueeze(0), x], 0), cut, start())
        : cut;
      return { states: whole.state[0] ?? null, expectations: whole.values };
    },
  };
}

const gcd = (a: number, b: number): number => (b === 0 ? a : gcd(b, a % b));

/**
 * Pieces of equal length for a method of fixed steps: their number, and the indices of those whose ends are saved. Every saved
 * time must be the end of a step.
 */
export function equalPieces({ ends }: SavePlan, steps: number): { pieces: number; picked: number[] } {
  const at = ends.map((end) => Math.round(end * steps));
  const off = ends.findIndex((end, k) => Math.abs(end * steps - at[k]) > 1e-9 * steps || at[k] < 1);
  if (off >= 0)
    throw new WeftError(
      `evolve: the saved time ${ends[off]} of the duration is not the end of one of the ${steps} steps; ` +
        "use a number of steps that divides into the saves, tsave, or an adaptive method (tsit5)",
    );
  const each = at.reduce(gcd, steps);
  return { pieces: steps / each, picked: at.map((k) => k / each - 1) };
}

/** Values at some pieces. */
export const takePieces = (all: Snapshot, pieces: number, picked: readonly number[]): Snapshot =>
  picked.length === pieces ? all : treeMap((x: Tensor) => x.take([...picked], 0), all);
