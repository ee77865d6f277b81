// The law of a step that knows the batch: time = compute, which grows with the batch per device, plus a fixed part (launches, the
// serial end, latencies), which grows slowly with the devices. Two to seven points cannot determine the shares, so all
// values of them are weighted by how well they fit and by a prior that was calibrated on published series (constants.ts).

/** One measured point of a series whose batches are known. */
export interface BatchPoint {
  devices: number;
  throughput: number;
  globalBatch: number;
}

export interface StepLawConstants {
  /**
   * Prior of the relative noise of a measured point, which is not known: median, and standard deviation of its logarithm. And how
   * much its variance grows per doubling of the distance to the last point.
   */
  noise: number;
  noiseSpread: number;
  noisePerDoubling: number;
  /** Prior of the fixed part's share of a step at the reference point: median and standard deviation of its logarithm. */
  fixedShare: number;
  fixedSpread: number;
  /** Prior mean of the exponent with which the fixed part grows with the devices. */
  growth: number;
  /** Degrees of freedom of the noise: points of public logs have outliers. */
  freedom: number;
}

export interface FittedStepLaw {
  /** Mean compute share of a step at the last point. */
  computeShare: number;
  /** Mean exponent of the fixed part. */
  growth: number;
  /** Predicted throughput, and the standard deviation of its logarithm over the laws that fit. */
  at: (devices: number, globalBatch: number) => { throughput: number; logDeviation: number };
}

/** Shares of the fixed part: none, then evenly on a logarithmic scale. */
const leastShare = 0.005;
const shares = [0, ...Array.from({ length: 20 }, (_, i) => leastShare ** (1 - i / 19))];
const growths = Array.from({ length: 7 }, (_, i) => i / 10);
const noises = [0.01, 0.02, 0.04, 0.08, 0.16];

/** `points` ascending in devices; at least two. */
export function fitStepLaw(points: readonly BatchPoint[], constants: StepLawConstants): FittedStepLaw {
  const last = points.at(-1)!;
  const perDevice = (p: { devices: number; globalBatch: number }): number => p.globalBatch / p.devices;
  const stepTime = (p: BatchPoint): number => p.globalBatch / p.throughput;
  // The prior is about the point with the largest batch per device: there the batch was chosen to keep the devices busy, and
  // the fixed part is small. At the last point it may be anything: the batch per device is what the global batch leaves.
  const reference = points.reduce((a, p) => (perDevice(p) > perDevice(a) ? p : a));
  const scaled = (devices: number, globalBatch: number) => ({
    batch: perDevice({ devices, globalBatch }) / perDevice(reference),
    devices: devices / reference.devices,
  });
  type Law = { fixed: number; growth: number };
  const shape = ({ fixed, growth }: Law, p: { batch: number; devices: number }): number =>
    (1 - fixed) * p.batch + fixed * p.devices ** growth;
  const relative = points.map((p) => ({
    ...scaled(p.devices, p.globalBatch),
    logTime: Math.log(stepTime(p) / stepTime(last)),
    // Relative to the noise of the last point.
    variance: 1 + constants.noisePerDoubling * Math.abs(Math.log2(p.devices / last.devices)),
  }));
  const totalWeight = relative.reduce((a, r) => a + 1 / r.variance, 0);
  const laws = shares.flatMap((fixed) =>
    growths.map((growth) => {
      const residuals = relative.map((r) => r.logTime - Math.log(shape({ fixed, growth }, r)));
      // The level is free: its best value is the weighted mean of the residuals.
      const level = residuals.reduce((a, x, i) => a + x / relative[i]!.variance, 0) / totalWeight;
      const z = Math.log(Math.max(fixed, leastShare) / constants.fixedShare) / constants.fixedSpread;
      const errors = residuals.map((x, i) => (x - level) ** 2 / (constants.freedom * relative[i]!.variance));
      const likelihood = noises.reduce((sum, noise) => {
        const y = Math.log(noise / constants.noise) / constants.noiseSpread;
        const tails = errors.reduce((a, error) => a + Math.log1p(error / noise ** 2), 0);
        // The free level takes one of the points.
        return sum + Math.exp(-0.5 * y * y - 0.5 * (constants.freedom + 1) * tails) / noise ** (points.length - 1);
      }, 0);
      return { fixed, growth, level, logWeight: Math.log(likelihood) - 0.5 * z * z - growth / constants.growth };
    }),
  );
  const top = laws.reduce((a, law) => Math.max(a, law.logWeight), Number.NEGATIVE_INFINITY);
  const weighted = laws.map((law) => ({ ...law, weight: Math.exp(law.logWeight - top) }));
  const sum = weighted.reduce((a, law) => a + law.weight, 0);
  const meanOf = (f: (law: (typeof weighted)[number]) => number): number =>
    weighted.reduce((a, law) => a + law.weight * f(law), 0) / sum;
  const atLast = scaled(last.devices, last.globalBatch);
  return {
    computeShare: meanOf((law) => ((1 - law.fixed) * atLast.batch) / shape(law, atLast)),
    growth: meanOf((law) => law.growth),
    at: (devices, globalBatch) => {
      const point = scaled(devices, globalBatch);
      const logTime = (law: (typeof weighted)[number]): number => law.level + Math.log(shape(law, point));
      const mean = meanOf(logTime);
      return {
        throughput: globalBatch / (stepTime(last) * Math.exp(mean)),
        logDeviation: Math.sqrt(meanOf((law) => (logTime(law) - mean) ** 2)),
      };
    },
  };
}

/** The 80% interval of the law with batches. */
export interface StepIntervalConstants {
  /** Scale of the logarithm of the error at one doubling of devices, and per doubling of devices and of the batch per device. */
  base: number;
  perDoubling: number;
  /** Weight of the disagreement among the laws that fit. */
  disagreement: number;
  /** 10% and 90% quantiles of the scaled error over the calibration series. */
  low: number;
  high: number;
  /** Beyond this many doublings of the devices the calibration had no data. */
  furthestDoublings: number;
}

/** The scale of the logarithm of the error. */
export function stepErrorScale(
  constants: StepIntervalConstants,
  logDeviation: number,
  doublings: number,
  batchDoublings: number,
): number {
  const distance = Math.abs(doublings) + Math.abs(batchDoublings);
  return Math.hypot(constants.base + constants.perDoubling * distance, constants.disagreement * logDeviation);
}
