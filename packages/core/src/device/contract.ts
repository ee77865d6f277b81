// The contract of a device: memory, transfers and compiled functions. Layers above the devices use nothing else; the
// reference device is a minimal implementation.

import type { KernelWork } from "../cost/index.js";
import { type GraphFn, type Node, type OpAttrs, type Precision, type Shape, WeftError } from "../graph/index.js";
import type { Value } from "../ops/index.js";
import type { Placement } from "../shard/index.js";

/** Memory on a device. Opaque: each device has its own class of buffers. */
export interface DeviceBuffer {
  /** Size in bytes. */
  readonly bytes: number;
}

/** One step of a compiled function: a generated kernel or a library call. */
export interface KernelInfo {
  /** Name of the kernel in the generated source. */
  name: string;
  /** "kernel" for generated code, "library" for BLAS, LAPACK and the like, "loop" for a scan, "collective" for data from other devices. */
  kind: "kernel" | "library" | "loop" | "collective";
  /** Lower bounds of the arithmetic and memory traffic of one call. */
  flops: number;
  /** Bytes that the kernel reads and writes. */
  bytes: number;
  /** The work in terms of measured rates, for predictions; undefined if the device does not count it. */
  work?: KernelWork;
}

/**
 * Processes that run one program on several devices and exchange data. All members issue their collectives in the same order,
 * and reductions give the same bits on all of them. A member that died, hangs or runs another program is an error on every member.
 */
export interface ProcessGroup {
  /** The transport of the group. */
  readonly kind: "local" | "shm" | "mpi" | "links" | "nccl";
  /** The number of this process, from 0. */
  readonly rank: number;
  /** The number of processes. */
  readonly size: number;
  /**
   * For programs that run in C: the address of `int weft_collective(void* group, const int64_t* descriptor, const void*
   * in, void* out, int phase)` and of the group (see group/descriptor.ts). Phase 0 is the whole collective, 1 starts it,
   * 2 finishes the oldest one that was started; any result but 0 is an error code for `failure`.
   */
  readonly native: { call: bigint; group: bigint } | null;
  /** The error for an error code of the native entry. */
  failure(code: number): WeftError;
  /** One collective on host memory; blocks. `operand` is the shape of the input. */
  collective(attrs: OpAttrs["collective"], input: Uint8Array, output: Uint8Array, operand: Shape): void;
  /** Blocks until every member has called it. */
  barrier(): void;
  /** Leaves the group and frees its resources. */
  close(): void;
}

export interface CompileOptions {
  /** Parameters whose memory the call may reuse for its results. */
  donated?: readonly boolean[];
  /** Values of parameters that are the same in every call, by position; the compiler may specialize on them. */
  constants?: ReadonlyMap<number, Value>;
  /** The program may run only a few times, so that the device may interpret it instead of compiling it. */
  eager?: boolean;
  /** Ends `compileAsync` when nobody needs the result any more. */
  signal?: AbortSignal;
}

export interface Executable {
  /** Kernels and library calls of the program, in order. */
  readonly kernels: readonly KernelInfo[];
  /** Memory for intermediate results that a call needs. */
  readonly scratchBytes: number;
  /** Result index -> parameter index whose (donated) memory it takes over. */
  readonly aliases: ReadonlyMap<number, number>;
  /** Seconds that each kernel took in the last call, if `Device.timing` was set. */
  readonly lastTimes?: Float64Array;
  /** Whether a call takes so long that it should not block the event loop; undefined if the device computes asynchronously. */
  readonly isLong?: boolean;
  /** `wanted`: the results are read next, so that the device may deliver large ones in pieces. */
  run(inputs: readonly DeviceBuffer[], wanted?: boolean): DeviceBuffer[];
  /**
   * The same without blocking the event loop; the caller keeps the inputs until the promise is settled. Throws at once if there is
   * no memory. Null: use `run`, because the call must stay on this thread.
   */
  runAsync?(inputs: readonly DeviceBuffer[]): Promise<DeviceBuffer[]> | null;
  /**
   * Unloads the code and frees the memory that the executable owns. Calls that are still running on the device finish
   * first. A second call does nothing; `run` throws afterwards. `kernels` stays readable.
   */
  release(): void;
}

/** Memory that a program needs besides its arguments. */
export type ProgramMemory = Pick<Executable, "scratchBytes" | "aliases">;

/** Memory of a device. */
export interface DeviceMemory {
  /** Bytes in live buffers. */
  usedBytes: number;
  /** Bytes of freed buffers that are held for reuse. */
  pooledBytes: number;
  /** The largest number of live bytes so far. */
  peakBytes: number;
  /** Capacity of the device. */
  totalBytes: number;
}

/** Named ranges for the profiler of the device's vendor. */
export interface NamedRanges {
  /** Opens a range of this name on the profiler's timeline. */
  push(name: string): void;
  /** Closes the range that was opened last. */
  pop(): void;
}

/** Properties of the hardware that layers above the device may depend on. */
export interface DeviceTraits {
  /** Calls return before the device has finished; reading a value waits for it. */
  readonly asynchronous: boolean;
  /** Programs run and are timed in other processes; values arrive as messages. */
  readonly remote: boolean;
  /** Buffers are host memory of this process, at their `address`. */
  readonly hostMemory: boolean;
  /** Kernels run on the cores of this host and compete with the program for them. */
  readonly usesHostCores: boolean;
  /** Its rates depend on the other devices of the same host, so that calibration measures them at the same time. */
  readonly sharesHost: boolean;
  /** Number of devices that it represents. */
  readonly devices: number;
  /** Number of host threads that it computes with; 1 if it does not compute on the host. */
  readonly threads: number;
  /** Threads per SIMD group (warp); 1 if kernels do not depend on it. */
  readonly warpSize: number;
  /** On-chip memory that the threads of a block share, in bytes; 0 without one. */
  readonly onChipBytes: number;
  /** Limits of its fused attention kernels; null without such kernels. */
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
  /** Number of multiprocessors. */
  multiprocessors: number;
  /** Clock of the multiprocessors; null if the driver does not say. */
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
  /** Default precision of float32 matrix products. */
  precision: Precision;
}

