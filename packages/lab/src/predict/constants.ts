// Written by packages/lab/scripts/calibrate-prediction.mjs; do not edit. Their errors on held-out series are in
// bench/results/prediction.json.
import type { IntervalConstants } from "./interval.js";
import type { LawConstants } from "./law.js";
import type { StepIntervalConstants, StepLawConstants } from "./step-law.js";

export const lawConstants: LawConstants = {
  saturatingBelow: 0.041,
  growingAbove: 0.11,
  saturatingExponent: 0.5,
  growingExponent: -0.1,
  weightExponent: 2.5,
};

export const intervalConstants: IntervalConstants = {
  base: 0.0252,
  perOverhead: 0.101,
  distanceExponent: 0.3,
  low: -1.26,
  high: 1.89,
  furthestDoublings: 3,
};

export const stepLawConstants: StepLawConstants = {
  noise: 0.057,
  noiseSpread: 0.911,
  noisePerDoubling: 1.65,
  fixedShare: 0.0364,
  fixedSpread: 1.65,
  growth: 0.123,
  freedom: 3,
};

export const stepIntervalConstants: StepIntervalConstants = {
  base: 0.05,
  perDoubling: 0.025,
  disagreement: 0,
  low: -1.14,
  high: 2.19,
  furthestDoublings: 6,
};
