// The calls of the CUDA driver and its libraries: prototypes as data, bound by koffi when first needed, with numbers for
// addresses and handles. Errors name the failed call and the usual remedy.
import koffi from "koffi";
import { WeftError } from "../../graph/index.js";
import { type FoundLibrary, findLibrary, type Library } from "./find.js";

/** A bound function. They all return a status: 0 is success. */
export type NativeFunction = (...args: readonly unknown[]) => number;

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

const u = "uint64_t";
const driverTable = {
  cuInit: "unsigned int flags",
  cuDriverGetVersion: "_Out_ int* version",
  cuDeviceGetCount: "_Out_ int* count",
  cuDeviceGet: "_Out_ int* device, int ordinal",
  cuDeviceGetName: "_Out_ uint8_t* name, int length, int device",
  cuDeviceGetAttribute: "_Out_ int* value, int attribute, int device",
  cuDeviceTotalMem_v2: "_Out_ uint64_t* bytes, int device",
  cuDeviceGetPCIBusId: "_Out_ uint8_t* id, int length, int device",
  cuDeviceCanAccessPeer: "_Out_ int* can, int device, int peer",
  cuDevicePrimaryCtxRetain: "_Out_ uint64_t* context, int device",
  cuDevicePrimaryCtxRelease_v2: "int device",
  cuDevicePrimaryCtxReset_v2: "int device",
  cuCtxSetCurrent: `${u} context`,
  cuCtxEnablePeerAccess: `${u} peer, unsigned int flags`,
  cuMemGetInfo_v2: "_Out_ uint64_t* free, _Out_ uint64_t* total",
  cuStreamCreate: "_Out_ uint64_t* stream, unsigned int flags",
  cuStreamSynchronize: `${u} stream`,
  cuStreamWaitEvent: `${u} stream, ${u} event, unsigned int flags`,
  cuStreamBeginCapture_v2: `${u} stream, int mode`,
  cuStreamEndCapture: `${u} stream, _Out_ uint64_t* graph`,
  cuGraphInstantiateWithFlags: `_Out_ uint64_t* exec, ${u} graph, ${u} flags`,
  cuGraphLaunch: `${u} exec, ${u} stream`,
  cuGraphExecDestroy: `${u} exec`,
  cuGraphDestroy: `${u} graph`,
  cuMemAlloc_v2: "_Out_ uint64_t* address, uint64_t bytes",
  cuMemFree_v2: `${u} address`,
  cuMemHostRegister_v2: `${u} address, uint64_t bytes, unsigned int flags`,
  cuMemHostUnregister: `${u} address`,
  cuMemcpyHtoD_v2: `${u} to, const uint8_t* from, uint64_t bytes`,
  cuMemcpyDtoH_v2: `_Out_ uint8_t* to, ${u} from, uint64_t bytes`,
  cuMemcpyHtoDAsync_v2: `${u} to, ${u} from, uint64_t bytes, ${u} stream`,
  cuMemcpyDtoHAsync_v2: `${u} to, ${u} from, uint64_t bytes, ${u} stream`,
  cuMemcpyDtoDAsync_v2: `${u} to, ${u} from, uint64_t bytes, ${u} stream`,
  cuMemcpyPeerAsync: `${u} to, ${u} toContext, ${u} from, ${u} fromContext, uint64_t bytes, ${u} stream`,
  cuMemsetD8Async: `${u} to, uint8_t value, uint64_t bytes, ${u} stream`,
  cuModuleLoadData: "_Out_ uint64_t* module, const uint8_t* image",
  cuModuleGetFunction: `_Out_ uint64_t* fn, ${u} module, const char* name`,
  cuModuleUnload: `${u} module`,
  cuFuncSetAttribute: `${u} fn, int attribute, int value`,
  cuLaunchKernel: `${u} fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, ${u} stream, ${u} params, ${u} extra`,
  cuLaunchKernelEx: `${u} config, ${u} fn, ${u} params, ${u} extra`,
  cuLaunchCooperativeKernel: `${u} fn, unsigned int gx, unsigned int gy, unsigned int gz, unsigned int bx, unsigned int by, unsigned int bz, unsigned int shared, ${u} stream, ${u} params`,
  cuOccupancyMaxActiveBlocksPerMultiprocessor: `_Out_ int* blocks, ${u} fn, int threads, uint64_t shared`,
  cuEventCreate: "_Out_ uint64_t* event, unsigned int flags",
  cuEventRecord: `${u} event, ${u} stream`,
  cuEventQuery: `${u} event`,
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

/** The four number types of the solvers, as BLAS names them. */
export const solverLetters = ["S", "D", "C", "Z"] as const;
export type SolverLetter = (typeof solverLetters)[number];
type EachLetter<T extends string> = {
  [K in T as `${K}` extends `${infer A}?${infer B}` ? `${A}${SolverLetter}${B}` : never]: string;
};

/** One row for each of the four types: the question mark in a name is the type's letter. */
function forLetters<T extends string>(table: Record<T, string>): EachLetter<T> {
  const rows = Object.entries(table) as [string, string][];
  return Object.fromEntries(
    rows.flatMap(([name, args]) => solverLetters.map((letter) => [name.replace("?", letter), args])),
  ) as EachLetter<T>;
}

const blasTable = {
  cublasCreate_v2: "_Out_ uint64_t* handle",
  cublasGetProperty: "int what, _Out_ int* value",
  cublasSetStream_v2: `${u} handle, ${u} stream`,
  cublasSetWorkspace_v2: `${u} handle, ${u} workspace, uint64_t bytes`,
  cublasGemmEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, ${u} b, int bt, int ldb, ${u} beta, ${u} c, int ct, int ldc, int compute, int algorithm`,
  cublasGemmStridedBatchedEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, int64_t sa, ${u} b, int bt, int ldb, int64_t sb, ${u} beta, ${u} c, int ct, int ldc, int64_t sc, int count, int compute, int algorithm`,
  cublasGemmBatchedEx: `${u} handle, ${gemmOperands}, ${u} a, int at, int lda, ${u} b, int bt, int ldb, ${u} beta, ${u} c, int ct, int ldc, int count, int compute, int algorithm`,
  ...forLetters({
    "cublas?getrfBatched": `${u} handle, int n, ${u} a, int lda, ${u} pivots, ${u} info, int count`,
    "cublas?getrsBatched": `${u} handle, int trans, int n, int nrhs, ${u} a, int lda, ${u} pivots, ${u} b, int ldb, _Out_ int* info, int count`,
    "cublas?trsv_v2": `${u} handle, int uplo, int trans, int diag, int n, ${u} a, int lda, ${u} x, int step`,
    "cublas?trsm_v2": `${u} handle, int side, int uplo, int trans, int diag, int m, int n, ${u} alpha, ${u} a, int lda, ${u} b, int ldb`,
    "cublas?trsmBatched": `${u} handle, int side, int uplo, int trans, int diag, int m, int n, ${u} alpha, ${u} a, int lda, ${u} b, int ldb, int count`,
  }),
};

const ltTable = {
  cublasLtGetVersion: "",
  cublasLtGetProperty: "int what, _Out_ int* value",
  cublasLtCreate: "_Out_ uint64_t* handle",
  cublasLtMatmulDescCreate: "_Out_ uint64_t* desc, int compute, int scale",
  cublasLtMatmulDescDestroy: `${u} desc`,
  cublasLtMatmulDescSetAttribute: `${u} desc, int attribute, const uint8_t* value, uint64_t bytes`,
  cublasLtMatrixLayoutCreate: "_Out_ uint64_t* layout, int type, uint64_t rows, uint64_t columns, int64_t ld",
  cublasLtMatrixLayoutDestroy: `${u} layout`,
  cublasLtMatrixLayoutSetAttribute: `${u} layout, int attribute, const uint8_t* value, uint64_t bytes`,
  cublasLtMatmulPreferenceCreate: "_Out_ uint64_t* preference",
  cublasLtMatmulPreferenceDestroy: `${u} preference`,
  cublasLtMatmulPreferenceSetAttribute: `${u} preference, int attribute, const uint8_t* value, uint64_t bytes`,
  cublasLtMatmulAlgoGetHeuristic: `${u} handle, ${u} desc, ${u} a, ${u} b, ${u} c, ${u} d, ${u} preference, int wanted, _Out_ uint8_t* results, _Out_ int* found`,
  cublasLtMatmul: `${u} handle, ${u} desc, ${u} alpha, ${u} a, ${u} al, ${u} b, ${u} bl, ${u} beta, ${u} c, ${u} cl, ${u} d, ${u} dl, ${u} algorithm, ${u} workspace, uint64_t workspaceBytes, ${u} stream`,
};

const sizes = "_Out_ uint64_t* device, _Out_ uint64_t* host";
const buffers = `${u} device, uint64_t deviceBytes, ${u} host, uint64_t hostBytes, ${u} info`;
const eigenproblem = `${u} handle, ${u} params, int jobz, int uplo, int64_t n, int type, ${u} a, int64_t lda, int typeW, ${u} w, int compute`;
const factored = `${u} handle, ${u} params, int uplo, int64_t n, int type, ${u} a, int64_t lda, int compute`;
const orthogonal = `${u} handle, ${u} params, int64_t m, int64_t n, int type, ${u} a, int64_t lda, int typeTau, ${u} tau, int compute`;
const singular = `${u} handle, ${u} params, int8_t jobu, int8_t jobvt, int64_t m, int64_t n, int type, ${u} a, int64_t lda, int typeS, ${u} s, int typeU, ${u} u, int64_t ldu, int typeV, ${u} vt, int64_t ldvt, int compute`;
const general = `${u} handle, ${u} params, int64_t m, int64_t n, int type, ${u} a, int64_t lda`;
const jacobi = `${u} handle, int jobz, int m, int n, ${u} a, int lda, ${u} s, ${u} u, int ldu, ${u} v, int ldv`;
const economy = `${u} handle, int jobz, int econ, int m, int n, ${u} a, int lda, ${u} s, ${u} u, int ldu, ${u} v, int ldv`;
const formQ = `${u} handle, int m, int n, int k, ${u} a, int lda, ${u} tau`;
const solverTable = {
  cusolverGetProperty: "int what, _Out_ int* value",
  cusolverDnCreate: "_Out_ uint64_t* handle",
  cusolverDnSetStream: `${u} handle, ${u} stream`,
  cusolverDnCreateParams: "_Out_ uint64_t* params",
  cusolverDnXsyevd_bufferSize: `${eigenproblem}, ${sizes}`,
  cusolverDnXsyevd: `${eigenproblem}, ${buffers}`,
  cusolverDnXsyevBatched_bufferSize: `${eigenproblem}, ${sizes}, int64_t count`,
  cusolverDnXsyevBatched: `${eigenproblem}, ${buffers}, int64_t count`,
  cusolverDnXpotrf_bufferSize: `${factored}, ${sizes}`,
  cusolverDnXpotrf: `${factored}, ${buffers}`,
  cusolverDnXgeqrf_bufferSize: `${orthogonal}, ${sizes}`,
  cusolverDnXgeqrf: `${orthogonal}, ${buffers}`,
  cusolverDnXgesvd_bufferSize: `${singular}, ${sizes}`,
  cusolverDnXgesvd: `${singular}, ${buffers}`,
  cusolverDnXgetrf_bufferSize: `${general}, int compute, ${sizes}`,
  cusolverDnXgetrf: `${general}, ${u} pivots, int compute, ${buffers}`,
  cusolverDnXgetrs: `${u} handle, ${u} params, int trans, int64_t n, int64_t nrhs, int type, ${u} a, int64_t lda, ${u} pivots, int typeB, ${u} b, int64_t ldb, ${u} info`,
  cusolverDnCreateGesvdjInfo: `_Out_ ${u}* info`,
  ...forLetters({
    "cusolverDn?potrfBatched": `${u} handle, int uplo, int n, ${u} a, int lda, ${u} info, int count`,
    "cusolverDn?gesvdj_bufferSize": `${economy}, _Out_ int* words, ${u} params`,
    "cusolverDn?gesvdj": `${economy}, ${u} work, int words, ${u} info, ${u} params`,
    "cusolverDn?gesvdjBatched_bufferSize": `${jacobi}, _Out_ int* words, ${u} params, int count`,
    "cusolverDn?gesvdjBatched": `${jacobi}, ${u} work, int words, ${u} info, ${u} params, int count`,
  }),
  cusolverDnSorgqr_bufferSize: `${formQ}, _Out_ int* count`,
  cusolverDnDorgqr_bufferSize: `${formQ}, _Out_ int* count`,
  cusolverDnCungqr_bufferSize: `${formQ}, _Out_ int* count`,
  cusolverDnZungqr_bufferSize: `${formQ}, _Out_ int* count`,
  cusolverDnSorgqr: `${formQ}, ${u} work, int count, ${u} info`,
  cusolverDnDorgqr: `${formQ}, ${u} work, int count, ${u} info`,
  cusolverDnCungqr: `${formQ}, ${u} work, int count, ${u} info`,
  cusolverDnZungqr: `${formQ}, ${u} work, int count, ${u} info`,
};

const convolved = `${u} x, ${u} w, ${u} conv, ${u} y`;
const chosen = "int wanted, _Out_ int* found, _Out_ uint8_t* results";
const dnnTable = {
  cudnnGetVersion: "",
  cudnnCreate: `_Out_ ${u}* handle`,
  cudnnSetStream: `${u} handle, ${u} stream`,
  cudnnGetLastErrorString: "_Out_ uint8_t* text, uint64_t bytes",
  cudnnBackendCreateDescriptor: "int kind, _Out_ uint64_t* descriptor",
  cudnnBackendDestroyDescriptor: `${u} descriptor`,
  cudnnBackendSetAttribute: `${u} descriptor, int name, int type, int64_t count, const uint8_t* values`,
  cudnnBackendGetAttribute: `${u} descriptor, int name, int type, int64_t wanted, _Out_ int64_t* found, _Inout_ uint8_t* values`,
  cudnnBackendFinalize: `${u} descriptor`,
  cudnnBackendExecute: `${u} handle, ${u} plan, ${u} pack`,
  cudnnCreateTensorDescriptor: `_Out_ ${u}* desc`,
  cudnnDestroyTensorDescriptor: `${u} desc`,
  cudnnSetTensorNdDescriptorEx: `${u} desc, int format, int type, int rank, const int* sizes`,
  cudnnCreateFilterDescriptor: `_Out_ ${u}* desc`,
  cudnnDestroyFilterDescriptor: `${u} desc`,
  cudnnSetFilterNdDescriptor: `${u} desc, int type, int format, int rank, const int* sizes`,
  cudnnCreateConvolutionDescriptor: `_Out_ ${u}* desc`,
  cudnnDestroyConvolutionDescriptor: `${u} desc`,
  cudnnSetConvolutionNdDescriptor: `${u} desc, int rank, const int* low, const int* stride, const int* dilation, int mode, int compute`,
  cudnnSetConvolutionMathType: `${u} desc, int math`,
  cudnnSetConvolutionGroupCount: `${u} desc, int groups`,
  cudnnGetConvolutionForwardAlgorithm_v7: `${u} handle, ${convolved}, ${chosen}`,
  cudnnGetConvolutionBackwardDataAlgorithm_v7: `${u} handle, ${u} w, ${u} y, ${u} conv, ${u} x, ${chosen}`,
  cudnnGetConvolutionBackwardFilterAlgorithm_v7: `${u} handle, ${u} x, ${u} y, ${u} conv, ${u} w, ${chosen}`,
  ...Object.fromEntries(
    ["Forward", "BackwardData", "BackwardFilter"].map((kind) => [
      `cudnnConvolution${kind}`,
      `${u} handle, ${u} one, ${u} aDesc, ${u} a, ${u} bDesc, ${u} b, ${u} conv, int algorithm, ${u} work, uint64_t bytes, ${u} zero, ${u} outDesc, ${u} out`,
    ]),
  ),
} as const;

const exec = `int plan, ${u} in, ${u} out`;
const fftTable = {
  cufftGetProperty: "int what, _Out_ int* value",
  cufftCreate: "_Out_ int* plan",
  cufftDestroy: "int plan",
  cufftSetStream: `int plan, ${u} stream`,
  cufftMakePlanMany64:
    "int plan, int rank, const int64_t* n, uint64_t inembed, int64_t istride, int64_t idist, uint64_t onembed, int64_t ostride, int64_t odist, int type, int64_t batch, _Out_ uint64_t* bytes",
  cufftExecC2C: `${exec}, int direction`,
  cufftExecZ2Z: `${exec}, int direction`,
  cufftExecR2C: exec,
  cufftExecD2Z: exec,
  cufftExecC2R: exec,
  cufftExecZ2D: exec,
};

const nvmlTable = {
  nvmlInit_v2: "",
  nvmlDeviceGetHandleByPciBusId_v2: `const char* id, _Out_ ${u}* device`,
  nvmlDeviceGetUtilizationRates: `${u} device, _Out_ uint32_t* rates`,
  nvmlDeviceGetMemoryInfo: `${u} device, _Out_ ${u}* memory`,
  nvmlDeviceGetPowerUsage: `${u} device, _Out_ uint32_t* milliwatts`,
  nvmlDeviceGetEnforcedPowerLimit: `${u} device, _Out_ uint32_t* milliwatts`,
  nvmlDeviceGetTemperature: `${u} device, int sensor, _Out_ uint32_t* degrees`,
  nvmlDeviceGetClockInfo: `${u} device, int clock, _Out_ uint32_t* megahertz`,
  nvmlDeviceGetMaxClockInfo: `${u} device, int clock, _Out_ uint32_t* megahertz`,
  nvmlDeviceGetComputeRunningProcesses_v3: `${u} device, _Inout_ uint32_t* count, _Out_ uint8_t* processes`,
  nvmlSystemGetProcessName: "uint32_t pid, _Out_ uint8_t* name, uint32_t length",
};

const nvtxTable = { nvtxRangePushA: "const char* name", nvtxRangePop: "" };

const ncclTable = {
  ncclGetVersion: "_Out_ int* version",
  ncclGetUniqueId: "_Out_ uint8_t* id",
  ncclCommDestroy: `${u} comm`,
  ncclCommAbort: `${u} comm`,
  ncclCommGetAsyncError: `${u} comm, _Out_ int* status`,
  ncclAllReduce: `${u} from, ${u} to, uint64_t count, int type, int op, ${u} comm, ${u} stream`,
  ncclAllGather: `${u} from, ${u} to, uint64_t count, int type, ${u} comm, ${u} stream`,
  ncclReduceScatter: `${u} from, ${u} to, uint64_t count, int type, int op, ${u} comm, ${u} stream`,
  ncclBroadcast: `${u} from, ${u} to, uint64_t count, int type, int root, ${u} comm, ${u} stream`,
  ncclSend: `${u} from, uint64_t count, int type, int peer, ${u} comm, ${u} stream`,
  ncclRecv: `${u} to, uint64_t count, int type, int peer, ${u} comm, ${u} stream`,
  ncclGroupStart: "",
  ncclGroupEnd: "",
};

type Bound<T> = Record<keyof T, NativeFunction>;
export type Driver = Bound<typeof driverTable>;
type Nvrtc = Bound<typeof nvrtcTable>;
type Blas = Bound<typeof blasTable>;
export type BlasLt = Bound<typeof ltTable>;
export type Solver = Bound<typeof solverTable>;
type DnnCalls = Record<`cudnnConvolution${"Forward" | "BackwardData" | "BackwardFilter"}`, NativeFunction>;
export type Dnn = Bound<typeof dnnTable> & DnnCalls;
export type Fft = Bound<typeof fftTable>;
export type Nvml = Bound<typeof nvmlTable>;
type Nvtx = Bound<typeof nvtxTable>;
/** `ncclCommInitRank` takes its id by value, so that it is bound separately. */
export type Nccl = Bound<typeof ncclTable> & { ncclCommInitRank: NativeFunction };

/** NVIDIA's libraries; null for those that are not installed. */
export interface CudaLibraries {
  readonly driver: Driver;
  readonly nvrtc: Nvrtc | null;
  readonly blas: Blas | null;
  readonly lt: BlasLt | null;
  readonly solver: Solver | null;
  readonly dnn: Dnn | null;
  readonly fft: Fft | null;
  readonly nvml: Nvml | null;
  readonly nvtx: Nvtx | null;
  readonly nccl: Nccl | null;
  /** Where each was found. */
  readonly paths: LibraryPaths;
}

export type LibraryPaths = Readonly<Record<LibraryName, string | null>> & { readonly driver: string };

export type LibraryName =
  | "driver"
  | "nvrtc"
  | "cublas"
  | "cublasLt"
  | "cusolver"
  | "cudnn"
  | "cufft"
  | "nvml"
  | "nvtx"
  | "nccl";

/** A function table: name -> C prototype without the return type and name, all returning int. */
function bind<T extends Record<string, string>>(found: FoundLibrary | null, table: T): Bound<T> | null {
  if (found === null) return null;
  return Object.fromEntries(
    Object.entries(table).map(([name, args]) => [name, bindOne(found.library, name, args)]),
  ) as Bound<T>;
}

/** A function that an older version lacks fails when it is called, not when the library is loaded. */
function bindOne(library: Library, name: string, args: string): NativeFunction {
  for (const known of [name, olderNames[name]]) {
    if (known === undefined) continue;
    try {
      return library.func(`int ${known}(${args})`) as NativeFunction;
    } catch {
      // Under its older name, or not at all.
    }
  }
  return () => {
    throw new CudaError(`cuda: this version of the library has no ${name}: it is too old; update it`, notThere);
  };
}

/** NVRTC without the driver, which needs no GPU; null where it is not installed. */
export const findNvrtc = (): Nvrtc | null => bind(findLibrary("nvrtc"), nvrtcTable);

/** The code of errors about functions that a library does not have. */
export const notThere = -1;

/** Loads the libraries that are found; the large ones when they are first used. */
class FoundLibraries implements CudaLibraries {
  readonly driver: Driver;
  readonly #bound = new Map<string, unknown>();
  constructor(readonly found: FoundLibrary) {
    this.driver = bind(found, driverTable)!;
  }
  #once<T>(name: string, make: () => T): T {
    if (!this.#bound.has(name)) this.#bound.set(name, make());
    return this.#bound.get(name) as T;
  }
  get nvrtc(): Nvrtc | null {
    return this.#once("nvrtc", findNvrtc);
  }
  get lt(): BlasLt | null {
    return this.#once("lt", () => bind(findLibrary("cublasLt"), ltTable));
  }
  get blas(): Blas | null {
    // cublasLt must be loaded before cublas finds another one by itself.
    findLibrary("cublasLt");
    return this.#once("blas", () => bind(findLibrary("cublas"), blasTable));
  }
  get solver(): Solver | null {
    findLibrary("cublas");
    return this.#once("solver", () => bind(findLibrary("cusolver"), solverTable));
  }
  get dnn(): Dnn | null {
    // It loads cuBLAS by itself, and must find the same one.
    findLibrary("cublasLt");
    findLibrary("cublas");
    findLibrary("nvrtc");
    return this.#once("dnn", () => bind(findLibrary("cudnn"), dnnTable) as Dnn | null);
  }
  get fft(): Fft | null {
    return this.#once("fft", () => bind(findLibrary("cufft"), fftTable));
  }
  get nvml(): Nvml | null {
    return this.#once("nvml", () => bind(findLibrary("nvidia-ml"), nvmlTable));
  }
  get nvtx(): Nvtx | null {
    return this.#once("nvtx", () => bind(findLibrary("nvToolsExt") ?? findLibrary("nvtx3interop"), nvtxTable));
  }
  get nccl(): Nccl | null {
    return this.#once("nccl", () => bindNccl(findLibrary("nccl")));
  }
  get paths(): LibraryPaths {
    const path = (found: FoundLibrary | null): string | null => found?.path ?? null;
    return {
      driver: this.found.path,
      nvrtc: path(findLibrary("nvrtc")),
      cublas: path(findLibrary("cublas")),
      cublasLt: path(findLibrary("cublasLt")),
      cusolver: path(findLibrary("cusolver")),
      cudnn: path(findLibrary("cudnn")),
      cufft: path(findLibrary("cufft")),
      nvml: path(findLibrary("nvidia-ml")),
      nvtx: path(findLibrary("nvToolsExt") ?? findLibrary("nvtx3interop")),
      nccl: path(findLibrary("nccl")),
    };
  }
}

/** Size of NCCL's id of a group. */
export const ncclIdBytes = 128;

function bindNccl(found: FoundLibrary | null): Nccl | null {
  const bound = bind(found, ncclTable);
  if (bound === null) return null;
  const id = koffi.struct({ bytes: koffi.array("uint8_t", ncclIdBytes, "Typed") });
  const init = found!.library.func("ncclCommInitRank", "int", [koffi.out("uint64_t*"), "int", id, "int"]);
  return { ...bound, ncclCommInitRank: init as NativeFunction };
}

let libraries: CudaLibraries | null | undefined;

/** Everything that was found; null where there is no driver. */
export function cudaLibraries(): CudaLibraries | null {
  if (libraries === undefined) {
    const driver = findLibrary("cuda");
    libraries = driver === null ? null : new FoundLibraries(driver);
  }
  return libraries;
}

/** Tests put another implementation in the place of what was found; undefined looks again. Returns what was there. */
export function useCudaLibraries(other: CudaLibraries | null | undefined): CudaLibraries | null | undefined {
  const before = libraries;
  libraries = other;
  return before;
}

const hints: Record<number, string> = {
  2: "the GPU has no memory left",
  3: "the driver is shutting down",
  35: "the driver is older than the CUDA libraries: update it",
  46: "the GPU is in use by another process in exclusive mode",
  100: "no GPU was found: check nvidia-smi and CUDA_VISIBLE_DEVICES",
  101: "there is no GPU with this number: check nvidia-smi and CUDA_VISIBLE_DEVICES",
  209: "the kernel was compiled for another GPU",
  214: "the GPU found an error in its memory that cannot be corrected",
  700: "a kernel read or wrote outside its memory",
  701: "a kernel asked for more registers or threads than the GPU has",
  702: "a kernel ran for too long",
  715: "a kernel has an instruction that this GPU does not know",
  716: "a kernel used a misaligned address",
  719: "a kernel failed",
  803: "driver and CUDA library versions do not fit together: update the driver",
  804: "the driver's compatibility package does not fit this GPU: update the driver",
};

/** Errors after which a context answers every call with the same error. */
export const deadly: ReadonlySet<number> = new Set([214, 700, 702, 714, 715, 716, 717, 718, 719]);

/** Throws when a driver call failed. */
function check(call: string, code: number): void {
  if (code !== 0) throw failure(call, code);
}

export function failure(call: string, code: number): CudaError {
  const hint = hints[code] === undefined ? "" : ` (${hints[code]})`;
  return new CudaError(`cuda: ${call} failed with error ${code}${hint}`, code);
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

/** Text up to its end mark. */
export const cText = (bytes: Uint8Array): string => Buffer.from(bytes).toString("utf8").replace(/\0.*$/s, "");
