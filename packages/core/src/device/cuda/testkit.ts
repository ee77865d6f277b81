// A driver for tests on machines without a GPU: "device" memory is ordinary memory, copies copy, launches are written
// down instead of run. It keeps the sequence of calls and fails on demand.
import koffi from "koffi";
import { type CudaLibraries, type NativeFunction, useCudaLibraries } from "./driver.js";

export interface DriverCall {
  name: string;
  args: readonly unknown[];
}

interface Failure {
  code: number;
  /** Calls that still succeed before it. */
  after: number;
  /** Once failed, every call fails: what a dead context does. */
  sticky: boolean;
}

export interface FakeOptions {
  devices?: number;
  memoryBytes?: number;
  driverVersion?: number;
  without?: readonly ("nvrtc" | "blas" | "lt" | "solver" | "dnn" | "fft" | "nvml")[];
  /** A fault ends the whole process' use of the GPU, as some drivers have it. */
  faultsStay?: boolean;
  /** Other processes that NVML knows of. */
  processes?: readonly { pid: number; bytes: number; name: string }[];
  /** Bytes that they hold. */
  takenBytes?: number;
}

const libc = koffi.load("libc.so.6");
const calloc = libc.func("uint64_t calloc(uint64_t n, uint64_t size)") as unknown as (n: number, s: number) => number;
const release = libc.func("void free(uint64_t at)") as unknown as (at: number) => void;
const memmove = libc.func("uint64_t memmove(uint64_t to, uint64_t from, uint64_t bytes)") as unknown as NativeFunction;

const bytesAt = (address: number, bytes: number): Uint8Array =>
  new Uint8Array(koffi.view(BigInt(address), bytes) as ArrayBuffer);

export class FakeCuda {
  readonly calls: DriverCall[] = [];
  readonly #failures = new Map<string, Failure>();
  readonly #allocated = new Map<number, number>();
  readonly #registered = new Set<number>();
  readonly #graphs = new Map<number, DriverCall[]>();
  #captured: DriverCall[] | null = null;
  #next = 0x1000;
  #dead = 0;
  /** Times that an event is asked for before it has happened. */
  slowness = 0;

  constructor(readonly options: FakeOptions = {}) {}

  /** The names of the calls since the last look, without those that only ask. */
  sequence(): string[] {
    const names = this.calls.map(({ name }) => name);
    this.calls.length = 0;
    return names.filter((name) => !quiet.has(name));
  }

  /** Makes a call fail from now on; a fault is sticky: after it every call fails in the same way. */
  fail(name: string, code: number, { after = 0, sticky = false } = {}): void {
    this.#failures.set(name, { code, after, sticky });
  }

  heal(): void {
    this.#failures.clear();
  }

  get allocatedBytes(): number {
    return [...this.#allocated.values()].reduce((a, b) => a + b, 0);
  }
  get registeredBlocks(): number {
    return this.#registered.size;
  }
  /** Modules that are loaded now, and how many ever were. */
  get loadedModules(): number {
    return this.#modules.size;
  }
  modulesLoaded = 0;
  readonly #modules = new Set<number>();
  /** Executable graphs that were instantiated and not destroyed. */
  get executableGraphs(): number {
    return this.#executableGraphs;
  }
  #executableGraphs = 0;

  get captures(): number {
    return this.#graphs.size;
  }

  #handle(): number {
    return this.#next++;
  }

  #call(name: string, args: readonly unknown[], act: (() => number) | undefined): number {
    this.calls.push({ name, args });
    if (name === "cuDevicePrimaryCtxReset_v2" && !this.options.faultsStay) this.#dead = 0;
    if (this.#dead !== 0 && !quiet.has(name) && name !== "cuInit") return this.#dead;
    const failure = this.#failures.get(name);
    if (failure !== undefined && failure.after-- <= 0) {
      if (failure.sticky) {
        this.#dead = failure.code;
        this.#failures.delete(name);
      }
      return failure.code;
    }
    if (this.#captured !== null && recorded.has(name)) {
      this.#captured.push({ name, args });
      return 0;
    }
    return act?.() ?? 0;
  }

