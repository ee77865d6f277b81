// Sets of time intervals: merging, measuring, overlapping. Knows numbers only.

export interface Intervals {
  starts: Float64Array;
  ends: Float64Array;
  count: number;
}

/** Merges intervals that come sorted by start; touching ones become one. */
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
  return { starts: starts.slice(0, count), ends: ends.slice(0, count), count };
}

export function measure(set: Intervals): number {
  let sum = 0;
  for (let i = 0; i < set.count; i++) sum += set.ends[i] - set.starts[i];
  return sum;
}

/** Time during which both sets run. */
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

/** For sets that are merged already: the time spent in each combination, by bit mask (bit k: set k runs). */
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

/** Row numbers 0..count-1 in order of `key`, equal keys in the order of their numbers. */
export function sortedBy(key: Float64Array, count: number): Uint32Array {
  const order = new Uint32Array(count);
  let sorted = true;
  for (let i = 0; i < count; i++) {
    order[i] = i;
    if (i > 0 && key[i] < key[i - 1]) sorted = false;
  }
  return sorted ? order : order.sort((a, b) => key[a] - key[b] || a - b);
}
