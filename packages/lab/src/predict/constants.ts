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
  base: 0.0249,
  perOverhead: 0.0997,
  distanceExponent: 0.7,
  low: -1.41,
  high: 1.85,
  furthestDoublings: 3,
};

export const stepLawConstants: StepLawConstants = {
  noise: 0.0365,
  noisePerDoubling: 2.19,
  shareAlpha: 5.98,
  shareBeta: 1.03,
  growth: 0.178,
  freedom: 3,
};

export const stepIntervalConstants: StepIntervalConstants = {
  base: 0.01,
  perDoubling: 0.04,
  disagreement: 2,
  low: -0.329,
  high: 0.409,
  furthestDoublings: 6,
};
