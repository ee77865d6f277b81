// The CUDA device: generated CUDA C through NVRTC, cuBLAS, one stream; a call whose memory is where it was last time is
// one graph launch.
import { type Plan, planFunction } from "../../compile/index.js";
import { bytesOf, type GraphFn, numel } from "../../graph/index.js";
import type {
  CompileOptions,
  Device,
  DeviceBuffer,
  DeviceMemory,
  Executable,
  NamedRanges,
  ProcessGroup,
} from "../contract.js";
import { type CudaBuffer, CudaContext, type Piece } from "./context.js";
import { cudaLibraries, result64 } from "./driver.js";
import { type TransferRates, transferRates } from "./inspect.js";
import { type GpuReadings, readGpu } from "./nvml.js";
import { Products } from "./products.js";
import { type Addresses, CudaProgram, Launcher } from "./program.js";
import { cudaPlanOptions } from "./source.js";

export { versionText } from "./context.js";
export { CudaError, cudaLibraries, type LibraryName, type LibraryPaths } from "./driver.js";
export { libraryVersions, type TransferRates } from "./inspect.js";
export { NcclGroup, ncclGroup } from "./nccl.js";
export type { GpuProcess, GpuReadings } from "./nvml.js";

export interface CudaOptions {
  /** Matrix products of float32: exact (default) or with the tensor cores' tf32. */
  precision?: "float32" | "tf32";
  /** Record calls into CUDA graphs (default) or launch every kernel. */
  graphs?: boolean;
}

/** Recorded graphs a program keeps, one for each set of addresses. */
const maxGraphs = 8;
/** Events before this one belong to transfers. */
const firstPieceEvent = 2;

function equal(a: readonly number[], b: readonly number[]): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

export class CudaDevice implements Device {
  readonly name: string;
  readonly kind = "cuda";
  readonly context: CudaContext;
  timing = false;
  #scratch: CudaBuffer | null = null;
  readonly #launcher: Launcher;
  readonly products: Products;
  readonly #precision: "float32" | "tf32";
  readonly #graphs: boolean;
  graphLaunches = 0;

  constructor(ordinal = 0, options: CudaOptions = {}) {
    this.context = new CudaContext(ordinal);
    this.name = `cuda:${ordinal}`;
    this.#launcher = new Launcher(this.context);
    this.products = new Products(this.context);
    this.#precision = options.precision ?? "float32";
    this.#graphs = options.graphs ?? process.env.WEFT_CUDA_GRAPHS !== "0";
  }

  /** True where a driver and at least one GPU are found. */
  static available(): boolean {
    const libraries = cudaLibraries();
    if (libraries === null || libraries.driver.cuInit(0) !== 0) return false;
    const count = new Int32Array(1);
    return libraries.driver.cuDeviceGetCount(count) === 0 && count[0] > 0;
  }

