// One GPU as this process uses it: its context, one stream, pinned staging memory, the pool of device memory, cuBLAS.
import koffi from "koffi";
import { WeftError } from "../../graph/index.js";
import { type DeviceBuffer, OutOfMemoryError, type ProcessGroup } from "../contract.js";
import { CudaError, type CudaLibraries, check, cudaLibraries, result32, result64 } from "./driver.js";

export class CudaBuffer implements DeviceBuffer {
  constructor(
    readonly address: number,
    readonly bytes: number,
  ) {}
}

/** Sizes that buffers are rounded to, so that freed ones fit again. */
function bucket(bytes: number): number {
  if (bytes <= 512) return 512;
  const step = Math.max(512, 2 ** (Math.ceil(Math.log2(bytes)) - 3));
  return Math.ceil(bytes / step) * step;
}

const attribute = { multiprocessors: 16, major: 75, minor: 76 };
const stagingBytes = 32 << 20;
const workspaceBytes = 32 << 20;

export class CudaContext {
  readonly libraries: CudaLibraries;
  readonly name: string;
  readonly architecture: string;
  readonly multiprocessors: number;
  readonly totalBytes: number;
  readonly stream: number;
  /** The processes that this one works together with. */
  group: ProcessGroup | null = null;
  readonly #context: number;
  readonly #pool = new Map<number, number[]>();
  #used = 0;
  #pooled = 0;
  #peak = 0;
  #staging: { address: number; view: Uint8Array } | null = null;
  #blas: { handle: number; scalars: number } | null = null;

