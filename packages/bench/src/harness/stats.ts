// Medians and quartiles of samples.

/** Median, quartiles and range of a list of samples. */
export interface Spread {
  median: number;
  lower: number;
  upper: number;
  min: number;
  max: number;
  count: number;
}

/** Quantile with linear interpolation; NaN for an empty list. */
export function sampleQuantile(samples: readonly number[], share: number): number {
  if (samples.length === 0) return Number.NaN;
  const sorted = [...samples].sort((a, b) => a - b);
  const at = share * (sorted.length - 1);
  const below = Math.floor(at);
  const above = Math.min(below + 1, sorted.length - 1);
  return sorted[below] + (sorted[above] - sorted[below]) * (at - below);
}

export const sampleMedian = (samples: readonly number[]): number => sampleQuantile(samples, 0.5);

export const sampleMean = (samples: readonly number[]): number => samples.reduce((a, b) => a + b, 0) / samples.length;

export const spreadOf = (samples: readonly number[]): Spread => ({
  median: sampleMedian(samples),
  lower: sampleQuantile(samples, 0.25),
  upper: sampleQuantile(samples, 0.75),
  min: Math.min(...samples),
  max: Math.max(...samples),
  count: samples.length,
});