  get group(): ProcessGroup | null {
    return this.context.group;
  }
  set group(group: ProcessGroup | null) {
    this.context.group = group;
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
  fetch(buffer: DeviceBuffer): ArrayBuffer | null {
    return this.context.fetch(buffer as CudaBuffer);
  }
  fetchAsync(buffer: DeviceBuffer): Promise<ArrayBuffer> | null {
    return this.context.fetchAsync(buffer as CudaBuffer);
  }
  /** A copy on another GPU; null where the other device is none. */
  copyTo(buffer: DeviceBuffer, peer: Device): DeviceBuffer | null {
    return peer instanceof CudaDevice ? this.context.copyToPeer(buffer as CudaBuffer, peer.context) : null;
  }
  get ranges(): NamedRanges | null {
    return this.context.ranges;
  }
  get lost(): string | null {
    return this.context.lost;
  }
  close(): void {
    this.context.close();
  }
  /** What NVML says of this GPU now; null without NVML. */
  readings(): GpuReadings | null {
    return readGpu(this.context.libraries, this.context.busId);
  }
  /** How fast memory moves to, from and on this GPU; takes a fraction of a second. */
  transferRates(): TransferRates {
    return transferRates(this.context);
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
    return planFunction(fn, {
      ...cudaPlanOptions,
      donated: options.donated,
      lanes: { ...cudaPlanOptions.lanes, known: options.known ?? new Map() },
    });
  }

  #program(plan: Plan): CudaProgram {
    this.context.enter();
    return new CudaProgram(this.context, this.#launcher, this.products, plan, this.#precision);
  }

  source(fn: GraphFn, options: CompileOptions): string {
    return this.#program(this.#plan(fn, options)).source;
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    const plan = this.#plan(fn, options);
    const program = this.#program(plan);
    const outputBytes = plan.fn.outputs.map((o) => numel(o.shape) * bytesOf(o.dtype));
    const { scratchBytes, aliases } = plan;
    const graphs = new Map<string, number>();
    const seen = new Set<string>();
    const name = `weft: ${program.kernels.length} kernels, ${program.kernels[0]?.name ?? "nothing"} ...`;
    /** The graph of the last call: most calls find their memory where it was. */
    let last: (Addresses & { exec: number }) | null = null;
    const { context } = this;
    const { driver } = context.libraries;

    const record = (key: string, addresses: Addresses): number => {
      // Thread-local capture: other threads' work does not matter.
      context.check("cuStreamBeginCapture", driver.cuStreamBeginCapture_v2(context.stream, 1));
      context.capturing = true;
      try {
        program.issue(addresses);
      } catch (error) {
        // The stream must leave capture, whatever that says.
        driver.cuStreamEndCapture(context.stream, new BigUint64Array(1));
        throw error;
      } finally {
        context.capturing = false;
      }
      const graph = result64("cuStreamEndCapture", (out) => driver.cuStreamEndCapture(context.stream, out));
      const exec = result64("cuGraphInstantiate", (out) => driver.cuGraphInstantiateWithFlags(out, graph, 0));
      driver.cuGraphDestroy(graph);
      graphs.set(key, exec);
      if (graphs.size > maxGraphs) {
        const [oldest, old] = graphs.entries().next().value!;
        driver.cuGraphExecDestroy(old);
        graphs.delete(oldest);
        if (last?.exec === old) last = null;
      }
      return exec;
    };

    const deliver = (addresses: Addresses, output: CudaBuffer): void => {
      const list: Piece[] = [];
      program.issueInPieces(addresses, (bytes) => {
        const event = context.event(firstPieceEvent + list.length);
        context.record(event);
        list.push({ bytes, event });
      });
      output.pieces = { epoch: context.epoch, list };
    };

    const launch = (addresses: Addresses, outputs: readonly CudaBuffer[], wanted: boolean): void => {
      if (this.timing) {
        lastTimes = context.measure(program.kernels.length, (mark) => program.issue(addresses, mark));
      } else if (wanted && program.deliversInPieces) {
        deliver(addresses, outputs[0]);
      } else if (!this.#graphs || program.usesHost) {
        program.issue(addresses);
      } else {
        const { inputs, outputs, scratch } = addresses;
        if (last !== null && last.scratch === scratch && equal(last.inputs, inputs) && equal(last.outputs, outputs)) {
          context.check("cuGraphLaunch", driver.cuGraphLaunch(last.exec, context.stream));
          this.graphLaunches++;
          return;
        }
        const key = `${inputs.join(",")}/${outputs.join(",")}/${scratch}`;
        const exec = graphs.get(key);
        if (exec !== undefined || seen.has(key)) {
          last = { ...addresses, exec: exec ?? record(key, addresses) };
          context.check("cuGraphLaunch", driver.cuGraphLaunch(last.exec, context.stream));
          this.graphLaunches++;
        } else {
          if (seen.size > 64) seen.clear();
          seen.add(key);
          program.issue(addresses);
        }
      }
    };

    const run = (buffers: readonly DeviceBuffer[], wanted = false): DeviceBuffer[] => {
      context.enter();
      context.epoch++;
      const outputs: CudaBuffer[] = [];
      try {
        outputBytes.forEach((bytes, i) => {
          const alias = aliases.get(i);
          outputs.push(alias === undefined ? context.allocate(bytes) : (buffers[alias] as CudaBuffer));
        });
        const addresses = {
          inputs: buffers.map((b) => (b as CudaBuffer).address),
          outputs: outputs.map((b) => b.address),
          scratch: this.#scratchFor(scratchBytes),
        };
        context.ranges?.push(name);
        launch(addresses, outputs, wanted);
        context.ranges?.pop();
      } catch (error) {
        outputs.forEach((buffer, i) => {
          if (!aliases.has(i)) context.free(buffer);
        });
        throw error;
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
