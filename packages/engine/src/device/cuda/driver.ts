// The CUDA driver, NVRTC and cuBLAS through koffi: found by probing, called with numbers for addresses and handles.
// Nothing here knows graphs; errors say which call failed and what usually helps.
import { existsSync, readdirSync } from "node:fs";
import { join } from "node:path";
import koffi from "koffi";
import { WeftError } from "../../graph/index.js";

type Library = ReturnType<typeof koffi.load>;
export type NativeFunction = ReturnType<Library["func"]>;

/** A failed call of the driver or one of its libraries. */
export class CudaError extends WeftError {
  override name = "CudaError";
  constructor(
    message: string,
    readonly code: number,
  ) {
    super(message);
  }
}

/** Folders that may hold CUDA libraries: $CUDA_HOME, the system's, and the nvidia-* wheels of a Python environment. */
function searchFolders(): string[] {
  const folders: string[] = [];
  for (const home of [process.env.CUDA_HOME, process.env.CUDA_PATH, "/usr/local/cuda"])
    if (home !== undefined && home !== "") folders.push(join(home, "lib64"), join(home, "targets/x86_64-linux/lib"));
  folders.push("/usr/lib/x86_64-linux-gnu", "/usr/lib64", "/usr/lib/wsl/lib");
  for (const environment of [process.env.VIRTUAL_ENV, process.env.CONDA_PREFIX, "/usr/local", "/usr"]) {
    if (environment === undefined || environment === "" || !existsSync(join(environment, "lib"))) continue;
    for (const python of readdirSync(join(environment, "lib")).filter((name) => name.startsWith("python"))) {
      for (const packages of ["site-packages", "dist-packages"]) {
        const nvidia = join(environment, "lib", python, packages, "nvidia");
        if (!existsSync(nvidia)) continue;
        for (const part of readdirSync(nvidia)) folders.push(join(nvidia, part, "lib"));
      }
    }
  }
  return folders.filter((folder) => existsSync(folder));
}

export interface FoundLibrary {
  path: string;
  library: Library;
}

const tried = new Map<string, FoundLibrary | null>();

/** Loads a library by its base name, newest of the known versions first; null where there is none. */
export function findLibrary(base: string, versions: readonly string[]): FoundLibrary | null {
  const known = tried.get(base);
  if (known !== undefined) return known;
  const names = versions.map((v) => (v === "" ? `lib${base}.so` : `lib${base}.so.${v}`));
  const candidates = [
    ...names,
    ...searchFolders().flatMap((folder) => names.map((name) => join(folder, name)).filter(existsSync)),
  ];
  let found: FoundLibrary | null = null;
  for (const path of candidates) {
    try {
      found = { path, library: koffi.load(path) };
      break;
    } catch {
      // Not this one: the next candidate, or none.
    }
  }
  tried.set(base, found);
  return found;
}

/** A function table: name -> C prototype without the return type and name, all returning int. */
function bind<T extends string>(library: Library, table: Record<T, string>): Record<T, NativeFunction> {
  const entries = Object.entries(table) as [T, string][];
  return Object.fromEntries(entries.map(([name, args]) => [name, library.func(`int ${name}(${args})`)])) as Record<
    T,
    NativeFunction
  >;
}

const u = "uint64_t";
const driverTable = {
  cuInit: "unsigned int flags",
  cuDriverGetVersion: "_Out_ int* version",
  cuDeviceGetCount: "_Out_ int* count",
  cuDeviceGet: "_Out_ int* device, int ordinal",
  cuDeviceGetName: "_Out_ uint8_t* name, int length, int device",
  cuDeviceGetAttribute: "_Out_ int* value, int attribute, int device",
  cuDeviceTotalMem_v2: "_Out_ uint64_t* bytes, int device",
  cuDevicePrimaryCtxRetain: "_Out_ uint64_t* context, int device",
  cuDevicePrimaryCtxReset_v2: "int device",
  cuCtxSetCurrent: `${u} context`,
  cuCtxSynchronize: "",
  cuMemGetInfo_v2: "_Out_ uint64_t* free, _Out_ uint64_t* total",
  cuStreamCreate: "_Out_ uint64_t* stream, unsigned int flags",
  cuStreamSynchronize: `${u} stream`,
  cuStreamBeginCapture_v2: `${u} stream, int mode`,
  cuStreamEndCapture: `${u} stream, _Out_ uint64_t* graph`,
  cuGraphInstantiateWithFlags: `_Out_ uint64_t* exec, ${u} graph, ${u} flags`,
  cuGraphLaunch: `${u} exec, ${u} stream`,
  cuGraphExecDestroy: `${u} exec`,
  cuGraphDestroy: `${u} graph`,
  cuMemAlloc_v2: "_Out_ uint64_t* address, uint64_t bytes",
  cuMemFree_v2: `${u} address`,
  cuMemHostAlloc: "_Out_ uint64_t* address, uint64_t bytes, unsigned int flags",
  cuMemFreeHost: `${u} address`,
  cuMemcpyHtoD_v2: `${u} to, const uint8_t* from, uint64_t bytes`,
  cuMemcpyDtoHAsync_v2: `${u} to, ${u} from, uint64_t bytes, ${u} stream`,
  cuMemcpyDtoDAsync_v2: `${u} to, ${u} from, uint64_t bytes, ${u} stream`,
  cuMemsetD8Async: `${u} to, uint8_t value, uint64_t bytes, ${u} stream`,
  cuModuleLoadData: "_Out_ uint64_t* module, const uint8_t* image",
  cuModuleGetFunction: `_Out_ uint64_t* fn, ${u} module, const char* name`,
  cuModuleUnload: `${u} module`,
  cuLaunchKernel: `${u} fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, ${u} stream, ${u} params, ${u} extra`,
  cuEventCreate: "_Out_ uint64_t* event, unsigned int flags",
  cuEventRecord: `${u} event, ${u} stream`,
  cuEventSynchronize: `${u} event`,
  cuEventElapsedTime_v2: `_Out_ float* milliseconds, ${u} start, ${u} end`,
};
const olderNames: Record<string, string> = { cuEventElapsedTime_v2: "cuEventElapsedTime" };

