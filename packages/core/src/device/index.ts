// The Device contract and its makers.
export { checkBuffers } from "./arguments.js";
export { cacheRoot, makeFolder } from "./cache-root.js";
export { collectNow } from "./collect.js";
export * from "./contract.js";
export { coreOrder } from "./cpu/cores.js";
export { CpuDevice, compileListeners } from "./cpu/index.js";
export { findOpenBlas as openBlasPath } from "./cpu/openblas.js";
export { CudaDevice, canFuse, gpuCount } from "./cuda/index.js";
export { type CachedExecutable, type ExecutableHandle, ExecutableLru, Lifetime } from "./executable-lru.js";
export * from "./group/index.js";
export { cacheContents, cacheLimit } from "./kernel-cache.js";
export { ReferenceDevice } from "./reference/index.js";
export { availableDevices, createDevice, defaultDevice, device, registerDevice } from "./registry.js";
