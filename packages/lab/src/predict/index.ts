// The public face of prediction.
export { intervalConstants, lawConstants } from "./constants.js";
export { errorScale, type IntervalConstants, throughputInterval } from "./interval.js";
export { type FittedLaw, fitLaw, type LawConstants } from "./law.js";
export {
  type CountSample,
  PointsError,
  type ReadPoints,
  readPoints,
} from "./points.js";
export { type LawDescription, type Prediction, type PredictionResult, predict } from "./predict.js";
export {
  type BucketChoice,
  computeUs,
  effectOf,
  type Price,
  priceAccumulation,
  priceBuckets,
  priceEarlyTail,
  priceFewerLaunches,
  priceHalfGradients,
  priceLargerBatch,
  priceLoaders,
  priceOverlap,
  reachedShare,
  type StepParts,
} from "./pricing.js";
