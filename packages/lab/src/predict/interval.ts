// The 80% interval of a prediction: a scale that grows with the overhead and with the distance in doublings, times calibrated
// quantiles.

export interface IntervalConstants {
  /** Scale of the logarithm of relative time: base + perOverhead * overhead, times doublings ** distanceExponent. */
  base: number;
  perOverhead: number;
  distanceExponent: number;
  /** 10% and 90% quantiles of the scaled error over the calibration series. */
  low: number;
  high: number;
  /** Beyond this many doublings the calibration had no data. */
  furthestDoublings: number;
}

export function errorScale(constants: IntervalConstants, overhead: number, doublings: number): number {
  return (
    (constants.base + constants.perOverhead * Math.max(0, overhead)) *
    Math.max(doublings, 0.25) ** constants.distanceExponent
  );
}

/** Interval around a predicted throughput; `repeatSpread` is the log-scale spread of the repeats. */
export function throughputInterval(
  constants: IntervalConstants,
  throughput: number,
  overhead: number,
  doublings: number,
  repeatSpread = 0,
): [number, number] {
  const scale = errorScale(constants, overhead, doublings);
  // More relative time is less throughput, so the upper quantile gives the lower bound.
  const down = Math.hypot(constants.high * scale, repeatSpread);
  const up = Math.hypot(constants.low * scale, repeatSpread);
  return [throughput * Math.exp(-down), throughput * Math.exp(up)];
}
