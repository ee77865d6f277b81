// Written by packages/lab/scripts/calibrate-prediction.mjs; do not edit. Their errors on held-out series are in
// bench/results/prediction.json.
import type { IntervalConstants } from "./interval.js";
import type { LawConstants } from "./law.js";

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
