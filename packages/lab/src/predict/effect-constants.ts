// Written by packages/lab/scalefault/run.mjs --calibrate; do not edit. Quantiles of the errors of promised gains, measured after
// the fixes were applied (bench/results/scalefault.json).
import type { EffectCalibration } from "./effect-interval.js";

export const effectCalibration: EffectCalibration = { low: -2.378, high: 1.183, outcomes: 32 };
