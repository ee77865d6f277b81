// One GPU as this process uses it: its context, a stream for work and one for copies, the pool of device memory, pinned
// host memory, cuBLAS. Knows buffers and addresses, not graphs. After a fault, every call reports that the context is unusable.
import { totalmem } from "node:os";
import { WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import {
  type AcceleratorFacts,
  type DeviceBuffer,
  type NamedRanges,
  OutOfMemoryError,
  type ProcessGroup,
} from "../contract.js";
import {
  CudaError,
  type CudaLibraries,
  cText,
  cudaLibraries,
  type Driver,
  deadly,
  failure,
  result32,
  result64,
} from "./driver.js";
import { type HostBlock, HostPool, permanentBlock, type Registrar } from "./host-memory.js";
import { describeProcesses } from "./nvml.js";
import { namedRanges } from "./nvtx.js";
import { Transfers } from "./transfers.js";

/** A part of a buffer that is ready when an event has happened. Parts follow each other from the buffer's start. */
export interface BufferPiece {
  bytes: number;
  event: number;
}

/** The pieces of a buffer that were issued so far; `more` issues the next one and says whether there was one. */
interface Pieces {
  epoch: number;
  list: BufferPiece[];
  more: () => boolean;
}

export class CudaBuffer implements DeviceBuffer {
  /** Set by a run that delivers its result in pieces; good until the next run. */
  pieces: Pieces | null = null;
  constructor(
    readonly address: number,
    readonly bytes: number,
  ) {}
}

/** Rounds a buffer size up, so that freed buffers can be reused. */
function bucket(bytes: number): number {
  if (bytes <= smallBuffer) return Math.max(512, 2 ** Math.ceil(Math.log2(bytes)));
  const step = Math.max(512, 2 ** (Math.ceil(Math.log2(bytes)) - 3));
  return Math.ceil(bytes / step) * step;
}

/** Numbers of CUdevice_attribute. Clocks are in kHz, the bus width in bits. */
const attribute = {
  clockRate: 13,
  multiprocessors: 16,
  memoryClockRate: 36,
  memoryBusWidth: 37,
  major: 75,
  minor: 76,
  sharedBytes: 97,
};
const workspaceBytes = 32 << 20;
/** Buffers up to this size are cut from slabs: asking the driver for each takes longer than what is done with them. */
const smallBuffer = 4096;
const slabBytes = 1 << 20;
const oldestDriver = 11000;
export const noMemory = 2;

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toFixed(2)} GB`;

/** The current context of this thread. */
let current: CudaContext | null = null;
/** Contexts that work. Those of one GPU share the driver's context, so they also end together. */
const living = new Set<CudaContext>();

/** Executables that wait to be freed before the stream is synchronized for them. */
const maxRetired = 32;

export class CudaContext {
  readonly libraries: CudaLibraries;
  readonly name: string;
  readonly architecture: string;
  readonly multiprocessors: number;
  readonly facts: AcceleratorFacts;
  /** Shared memory that a block may ask for. */
  readonly sharedBytes: number;
  readonly totalBytes: number;
  readonly driverVersion: number;
  readonly busId: string;
  readonly stream: number;
  /** The process group of the collectives. */
  group: ProcessGroup | null = null;
  /** Downloads that need not wait for later work. */
  readonly copyStream: number;
  readonly handle: number;
  /** The driver's number of the GPU. */
  readonly device: number;
  readonly transfers: Transfers;
  readonly driver: Driver;
  readonly hostPool: HostPool;
  /** Counts runs: what was noted about a buffer in an earlier one does not hold. */
  epoch = 0;
  readonly ranges: NamedRanges | null;
  /** Whether work is being recorded into a graph instead of run. */
  capturing = false;
  /** Why the device is unusable; null while it works. */
  lost: string | null = null;
  readonly #pool = new Map<number, number[]>();
  #used = 0;
  #pooled = 0;
  #peak = 0;
  #blas: { handle: number; scalars: number } | null = null;
  #workspace: CudaBuffer | null = null;

  constructor(readonly ordinal: number) {
    const libraries = cudaLibraries();
    if (libraries === null)
      throw new WeftError(
        "cuda: the NVIDIA driver (libcuda.so.1) was not found; is there a GPU, and is its driver installed?",
      );
    this.libraries = libraries;
    const { driver } = libraries;
    this.driver = driver;
    this.driverVersion = result32("cuDriverGetVersion", (out) => driver.cuDriverGetVersion(out));
    if (this.driverVersion < oldestDriver)
      throw new WeftError(
        `cuda: the NVIDIA driver is too old: it supports CUDA ${versionText(this.driverVersion)}, and Weft needs ` +
          `${versionText(oldestDriver)} or newer; update the driver`,
      );
    this.check("cuInit", driver.cuInit(0));
    const count = result32("cuDeviceGetCount", (out) => driver.cuDeviceGetCount(out));
    if (!Number.isInteger(ordinal) || ordinal < 0 || ordinal >= count)
      throw new WeftError(
        `cuda: there is no device cuda:${ordinal}; this process sees ${count} (CUDA_VISIBLE_DEVICES=${process.env.CUDA_VISIBLE_DEVICES ?? "unset"})`,
      );
    this.device = result32("cuDeviceGet", (out) => driver.cuDeviceGet(out, ordinal));
    this.name = this.#text("cuDeviceGetName", (out) => driver.cuDeviceGetName(out, out.length, this.device));
    this.busId = this.#text("cuDeviceGetPCIBusId", (out) => driver.cuDeviceGetPCIBusId(out, out.length, this.device));
    const get = (what: number): number =>
      result32("cuDeviceGetAttribute", (out) => driver.cuDeviceGetAttribute(out, what, this.device));
    this.architecture = `sm_${get(attribute.major)}${get(attribute.minor)}`;
    this.multiprocessors = get(attribute.multiprocessors);
    // Two transfers per clock cycle (DDR).
    const bandwidth = (2 * get(attribute.memoryClockRate) * 1e3 * get(attribute.memoryBusWidth)) / 8;
    this.facts = {
      capability: `${get(attribute.major)}.${get(attribute.minor)}`,
      multiprocessors: this.multiprocessors,
      clockHz: get(attribute.clockRate) * 1e3 || null,
      memoryBandwidth: bandwidth || null,
    };
    this.sharedBytes = get(attribute.sharedBytes);
    this.totalBytes = result64("cuDeviceTotalMem", (out) => driver.cuDeviceTotalMem_v2(out, this.device));
    this.handle = this.#retain();
    this.enter();
    // Not blocking with the legacy stream: nothing else uses it.
    this.stream = result64("cuStreamCreate", (out) => driver.cuStreamCreate(out, 1));
    this.copyStream = result64("cuStreamCreate", (out) => driver.cuStreamCreate(out, 1));
    this.hostPool = new HostPool(this.registrar(), hostLimit());
    this.ranges = namedRanges(libraries);
    this.transfers = new Transfers(this);
    living.add(this);
  }

  #text(call: string, invoke: (out: Uint8Array) => number): string {
    const bytes = new Uint8Array(128);
    this.check(call, invoke(bytes));
    return cText(bytes);
  }

  #retain(): number {
    const { driver } = this;
    const out = new BigUint64Array(1);
    let code = driver.cuDevicePrimaryCtxRetain(out, this.device);
    if (deadly.has(code)) {
      // The context died earlier: a reset may give a new one.
      driver.cuDevicePrimaryCtxRelease_v2(this.device);
      driver.cuDevicePrimaryCtxReset_v2(this.device);
      code = driver.cuDevicePrimaryCtxRetain(out, this.device);
      if (deadly.has(code))
        throw new CudaError(
          `cuda:${this.ordinal}: a kernel fault earlier in this process (error ${code}) has ended its use of the GPU: this ` +
            "driver gives a fresh context only to a new process. Start one; other devices go on here",
          code,
        );
    }
    if (code === noMemory || code === 46)
      throw new CudaError(
        `cuda:${this.ordinal} (${this.name}) cannot be used: ${code === 46 ? "another process has it for itself alone" : "it has no memory left for this process"}` +
          `${describeProcesses(this.libraries, this.busId)}; wait for the others, or choose another GPU with CUDA_VISIBLE_DEVICES`,
        code,
      );
    this.check("cuDevicePrimaryCtxRetain", code);
    return Number(out[0]);
  }

  /** Registers host pages with this GPU. */
  registrar(): Registrar {
    return {
      register: (address, bytes) => this.driver.cuMemHostRegister_v2(address, bytes, 0) === 0,
      unregister: (address) => {
        if (this.lost === null) this.driver.cuMemHostUnregister(address);
      },
    };
  }

  #unfinished: Pieces | null = null;

  /** Pieces that whoever reads the buffer next will ask for one by one; everybody else finds them issued. */
  defer(pieces: Pieces): void {
    this.#unfinished = pieces;
  }

  /** The pieces of a buffer for a reader that asks for more of them by itself; null: it comes as a whole. */
  claim(buffer: CudaBuffer): Pieces | null {
    if (buffer.pieces?.epoch !== this.epoch) return null;
    if (this.#unfinished === buffer.pieces) this.#unfinished = null;
    return buffer.pieces;
  }

  /** Makes this context current for the calls that follow. */
  enter(): void {
    if (this.lost !== null) throw this.#gone();
    if (this.#unfinished !== null) {
      const { more } = this.#unfinished;
      this.#unfinished = null;
      while (more());
    }
    if (current === this) return;
    this.check("cuCtxSetCurrent", this.driver.cuCtxSetCurrent(this.handle));
    current = this;
  }

  /** Throws when a call failed; an error that kills the context is remembered. */
  check(call: string, code: number): void {
    if (code === 0) return;
    if (this.lost !== null) throw this.#gone();
    const error = failure(call, code);
    if (!deadly.has(code)) throw error;
    this.lost = error.message;
    if (current === this) current = null;
    throw this.#gone(code);
  }

  #gone(code = 0): CudaError {
    return new CudaError(
      `${this.lost}; the context of cuda:${this.ordinal} is dead, and every tensor on it is lost. ` +
        `weft.setDevice("cuda:${this.ordinal}") asks the driver for a fresh one (many drivers want a new process for that); ` +
        "compute or load the tensors again there",
      code,
    );
  }

  /** Releases everything on the GPU. Arrays of the user stay valid. */
  close(): void {
    if (!living.has(this)) return;
    for (const context of [...living]) if (context.device === this.device) context.#end();
    this.driver.cuDevicePrimaryCtxReset_v2(this.device);
  }

  #end(): void {
    this.lost ??= `cuda:${this.ordinal} was closed`;
    if (current === this) current = null;
    living.delete(this);
    this.hostPool.close();
    this.#retired.length = 0;
    this.#pool.clear();
    this.#used = 0;
    this.#pooled = 0;
  }

  allocate(bytes: number): CudaBuffer {
    const size = bucket(bytes);
    const pooled = this.#pool.get(size)?.pop();
    if (pooled !== undefined) {
      this.#pooled -= size;
      this.#track(bytes);
      return new CudaBuffer(pooled, bytes);
    }
    this.enter();
    const out = new BigUint64Array(1);
    const pieces = size <= smallBuffer ? slabBytes / size : 1;
    const code = this.driver.cuMemAlloc_v2(out, size * pieces);
    if (code === noMemory) throw this.#full(bytes);
    this.check("cuMemAlloc", code);
    this.#track(bytes);
    const address = Number(out[0]);
    if (pieces > 1) {
      const list = Array.from({ length: pieces - 1 }, (_, i) => address + (i + 1) * size);
      this.#pool.set(size, list);
      this.#pooled += size * list.length;
    }
    return new CudaBuffer(address, bytes);
  }

  #full(bytes: number): OutOfMemoryError {
    const { free, total } = this.memoryInfo();
    const mine = this.#used + this.#pooled;
    const others = Math.max(0, total - free - mine);
    // A context takes some hundred megabytes for itself; more than that is somebody else's.
    const taken =
      others > 1e9 ? `, ${gigabytes(others)} by others${describeProcesses(this.libraries, this.busId)}` : "";
    return new OutOfMemoryError(
      `cuda:${this.ordinal} (${this.name}): no memory for ${bytes} bytes (${gigabytes(bytes)}); of ${gigabytes(total)}, ` +
        `${gigabytes(this.#used)} are held by this process' tensors and programs${taken}; ` +
        `${gigabytes(free + this.#pooled)} are free: a tensor of up to ${Math.floor((free + this.#pooled) / 4e6)} million float32 would fit`,
      bytes,
    );
  }

  #track(bytes: number): void {
    this.#used += bytes;
    if (this.#used > this.#peak) this.#peak = this.#used;
  }

  /** Work on one stream is in order, so that freed memory can be reused at once. */
  free(buffer: CudaBuffer): void {
    if (this.lost !== null) return;
    const size = bucket(buffer.bytes);
    this.#used -= buffer.bytes;
    this.#pooled += size;
    const list = this.#pool.get(size);
    if (list === undefined) this.#pool.set(size, [buffer.address]);
    else list.push(buffer.address);
  }

  readonly #retired: (() => void)[] = [];

  /**
   * Frees resources of an executable once the stream has finished with them. Retired executables wait for each other, so
   * that one synchronization serves many.
   */
  retire(free: () => void): void {
    if (this.lost !== null) return;
    this.#retired.push(free);
    if (this.#retired.length >= maxRetired) this.#freeRetired();
  }

  #freeRetired(): void {
    if (this.#retired.length === 0) return;
    this.synchronize();
    for (const free of this.#retired.splice(0)) free();
  }

  trim(): void {
    if (this.lost !== null) return;
    this.synchronize();
    this.#freeRetired();
    for (const [size, list] of this.#pool) {
      // Small ones are parts of slabs, which stay.
      if (size <= smallBuffer) continue;
      for (const address of list) this.driver.cuMemFree_v2(address);
      this.#pooled -= size * list.length;
      this.#pool.delete(size);
    }
    this.hostPool.trim();
  }

  memoryInfo(): { free: number; total: number } {
    this.enter();
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    this.check("cuMemGetInfo", this.driver.cuMemGetInfo_v2(free, total));
    return { free: Number(free[0]), total: Number(total[0]) };
  }

  get usage(): { used: number; pooled: number; peak: number } {
    return { used: this.#used, pooled: this.#pooled, peak: this.#peak };
  }

  synchronize(): void {
    this.enter();
    this.check("cuStreamSynchronize", this.driver.cuStreamSynchronize(this.stream));
  }

  /** Host memory for arguments and constants; lives as long as the process. */
  hostBlock(bytes: number): HostBlock {
    const block = permanentBlock(bytes, null);
    if (block === null)
      throw new WeftError(
        `cuda: the host has no memory left for ${bytes} bytes; end other processes or use smaller batches`,
      );
    return block;
  }

  /** Scratch memory of the matrix libraries, which must not allocate while a graph is recorded. */
  workspace(): { address: number; bytes: number } {
    this.#workspace ??= this.allocate(workspaceBytes);
    return this.#workspace;
  }

  /** The version of cuBLASLt, for cache keys; 0 without it. */
  ltVersion(): number {
    return this.libraries.lt?.cublasLtGetVersion() ?? 0;
  }

  /** The cuBLAS handle of this stream, and the address of the constants one and zero in every dtype. */
  blas(): { handle: number; scalars: number } {
    if (this.#blas !== null) return this.#blas;
    const { blas } = this.libraries;
    if (blas === null)
      throw new WeftError(
        "cuda: cuBLAS (libcublas.so.13, .12 or .11) was not found, and matrix products need it; install the CUDA toolkit or `pip install nvidia-cublas`",
      );
    this.enter();
    const handle = result64("cublasCreate", (out) => blas.cublasCreate_v2(out));
    this.check("cublasSetStream", blas.cublasSetStream_v2(handle, this.stream));
    const { address, bytes } = this.workspace();
    this.check("cublasSetWorkspace", blas.cublasSetWorkspace_v2(handle, address, bytes));
    this.#blas = { handle, scalars: this.scalars() };
    return this.#blas;
  }

  #scalars: number | null = null;

  /** One and zero: float32 (and complex64) at 0 and 8, float64 (and complex128) at 64 and 80. */
  scalars(): number {
    if (this.#scalars === null) {
      const { address, view } = this.hostBlock(4096);
      new Float32Array(view.buffer, view.byteOffset, 4).set([1, 0, 0, 0]);
      new Float64Array(view.buffer, view.byteOffset + 64, 4).set([1, 0, 0, 0]);
      this.#scalars = address;
    }
    return this.#scalars;
  }

  readonly #events: number[] = [];

  newEvent(): number {
    return result64("cuEventCreate", (out) => this.driver.cuEventCreate(out, 0));
  }

  /** One of this context's events, by number; the first two are for transfers. */
  event(index: number): number {
    while (this.#events.length <= index) this.#events.push(this.newEvent());
    return this.#events[index];
  }

  /** Marks where the stream is now. */
  record(event: number): void {
    this.check("cuEventRecord", this.driver.cuEventRecord(event, this.stream));
  }

  /** Seconds between the marks that `body` sets on the stream. */
  measure(count: number, body: (mark: () => void) => void): Float64Array {
    const { driver } = this;
    this.enter();
    let next = 0;
    const mark = (): void => this.record(this.event(next++));
    mark();
    body(mark);
    this.synchronize();
    const times = new Float64Array(count);
    const out = new Float32Array(1);
    for (let i = 0; i + 1 < next; i++) {
      this.check("cuEventElapsedTime", driver.cuEventElapsedTime_v2(out, this.event(i), this.event(i + 1)));
      times[i] = out[0] / 1e3;
    }
    return times;
  }
}

/** Pinned memory is taken from the whole machine: an eighth of it at most, unless WEFT_PINNED_LIMIT says otherwise. */
function hostLimit(): number {
  return settings.pinnedLimit.get() ?? Math.min(8 * 2 ** 30, totalmem() / 8);
}

const versionText = (version: number): string => `${Math.floor(version / 1000)}.${Math.floor((version % 1000) / 10)}`;
