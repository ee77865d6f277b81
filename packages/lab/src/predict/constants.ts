// Written by packages/lab/scripts/calibrate-prediction.mjs; do not edit. How well these do on series that were left out is in
// bench/results/prediction.json.
import type { IntervalConstants } from "./interval.js";
import type { LawConstants } from "./law.js";

export const lawConstants: LawConstants = {
  saturatingBelow: 0.016,
  growingAbove: 0.098,
  saturatingExponent: 1,
  growingExponent: -0.1,
  weightExponent: 2.6,
};

export const intervalConstants: IntervalConstants = {
  base: 0.0254,
  perOverhead: 0.102,
  distanceExponent: 0.7,
  low: -1.44,
  high: 1.81,
  furthestDoublings: 3,
};
