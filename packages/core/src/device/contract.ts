// What a device is: memory, transfers, and compiled functions. Small on purpose; everything above the devices speaks
// only this, and the reference device shows how little it takes.

import type { KernelWork } from "../cost/index.js";
import { type GraphFn, type Node, type OpAttrs, type Precision, type Shape, WeftError } from "../graph/index.js";
import type { Value } from "../ops/index.js";
import type { Placement } from "../shard/index.js";

/** Memory on a device. Opaque: each device has its own kind. */
export interface DeviceBuffer {
  readonly bytes: number;
}

/** One thing that a device does when a compiled function runs: a generated kernel or a library call. */
export interface KernelInfo {
  name: string;
  /** "kernel" for generated code, "library" for BLAS, LAPACK and the like, "loop" for a scan, "collective" for data from other devices. */
  kind: "kernel" | "library" | "loop" | "collective";
  /** Arithmetic and memory traffic of one call, at least. */
  flops: number;
  bytes: number;
  /** The same in the terms of measured rates, where the device counts it: what a prediction is made of. */
  work?: KernelWork;
}

/**
 * Processes that run one program on several devices and exchange data. All members issue their collectives in one order;
 * what one reduces, all get with the same bits. A member that is gone, hangs or runs another program is an error on all.
 */
export interface ProcessGroup {
  readonly kind: "local" | "shm" | "mpi" | "nccl";
  readonly rank: number;
  readonly size: number;
  /**
   * For programs that run in C: the address of `int weft_collective(void* group, const int64_t* descriptor, const void*
   * in, void* out, int phase)` and of the group (see group/descriptor.ts). Phase 0 is the whole collective, 1 starts it,
   * 2 finishes the oldest one that was started; not 0 is an error, which `failure` puts into words.
   */
  readonly native: { call: bigint; group: bigint } | null;
  /** The error behind a number that the native entry gave. */
  failure(code: number): WeftError;
  /** One collective on host memory; blocks. `operand` is the shape of the input. */
  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void;
  barrier(): void;
  close(): void;
}

export interface CompileOptions {
  /** Parameters whose memory the call may reuse for its results. */
  donated?: readonly boolean[];
  /** Parameters that have the same value in every call, by position: the compiler may use what it sees in them. */
  known?: ReadonlyMap<number, Value>;
}

export interface Executable {
  readonly kernels: readonly KernelInfo[];
  /** Memory for intermediate results that a call needs. */
  readonly scratchBytes: number;
  /** Result index -> parameter index whose (donated) memory it takes over. */
  readonly aliases: ReadonlyMap<number, number>;
  /** Seconds that each kernel took in the last call, when the device was asked to time them. */
  readonly lastTimes?: Float64Array;
  /** `wanted`: the results are fetched next, so a device may deliver large ones piece by piece. */
  run(inputs: readonly DeviceBuffer[], wanted?: boolean): DeviceBuffer[];
  /**
   * Unloads the code and frees the memory that the executable owns. Calls that are still running on the device finish
   * first. A second call does nothing; `run` throws afterwards. `kernels` stays readable.
   */
  release(): void;
}

/** Memory of a device. */
export interface DeviceMemory {
  /** In buffers that somebody holds, in the pool for reuse, and the largest sum of buffers so far. */
  usedBytes: number;
  pooledBytes: number;
  peakBytes: number;
  /** What the device has in all. */
  totalBytes: number;
}

/** Names that a device's profiler shows around what happens between a push and its pop. */
export interface NamedRanges {
  push(name: string): void;
  pop(): void;
}

/** Facts about a device that programs above it may depend on. What is no fact about the hardware does not belong here. */
export interface DeviceTraits {
  /** Calls return before the device has finished; reading a value waits for it. */
  readonly asynchronous: boolean;
  /** Programs run in other processes, which time themselves; values arrive as messages. */
  readonly remote: boolean;
  /** Buffers lie in memory of this process, at the `address` of each. */
  readonly hostMemory: boolean;
  /** Computes on the cores of this host, so that its kernels and the program compete for them. */
  readonly usesHostCores: boolean;
  /** Its rates depend on what neighbors on the same host do meanwhile: calibration measures them together. */
  readonly sharesHost: boolean;
  /** Number of devices that it stands for. */
  readonly devices: number;
  /** Host threads that it computes with; 1 where the work happens elsewhere. */
  readonly threads: number;
  /** Threads of one SIMD group; 1 where kernels are not written for one. */
  readonly warpSize: number;
  /** On-chip memory that one group of threads shares, in bytes; 0 where there is none to manage. */
  readonly onChipBytes: number;
  /** What its fused attention kernels support; null where it has none. */
  readonly attention: AttentionSupport | null;
  /** Hardware of an accelerator, from which the planner assumes rates before they are measured; null on hosts. */
  readonly accelerator: AcceleratorFacts | null;
  /** Reduced precisions whose products are faster than float32 ones. */
  readonly reducedPrecisions: readonly Precision[];
}

