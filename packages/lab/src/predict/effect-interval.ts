// The 80% interval of a promised time: a scale from the scatter of the measurement and from the size of the promised gain, times
// quantiles of the scaled errors of earlier promises (ScaleFault, or the user's own ledger).
import { quantile } from "@weft/formats/stats";
import { effectCalibration } from "./effect-constants.js";

/** Quantiles of scaled errors of promises that were measured. */
export interface EffectCalibration {
  /** 10% and 90% quantiles of log(measured / promised), over the scale. */
  low: number;
  high: number;
  /** Number of measured promises behind them; 0: the quantiles of a normal distribution are assumed. */
  outcomes: number;
}

/** A promise and what was measured after the fix. */
interface EffectOutcome {
  from: number;
  to: number;
  measured: number;
  /** Relative standard error of the measurement; null when it is not known. */
  noise: number | null;
}

/** Relative error of a mean that was measured once. */
const unknownNoise = 0.05;
/** Share of a promised change (in logarithms) by which it may be missed. */
const missedShare = 0.25;
/** Two measurements of one job never agree better. */
const leastScale = 0.02;

/** Scale of log(measured / promised): noise of both measurements, and a part of the promised change. */
function effectScale(from: number, to: number, noise: number | null): number {
  const change = from > 0 && to > 0 ? Math.abs(Math.log(from / to)) : 1;
  return Math.hypot(leastScale, Math.SQRT2 * (noise ?? unknownNoise), missedShare * change);
}

/** The 80% interval of a promised value. */
export function effectInterval(
  from: number,
  to: number,
  noise: number | null,
  calibration: EffectCalibration = effectCalibration,
): [number, number] {
  const scale = effectScale(from, to, noise);
  return [to * Math.exp(calibration.low * scale), to * Math.exp(calibration.high * scale)];
}

/** Least number of outcomes that replace the assumed quantiles. */
const leastOutcomes = 10;

/** Quantiles from measured promises; falls back to `otherwise` with fewer than ten of them. */
export function calibrateEffects(
  outcomes: readonly EffectOutcome[],
  otherwise: EffectCalibration = effectCalibration,
): EffectCalibration {
  const errors = outcomes
    .filter((o) => o.from > 0 && o.to > 0 && o.measured > 0)
    .map((o) => Math.log(o.measured / o.to) / effectScale(o.from, o.to, o.noise));
  if (errors.length < leastOutcomes) return otherwise;
  return { low: Math.min(0, quantile(errors, 0.1)), high: Math.max(0, quantile(errors, 0.9)), outcomes: errors.length };
}

/** How an interval came about, in a few words. */
export const intervalBasis = ({ outcomes }: EffectCalibration = effectCalibration): string =>
  outcomes === 0
    ? "80% interval: scatter of the measurement and a quarter of the change, normal errors assumed"
    : `80% interval: scatter of the measurement and a quarter of the change, calibrated on ${outcomes} measured promises`;
