// Seeded random numbers and the bootstrap. The same input gives the same interval on every machine.
import { ascending, quantileSorted } from "./summary.js";

/** Numbers in [0, 1) from a 32-bit seed (mulberry32). */
export function seededRandom(seed: number): () => number {
  let state = seed >>> 0;
  return () => {
    state = (state + 0x6d2b79f5) >>> 0;
    let z = state;
    z = Math.imul(z ^ (z >>> 15), z | 1);
    z ^= z + Math.imul(z ^ (z >>> 7), z | 61);
    return ((z ^ (z >>> 14)) >>> 0) / 4294967296;
  };
}

/** A resample of the same length, with replacement. */
export function resample<T>(values: readonly T[], random: () => number): T[] {
  return values.map(() => values[Math.floor(random() * values.length)]!);
}

/** Percentile bootstrap interval of a statistic of several independent groups. Each group is resampled separately. */
export function bootstrapInterval(
  groups: readonly (readonly number[])[],
  statistic: (groups: number[][]) => number,
  { level = 0.8, rounds = 500, seed = 1 }: { level?: number; rounds?: number; seed?: number } = {},
): [number, number] | null {
  if (groups.some((group) => group.length === 0)) return null;
  const random = seededRandom(seed);
  const results: number[] = [];
  for (let round = 0; round < rounds; round++) {
    const value = statistic(groups.map((group) => resample(group, random)));
    if (Number.isFinite(value)) results.push(value);
  }
  if (results.length < rounds / 2) return null;
  results.sort(ascending);
  const tail = (1 - level) / 2;
  return [quantileSorted(results, tail), quantileSorted(results, 1 - tail)];
}
