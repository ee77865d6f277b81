// Spread of samples as result files record it.
import { median, quantile } from "@weft/formats/stats";

/** Median, quartiles and range of a list of samples. */
export interface Spread {
  median: number;
  lower: number;
  upper: number;
  min: number;
  max: number;
  count: number;
}

export const spreadOf = (samples: readonly number[]): Spread => ({
  median: median(samples),
  lower: quantile(samples, 0.25),
  upper: quantile(samples, 0.75),
  min: Math.min(...samples),
  max: Math.max(...samples),
  count: samples.length,
});