  constructor(readonly ordinal: number) {
    const libraries = cudaLibraries();
    if (libraries === null)
      throw new WeftError(
        "cuda: the NVIDIA driver (libcuda.so.1) was not found; is there a GPU, and is its driver installed?",
      );
    this.libraries = libraries;
    const { driver } = libraries;
    check("cuInit", driver.cuInit(0) as number);
    const count = result32("cuDeviceGetCount", (out) => driver.cuDeviceGetCount(out) as number);
    if (!Number.isInteger(ordinal) || ordinal < 0 || ordinal >= count)
      throw new WeftError(
        `cuda: there is no device cuda:${ordinal}; this process sees ${count} (CUDA_VISIBLE_DEVICES=${process.env.CUDA_VISIBLE_DEVICES ?? "unset"})`,
      );
    const device = result32("cuDeviceGet", (out) => driver.cuDeviceGet(out, ordinal) as number);
    const bytes = new Uint8Array(128);
    check("cuDeviceGetName", driver.cuDeviceGetName(bytes, 128, device) as number);
    this.name = Buffer.from(bytes).toString("utf8").replace(/\0.*$/s, "");
    const get = (what: number): number =>
      result32("cuDeviceGetAttribute", (out) => driver.cuDeviceGetAttribute(out, what, device) as number);
    this.architecture = `sm_${get(attribute.major)}${get(attribute.minor)}`;
    this.multiprocessors = get(attribute.multiprocessors);
    this.totalBytes = result64("cuDeviceTotalMem", (out) => driver.cuDeviceTotalMem_v2(out, device) as number);
    this.#context = result64(
      "cuDevicePrimaryCtxRetain",
      (out) => driver.cuDevicePrimaryCtxRetain(out, device) as number,
    );
    check("cuCtxSetCurrent", driver.cuCtxSetCurrent(this.#context) as number);
    // Not blocking with the legacy stream: nothing else uses it.
    this.stream = result64("cuStreamCreate", (out) => driver.cuStreamCreate(out, 1) as number);
  }

  allocate(bytes: number): CudaBuffer {
    const size = bucket(bytes);
    const pooled = this.#pool.get(size)?.pop();
    if (pooled !== undefined) {
      this.#pooled -= size;
      this.#track(bytes);
      return new CudaBuffer(pooled, bytes);
    }
    const out = new BigUint64Array(1);
    const code = this.libraries.driver.cuMemAlloc_v2(out, size) as number;
    if (code === 2) {
      const { free, total } = this.memoryInfo();
      throw new OutOfMemoryError(
        `cuda:${this.ordinal}: no memory for ${bytes} bytes (${free} of ${total} free on the device, ${this.#used} held by this process)`,
        bytes,
      );
    }
    check("cuMemAlloc", code);
    this.#track(bytes);
    return new CudaBuffer(Number(out[0]), bytes);
  }

  #track(bytes: number): void {
    this.#used += bytes;
    if (this.#used > this.#peak) this.#peak = this.#used;
  }

  /** Work on one stream is in order, so memory may be given out again at once. */
  free(buffer: CudaBuffer): void {
    const size = bucket(buffer.bytes);
    this.#used -= buffer.bytes;
    this.#pooled += size;
    const list = this.#pool.get(size);
    if (list === undefined) this.#pool.set(size, [buffer.address]);
    else list.push(buffer.address);
  }

  trim(): void {
    this.synchronize();
    for (const list of this.#pool.values()) for (const address of list) this.libraries.driver.cuMemFree_v2(address);
    this.#pool.clear();
    this.#pooled = 0;
  }

  memoryInfo(): { free: number; total: number } {
    const [free, total] = [new BigUint64Array(1), new BigUint64Array(1)];
    this.libraries.driver.cuMemGetInfo_v2(free, total);
    return { free: Number(free[0]), total: Number(total[0]) };
  }

  get usage(): { used: number; pooled: number; peak: number } {
    return { used: this.#used, pooled: this.#pooled, peak: this.#peak };
  }

  synchronize(): void {
    check("cuStreamSynchronize", this.libraries.driver.cuStreamSynchronize(this.stream) as number);
  }

  /** Pinned host memory and a view of it; allocated once and never freed while the process lives. */
  pinned(bytes: number): { address: number; view: Uint8Array } {
    const address = result64("cuMemHostAlloc", (out) => this.libraries.driver.cuMemHostAlloc(out, bytes, 0) as number);
    return { address, view: new Uint8Array(koffi.view(BigInt(address), bytes)) };
  }

  upload(buffer: CudaBuffer, from: Uint8Array): void {
    if (from.byteLength === 0) return;
    // Earlier work may still read what this memory held before.
    this.synchronize();
    check("cuMemcpyHtoD", this.libraries.driver.cuMemcpyHtoD_v2(buffer.address, from, from.byteLength) as number);
  }

  /** Through pinned memory in pieces: several times faster than into ordinary memory. */
  download(buffer: CudaBuffer, into: Uint8Array): void {
    this.#staging ??= this.pinned(stagingBytes);
    const { driver } = this.libraries;
    for (let at = 0; at < into.byteLength; at += stagingBytes) {
      const n = Math.min(stagingBytes, into.byteLength - at);
      check(
        "cuMemcpyDtoH",
        driver.cuMemcpyDtoHAsync_v2(this.#staging.address, buffer.address + at, n, this.stream) as number,
      );
      this.synchronize();
      into.set(this.#staging.view.subarray(0, n), at);
    }
  }

  /** The cuBLAS handle of this stream, and the address of the constants one and zero in every dtype. */
  blas(): { handle: number; scalars: number } {
    if (this.#blas !== null) return this.#blas;
    const { blas } = this.libraries;
    if (blas === null)
      throw new WeftError(
        "cuda: cuBLAS (libcublas.so.13, .12 or .11) was not found, and matrix products need it; install the CUDA toolkit or `pip install nvidia-cublas`",
      );
    const handle = result64("cublasCreate", (out) => blas.cublasCreate_v2(out) as number);
    check("cublasSetStream", blas.cublasSetStream_v2(handle, this.stream) as number);
    // A workspace of its own: capturing into a graph must not allocate.
    const workspace = this.allocate(workspaceBytes);
    check("cublasSetWorkspace", blas.cublasSetWorkspace_v2(handle, workspace.address, workspaceBytes) as number);
    const { address, view } = this.pinned(128);
    const floats = new Float32Array(view.buffer, view.byteOffset, 8);
    const doubles = new Float64Array(view.buffer, view.byteOffset + 64, 8);
    floats.set([1, 0, 0, 0]);
    doubles.set([1, 0, 0, 0]);
    this.#blas = { handle, scalars: address };
    return this.#blas;
  }

  readonly #events: number[] = [];

  /** Seconds between the marks that `body` sets on the stream. */
  measure(count: number, body: (mark: () => void) => void): Float64Array {
    const { driver } = this.libraries;
    while (this.#events.length < count + 1)
      this.#events.push(result64("cuEventCreate", (out) => driver.cuEventCreate(out, 0) as number));
    let next = 0;
    const mark = (): void => check("cuEventRecord", driver.cuEventRecord(this.#events[next++], this.stream) as number);
    mark();
    body(mark);
    this.synchronize();
    const times = new Float64Array(count);
    const out = new Float32Array(1);
    for (let i = 0; i + 1 < next; i++) {
      check("cuEventElapsedTime", driver.cuEventElapsedTime_v2(out, this.#events[i], this.#events[i + 1]) as number);
      times[i] = out[0] / 1e3;
    }
    return times;
  }

  get isAlive(): boolean {
    try {
      this.synchronize();
      return true;
    } catch (error) {
      return !(error instanceof CudaError);
    }
  }
}