  /** A table whose functions are written down, and done where `actions` says how. */
  #table<T>(actions: Record<string, (...args: never[]) => number>): T {
    const functions = new Map<string, NativeFunction>();
    return new Proxy({} as object, {
      get: (_, property) => {
        const name = String(property);
        let fn = functions.get(name);
        if (fn === undefined) {
          const act = actions[name] as ((...args: unknown[]) => number) | undefined;
          const creates = /Create|Init|Retain/.test(name);
          fn = (...args) =>
            this.#call(name, args, () => {
              if (act !== undefined) return act(...args);
              if (creates && args[0] instanceof BigUint64Array) args[0][0] = BigInt(this.#handle());
              return 0;
            });
          functions.set(name, fn);
        }
        return fn;
      },
    }) as T;
  }

  #driver(): Record<string, (...args: never[]) => number> {
    const { devices = 1, memoryBytes = 2 ** 30, driverVersion = 13000, takenBytes = 0 } = this.options;
    const put = (out: { [i: number]: number | bigint }, value: number | bigint): number => {
      out[0] = value;
      return 0;
    };
    const text = (out: Uint8Array, value: string): number => {
      out.set(Buffer.from(`${value}\0`));
      return 0;
    };
    const attributes: Record<number, number> = { 16: 132, 75: 9, 76: 0 };
    const copy = (to: number, from: number, bytes: number): number => {
      memmove(to, from, bytes);
      return 0;
    };
    return {
      cuInit: () => (devices === 0 ? 100 : 0),
      cuDriverGetVersion: (out: Int32Array) => put(out, driverVersion),
      cuDeviceGetCount: (out: Int32Array) => put(out, devices),
      cuDeviceGet: (out: Int32Array, ordinal: number) => put(out, ordinal),
      cuDeviceGetName: (out: Uint8Array) => text(out, "Fake GPU"),
      cuDeviceGetPCIBusId: (out: Uint8Array) => text(out, "0000:01:00.0"),
      cuDeviceGetAttribute: (out: Int32Array, what: number) => put(out, attributes[what] ?? 0),
      cuDeviceTotalMem_v2: (out: BigUint64Array) => put(out, BigInt(memoryBytes)),
      cuDeviceCanAccessPeer: (out: Int32Array) => put(out, 1),
      cuDevicePrimaryCtxReset_v2: () => {
        for (const address of this.#allocated.keys()) release(address);
        this.#allocated.clear();
        this.#registered.clear();
        return 0;
      },
      cuMemGetInfo_v2: (free: BigUint64Array, total: BigUint64Array) => {
        put(free, BigInt(memoryBytes - takenBytes - this.allocatedBytes));
        return put(total, BigInt(memoryBytes));
      },
      cuMemAlloc_v2: (out: BigUint64Array, bytes: number) => {
        if (this.allocatedBytes + takenBytes + bytes > memoryBytes) return 2;
        const address = calloc(bytes + 512, 1);
        const aligned = Math.ceil(address / 512) * 512;
        this.#allocated.set(address, bytes);
        this.#starts.set(aligned, address);
        return put(out, BigInt(aligned));
      },
      cuMemFree_v2: (address: number) => {
        const start = this.#starts.get(address);
        if (start === undefined || !this.#allocated.delete(start)) return 1;
        release(start);
        return 0;
      },
      cuMemHostRegister_v2: (address: number) => {
        this.#registered.add(address);
        return 0;
      },
      cuMemHostUnregister: (address: number) => (this.#registered.delete(address) ? 0 : 713),
      cuMemcpyHtoD_v2: (to: number, from: Uint8Array, bytes: number) => {
        bytesAt(to, bytes).set(from.subarray(0, bytes));
        return 0;
      },
      cuMemcpyHtoDAsync_v2: copy,
      cuMemcpyDtoHAsync_v2: copy,
      cuMemcpyDtoDAsync_v2: copy,
      cuMemcpyPeerAsync: (to: number, _: number, from: number, __: number, bytes: number) => copy(to, from, bytes),
      cuMemsetD8Async: (to: number, value: number, bytes: number) => {
        bytesAt(to, bytes).fill(value);
        return 0;
      },
      cuModuleLoadData: (out: BigUint64Array) => {
        const module = this.#handle();
        this.#modules.add(module);
        this.modulesLoaded++;
        return put(out, BigInt(module));
      },
      cuModuleUnload: (module: number) => (this.#modules.delete(module) ? 0 : 400),
      cuModuleGetFunction: (out: BigUint64Array) => put(out, BigInt(this.#handle())),
      cuStreamBeginCapture_v2: () => {
        this.#captured = [];
        return 0;
      },
      cuStreamEndCapture: (_: number, out: BigUint64Array) => {
        const graph = this.#handle();
        this.#graphs.set(graph, this.#captured ?? []);
        this.#captured = null;
        return put(out, BigInt(graph));
      },
      cuGraphInstantiateWithFlags: (out: BigUint64Array, graph: number) => {
        this.#executableGraphs++;
        return put(out, BigInt(graph));
      },
      cuGraphExecDestroy: () => {
        this.#executableGraphs--;
        return 0;
      },
      cuEventQuery: () => (this.slowness-- > 0 ? 600 : 0),
      cuEventElapsedTime_v2: (out: Float32Array) => put(out, this.milliseconds()),
    };
  }

  readonly #starts = new Map<number, number>();
  /** What the next measured interval took. */
  milliseconds: () => number = () => 1;

  /** The calls inside a recorded graph. */
  graphCalls(exec: number): readonly DriverCall[] {
    return this.#graphs.get(exec) ?? [];
  }

  static byteAt(address: number): number {
    return bytesAt(address, 1)[0];
  }

  /** The arguments of a launch, as the kernel gets them. */
  static argumentsOf(call: DriverCall): number[] {
    const extra = Number(call.args[10]);
    const words = new BigUint64Array(koffi.view(BigInt(extra), 40) as ArrayBuffer);
    const bytes = Number(new BigUint64Array(koffi.view(words[3], 8) as ArrayBuffer)[0]);
    return [...new BigUint64Array(koffi.view(words[1], bytes) as ArrayBuffer)].map(Number);
  }

  libraries(): CudaLibraries {
    const { without = [], processes = [] } = this.options;
    const has = <T>(name: (typeof without)[number], table: T): T | null => (without.includes(name) ? null : table);
    const nvrtc = {
      nvrtcVersion: (major: Int32Array, minor: Int32Array) => {
        [major[0], minor[0]] = [13, 0];
        return 0;
      },
      nvrtcGetCUBINSize: (_: number, out: BigUint64Array) => {
        out[0] = 16n;
        return 0;
      },
    };
    const lt = {
      cublasLtGetVersion: () => 130000,
      cublasLtMatmulAlgoGetHeuristic: (...args: unknown[]) => {
        const [results, count] = args.slice(-2) as [Uint8Array, Int32Array];
        count[0] = 3;
        // Three algorithms that can be told apart by their first byte.
        for (let i = 0; i < 3; i++) results[i * 96] = i + 1;
        return 0;
      },
    };
    /** Two algorithms: one with a workspace that is too large, and number 7 with 4096 bytes. */
    const algorithms = (...args: unknown[]): number => {
      const [asked, found, results] = args.slice(-3) as [number, Int32Array, Uint8Array];
      const view = new DataView(results.buffer);
      view.setInt32(0, 3, true);
      view.setBigUint64(16, 2n ** 40n, true);
      found[0] = Math.min(2, asked);
      if (found[0] < 2) return 0;
      view.setInt32(48, 7, true);
      view.setBigUint64(64, 4096n, true);
      return 0;
    };
    const dnn = {
      cudnnGetConvolutionForwardAlgorithm_v7: algorithms,
      cudnnGetConvolutionBackwardDataAlgorithm_v7: algorithms,
      cudnnGetConvolutionBackwardFilterAlgorithm_v7: algorithms,
    };
    const nvml = {
      nvmlDeviceGetComputeRunningProcesses_v3: (_: number, count: Uint32Array, out: Uint8Array) => {
        const view = new DataView(out.buffer);
        processes.forEach(({ pid, bytes }, i) => {
          view.setUint32(24 * i, pid, true);
          view.setBigUint64(24 * i + 8, BigInt(bytes), true);
        });
        count[0] = processes.length;
        return 0;
      },
      nvmlSystemGetProcessName: (pid: number, out: Uint8Array) => {
        out.set(Buffer.from(`${processes.find((p) => p.pid === pid)?.name}\0`));
        return 0;
      },
    };
    return {
      driver: this.#table(this.#driver()),
      nvrtc: has("nvrtc", this.#table(nvrtc)),
      blas: has("blas", this.#table({})),
      lt: has("lt", this.#table(lt as never)),
      solver: has("solver", this.#table({})),
      dnn: has("dnn", this.#table(dnn as never)),
      fft: has("fft", this.#table({})),
      nvml: has("nvml", this.#table(nvml)),
      nvtx: this.#table({}),
      nccl: this.#table({}),
      paths: {
        driver: "fake",
        nvrtc: "fake",
        cublas: "fake",
        cublasLt: "fake",
        cusolver: "fake",
        cudnn: "fake",
        cufft: "fake",
        nvml: "fake",
        nvtx: null,
        nccl: null,
      },
    };
  }

  /** Runs a test with this driver in the place of the real one. */
  within<T>(body: (fake: FakeCuda) => T): T {
    const before = useCudaLibraries(this.libraries());
    const restore = (): void => void useCudaLibraries(before);
    let result: T;
    try {
      result = body(this);
    } catch (error) {
      restore();
      throw error;
    }
    if (result instanceof Promise) return result.finally(restore) as T;
    restore();
    return result;
  }
}

/** Calls that change nothing. */
const quiet: ReadonlySet<string> = new Set([
  "cuDriverGetVersion",
  "cuDeviceGetCount",
  "cuDeviceGet",
  "cuDeviceGetName",
  "cuDeviceGetPCIBusId",
  "cuDeviceGetAttribute",
  "cuDeviceTotalMem_v2",
  "cuMemGetInfo_v2",
  "cuEventQuery",
  "nvrtcVersion",
  "cublasLtGetVersion",
]);

/** Calls that a capturing stream records instead of doing. */
const recorded: ReadonlySet<string> = new Set([
  "cuLaunchKernel",
  "cuLaunchKernelEx",
  "cuLaunchCooperativeKernel",
  "cuMemcpyDtoDAsync_v2",
  "cuMemcpyHtoDAsync_v2",
  "cuMemsetD8Async",
  "cublasGemmEx",
  "cublasGemmStridedBatchedEx",
  "cublasGemmBatchedEx",
  "cublasLtMatmul",
]);
