// Plain statistics of a list of numbers. Refuses empty lists by answering null, never NaN. Knows nothing of runs.

export interface Description {
  n: number;
  mean: number;
  /** Population deviation (divisor n): what published scaling studies print. */
  std: number;
  /** Sample deviation (divisor n - 1): what intervals are made of; 0 for a single value. */
  sampleStd: number;
  min: number;
  max: number;
  median: number;
}

export function sum(values: readonly number[]): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

export function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

/** Linear interpolation between order statistics; `sorted` must be ascending and not empty. */
export function quantileSorted(sorted: readonly number[], q: number): number {
  const position = (sorted.length - 1) * q;
  const low = Math.floor(position);
  const high = Math.ceil(position);
  const below = sorted[low]!;
  return below + (sorted[high]! - below) * (position - low);
}

export function quantile(values: readonly number[], q: number): number {
  return quantileSorted([...values].sort(ascending), q);
}

export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

export const ascending = (a: number, b: number): number => a - b;

export function describe(values: readonly number[]): Description | null {
  if (values.length === 0) return null;
  const m = mean(values);
  let squares = 0;
  for (const value of values) squares += (value - m) ** 2;
  const sorted = [...values].sort(ascending);
  const n = values.length;
  return {
    n,
    mean: m,
    std: Math.sqrt(squares / n),
    sampleStd: n > 1 ? Math.sqrt(squares / (n - 1)) : 0,
    min: sorted[0]!,
    max: sorted[n - 1]!,
    median: quantileSorted(sorted, 0.5),
  };
}

// Two-sided 95% points of Student's t for 1 to 30 degrees of freedom; the normal value beyond.
const t95 = [
  12.706, 4.303, 3.182, 2.776, 2.571, 2.447, 2.365, 2.306, 2.262, 2.228, 2.201, 2.179, 2.16, 2.145, 2.131, 2.12, 2.11,
  2.101, 2.093, 2.086, 2.08, 2.074, 2.069, 2.064, 2.06, 2.056, 2.052, 2.048, 2.045, 2.042,
];

/** Half-width of the 95% interval of a mean; null when there are fewer than two values. */
export function halfWidth95(d: Description): number | null {
  if (d.n < 2) return null;
  return (t95[d.n - 2] ?? 1.96) * (d.sampleStd / Math.sqrt(d.n));
}
