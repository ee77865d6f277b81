// weft: differentiable tensors for TypeScript. The public face of the engine.
import { memory as memoryManager } from "./runtime/index.js";

export { type Device, type DeviceMemory, OutOfMemoryError, ReferenceDevice } from "./device/index.js";
export { type DType, DTypeError, dtypes, type Shape, ShapeError, WeftError } from "./graph/index.js";
export { profiler as profile, session, useDevice } from "./runtime/index.js";
export * from "./tensor/index.js";

/** What is held, largest first. */
export const memory = () => memoryManager.report();
/** Frees every tensor that nobody can reach. */
export const collectGarbage = (): void => memoryManager.collect();
/** Bytes that may pile up before unreachable tensors are looked for. */
export const setMemoryPressureLimit = (bytes: number): void => {
  memoryManager.pressureLimit = bytes;
};
