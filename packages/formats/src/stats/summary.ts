// Summary statistics of a list of numbers. An empty list gives null, never NaN.

/** Summary statistics of a list of numbers. */
export interface Summary {
  n: number;
  mean: number;
  /** Population standard deviation (divisor n), as published scaling studies print it. */
  std: number;
  /** Sample standard deviation (divisor n - 1), used for intervals; 0 for a single value. */
  sampleStd: number;
  min: number;
  max: number;
  median: number;
}

/** Sum of a list. */
export function sum(values: readonly number[]): number {
  let total = 0;
  for (const value of values) total += value;
  return total;
}

/** Arithmetic mean of a nonempty list. */
export function mean(values: readonly number[]): number {
  return sum(values) / values.length;
}

/** A value that stands for `weight` equal ones. */
export interface Weighted {
  value: number;
  weight: number;
}

/** Mean of a nonempty list in which every value stands for as many as its weight says. */
export function weightedMean(values: readonly Weighted[]): number {
  let total = 0;
  let weights = 0;
  for (const { value, weight } of values) {
    total += value * weight;
    weights += weight;
  }
  return total / weights;
}

/** Median of the list in which every value is repeated as often as its weight says. */
export function weightedMedian(values: readonly Weighted[]): number {
  const sorted = [...values].sort((a, b) => a.value - b.value);
  const position = (sum(values.map(({ weight }) => weight)) - 1) / 2;
  const at = (index: number): number => {
    let before = 0;
    for (const { value, weight } of sorted) {
      before += weight;
      if (index < before) return value;
    }
    return sorted.at(-1)!.value;
  };
  return (at(Math.floor(position)) + at(Math.ceil(position))) / 2;
}

/** Summary statistics of weighted values, or null when the list is empty; `n` counts the values, which is what was measured. */
export function summarizeWeighted(values: readonly Weighted[]): Summary | null {
  if (values.length === 0) return null;
  const m = weightedMean(values);
  const n = values.length;
  const variance = weightedMean(values.map(({ value, weight }) => ({ value: (value - m) ** 2, weight })));
  return {
    n,
    mean: m,
    std: Math.sqrt(variance),
    sampleStd: n > 1 ? Math.sqrt((variance * n) / (n - 1)) : 0,
    min: values.reduce((least, { value }) => Math.min(least, value), Number.POSITIVE_INFINITY),
    max: values.reduce((most, { value }) => Math.max(most, value), Number.NEGATIVE_INFINITY),
    median: weightedMedian(values),
  };
}

/** Quantile of an ascending, nonempty list, by linear interpolation between order statistics. */
export function quantileSorted(sorted: readonly number[], q: number): number {
  const position = (sorted.length - 1) * q;
  const low = Math.floor(position);
  const high = Math.ceil(position);
  const below = sorted[low]!;
  return below + (sorted[high]! - below) * (position - low);
}

/** Quantile of a nonempty list, by linear interpolation. */
export function quantile(values: readonly number[], q: number): number {
  return quantileSorted([...values].sort(ascending), q);
}

/** Median of a nonempty list. */
export function median(values: readonly number[]): number {
  return quantile(values, 0.5);
}

/** Median of a list, or null when the list is empty. */
export const medianOrNull = (values: readonly number[]): number | null => (values.length === 0 ? null : median(values));

/** Comparison function for `sort`: ascending numbers. */
export const ascending = (a: number, b: number): number => a - b;

/** Summary statistics of a list, or null when the list is empty. */
export function summarize(values: readonly number[]): Summary | null {
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

/** Half-width of the 95% confidence interval of a mean; null for fewer than two values. */
export function halfWidth95(d: Summary): number | null {
  if (d.n < 2) return null;
  return (t95[d.n - 2] ?? 1.96) * (d.sampleStd / Math.sqrt(d.n));
}
