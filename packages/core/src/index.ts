// @weft/core: differentiable tensors for TypeScript. The public face of the package.
import { type Device, device } from "./device/index.js";
import { WeftError } from "./graph/index.js";
import { memory as memoryManager, setDefaultDevice, useDevice } from "./runtime/index.js";
import { settings } from "./settings/index.js";

/** Runs everything that follows on this device (a name or a device). */
export function setDevice(chosen: string | Device): Device {
  return useDevice(typeof chosen === "string" ? device(chosen) : chosen).device;
}

// WEFT_CONNECT runs an unchanged program on a cluster. Only then is the cluster package loaded: whoever wants tensors
// alone does not install it.
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
  type CpuOptions,
  CudaDevice,
  type CudaOptions,
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

/** What is held, largest first. */
export const memory = () => memoryManager.report();
/** Frees every tensor that nobody can reach. */
export const collectGarbage = (): void => memoryManager.collect();
/** Bytes that may pile up before unreachable tensors are looked for. */
export const setMemoryPressureLimit = (bytes: number): void => {
  memoryManager.pressureLimit = bytes;
};
