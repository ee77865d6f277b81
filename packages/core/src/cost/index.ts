// Cost model: the estimated cost of functions, ops, kernels and collectives. The fuser, the code generators and the sharding
// planner use it; it knows graphs and measured rates, not devices.
export { functionCost, isExpensive, isTranscendental, loopCost, transcendentalFns } from "./functions.js";
export {
  classOf,
  costKernels,
  type KernelCost,
  type KernelWork,
  type OpClass,
  opClasses,
  type ProductTable,
  predictKernels,
} from "./kernel-cost.js";
export { laneLimits } from "./lanes.js";
export { h200, serverCore } from "./machines.js";
export { expectedSteps, opCost } from "./op-cost.js";
export {
  arithmetic,
  fewestSmall,
  isSmallProduct,
  type Local,
  type OpWork,
  smallProduct,
  wholeOf,
  workOf,
  workTime,
} from "./op-time.js";
export {
  type Link,
  linkOf,
  linkTime,
  matmulRate,
  parseRates,
  type RateCurve,
  type Rates,
  ratesAt,
  sameLinks,
  valueAt,
} from "./rates.js";
