// Sets of time intervals: union, length and overlap.
import type { Column } from "./columns.js";

/** Intervals in columns; the first `count` entries are used. */
export interface Intervals {
  starts: Float64Array;
  ends: Float64Array;
  count: number;
}

/** Merges overlapping and adjacent intervals, sorted by start. */
export function mergeSorted(ts: Float64Array, dur: Column, rows: ArrayLike<number>): Intervals {
  const starts = new Float64Array(rows.length);
  const ends = new Float64Array(rows.length);
  let count = 0;
  for (let i = 0; i < rows.length; i++) {
    const start = ts[rows[i]];
    const end = start + dur[rows[i]];
    if (count > 0 && start <= ends[count - 1]) {
      if (end > ends[count - 1]) ends[count - 1] = end;
    } else {
      starts[count] = start;
      ends[count] = end;
      count++;
    }
  }
  return { starts, ends, count };
}

/** First start, last end and length of the union of the events of `rows`, which are sorted by start; null without rows. */
export function extent(
  ts: Float64Array,
  dur: Column,
  rows: ArrayLike<number>,
): { first: number; last: number; busy: number } | null {
  if (rows.length === 0) return null;
  const first = ts[rows[0]];
  let last = first;
  let busy = 0;
  for (let i = 0; i < rows.length; i++) {
    const start = ts[rows[i]];
    const end = start + dur[rows[i]];
    if (i > 0 && start <= last) {
      if (end <= last) continue;
      busy += end - last;
    } else busy += end - start;
    last = end;
  }
  return { first, last, busy };
}

export function measure(set: Intervals): number {
  let sum = 0;
  for (let i = 0; i < set.count; i++) sum += set.ends[i] - set.starts[i];
  return sum;
}

/** Length of the intersection of two sets. */
export function overlap(a: Intervals, b: Intervals): number {
  let sum = 0;
  let i = 0;
  let j = 0;
  while (i < a.count && j < b.count) {
    const low = Math.max(a.starts[i], b.starts[j]);
    const high = Math.min(a.ends[i], b.ends[j]);
    if (high > low) sum += high - low;
    if (a.ends[i] < b.ends[j]) i++;
    else j++;
  }
  return sum;
}

/** Time spent in each combination of merged sets, by bit mask (bit k: set k is active). */
export function timePerCombination(sets: readonly Intervals[]): Map<number, number> {
  const spent = new Map<number, number>();
  // The next boundary of each set: even numbers are starts, odd ones ends.
  const next = sets.map(() => 0);
  const boundary = (k: number): number => {
    const { starts, ends, count } = sets[k];
    const at = next[k] >> 1;
    return at >= count ? Number.POSITIVE_INFINITY : (next[k] & 1) === 0 ? starts[at] : ends[at];
  };
  const times = sets.map((_, k) => boundary(k));
  let running = 0;
  let before = 0;
  for (;;) {
    let first = 0;
    for (let k = 1; k < times.length; k++) if (times[k] < times[first]) first = k;
    const now = times[first];
    if (now === Number.POSITIVE_INFINITY || now === undefined) return spent;
    if (running > 0 && now !== before) spent.set(running, (spent.get(running) ?? 0) + now - before);
    before = now;
    running ^= 1 << first;
    next[first]++;
    times[first] = boundary(first);
  }
}

/** The values of `column` at `rows`. (Float64Array.from with a function takes ten times as long.) */
export function gatherRows(column: Float64Array, rows: ArrayLike<number>): Float64Array {
  const values = new Float64Array(rows.length);
  for (let i = 0; i < values.length; i++) values[i] = column[rows[i]];
  return values;
}

/** Index of the last value of a sorted list that is at most `limit`, or -1. */
export function lastAtMost(sorted: Float64Array, limit: number): number {
  let low = 0;
  let high = sorted.length;
  while (low < high) {
    const middle = (low + high) >> 1;
    if (sorted[middle] <= limit) low = middle + 1;
    else high = middle;
  }
  return low - 1;
}

/** Row numbers 0..count-1 in order of `key`, equal keys in the order of their numbers. */
export function sortedBy(key: Float64Array, count: number): Uint32Array {
  const order = new Uint32Array(count);
  for (let i = 0; i < count; i++) order[i] = i;
  return sortRows(order, key);
}

/**
 * Sorts row numbers by `key`, stably and in place: a natural merge sort, because traces are nearly sorted. (The built-in sort
 * with a comparison function copies a typed array into a list of boxed numbers first.)
 */
export function sortRows(rows: Uint32Array, key: Float64Array): Uint32Array {
  let from: Uint32Array = rows;
  let runs = findRuns(from, key);
  if (runs.length <= 2) return rows;
  let to: Uint32Array = new Uint32Array(rows.length);
  while (runs.length > 2) {
    const merged: number[] = [0];
    for (let r = 0; r + 1 < runs.length; r += 2) {
      const low = runs[r];
      const middle = runs[r + 1];
      const high = r + 2 < runs.length ? runs[r + 2] : middle;
      mergeRuns(from, to, key, low, middle, high);
      merged.push(high);
    }
    runs = merged;
    [from, to] = [to, from];
  }
  if (from !== rows) rows.set(from);
  return rows;
}

function findRuns(rows: Uint32Array, key: Float64Array): number[] {
  const runs = [0];
  for (let i = 1; i < rows.length; i++) if (key[rows[i]] < key[rows[i - 1]]) runs.push(i);
  if (rows.length > 0) runs.push(rows.length);
  return runs;
}

function mergeRuns(
  from: Uint32Array,
  to: Uint32Array,
  key: Float64Array,
  low: number,
  middle: number,
  high: number,
): void {
  let a = low;
  let b = middle;
  for (let i = low; i < high; i++) {
    if (a < middle && (b >= high || key[from[a]] <= key[from[b]])) to[i] = from[a++];
    else to[i] = from[b++];
  }
}
