// One table per concern, each typed over the op union: shape, vjp, batch, reference value; and the builders.
export { batchRules } from "./batch.js";
export { type BatchContext, type Batched, withBatch } from "./batch-operand.js";
export * as build from "./build.js";
export * as composed from "./composed.js";
export { convRoles } from "./conv.js";
export { decodeFunction } from "./decode.js";
export { type DimensionClasses, dimensionClasses } from "./dimension-classes.js";
export {
  bodyDimensions,
  boundOf,
  type DimMap,
  type FactorRange,
  type Factors,
  factorBound,
  factorsOf,
  localNode,
  zeroed,
} from "./factors.js";
export { differentiableOperands } from "./factors-attention.js";
export {
  elementwiseOps,
  factorizationOps,
  type factorizations,
  type LibraryOp,
  leafOps,
  reductionOps,
  viewOps,
} from "./kinds.js";
export { isLinear } from "./linear.js";
export { make } from "./make.js";
export { type PadContext, padRules, sizesOfNodes } from "./padded.js";
export {
  aligned,
  compact,
  compacted,
  type DimLayout,
  isPrefix,
  isVarying,
  masked,
  multiplySizes,
  type Padded,
  reshaped,
  type Slots,
  sizesOf,
  UnpaddableError,
} from "./padded-layout.js";
export * from "./reference/index.js";
export { shapeRules } from "./shape.js";
export { verify } from "./verify.js";
export { type VjpRule, vjpRules } from "./vjp.js";
export { transposing } from "./vjp-linalg.js";
