// One table per concern, each typed over the op union: shape, vjp, batch, cost, reference value; and the builders.
export { type BatchContext, type Batched, batchRules, withBatch } from "./batch.js";
export * as build from "./build.js";
export { make } from "./build.js";
export * as composed from "./composed.js";
export { costOf } from "./cost.js";
export { decodeFunction } from "./decode.js";
export {
  bodyDimensions,
  boundOf,
  type DimensionClasses,
  type DimMap,
  dimensionClasses,
  type Factor,
  type Factors,
  factorBound,
  factorsOf,
  localNode,
  type Part,
  zeroed,
} from "./factors.js";
export {
  type Effort,
  effortOf,
  elementwiseOps,
  factorizationOps,
  type factorizations,
  isTranscendental,
  leafOps,
  reductionOps,
  transcendentalFns,
  viewOps,
} from "./kinds.js";
export { isLinear } from "./linear.js";
export * from "./reference/index.js";
export { shapeRules } from "./shape.js";
export { verify } from "./verify.js";
export { type VjpRule, vjpRules } from "./vjp.js";
