// The CUDA device: generated CUDA C through NVRTC, cuBLAS, one stream; a call whose memory is where it was last time is
// one graph launch.
import { type Plan, planFunction } from "../../compile/index.js";
import { bytesOf, type GraphFn, numel } from "../../graph/index.js";
import type { CompileOptions, Device, DeviceBuffer, DeviceMemory, Executable } from "../contract.js";
import { type CudaBuffer, CudaContext } from "./context.js";
import { check, cudaLibraries, result64 } from "./driver.js";
import { type Addresses, CudaProgram, cudaPlanOptions, Launcher } from "./program.js";

export { CudaError, cudaLibraries } from "./driver.js";

export interface CudaOptions {
  /** Matrix products of float32: exact (default) or with the tensor cores' tf32. */
  precision?: "float32" | "tf32";
  /** Record calls into CUDA graphs (default) or launch every kernel. */
  graphs?: boolean;
}

/** Recorded graphs a program keeps, one for each set of addresses. */
const maxGraphs = 8;

export class CudaDevice implements Device {
  readonly name: string;
  readonly kind = "cuda";
  readonly context: CudaContext;
  timing = false;
  #scratch: CudaBuffer | null = null;
  readonly #launcher: Launcher;
  readonly #precision: "float32" | "tf32";
  readonly #graphs: boolean;
  graphLaunches = 0;

  constructor(ordinal = 0, options: CudaOptions = {}) {
    this.context = new CudaContext(ordinal);
    this.name = `cuda:${ordinal}`;
    this.#launcher = new Launcher(this.context);
    this.#precision = options.precision ?? "float32";
    this.#graphs = options.graphs ?? process.env.WEFT_CUDA_GRAPHS !== "0";
  }

  /** True where a driver and at least one GPU are found. */
  static available(): boolean {
    const libraries = cudaLibraries();
    if (libraries === null || (libraries.driver.cuInit(0) as number) !== 0) return false;
    const count = new Int32Array(1);
    return (libraries.driver.cuDeviceGetCount(count) as number) === 0 && count[0] > 0;
  }

  allocate(bytes: number): DeviceBuffer {
    return this.context.allocate(bytes);
  }
  free(buffer: DeviceBuffer): void {
    this.context.free(buffer as CudaBuffer);
  }
  upload(buffer: DeviceBuffer, from: Uint8Array): void {
    this.context.upload(buffer as CudaBuffer, from);
  }
  download(buffer: DeviceBuffer, into: Uint8Array): void {
    this.context.download(buffer as CudaBuffer, into);
  }
  synchronize(): void {
    this.context.synchronize();
  }
  trim(): void {
    this.context.trim();
  }

  memory(): DeviceMemory {
    const { used, pooled, peak } = this.context.usage;
    return { usedBytes: used, pooledBytes: pooled, peakBytes: peak, totalBytes: this.context.totalBytes };
  }

  #scratchFor(bytes: number): number {
    if (bytes === 0) return 0;
    if (this.#scratch === null || this.#scratch.bytes < bytes) {
      if (this.#scratch !== null) this.free(this.#scratch);
      this.#scratch = null;
      this.#scratch = this.context.allocate(bytes);
    }
    return this.#scratch.address;
  }

  #plan(fn: GraphFn, options: CompileOptions): Plan {
    return planFunction(fn, { ...cudaPlanOptions, donated: options.donated });
  }

  source(fn: GraphFn, options: CompileOptions): string {
    return new CudaProgram(this.context, this.#launcher, this.#plan(fn, options), this.#precision).source;
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    const plan = this.#plan(fn, options);
    const program = new CudaProgram(this.context, this.#launcher, plan, this.#precision);
    const outputBytes = plan.fn.outputs.map((o) => numel(o.shape) * bytesOf(o.dtype));
    const { scratchBytes, aliases } = plan;
    const graphs = new Map<string, number>();
    const seen = new Set<string>();
    const { driver } = this.context.libraries;

    const record = (key: string, addresses: Addresses): number => {
      // Thread-local capture: other threads' work does not matter.
      check("cuStreamBeginCapture", driver.cuStreamBeginCapture_v2(this.context.stream, 1) as number);
      let graph: number;
      try {
        program.issue(addresses);
      } finally {
        graph = result64("cuStreamEndCapture", (out) => driver.cuStreamEndCapture(this.context.stream, out) as number);
      }
      const exec = result64("cuGraphInstantiate", (out) => driver.cuGraphInstantiateWithFlags(out, graph, 0) as number);
      driver.cuGraphDestroy(graph);
      graphs.set(key, exec);
      if (graphs.size > maxGraphs) {
        const [oldest, old] = graphs.entries().next().value!;
        driver.cuGraphExecDestroy(old);
        graphs.delete(oldest);
      }
      return exec;
    };

    const run = (buffers: readonly DeviceBuffer[]): DeviceBuffer[] => {
      const inputs = buffers.map((b) => (b as CudaBuffer).address);
      const outputs = outputBytes.map((bytes, i) => {
        const alias = aliases.get(i);
        return alias === undefined ? this.context.allocate(bytes) : (buffers[alias] as CudaBuffer);
      });
      const addresses = { inputs, outputs: outputs.map((b) => b.address), scratch: this.#scratchFor(scratchBytes) };
      if (this.timing) {
        lastTimes = this.context.measure(program.kernels.length, (mark) => program.issue(addresses, mark));
        return outputs;
      }
      if (!this.#graphs || program.usesHost) {
        program.issue(addresses);
        return outputs;
      }
      const key = `${inputs.join(",")}/${addresses.outputs.join(",")}/${addresses.scratch}`;
      const exec = graphs.get(key);
      if (exec !== undefined || seen.has(key)) {
        check("cuGraphLaunch", driver.cuGraphLaunch(exec ?? record(key, addresses), this.context.stream) as number);
        this.graphLaunches++;
      } else {
        if (seen.size > 64) seen.clear();
        seen.add(key);
        program.issue(addresses);
      }
      return outputs;
    };
    let lastTimes: Float64Array | undefined;
    return {
      kernels: program.kernels,
      scratchBytes,
      aliases,
      run,
      get lastTimes() {
        return lastTimes;
      },
    };
  }
}
