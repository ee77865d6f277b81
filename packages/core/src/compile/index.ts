// The compiler: fusion -> kernels -> schedule with memory offsets; one code generator, printed by dialects.
export { type BatchDim, mergeBatch } from "./batch.js";
export { emitBlockCuda } from "./emit-block.js";
export { emitKernel, kernelBytes } from "./emit-c.js";
export { cudaThreads, emitCudaKernel, isTiled } from "./emit-cuda.js";
export type { CudaKernel } from "./emit-cuda-common.js";
export { emitLaneC } from "./emit-lane-c.js";
export { emitLaneCuda } from "./emit-lane-cuda.js";
export { narrowRows } from "./emit-narrow.js";
export { type LibraryEpilogue, libraryEpilogue } from "./epilogue.js";
export { isCounted, isZeroBase, type MatrixOperand } from "./fuse-rules.js";
export type { LoopKernel } from "./kernel.js";
export { type AnyLaneProgram, laneAvals, laneName } from "./lane-region.js";
export { loopMemory } from "./loops.js";
export type { ConvSupport } from "./lower-conv.js";
export { memoryKey } from "./memory-key.js";
export { storageType } from "./scalar.js";
export {
  contiguousOperand,
  type Location,
  type Schedule,
  type ScheduleOptions,
  type ScheduleStep,
  scheduleFunction,
} from "./schedule.js";
export { tallyLanes } from "./tally.js";
export { decimal, whole } from "./text.js";
export type { Strided } from "./views.js";
