// Splits an evolution into time intervals (pieces) of unequal length. This is needed for saved times that are not on the grid of equal
// steps, and for progress reports. Each piece runs the same solver from a shifted start time. All pieces have the same number of steps, so
// that they share one compiled program.
import { WeftError } from "@weft/core/internal/graph";
import { jit, scan, stack, Tensor, tensor, treeMap } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import type { Method } from "./methods.js";
import type { Grid, Hamiltonian, Jump } from "./problem.js";
import type { Evolution } from "./result.js";
import { type SaveOptions, type SavePlan, type Snapshot, takePieces } from "./saves.js";

/** A piece of the evolution: where it begins and how long it is as fractions of the duration, and its row of the drives. */
export interface Piece {
  begin: Tensor;
  length: Tensor;
  drives: Tensor[];
}

/** Pieces of time, each of `steps` steps. */
interface PiecePlan {
  begins: number[];
  lengths: number[];
  /** Indices of the pieces whose ends are saved. */
  picked: number[];
  steps: number;
}

/** Number of reports of progress, about. */
const reports = 20;
const isNear = (x: number, y: number): boolean => Math.abs(x - y) <= 1e-12;

/** Whether an evolution runs in pieces: with progress, or if a given time is not the end of one of the equal steps. */
export function needsPieces(
  { progress, tsave }: SaveOptions,
  { ends }: SavePlan,
  { tolerance }: Method,
  steps: number,
): boolean {
  if (progress !== undefined) return true;
  if (tolerance !== undefined || tsave === undefined) return false;
  return ends.some((end) => Math.abs(end * steps - Math.round(end * steps)) > 1e-9 * steps || end * steps < 0.5);
}

/** Ends of intervals without a saved time or a border of segments inside. */
function intervalEnds(ends: readonly number[], segments: number, parts: number): number[] {
  const more = [segments, parts].flatMap((n) => Array.from({ length: n }, (_, k) => (k + 1) / n));
  const all = [...ends, ...more].sort((x, y) => x - y);
  return all.filter((x, k) => k === 0 || !isNear(x, all[k - 1])).map((x) => (isNear(x, 1) ? 1 : x));
}

/**
 * Splits intervals into pieces of one number of steps, so that no step is longer than 1 / steps. Of the numbers of steps that fit an
 * interval exactly, the one with the fewest steps in all is taken.
 */
function planPieces(plan: SavePlan, steps: number, segments: number, parts: number): PiecePlan {
  const ends = intervalEnds(plan.ends, segments, parts);
  const sizes = ends.map((end, k) => end - (ends[k - 1] ?? 0));
  const piecesOf = (size: number, each: number): number => Math.max(1, Math.ceil((size * steps) / each - 1e-9));
  const candidates = [...new Set(sizes.flatMap((size) => [1, 2, 3].map((n) => Math.ceil((size * steps) / n - 1e-9))))]
    .filter((each) => each >= 1)
    .slice(0, 256);
  // A piece costs about as much as one more step.
  const cost = (each: number): number => sizes.reduce((sum, size) => sum + piecesOf(size, each) * (each + 1), 0);
  const each = candidates.reduce((best, x) => (cost(x) < cost(best) ? x : best), candidates[0] ?? 1);
  const begins: number[] = [];
  const lengths: number[] = [];
  const lasts: number[] = [];
  sizes.forEach((size, i) => {
    const count = piecesOf(size, each);
    for (let k = 0; k < count; k++) {
      begins.push((ends[i - 1] ?? 0) + (size * k) / count);
      lengths.push(size / count);
    }
    lasts.push(begins.length - 1);
  });
  const picked = plan.ends.map((end) => lasts[ends.findIndex((x) => isNear(x, end))]);
  return { begins, lengths, picked, steps: each };
}

/** Shifts what depends on time, so that a piece begins at time 0. */
export function shiftedTo(
  { begin, drives }: Piece,
  h: Hamiltonian,
  jumps: readonly Jump[],
  duration: Tensor,
): { hamiltonian: Hamiltonian; jumps: Jump[] } {
  const offset = begin.mul(duration);
  const later = (f: (times: Tensor) => Tensor) => (times: Tensor) => f(times.add(offset.cast(times.dtype)));
  const { amplitudes } = h;
  return {
    hamiltonian: {
      ...h,
      ...(h.breaks !== undefined && { breaks: h.breaks.sub(offset.cast(h.breaks.dtype)) }),
      amplitudes: typeof amplitudes === "function" ? later(amplitudes) : (drives[0]?.unsqueeze(0) ?? null),
    },
    jumps: jumps.map((jump) => (typeof jump.rate === "function" ? { ...jump, rate: later(jump.rate) } : jump)),
  };
}

/** Runs an evolution in pieces. `solve` runs one piece with the given number of steps. */
export function runPieces(
  start: Tensor,
  {
    plan,
    grid,
    h,
    steps,
    progress,
  }: { plan: SavePlan; grid: Grid; h: Hamiltonian; steps: number; progress: SaveOptions["progress"] },
  solve: (state: Tensor, piece: Piece, steps: number) => Evolution,
  snapshot: (state: Tensor) => Snapshot,
): { final: Tensor; saved: Snapshot; report: Partial<Evolution> } {
  const table = h.amplitudes instanceof Tensor ? h.amplitudes.cast(grid.real) : null;
  const segments = table?.shape[0] ?? 1;
  const pieces = planPieces(plan, steps, segments, progress === undefined ? 1 : reports);
  const numbers = (values: readonly number[]): Tensor => tensor([...values], { dtype: "float64" }).cast(grid.real);
  const rows = pieces.begins.map((x, k) => Math.min(segments - 1, Math.floor((x + pieces.lengths[k] / 2) * segments)));
  const xs: Piece = {
    begin: numbers(pieces.begins),
    length: numbers(pieces.lengths),
    drives: table === null ? [] : [table.take(rows, 0)],
  };
  const one = (state: Tensor, piece: Piece): [Tensor, [Snapshot, Tensor[]]] => {
    const { final, accepted, reached, error } = solve(state, piece, pieces.steps);
    return [final, [snapshot(final), [accepted, reached, error].filter((x) => x !== null)]];
  };
  const [final, [all, figures]] =
    progress === undefined ? scan(one, start, xs) : runReporting(one, start, xs, pieces, progress);
  const adaptive = figures.length === 3;
  return {
    final,
    saved: takePieces(all, pieces.begins.length, pieces.picked),
    report: {
      ...(adaptive && { accepted: figures[0].sum(0), reached: figures[1].all(0) }),
      ...(figures.length > 0 && { error: figures[figures.length - 1].sum(0) }),
    },
  };
}

/** The pieces one after the other from the host, with a report after each. */
function runReporting<Y>(
  one: (state: Tensor, piece: Piece) => [Tensor, Y],
  start: Tensor,
  xs: Piece,
  { begins, lengths }: PiecePlan,
  progress: NonNullable<SaveOptions["progress"]>,
): [Tensor, Y] {
  if (concreteValues(start.abs().sum()) === null)
    throw new WeftError("evolve: progress needs values; leave it out inside jit, grad and vmap");
  const program = jit(one);
  let state = start;
  const found: Y[] = [];
  for (let k = 0; k < begins.length; k++) {
    const [next, values] = program(
      state,
      treeMap((x: Tensor) => x.index(k), xs),
    );
    state = next.realize();
    found.push(values);
    progress(Math.min(1, begins[k] + lengths[k]));
  }
  const [first, ...others] = found;
  const joined = treeMap((...each: Tensor[]) => stack(each, 0), first, ...others);
  return [state, joined];
}
