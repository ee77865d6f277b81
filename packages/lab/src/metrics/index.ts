// Exports of the metrics layer.
export { ddpBuckets, simulateOverlap } from "./buckets.js";
export { allReduceUs, busBandwidthGBps, busFactor, type Fabric, fabrics } from "./communication.js";
export { type Imbalance, imbalance } from "./imbalance.js";
export {
  amdahl,
  classMeaning,
  fitShape,
  gustafson,
  karpFlatt,
  logShape,
  type OverheadShape,
  powerShape,
  ringShape,
  type ScalingClass,
  scalingClass,
  serialShape,
} from "./laws.js";
export { type PopEfficiencies, popEfficiencies } from "./pop.js";
export { type CountSummary, type RunSummary, type StudySummary, summarizeStudy } from "./scaling.js";
export { stepWeight, weightedTimes } from "./steps.js";
export { fitUsl, type Usl, uslThroughput } from "./usl.js";