const nvrtcTable = {
  nvrtcVersion: "_Out_ int* major, _Out_ int* minor",
  nvrtcCreateProgram:
    "_Out_ uint64_t* program, const char* source, const char* name, int headers, uint64_t a, uint64_t b",
  nvrtcCompileProgram: `${u} program, int count, const char** options`,
  nvrtcGetCUBINSize: `${u} program, _Out_ uint64_t* size`,
  nvrtcGetCUBIN: `${u} program, _Out_ uint8_t* cubin`,
  nvrtcGetProgramLogSize: `${u} program, _Out_ uint64_t* size`,
  nvrtcGetProgramLog: `${u} program, _Out_ uint8_t* log`,
  nvrtcDestroyProgram: "_Inout_ uint64_t* program",
};

const gemmOperands = `int ta, int tb, int m, int n, int k, ${u} alpha`;
const blasTable = {
  cublasCreate_v2: "_Out_ uint64_t* handle",
  cublasSetStream_v2: `${u} handle, ${u} stream`,
  cublasSetWorkspace_v2: `${u} handle, ${u} workspace, uint64_t bytes`,
  cublasGemmEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, ${u} b, int bt, int ldb, ${u} beta, ${u} c, int ct, int ldc, int compute, int algorithm`,
  cublasGemmStridedBatchedEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, int64_t sa, ${u} b, int bt, int ldb, int64_t sb, ${u} beta, ${u} c, int ct, int ldc, int64_t sc, int count, int compute, int algorithm`,
  cublasGemmBatchedEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, ${u} b, int bt, int ldb, ${u} beta, ${u} c, int ct, int ldc, int count, int compute, int algorithm`,
};

export type Driver = Record<keyof typeof driverTable, NativeFunction>;
export type Nvrtc = Record<keyof typeof nvrtcTable, NativeFunction>;
export type Blas = Record<keyof typeof blasTable, NativeFunction>;

export interface CudaLibraries {
  driver: Driver;
  driverPath: string;
  nvrtc: Nvrtc | null;
  nvrtcPath: string | null;
  blas: Blas | null;
  blasPath: string | null;
}

const versions = ["13", "12", "11.0", "11.2", "11", ""];
let libraries: CudaLibraries | null | undefined;

/** Everything that was found; null where there is no driver. */
export function cudaLibraries(): CudaLibraries | null {
  if (libraries !== undefined) return libraries;
  const cuda = findLibrary("cuda", ["1", ""]);
  if (cuda === null) {
    libraries = null;
    return null;
  }
  const driver = bindWithFallback(cuda.library);
  const nvrtc = findLibrary("nvrtc", versions);
  // cublasLt must be loaded before cublas finds it by itself.
  findLibrary("cublasLt", versions);
  const blas = findLibrary("cublas", versions);
  libraries = {
    driver,
    driverPath: cuda.path,
    nvrtc: nvrtc === null ? null : bind(nvrtc.library, nvrtcTable),
    nvrtcPath: nvrtc?.path ?? null,
    blas: blas === null ? null : bind(blas.library, blasTable),
    blasPath: blas?.path ?? null,
  };
  return libraries;
}

/** Tests put another implementation in the place of what was found; undefined looks again. Returns what was there. */
export function useCudaLibraries(other: CudaLibraries | null | undefined): CudaLibraries | null | undefined {
  const before = libraries;
  libraries = other;
  return before;
}

/** Older drivers have some functions under older names only. */
function bindWithFallback(library: Library): Driver {
  const bound: Partial<Driver> = {};
  for (const [name, args] of Object.entries(driverTable)) {
    const key = name as keyof Driver;
    try {
      bound[key] = library.func(`int ${name}(${args})`);
    } catch (error) {
      const older = olderNames[name];
      if (older === undefined)
        throw new WeftError(`cuda: the driver lacks ${name}; it is too old (${(error as Error).message})`);
      bound[key] = library.func(`int ${older}(${args})`);
    }
  }
  return bound as Driver;
}

const hints: Record<number, string> = {
  2: "the GPU has no memory left",
  3: "the driver is shutting down",
  35: "the driver is older than the CUDA libraries: update it",
  46: "the GPU is in use by another process in exclusive mode",
  100: "no GPU was found: check nvidia-smi and CUDA_VISIBLE_DEVICES",
  101: "there is no GPU with this number: check nvidia-smi and CUDA_VISIBLE_DEVICES",
  209: "the kernel was compiled for another GPU",
  700: "a kernel read or wrote outside its memory; the GPU context is dead: make a new device with weft.setDevice",
  719: "a kernel failed; the GPU context is dead: make a new device with weft.setDevice",
  803: "driver and CUDA library versions do not fit together",
};

/** Throws when a driver call failed. */
export function check(call: string, code: number): void {
  if (code === 0) return;
  throw new CudaError(
    `cuda: ${call} failed with error ${code}${hints[code] === undefined ? "" : ` (${hints[code]})`}`,
    code,
  );
}

/** One 64-bit result of a call. */
export function result64(call: string, invoke: (out: BigUint64Array) => number): number {
  const out = new BigUint64Array(1);
  check(call, invoke(out));
  return Number(out[0]);
}

export function result32(call: string, invoke: (out: Int32Array) => number): number {
  const out = new Int32Array(1);
  check(call, invoke(out));
  return out[0];
}
