// Public API of @weft/core: differentiable tensors for TypeScript.
import { type Device, device } from "./device/index.js";
import { WeftError } from "./graph/index.js";
import { memoryManager, setDefaultDevice, useDevice } from "./runtime/index.js";
import { settings } from "./settings/index.js";

/**
 * Makes a device current: new tensors are placed on it and operations run on it.
 *
 * @param chosen - A device, or a name such as "cpu", "cuda:1" or "reference".
 */
export function setDevice(chosen: string | Device): Device {
  return useDevice(typeof chosen === "string" ? device(chosen) : chosen).device;
}

// WEFT_CONNECT runs an unchanged program on a cluster. The optional package @weft/cluster is loaded only then.
const address = settings.connect.get() ?? "";
if (address !== "") {
  const cluster = "@weft/cluster";
  await import(cluster).catch((error: Error) => {
    throw new WeftError(
      `WEFT_CONNECT=${address} needs the package @weft/cluster, which could not be loaded: ${error.message}`,
    );
  });
  setDefaultDevice(() => device(`cluster:${address}`));
}

export {
  CpuDevice,
  CudaDevice,
  type Device,
  type DeviceMemory,
  type DeviceTraits,
  device,
  OutOfMemoryError,
  type ProcessGroup,
  ReferenceDevice,
} from "./device/index.js";
export { type DType, DTypeError, dtypes, type Shape, ShapeError, WeftError } from "./graph/index.js";
export * as io from "./io/index.js";
export { profiler as profile, session, useDevice } from "./runtime/index.js";
export * as system from "./system.js";
export * from "./tensor/index.js";

/** Reports the tensors in device memory, largest first. */
export const memory = () => memoryManager.report();
/** Frees all unreachable tensors. */
export const collectGarbage = (): void => memoryManager.collect();
/** Sets the number of allocated bytes above which unreachable tensors are collected; 1 GiB by default. */
export const setMemoryPressureLimit = (bytes: number): void => {
  if (typeof bytes !== "number" || !(bytes >= 0))
    throw new WeftError(`setMemoryPressureLimit: the limit is a number of bytes, got ${String(bytes)}`);
  memoryManager.pressureLimit = bytes;
};
