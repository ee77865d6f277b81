// Exports of the prediction layer.

export { lawConstants, stepIntervalConstants, stepLawConstants } from "./constants.js";
export { calibrateEffects, effectInterval } from "./effect-interval.js";
export {
  computeUs,
  type EffectEstimate,
  effectOf,
  estimateAccumulation,
  estimateBuckets,
  estimateEarlyTail,
  estimateFewerLaunches,
  estimateHalfGradients,
  estimateLargerBatch,
  estimateLoaders,
  estimateOverlap,
  estimateRemoved,
  type StepParts,
} from "./estimates.js";
export { errorScale } from "./interval.js";
export { fitLaw } from "./law.js";
export { type OneDeviceRun, predictFromOne } from "./one-device.js";
export { chooseConfigurations, fitParallelLaw, type MeasuredConfiguration } from "./parallel-law.js";
export { PointsError, readPoints } from "./points.js";
export { predict, type ScalingPredictions, throughputAhead } from "./predict.js";
export { fitStepLaw, stepErrorScale } from "./step-law.js";
