// The Device contract and its makers.
export * from "./contract.js";
export { CpuDevice, type CpuOptions } from "./cpu/index.js";
export { findOpenBlas as openBlasPath } from "./cpu/openblas.js";
export { CudaDevice, type CudaOptions } from "./cuda/index.js";
export { ReferenceDevice } from "./reference/index.js";
