// The CUDA device: CUDA C compiled by NVRTC, cuBLAS, one stream. A call with the addresses of an earlier call is one graph
// launch.
import { type Schedule, scheduleFunction } from "../../compile/index.js";
import { bytesOf, checkOptions, type GraphFn, isOp, type Node, numel, type Precision } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import {
  type CompileOptions,
  type Device,
  type DeviceBuffer,
  type DeviceMemory,
  type DeviceTraits,
  type Executable,
  hostTraits,
  type NamedRanges,
  type ProcessGroup,
} from "../contract.js";
import { Lifetime } from "../executable-lru.js";
import { canFuse } from "./attention.js";
import { type BufferPiece, type CudaBuffer, CudaContext } from "./context.js";
import { Convolutions, usesTensorCores } from "./convolution.js";
import { depthwiseWorkspace, isDepthwiseKernel } from "./depthwise.js";
import { cudaLibraries } from "./driver.js";
import { FourierTransforms } from "./fourier.js";
import { RecordedRuns } from "./graphs.js";
import { type TransferRates, transferRates } from "./inspect.js";
import { Launcher } from "./launch.js";
import { joinNccl } from "./nccl-join.js";
import { type GpuReadings, readGpu } from "./nvml.js";
import { Products } from "./products.js";
import { type Addresses, CudaProgram, writeCudaSource } from "./program.js";
import { cudaScheduleOptions } from "./source.js";

export { canFuse } from "./attention.js";
export { cudaLibraries, type LibraryName, type LibraryPaths } from "./driver.js";
export { libraryVersions } from "./inspect.js";

/** Options of {@link CudaDevice}. @inline */
interface CudaOptions {
  /** Products of float32 matrices where the program does not say (see weft.setPrecision): exact by default. */
  precision?: Precision;
  /** Record calls into CUDA graphs (default) or launch every kernel. */
  graphs?: boolean;
}

/** Number of GPUs that this process sees; 0 without a driver. */
export function gpuCount(): number {
  const libraries = cudaLibraries();
  const count = new Int32Array(1);
  return libraries !== null && libraries.driver.cuInit(0) === 0 && libraries.driver.cuDeviceGetCount(count) === 0
    ? count[0]
    : 0;
}

/** Events before this one belong to transfers. */
const firstPieceEvent = 2;

/** An NVIDIA GPU, by generated CUDA kernels and the CUDA libraries. */
export class CudaDevice implements Device {
  readonly name: string;
  readonly traits: DeviceTraits;
  /** Context of the driver. */
  readonly context: CudaContext;
  timing = false;
  #scratch: CudaBuffer | null = null;
  readonly #launcher: Launcher;
  /** Matrix products and their chosen algorithms. */
  readonly products: Products;
  /** Plans of Fourier transforms. */
  readonly fourier: FourierTransforms;
  #convolutions: Convolutions | null | undefined;
  readonly #precision: Precision;
  readonly #graphs: boolean;
  /** Number of calls that were one launch of a recorded graph. */
  graphLaunches = 0;

