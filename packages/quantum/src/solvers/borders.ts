// Times at which coefficients begin or end to change. While nothing happens an adaptive method takes long steps, and one of them
// could pass over a short pulse unseen; steps therefore end at these times.
import { WeftError } from "@weft/core/internal/graph";
import { tensor } from "@weft/core/internal/tensor";
import { type HostInputs, hostInputs } from "./host-inputs.js";
import type { CheckedJump, Grid, Hamiltonian } from "./problem.js";

/** Intervals in which coefficients are sampled: pulses that are shorter need `maxStep`. */
const intervals = 4096;
/** Changes between two samples, relative to the largest one, that separate rest from motion and slow from fast motion. */
const bands: readonly number[] = [1e-9, 0.03];
/** Changes below this part of the values are rounding. */
const rounding = 1e-12;
/** More borders than this are too many steps: short gaps between them are closed. */
const mostBorders = 512;

/** Ends of the runs of changes above a limit. A gap that is shorter than the runs beside it, or than `gap`, belongs to them. */
function endsOfRuns(changes: Float64Array, limit: number, gap: number): number[] {
  const runs: { begin: number; end: number }[] = [];
  for (let i = 0; i < changes.length; i++) {
    if (changes[i] <= limit) continue;
    const last = runs.at(-1);
    if (last?.end === i) last.end++;
    else runs.push({ begin: i, end: i + 1 });
  }
  const joined: typeof runs = [];
  for (const { begin, end } of runs) {
    const last = joined.at(-1);
    const room = last === undefined ? 0 : Math.max(gap, Math.min(end - begin, last.end - last.begin));
    if (last !== undefined && begin - last.end < room) last.end = end;
    else joined.push({ begin, end });
  }
  // So do short gaps at both ends.
  return joined.flatMap(({ begin, end }) => {
    const room = Math.max(gap, end - begin);
    return [begin < room ? 0 : begin, changes.length - end < room ? changes.length : end];
  });
}

/** Changes between the samples of a coefficient, the largest one, and the largest sample. */
function changesOf(samples: Float64Array): { changes: Float64Array; largest: number; size: number } {
  const changes = new Float64Array(samples.length - 1);
  let largest = 0;
  let size = Math.abs(samples[0]);
  for (let i = 0; i < changes.length; i++) {
    changes[i] = Math.abs(samples[i + 1] - samples[i]);
    largest = Math.max(largest, changes[i]);
    size = Math.max(size, Math.abs(samples[i + 1]));
  }
  return { changes, largest, size };
}

/** Indices of the samples at which one of the coefficients begins or ends to change, from samples at equal distances. */
export function bordersOf(coefficients: readonly Float64Array[]): number[] {
  const last = coefficients[0].length - 1;
  const moving = coefficients.flatMap((samples) => {
    const { changes, largest, size } = changesOf(samples);
    const limits = bands.map((band) => Math.max(rounding * size, band * largest));
    return limits.map((limit) => ({ changes, limit }));
  });
  for (let gap = 0; ; gap = 2 * gap + 1) {
    const ends = moving.flatMap(({ changes, limit }) => endsOfRuns(changes, limit, gap));
    const inner = new Set(ends.filter((at) => at > 0 && at < last));
    if (inner.size <= mostBorders) return [...inner].sort((a, b) => a - b);
  }
}

function sampleTimes(from: number, to: number): Float64Array {
  const times = new Float64Array(intervals + 1);
  for (let i = 0; i <= intervals; i++) times[i] = from + ((to - from) * i) / intervals;
  return times;
}

/** Borders of coefficients between two times. */
export function borderTimes(inputs: HostInputs, from: number, to: number): number[] {
  const times = sampleTimes(from, to);
  return bordersOf(inputs(times)).map((i) => times[i]);
}

/** Largest magnitudes of drives, then of rates that depend on time, and the fastest relative change of any of them per unit of time. */
export function coefficientScales(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  duration: number,
): { sizes: number[]; fastest: number } {
  const inputs = hostInputs(
    h,
    jumps.filter(({ rate }) => typeof rate === "function"),
  );
  if (inputs === null) return { sizes: [], fastest: 0 };
  const found = inputs(sampleTimes(0, duration)).map(changesOf);
  const relative = found.map(({ largest, size }) => (size === 0 ? 0 : largest / size));
  return { sizes: found.map(({ size }) => size), fastest: (Math.max(0, ...relative) * intervals) / duration };
}

/**
 * The Hamiltonian with the times at which an adaptive method must end a step. Coefficients that are functions of numbers are sampled;
 * those of tracers are not known here.
 */
export function withBreaks(h: Hamiltonian, jumps: readonly CheckedJump[], { total }: Pick<Grid, "total">): Hamiltonian {
  if (h.breaks !== undefined) return h;
  const moving = jumps.filter(({ rate }) => typeof rate === "function");
  if (typeof h.amplitudes !== "function" && moving.length === 0) return h;
  if (total === null || !(total > 0)) return h;
  try {
    const inputs = hostInputs(h, moving);
    const found = inputs === null ? [] : borderTimes(inputs, 0, total);
    return found.length === 0 ? h : { ...h, breaks: tensor(found, { dtype: "float64" }) };
  } catch (error) {
    if (error instanceof WeftError) return h;
    throw error;
  }
}
