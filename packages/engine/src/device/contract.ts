// What a device is: memory, transfers, and compiled functions. Small on purpose; everything above the devices speaks
// only this, and the reference device shows how little it takes.
import { type GraphFn, WeftError } from "../graph/index.js";
import type { Value } from "../ops/index.js";

/** Memory on a device. Opaque: each device has its own kind. */
export interface DeviceBuffer {
  readonly bytes: number;
}

/** One thing that a device does when a compiled function runs: a generated kernel or a library call. */
export interface KernelInfo {
  name: string;
  /** "kernel" for generated code, "library" for BLAS, LAPACK and the like, "loop" for a scan. */
  kind: "kernel" | "library" | "loop";
  /** Arithmetic and memory traffic of one call, at least. */
  flops: number;
  bytes: number;
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
  run(inputs: readonly DeviceBuffer[]): DeviceBuffer[];
}

export interface DeviceMemory {
  /** In buffers that somebody holds, in the pool for reuse, and the largest sum of buffers so far. */
  usedBytes: number;
  pooledBytes: number;
  peakBytes: number;
  /** What the device has in all. */
  totalBytes: number;
}

export interface Device {
  readonly name: string;
  readonly kind: "reference" | "cpu" | "cuda" | "simulated";
  /** Whether runs measure each kernel (see Executable.lastTimes). Devices that cannot, ignore it. */
  timing?: boolean;
  allocate(bytes: number): DeviceBuffer;
  free(buffer: DeviceBuffer): void;
  upload(buffer: DeviceBuffer, from: Uint8Array): void;
  download(buffer: DeviceBuffer, into: Uint8Array): void;
  compile(fn: GraphFn, options: CompileOptions): Executable;
  /** The source that the device would compile for a function, for debug output; devices without one leave it out. */
  source?(fn: GraphFn, options: CompileOptions): string;
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
