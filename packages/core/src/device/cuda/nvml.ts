// Current state of a GPU from NVML: load, memory, power, clocks and processes. A reading that this GPU or driver does not
// support is null.
import { type CudaLibraries, cText, type NativeFunction, type Nvml } from "./driver.js";

interface GpuProcess {
  /** Process id. */
  pid: number;
  /** Name of the program; null if it may not be read. */
  name: string | null;
  /** Memory that it holds on the GPU; null if unknown. */
  bytes: number | null;
}

export interface GpuReadings {
  /** Percent of the last sampling period in which a kernel ran, or memory was accessed. */
  gpuUtilization: number | null;
  /** Share of the time in which memory was read or written. */
  memoryUtilization: number | null;
  /** Memory of the GPU. */
  memoryBytes: { total: number; free: number; used: number } | null;
  /** Power that it draws. */
  watts: number | null;
  /** Power at which it is throttled. */
  wattsLimit: number | null;
  /** Temperature of the chip. */
  celsius: number | null;
  /** In MHz: the multiprocessors now and at most, the memory now. */
  clocks: { sm: number | null; smMax: number | null; memory: number | null };
  /** Processes that use it. */
  processes: GpuProcess[];
}

const clock = { sm: 1, memory: 2 };
const processBytes = 24;
const unknownBytes = 0xffffffffffffffffn;

let started: { nvml: Nvml; works: boolean } | null = null;

function ready(libraries: CudaLibraries): Nvml | null {
  const { nvml } = libraries;
  if (nvml === null) return null;
  if (started?.nvml !== nvml) started = { nvml, works: nvml.nvmlInit_v2() === 0 };
  return started.works ? nvml : null;
}

function quietly<T>(read: () => T | null): T | null {
  try {
    return read();
  } catch {
    // An older library without this function.
    return null;
  }
}

/** One unsigned number, or null where the call fails. */
const number = (fn: NativeFunction, ...args: unknown[]): number | null =>
  quietly(() => {
    const out = new Uint32Array(1);
    return fn(...args, out) === 0 ? out[0] : null;
  });

/** The readings of the GPU with this PCI address; null without NVML. */
export function readGpu(libraries: CudaLibraries, busId: string): GpuReadings | null {
  const nvml = ready(libraries);
  if (nvml === null) return null;
  const handle = new BigUint64Array(1);
  if (quietly(() => nvml.nvmlDeviceGetHandleByPciBusId_v2(busId, handle)) !== 0) return null;
  const gpu = Number(handle[0]);
  const rates = new Uint32Array(2);
  const rated = quietly(() => nvml.nvmlDeviceGetUtilizationRates(gpu, rates)) === 0;
  const memory = new BigUint64Array(3);
  const [total, free, used] =
    quietly(() => nvml.nvmlDeviceGetMemoryInfo(gpu, memory)) === 0 ? [...memory].map(Number) : [];
  const milli = (value: number | null): number | null => (value === null ? null : value / 1e3);
  return {
    gpuUtilization: rated ? rates[0] : null,
    memoryUtilization: rated ? rates[1] : null,
    memoryBytes: total === undefined ? null : { total, free, used },
    watts: milli(number(nvml.nvmlDeviceGetPowerUsage, gpu)),
    wattsLimit: milli(number(nvml.nvmlDeviceGetEnforcedPowerLimit, gpu)),
    celsius: number(nvml.nvmlDeviceGetTemperature, gpu, 0),
    clocks: {
      sm: number(nvml.nvmlDeviceGetClockInfo, gpu, clock.sm),
      smMax: number(nvml.nvmlDeviceGetMaxClockInfo, gpu, clock.sm),
      memory: number(nvml.nvmlDeviceGetClockInfo, gpu, clock.memory),
    },
    processes: processesOn(nvml, gpu),
  };
}

function processesOn(nvml: Nvml, gpu: number): GpuProcess[] {
  const count = Uint32Array.of(64);
  const bytes = new Uint8Array(64 * processBytes);
  if (quietly(() => nvml.nvmlDeviceGetComputeRunningProcesses_v3(gpu, count, bytes)) !== 0) return [];
  const view = new DataView(bytes.buffer);
  return Array.from({ length: Math.min(64, count[0]) }, (_, i) => {
    const pid = view.getUint32(i * processBytes, true);
    const used = view.getBigUint64(i * processBytes + 8, true);
    const name = new Uint8Array(256);
    const named = quietly(() => nvml.nvmlSystemGetProcessName(pid, name, 256)) === 0;
    return { pid, name: named ? cText(name) : null, bytes: used === unknownBytes ? null : Number(used) };
  });
}

/** Other processes on the GPU, for the end of an error message; empty if none are known. */
export function describeProcesses(libraries: CudaLibraries, busId: string): string {
  const others = (readGpu(libraries, busId)?.processes ?? []).filter(({ pid }) => pid !== process.pid);
  if (others.length === 0) return "";
  const size = (bytes: number | null): string => (bytes === null ? "" : `, ${(bytes / 1e9).toFixed(2)} GB`);
  const list = others.slice(0, 5).map(({ pid, name, bytes }) => `${name ?? "process"} (pid ${pid}${size(bytes)})`);
  return ` (${list.join("; ")}${others.length > 5 ? `; and ${others.length - 5} more` : ""})`;
}