/** A device: allocates buffers, copies data, and compiles graphs to executables. */
export interface Device {
  /** The name that selects the device, such as `cpu` or `cuda:0`. */
  readonly name: string;
  /** Properties that other layers consult instead of the kind of device. */
  readonly traits: DeviceTraits;
  /** Whether runs time each kernel (see Executable.lastTimes). Devices without timers ignore it. */
  timing?: boolean;
  /** The process group of the collectives in its functions. */
  group?: ProcessGroup | null;
  /** Allocates a buffer; throws {@link OutOfMemoryError} if there is no memory. */
  allocate(bytes: number): DeviceBuffer;
  /** Frees a buffer, for reuse by later allocations. */
  free(buffer: DeviceBuffer): void;
  /** Copies bytes of the host into a buffer. */
  upload(buffer: DeviceBuffer, from: Uint8Array): void;
  /** Copies the bytes of a buffer to the host; waits for the work that writes it. */
  download(buffer: DeviceBuffer, into: Uint8Array): void;
  /** The bytes if they are available without waiting, otherwise null. Synchronous devices omit it. */
  peek?(buffer: DeviceBuffer): Uint8Array | null;
  /**
   * The bytes of a buffer in memory that the device allocates for the caller, if that is faster than `download`; otherwise
   * null.
   */
  fetch?(buffer: DeviceBuffer): ArrayBuffer | null;
  /**
   * The same without blocking the event loop; the buffer may be freed before the copy ends. `into`: memory of the caller for the
   * bytes. Null: use `fetch` or `download`.
   */
  fetchAsync?(buffer: DeviceBuffer, into?: Uint8Array): Promise<ArrayBuffer> | null;
  /** Copies a buffer directly to another device of this kind; null if that is not possible. */
  copyTo?(buffer: DeviceBuffer, peer: Device): DeviceBuffer | null;
  /**
   * A new buffer with the first bytes of another one, and zeros behind them. Devices whose buffers do not lie in one piece of
   * memory omit it.
   */
  resize?(buffer: DeviceBuffer, bytes: number): DeviceBuffer;
  /** Bytes of tensors after which the runtime collects unreachable ones; 1 GiB if undefined. */
  readonly pressureBytes?: number;
  /** Number of allocations from the system and from the pool. Devices without a pool omit it. */
  readonly allocations?: { readonly fresh: number; readonly reused: number };
  /** Recent utilization of the device in percent, from the vendor's counters; null if they do not report it. */
  utilization?(): number | null;
  /**
   * The group for the collectives of this device: one over the vendor's library if every member of `host` can join it,
   * otherwise `host`. All members call it. Devices without such a library omit it.
   */
  joinGroup?(host: ProcessGroup): ProcessGroup;
  /** Set while a profiler of the device's vendor is attached. */
  readonly ranges?: NamedRanges | null;
  /** Why the device is unusable (a fault, or it was closed); null while it works. */
  readonly lost?: string | null;
  /** Devices whose calls cannot be stopped omit it. */
  readonly interruption?: Interruption;
  /** Releases all resources of the device. */
  close?(): void;
  /** Compiles a graph. The caller releases the executable. */
  compile(fn: GraphFn, options: CompileOptions): Executable;
  /** The same without blocking the event loop while a compiler runs. Devices that compile quickly omit it. */
  compileAsync?(fn: GraphFn, options: CompileOptions): Promise<Executable>;
  /** Memory that the program of a graph would need, without compiling it. Where it is missing, `compile` says it. */
  programMemory?(fn: GraphFn, options: CompileOptions): ProgramMemory;
  /** Whether `compile` needs no compiler for a graph, and its program does not run long. */
  compilesAtOnce?(fn: GraphFn, options: CompileOptions): boolean;
  /** Whether the device has a kernel for a whole custom function; its body is inlined otherwise. */
  supportsCustomKernel?(node: Node<"custom">): boolean;
  /** The generated source of a function, for debug output. Devices that generate none omit it. */
  source?(fn: GraphFn, options: CompileOptions): string;
  /** The placement of a buffer on a device that represents several; the shape is that of the whole tensor. */
  placement?(buffer: DeviceBuffer): Placement | null;
  /** Waits for all work of the device. */
  synchronize(): void;
  /** The memory that the device uses now. */
  memory(): DeviceMemory;
  /** Returns pooled memory to the system. */
  trim(): void;
}

/** A call was stopped before its end (see {@link Interruption}). */
export class StoppedError extends WeftError {
  override name = "StoppedError";
  constructor() {
    super("the call was stopped before its end");
  }
}

/**
 * How other threads of this process stop a call: every call gets a number, and a call whose number is written behind it ends
 * with a {@link StoppedError} at its next loop step, or slice of a kernel. Calls into libraries are not interrupted.
 */
export interface Interruption {
  /** Address of two 32-bit integers: the number of the call that runs, and of the one that is to end. */
  readonly address: number;
  /** Sets the number of the calls that follow; never -1. */
  begin(call: number): void;
}

/** The device is out of memory. The runtime frees what it can and retries once. */
export class OutOfMemoryError extends WeftError {
  override name = "OutOfMemoryError";
  /** Bytes of the allocation that failed. */
  readonly requested: number;
  constructor(message: string, requested: number) {
    super(message);
    this.requested = requested;
  }
}