  constructor(ordinal = 0, options: CudaOptions = {}) {
    checkOptions("cuda", options, ["precision", "graphs"]);
    this.context = new CudaContext(ordinal);
    this.name = `cuda:${ordinal}`;
    this.#launcher = new Launcher(this.context);
    this.products = new Products(this.context);
    this.fourier = new FourierTransforms(this.context);
    this.#precision = options.precision ?? "float32";
    this.#graphs = options.graphs ?? settings.cudaGraphs.get();
    const { architecture, sharedBytes } = this.context;
    this.traits = {
      ...hostTraits,
      asynchronous: true,
      hostMemory: false,
      usesHostCores: false,
      warpSize: 32,
      onChipBytes: sharedBytes,
      accelerator: this.context.facts,
      attention: { sharedBytes, major: Math.floor(Number(architecture.slice(3)) / 10), precision: this.#precision },
      reducedPrecisions: ["tf32", "bfloat16"],
    };
  }

  /** Convolutions by cuDNN, which is loaded when the first program has one; null without it. */
  get convolutions(): Convolutions | null {
    if (this.#convolutions === undefined) this.#convolutions = Convolutions.make(this.context, this.#precision);
    return this.#convolutions;
  }

  /** True where a driver and at least one GPU are found. */
  static available(): boolean {
    return gpuCount() > 0;
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
    this.context.transfers.upload(buffer as CudaBuffer, from);
  }
  download(buffer: DeviceBuffer, into: Uint8Array): void {
    this.context.transfers.download(buffer as CudaBuffer, into);
  }
  fetch(buffer: DeviceBuffer): ArrayBuffer | null {
    return this.context.transfers.fetch(buffer as CudaBuffer);
  }
  fetchAsync(buffer: DeviceBuffer, into?: Uint8Array): Promise<ArrayBuffer> | null {
    return into !== undefined ? null : this.context.transfers.fetchAsync(buffer as CudaBuffer);
  }
  resize(buffer: DeviceBuffer, bytes: number): DeviceBuffer {
    const resized = this.context.allocate(bytes);
    this.context.transfers.copyPart(buffer as CudaBuffer, resized);
    return resized;
  }
  /** A copy on another GPU; null where the other device is not a GPU. */
  copyTo(buffer: DeviceBuffer, peer: Device): DeviceBuffer | null {
    return peer instanceof CudaDevice ? this.context.transfers.copyToPeer(buffer as CudaBuffer, peer.context) : null;
  }
  /** A collection takes milliseconds, and the memory that it saves is the GPU's: a sixteenth of that may wait. */
  get pressureBytes(): number {
    return this.context.totalBytes / 16;
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
  utilization(): number | null {
    return this.readings()?.gpuUtilization ?? null;
  }
  joinGroup(host: ProcessGroup): ProcessGroup {
    return joinNccl(this, host);
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

  #plan(fn: GraphFn, options: CompileOptions): Schedule {
    const { convolutions } = this;
    return scheduleFunction(fn, {
      ...cudaScheduleOptions,
      conv: {
        supports: (node) => convolutions?.supports(node) ?? false,
        widensHalf: () => false,
        symmetric: true,
        loopsDepthwise: true,
        hasDepthwise: isDepthwiseKernel,
        prefersLast: (node) => usesTensorCores(node, this.#precision),
      },
      workspace: (node) => this.#workspace(node),
      donated: options.donated,
      lanes: { ...cudaScheduleOptions.lanes, constants: options.constants ?? new Map() },
    });
  }

  /** Bytes of scratch memory that a library call needs. */
  #workspace(node: Node): number {
    if (isOp(node, "conv"))
      return isDepthwiseKernel(node) ? depthwiseWorkspace(node) : this.convolutions!.workspaceBytes(node);
    if (!isOp(node, "fft")) return cudaScheduleOptions.workspace!(node);
    this.fourier.prepare(node);
    return 0;
  }

  #program(plan: Schedule): CudaProgram {
    this.context.enter();
    return new CudaProgram(this.context, this.#launcher, this, plan, this.#precision);
  }

  supportsCustomKernel(node: Node<"custom">): boolean {
    return canFuse(node, this.traits.attention!);
  }

  source(fn: GraphFn, options: CompileOptions): string {
    return writeCudaSource(this.#plan(fn, options), this.context, this.#precision).source;
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    const held = this.fourier.hold(() => this.#plan(fn, options));
    const plan = held.made;
    const program = this.#program(plan);
    const outputBytes = plan.fn.outputs.map((o) => numel(o.shape) * bytesOf(o.dtype));
    const { scratchBytes, aliases } = plan;
    const inputBytes = plan.fn.params.map((p) => numel(p.shape) * bytesOf(p.dtype));
    const { context } = this;
    const recorded = new RecordedRuns(context, program, { inputs: inputBytes, outputs: outputBytes, aliases });
    const name = `weft: ${program.kernels.length} kernels, ${program.kernels[0]?.name ?? "nothing"} ...`;

    const lifetime = new Lifetime(() =>
      context.retire(() => {
        recorded.release();
        program.release();
        held.release();
      }),
    );

    const deliver = (addresses: Addresses, output: CudaBuffer): void => {
      const list: BufferPiece[] = [];
      const issue = program.issueInPieces(addresses);
      const more = (): boolean => {
        const { value: bytes, done } = issue.next();
        if (done) return false;
        const event = context.event(firstPieceEvent + list.length);
        context.record(event);
        list.push({ bytes, event });
        return true;
      };
      more();
      output.pieces = { epoch: context.epoch, list, more };
      context.defer(output.pieces);
    };

    const launch = (addresses: Addresses, outputs: readonly CudaBuffer[], wanted: boolean): void => {
      if (this.timing) {
        lastTimes = context.measure(program.kernels.length, (mark) => program.issue(addresses, mark));
      } else if (wanted && program.deliversInPieces) {
        deliver(addresses, outputs[0]);
      } else if (!this.#graphs || program.usesHost) {
        program.issue(addresses);
      } else {
        const before = recorded.launches;
        recorded.run(addresses);
        this.graphLaunches += recorded.launches - before;
      }
    };

    const run = (buffers: readonly DeviceBuffer[], wanted = false): DeviceBuffer[] => {
      lifetime.check();
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
      release: () => lifetime.release(),
      get lastTimes() {
        return lastTimes;
      },
    };
  }
}
