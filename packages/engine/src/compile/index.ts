// fuse -> kernels -> memory plan; one code generator, printed by dialects.
export { emitKernel, kernelBytes } from "./emit-c.js";
export { fuse, isZeroBase } from "./fuse.js";
export { buildKernel, type LoopKernel } from "./kernel.js";
export {
  contiguousOperand,
  type Location,
  loopMemory,
  type MatrixOperand,
  memoryKey,
  type Plan,
  type PlanOptions,
  planFunction,
  type Step,
} from "./plan.js";
export { storageType } from "./scalar.js";
