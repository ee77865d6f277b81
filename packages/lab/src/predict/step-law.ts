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
  /** Relative noise of a measured point, and how much its variance grows per doubling of the distance to the last one. */
  noise: number;
  noisePerDoubling: number;
  /** Prior of the compute share at the last point: the parameters of a Beta distribution. */
  shareAlpha: number;
  shareBeta: number;
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

const shares = Array.from({ length: 21 }, (_, i) => i / 20);
const growths = Array.from({ length: 7 }, (_, i) => i / 10);

/** `points` ascending in devices; at least two. */
export function fitStepLaw(points: readonly BatchPoint[], constants: StepLawConstants): FittedStepLaw {
  const last = points.at(-1)!;
  const perDevice = (p: { devices: number; globalBatch: number }): number => p.globalBatch / p.devices;
  const stepTime = (p: BatchPoint): number => p.globalBatch / p.throughput;
  const relative = points.map((p) => ({
    batch: perDevice(p) / perDevice(last),
    devices: p.devices / last.devices,
    logTime: Math.log(stepTime(p) / stepTime(last)),
    variance: constants.noise ** 2 * (1 + constants.noisePerDoubling * Math.abs(Math.log2(p.devices / last.devices))),
  }));
  const totalWeight = relative.reduce((a, r) => a + 1 / r.variance, 0);
  const laws = shares.flatMap((share) =>
    growths.map((growth) => {
      const residuals = relative.map((r) => r.logTime - Math.log(share * r.batch + (1 - share) * r.devices ** growth));
      // The level is free: its best value is the weighted mean of the residuals.
      const level = residuals.reduce((a, x, i) => a + x / relative[i]!.variance, 0) / totalWeight;
      let logWeight =
        (constants.shareAlpha - 1) * Math.log(share + 0.01) +
        (constants.shareBeta - 1) * Math.log(1 - share + 0.01) -
        growth / constants.growth;
      residuals.forEach((x, i) => {
        const z = (x - level) ** 2 / (constants.freedom * relative[i]!.variance);
        logWeight -= 0.5 * (constants.freedom + 1) * Math.log1p(z);
      });
      return { share, growth, level, logWeight };
    }),
  );
  const top = laws.reduce((a, law) => Math.max(a, law.logWeight), Number.NEGATIVE_INFINITY);
  const weighted = laws.map((law) => ({ ...law, weight: Math.exp(law.logWeight - top) }));
  const sum = weighted.reduce((a, law) => a + law.weight, 0);
  const meanOf = (f: (law: (typeof weighted)[number]) => number): number =>
    weighted.reduce((a, law) => a + law.weight * f(law), 0) / sum;
  return {
    computeShare: meanOf((law) => law.share),
    growth: meanOf((law) => law.growth),
    at: (devices, globalBatch) => {
      const batch = perDevice({ devices, globalBatch }) / perDevice(last);
      const logTime = (law: (typeof weighted)[number]): number =>
        law.level + Math.log(law.share * batch + (1 - law.share) * (devices / last.devices) ** law.growth);
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
