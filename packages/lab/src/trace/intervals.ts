// Sets of time intervals: union, length and overlap.

/** Intervals in columns; the first `count` entries are used. */
export interface Intervals {
  starts: Float64Array;
  ends: Float64Array;
  count: number;
}

/** Merges overlapping and adjacent intervals, sorted by start. */
export function mergeSorted(ts: Float64Array, dur: Float64Array, rows: ArrayLike<number>): Intervals {
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
  const total = sets.reduce((n, set) => n + set.count, 0) * 2;
  const times = new Float64Array(total);
  const changes = new Int32Array(total);
  let n = 0;
  sets.forEach((set, k) => {
    for (let i = 0; i < set.count; i++) {
      times[n] = set.starts[i];
      changes[n++] = 1 << k;
      times[n] = set.ends[i];
      changes[n++] = -(1 << k);
    }
  });
  const order = sortedBy(times, n);
  const spent = new Map<number, number>();
  let running = 0;
  for (let i = 0; i < n; i++) {
    running += changes[order[i]];
    if (running > 0 && i + 1 < n) {
      const span = times[order[i + 1]] - times[order[i]];
      if (span !== 0) spent.set(running, (spent.get(running) ?? 0) + span);
    }
  }
  return spent;
}

/** The values of `column` at `rows`. (Float64Array.from with a function takes ten times as long.) */
export function gatherRows(column: Float64Array, rows: ArrayLike<number>): Float64Array {
  const values = new Float64Array(rows.length);
  for (let i = 0; i < values.length; i++) values[i] = column[rows[i]];
  return values;
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
