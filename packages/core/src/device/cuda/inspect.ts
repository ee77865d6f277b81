// Versions of NVIDIA's libraries and transfer rates of a GPU, for `weft doctor`.
import type { CudaContext } from "./context.js";
import type { CudaLibraries, LibraryName, NativeFunction } from "./driver.js";

/** major.minor.patch by a library's own three calls. */
function property(get: NativeFunction | undefined): string | null {
  if (get === undefined) return null;
  const parts = [0, 1, 2].map((what) => {
    const out = new Int32Array(1);
    return get(what, out) === 0 ? out[0] : -1;
  });
  return parts.includes(-1) ? null : parts.join(".");
}

const quietly = <T>(read: () => T): T | null => {
  try {
    return read();
  } catch {
    // A missing version is not an error.
    return null;
  }
};

/** Versions of the libraries; null for a missing library or version. */
export function libraryVersions(libraries: CudaLibraries): Record<LibraryName, string | null> {
  const { driver, nvrtc, blas, lt, solver, dnn, fft, nccl } = libraries;
  const number = (fn: NativeFunction): number => {
    const out = new Int32Array(1);
    return fn(out) === 0 ? out[0] : 0;
  };
  const thousand = (n: number): string => `${Math.floor(n / 1000)}.${Math.floor((n % 1000) / 10)}`;
  return {
    driver: quietly(() => thousand(number(driver.cuDriverGetVersion))),
    nvrtc: quietly(() => {
      const [major, minor] = [new Int32Array(1), new Int32Array(1)];
      return nvrtc === null || nvrtc.nvrtcVersion(major, minor) !== 0 ? null : `${major[0]}.${minor[0]}`;
    }),
    cublas: quietly(() => property(blas?.cublasGetProperty)),
    cublasLt: quietly(() => property(lt?.cublasLtGetProperty)),
    cusolver: quietly(() => property(solver?.cusolverGetProperty)),
    nccl: quietly(() => {
      const n = nccl === null ? 0 : number(nccl.ncclGetVersion);
      return n === 0 ? null : `${Math.floor(n / 10000)}.${Math.floor((n % 10000) / 100)}.${n % 100}`;
    }),
    cudnn: quietly(() => {
      const n = dnn?.cudnnGetVersion() ?? 0;
      const major = n >= 90000 ? 10000 : 1000;
      return n === 0 ? null : `${Math.floor(n / major)}.${Math.floor((n % major) / 100)}.${n % 100}`;
    }),
    cufft: quietly(() => property(fft?.cufftGetProperty)),
    nvml: null,
    nvtx: null,
  };
}

/** Transfer rates in bytes per second. */
export interface TransferRates {
  /** Through pinned memory, as for uploads and fetched results. */
  pinned: { toDevice: number; fromDevice: number };
  /** Through pageable memory. */
  pageable: { toDevice: number; fromDevice: number };
  /** Copies on the GPU, read and written bytes counted. */
  onDevice: number;
}

/** Measures copies of `bytes`: the fastest of a few runs. */
export function transferRates(context: CudaContext, bytes = 1 << 27): TransferRates {
  context.enter();
  const { driver, stream } = context;
  const [a, b] = [context.allocate(bytes), context.allocate(bytes)];
  const block = context.hostPool.take(bytes);
  const ordinary = new Uint8Array(bytes).fill(1);
  const best = (copy: () => number): number => {
    let seconds = Number.POSITIVE_INFINITY;
    for (let i = 0; i < 4; i++) {
      context.synchronize();
      const start = performance.now();
      context.check("cuMemcpy", copy());
      context.synchronize();
      seconds = Math.min(seconds, (performance.now() - start) / 1e3);
    }
    return bytes / seconds;
  };
  try {
    const pageable = {
      toDevice: best(() => driver.cuMemcpyHtoD_v2(a.address, ordinary, bytes)),
      fromDevice: best(() => driver.cuMemcpyDtoH_v2(ordinary, a.address, bytes)),
    };
    const pinned =
      block === null
        ? pageable
        : {
            toDevice: best(() => driver.cuMemcpyHtoDAsync_v2(a.address, block.address, bytes, stream)),
            fromDevice: best(() => driver.cuMemcpyDtoHAsync_v2(block.address, a.address, bytes, stream)),
          };
    const onDevice = 2 * best(() => driver.cuMemcpyDtoDAsync_v2(b.address, a.address, bytes, stream));
    return { pinned, pageable, onDevice };
  } finally {
    context.free(a);
    context.free(b);
  }
}
