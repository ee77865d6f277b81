// What a fix would give, before it is made: each price is a formula over the measured parts of a step. The ideal gain comes from the
// formula; the interval says how much of it is usually reached. Pure numbers; which fix to offer is decided in diagnosis/.
import { ddpBuckets, simulateOverlap } from "../metrics/index.js";
import type { PredictedEffect } from "../model/index.js";

/** The measured parts of a step, in microseconds. */
export interface StepParts {
  stepUs: number;
  /** Waiting for data. */
  dataUs: number;
  /** Communication in all, and the part that nothing overlapped. */
  commUs: number;
  exposedUs: number;
}

export interface Price {
  /** New time per unit of work, relative to the old one. */
  ratio: number;
  reason: string;
}

/** The time that is neither waiting nor exposed communication. */
export const computeUs = (p: StepParts): number => Math.max(0, p.stepUs - p.dataUs - p.exposedUs);

const relative = (p: StepParts, newUs: number, reason: string): Price => ({ ratio: newUs / p.stepUs, reason });

/** Synchronize every k-th micro-step: the exposed part is paid once in k. */
export const priceAccumulation = (p: StepParts, k: number): Price =>
  relative(p, p.stepUs - p.exposedUs + p.exposedUs / k, `the exposed communication is paid once in ${k} micro-steps`);

/** A batch m times larger per device: m times the compute (if the device is busy), the same communication. */
export function priceLargerBatch(p: StepParts, m: number, deviceBusyShare = 1): Price {
  const compute = computeUs(p);
  const grown = compute * (1 - deviceBusyShare) + compute * deviceBusyShare * m;
  return {
    ratio: (grown + p.dataUs * m + p.exposedUs) / (p.stepUs * m),
    reason: `${m} times the samples a step, communication unchanged`,
  };
}

/** Half-width gradients: half the bytes. Latency stays, so only the share that is bandwidth shrinks. */
export const priceHalfGradients = (p: StepParts, bandwidthShare = 0.9): Price =>
  relative(
    p,
    p.stepUs - p.exposedUs * bandwidthShare * 0.5,
    "half the gradient bytes; latency and compute taken as unchanged",
  );

/** Overlap switched on: communication hides behind the backward pass, what is longer counts. */
export function priceOverlap(p: StepParts, backwardUs: number): Price {
  const left = Math.max(0, p.commUs - backwardUs * 0.9);
  return relative(p, p.stepUs - p.exposedUs + Math.min(left, p.exposedUs), "communication beside the backward pass");
}

/** Faster input: loaders in parallel up to where the device is the limit. */
export function priceLoaders(p: StepParts, factor: number): Price {
  const work = p.stepUs - p.dataUs;
  const data = p.dataUs + work;
  return relative(
    p,
    Math.max(work, data / factor),
    `${factor.toFixed(1)} times the loaders, until the device is the limit`,
  );
}

/** Launches that go away: fused kernels, CUDA graphs, batched small problems. */
export const priceFewerLaunches = (p: StepParts, launchUs: number): Price =>
  relative(p, p.stepUs - launchUs * 0.8, "four fifths of the launch time that the device waits for");

/** The last bucket's bytes sent early or sparse. */
export const priceEarlyTail = (p: StepParts, tailUs: number): Price =>
  relative(
    p,
    p.stepUs - Math.min(tailUs, p.exposedUs),
    "the tail bucket no longer waits for the end of the backward pass",
  );

export interface BucketChoice {
  capBytes: number;
  exposedUs: number;
  price: Price;
}

/** Runs the bucket simulator over cap sizes and takes the best; null when the current one is best already. */
export function priceBuckets(
  p: StepParts,
  parameterElements: readonly number[],
  backwardUs: number,
  allReduceUs: (bytes: number) => number,
  { elementBytes = 4, capBytes = 25 * 2 ** 20 }: { elementBytes?: number; capBytes?: number } = {},
): BucketChoice | null {
  const exposed = (cap: number): number => {
    const bytes = ddpBuckets(parameterElements, { elementBytes, capBytes: cap }).map((n) => n * elementBytes);
    return simulateOverlap(bytes, backwardUs, allReduceUs).exposedUs;
  };
  const now = exposed(capBytes);
  const caps = [1, 2, 5, 10, 25, 50, 100, 200].map((mib) => mib * 2 ** 20);
  const best = caps
    .map((cap) => ({ cap, exposedUs: exposed(cap) }))
    .reduce((a, b) => (b.exposedUs < a.exposedUs * 0.98 ? b : a), { cap: capBytes, exposedUs: now });
  if (best.cap === capBytes) return null;
  // The simulator gives the change; the measured exposed part gives the level.
  const saved = Math.min(p.exposedUs, now - best.exposedUs);
  return {
    capBytes: best.cap,
    exposedUs: best.exposedUs,
    price: relative(
      p,
      p.stepUs - saved,
      `bucket simulator: exposed ${Math.round(now)} -> ${Math.round(best.exposedUs)} us`,
    ),
  };
}

/** Of a computed gain, this much is usually reached: not calibrated yet, so it is wide and says so. */
export const reachedShare: [number, number] = [0.4, 1.1];

/** A price as a promised effect on a measured time. */
export function effectOf(price: Price, from: number, unit: string, metric: string, devices?: number): PredictedEffect {
  const gain = from * (1 - price.ratio);
  const low = from - gain * reachedShare[1];
  const high = from - gain * reachedShare[0];
  return {
    metric,
    ...(devices !== undefined && { devices }),
    from,
    to: from * price.ratio,
    interval: gain >= 0 ? [Math.max(0, low), high] : [high, low],
    unit,
    reason: `${price.reason}; interval: ${reachedShare[0] * 100}% to ${Math.round(reachedShare[1] * 100)}% of the computed gain`,
  };
}
