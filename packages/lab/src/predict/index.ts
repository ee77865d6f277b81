// Exports of the prediction layer.

export { intervalConstants, lawConstants, stepIntervalConstants, stepLawConstants } from "./constants.js";
export { effectCalibration } from "./effect-constants.js";
export {
  calibrateEffects,
  type EffectCalibration,
  type EffectOutcome,
  effectInterval,
  effectScale,
  intervalBasis,
} from "./effect-interval.js";
export {
  type BucketChoice,
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
export { errorScale, type IntervalConstants, throughputInterval } from "./interval.js";
export { type FittedLaw, fitLaw, type LawConstants } from "./law.js";
export { type OneDevicePrediction, type OneDeviceRun, predictFromOne } from "./one-device.js";
export {
  chooseConfigurations,
  fitParallelLaw,
  type MeasuredConfiguration,
  type ParallelPrediction,
} from "./parallel-law.js";
export {
  type CountSample,
  PointsError,
  type ReadPoints,
  readPoints,
} from "./points.js";
export {
  type PredictOptions,
  predict,
  type ScalingPrediction,
  type ScalingPredictions,
  throughputAhead,
} from "./predict.js";
export {
  type BatchPoint,
  fitStepLaw,
  type StepIntervalConstants,
  type StepLawConstants,
  stepErrorScale,
} from "./step-law.js";