/** Traits of a device that computes in this process, on memory of this process. */
export const hostTraits: DeviceTraits = {
  asynchronous: false,
  remote: false,
  hostMemory: true,
  usesHostCores: true,
  sharesHost: false,
  devices: 1,
  threads: 1,
  warpSize: 1,
  onChipBytes: 0,
  attention: null,
  accelerator: null,
  reducedPrecisions: [],
};

/** Hardware properties of an accelerator; null where the driver does not report them. */
export interface AcceleratorFacts {
  /** Compute capability, e.g. "9.0". */
  capability: string;
  multiprocessors: number;
  clockHz: number | null;
  /** Peak memory bandwidth in bytes per second. */
  memoryBandwidth: number | null;
}

/** Limits of fused attention kernels on a device. */
export interface AttentionSupport {
  /** Shared memory that one block may use, in bytes. */
  sharedBytes: number;
  /** Major number of the compute capability. */
  major: number;
  /** Precision of float32 products where the program does not say. */
  precision: Precision;
}

/** A device: allocates buffers, copies data, and compiles graphs to executables. */
export interface Device {
  readonly name: string;
  readonly traits: DeviceTraits;
  /** Whether runs measure each kernel (see Executable.lastTimes). Devices that cannot, ignore it. */
  timing?: boolean;
  /** The processes that this device works together with, for the collectives of its functions. */
  group?: ProcessGroup | null;
  allocate(bytes: number): DeviceBuffer;
  free(buffer: DeviceBuffer): void;
  upload(buffer: DeviceBuffer, from: Uint8Array): void;
  download(buffer: DeviceBuffer, into: Uint8Array): void;
  /** The bytes without waiting for anything, or null where they are not at hand; devices that never wait leave it out. */
  peek?(buffer: DeviceBuffer): Uint8Array | null;
  /**
   * The bytes of a buffer in memory of the device's choosing, where that is faster than `download`; it belongs to the
   * caller. Null: use `download`.
   */
  fetch?(buffer: DeviceBuffer): ArrayBuffer | null;
  /**
   * The same without holding up the event loop; the buffer may be freed meanwhile. `into`: memory of the caller that takes the
   * bytes instead. Null: use `fetch` or `download`.
   */
  fetchAsync?(buffer: DeviceBuffer, into?: Uint8Array): Promise<ArrayBuffer> | null;
  /** A copy on another device of this kind without the host in between; null where that is not possible. */
  copyTo?(buffer: DeviceBuffer, peer: Device): DeviceBuffer | null;
  /** Bytes of tensors that may pile up before unreachable ones are looked for, where the usual 1 GiB is too careful. */
  readonly pressureBytes?: number;
  /** How often new buffers came from the system and from freed buffers; devices without a pool leave it out. */
  readonly allocations?: { readonly fresh: number; readonly reused: number };
  /** Share of time in which the device computed recently, from the vendor's counters; null where they do not say. */
  utilization?(): number | null;
  /**
   * The group to use for this device's collectives: one over the vendor's library where every member of `host` can join it,
   * `host` itself otherwise. All members call it. Devices without such a library leave it out.
   */
  joinGroup?(host: ProcessGroup): ProcessGroup;
  /** Set while a profiler of the device's vendor listens. */
  readonly ranges?: NamedRanges | null;
  /** Why the device can be used no more: a fault killed it, or it was closed. Null while it works. */
  readonly lost?: string | null;
  /** Gives up everything that the device holds. */
  close?(): void;
  compile(fn: GraphFn, options: CompileOptions): Executable;
  /** Whether the device has a kernel for a whole custom function; its body is inlined otherwise. */
  supportsCustomKernel?(node: Node<"custom">, usesOutput: (index: number) => boolean): boolean;
  /** The source that the device would compile for a function, for debug output; devices without one leave it out. */
  source?(fn: GraphFn, options: CompileOptions): string;
  /** Who holds what of a buffer, on devices that are made of several; the shape is that of the whole tensor. */
  placement?(buffer: DeviceBuffer): Placement | null;
  synchronize(): void;
  memory(): DeviceMemory;
  /** Gives pooled memory back to the system. */
  trim(): void;
}

/** The device has no memory left; the runtime frees what it can and tries once more. */
export class OutOfMemoryError extends WeftError {
  override name = "OutOfMemoryError";
  readonly requested: number;
  constructor(message: string, requested: number) {
    super(message);
    this.requested = requested;
  }
}
