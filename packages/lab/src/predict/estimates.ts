// Estimates the effect of fixes: a formula over the measured parts of a step gives the gain, and effect-interval.ts its interval.
// diagnosis/ decides which fix to recommend.
import { ddpBuckets, simulateOverlap } from "../metrics/index.js";
import type { PredictedEffect } from "../model/index.js";
import { effectInterval, intervalBasis } from "./effect-interval.js";

/** The measured parts of a step, in microseconds. */
export interface StepParts {
  stepUs: number;
  /** Waiting for data. */
  dataUs: number;
  /** Total communication, and the part that no computation overlapped. */
  commUs: number;
  exposedUs: number;
}

/** The estimated effect of a fix on the time per unit of work. */
export interface EffectEstimate {
  /** New time per unit of work, relative to the old one. */
  ratio: number;
  reason: string;
}

/** Time that is neither data wait nor exposed communication. */
export const computeUs = (p: StepParts): number => Math.max(0, p.stepUs - p.dataUs - p.exposedUs);

const relative = (p: StepParts, newUs: number, reason: string): EffectEstimate => ({ ratio: newUs / p.stepUs, reason });

/** Gradient accumulation over k micro-steps: the exposed communication occurs once in k. */
export const estimateAccumulation = (p: StepParts, k: number): EffectEstimate =>
  relative(p, p.stepUs - p.exposedUs + p.exposedUs / k, `the exposed communication is paid once in ${k} micro-steps`);

/** A batch m times larger per device: m times the compute (if the device is busy), the same communication. */
export function estimateLargerBatch(p: StepParts, m: number, deviceBusyShare = 1): EffectEstimate {
  const compute = computeUs(p);
  const grown = compute * (1 - deviceBusyShare) + compute * deviceBusyShare * m;
  return {
    ratio: (grown + p.dataUs * m + p.exposedUs) / (p.stepUs * m),
    reason: `${m} times the samples per step, communication unchanged`,
  };
}

/** 16-bit gradients: half the bytes. Latency is unchanged, so only the bandwidth share shrinks. */
export const estimateHalfGradients = (p: StepParts, bandwidthShare = 0.9): EffectEstimate =>
  relative(
    p,
    p.stepUs - p.exposedUs * bandwidthShare * 0.5,
    "half the gradient bytes; latency and compute taken as unchanged",
  );

/** Overlap of communication and backward pass: the longer of the two determines the time. */
export function estimateOverlap(p: StepParts, backwardUs: number): EffectEstimate {
  const left = Math.max(0, p.commUs - backwardUs * 0.9);
  return relative(p, p.stepUs - p.exposedUs + Math.min(left, p.exposedUs), "communication beside the backward pass");
}

/** Faster input: parallel loaders until the device is the bottleneck. */
export function estimateLoaders(p: StepParts, factor: number): EffectEstimate {
  const work = p.stepUs - p.dataUs;
  const data = p.dataUs + work;
  return relative(
    p,
    Math.max(work, data / factor),
    `${factor.toFixed(1)} times the loaders, until the device is the limit`,
  );
}

/** Fewer launches: fused kernels, CUDA graphs, batched small problems. */
export const estimateFewerLaunches = (p: StepParts, launchUs: number): EffectEstimate =>
  relative(p, p.stepUs - launchUs * 0.8, "four fifths of the launch time that the device waits for");

/** The last bucket's bytes sent early or sparse. */
export const estimateEarlyTail = (p: StepParts, tailUs: number): EffectEstimate =>
  relative(
    p,
    p.stepUs - Math.min(tailUs, p.exposedUs),
    "the tail bucket no longer waits for the end of the backward pass",
  );

/** A part of the time that the fix removes. */
export const estimateRemoved = (share: number, reason: string): EffectEstimate => ({
  ratio: Math.max(0.01, 1 - share),
  reason,
});

/** A bucket cap with its estimated effect. */
interface BucketChoice {
  capBytes: number;
  exposedUs: number;
  estimate: EffectEstimate;
}

/** The best bucket cap by simulation; null when the current one is best. */
export function estimateBuckets(
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
  // The simulation gives the ratio; the measured exposed communication gives the absolute value.
  const saved = Math.min(p.exposedUs, now - best.exposedUs);
  return {
    capBytes: best.cap,
    exposedUs: best.exposedUs,
    estimate: relative(
      p,
      p.stepUs - saved,
      `bucket simulator: exposed ${Math.round(now)} -> ${Math.round(best.exposedUs)} us`,
    ),
  };
}

/** An estimate as the predicted effect on a measured time; `noise` is the relative standard error of that time. */
export function effectOf(
  estimate: EffectEstimate,
  from: number,
  unit: string,
  metric: string,
  devices?: number,
  noise: number | null = null,
): PredictedEffect {
  const to = from * estimate.ratio;
  return {
    metric,
    ...(devices !== undefined && { devices }),
    from,
    to,
    interval: effectInterval(from, to, noise),
    ...(noise !== null && { noise }),
    unit,
    reason: `${estimate.reason}; ${intervalBasis()}`,
  };
}
