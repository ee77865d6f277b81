// weft: differentiable tensors for TypeScript. The public face of the engine.
import type { connect as connectCluster } from "./cluster/connect.js";
import { CpuDevice, CudaDevice, type Device, ReferenceDevice } from "./device/index.js";
import { WeftError } from "./graph/index.js";
import { memory as memoryManager, setDefaultDevice, useDevice } from "./runtime/index.js";

/** The device of a name: "cpu", "cuda" or "cuda:1", "reference". */
export function device(name: string): Device {
  if (name === "cuda") return device("cuda:0");
  const known = devices.get(name);
  if (known !== undefined && (known.lost ?? null) === null) return known;
  // A GPU whose context died: what is left of it goes, and a fresh one takes its place.
  known?.close?.();
  const made = makeDevice(name);
  devices.set(name, made);
  return made;
}

/** One device a name, so that tensors made there can be used when it is chosen again. */
const devices = new Map<string, Device>();

function makeDevice(name: string): Device {
  if (name === "reference") return new ReferenceDevice();
  if (name === "cpu") return new CpuDevice();
  const cuda = /^cuda(?::(\d+))?$/.exec(name);
  if (cuda !== null) return new CudaDevice(Number(cuda[1] ?? 0));
  throw new WeftError(`there is no device "${name}"; known: cpu, cuda, cuda:1 and so on, reference`);
}

/** Runs everything that follows on this device (a name or a device). */
export function setDevice(chosen: string | Device): Device {
  return useDevice(typeof chosen === "string" ? device(chosen) : chosen).device;
}

// Clusters bring libraries that who wants tensors alone should not load.
const loadCluster = () => import("./cluster/connect.js");
const clusterModule = process.env.WEFT_CONNECT ? await loadCluster() : null;

/**
 * Connects to a dispatcher ("localhost:9000"; WEFT_CONNECT when nothing is given), or starts one with workers
 * ({ devices: 4 }), and makes the cluster the current device.
 */
export const connect: typeof connectCluster = async (...args) => (await loadCluster()).connect(...args);

setDefaultDevice(() => {
  const cluster = process.env.WEFT_CONNECT;
  if (cluster !== undefined && cluster !== "" && clusterModule !== null)
    return clusterModule.makeClusterDevice(cluster);
  const wanted = process.env.WEFT_DEVICE;
  if (wanted !== undefined && wanted !== "") return device(wanted);
  if (CpuDevice.available()) return device("cpu");
  console.error("weft: no C compiler was found; running on the slow reference device (Debian: apt install gcc)");
  return device("reference");
});

export type { Cluster } from "./cluster/connect.js";
export type { ConnectOptions } from "./cluster/connection.js";
export * as distributed from "./cluster/distributed.js";
export {
  CpuDevice,
  type CpuOptions,
  CudaDevice,
  type CudaOptions,
  type Device,
  type DeviceMemory,
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
