// The libraries of the CUDA device played on the host: the driver's calls on ordinary memory, NVRTC by the system's C++
// compiler, cuBLAS by loops. Tests put it in the place of the real ones, so that generated kernels, launches, memory and
// call sequences are checked where there is no GPU.
import { spawnSync } from "node:child_process";
import { createHash } from "node:crypto";
import { mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import koffi from "koffi";
import { settings } from "../../../settings/index.js";
import { findOpenBlas } from "../../cpu/openblas.js";
import { addedToCache, isCached, kernelFolder } from "../../kernel-cache.js";
import { nativeSource } from "../../native-source.js";
import { isIntact, seal } from "../../sealed-file.js";
import { compileCuda } from "../compiler.js";
import { type CudaLibraries, findNvrtc } from "../driver.js";
import { emulatorEntries } from "./entries.js";
import { emulatedFft } from "./fft.js";
import { emulatedLt } from "./lt.js";
import { emulatedSolver } from "./solver.js";

const folder = (): string => kernelFolder("emulated");

// GPUs fault at addresses that are no multiple of the operand's size; so do the emulated kernels.
const flags = [
  "-std=c++17",
  "-Og",
  "-fPIC",
  "-shared",
  "-w",
  "-fpermissive",
  "-fno-strict-aliasing",
  "-fsanitize=alignment",
  "-fsanitize-undefined-trap-on-error",
  "-ffp-contract=off",
  ...(settings.compilerFlags.get() ?? "").split(/\s+/).filter((flag) => flag !== ""),
];

// Kernels use C's own headers and the libraries that the process has loaded: those of C++ take longer than a kernel.
const kernelFlags = [...flags, "-nostdinc++", "-nostdlib"];

/** Compiles C++ into a shared object, once for each text. */
function build(source: string, flags: readonly string[]): string {
  const path = join(
    folder(),
    `${createHash("sha256").update(flags.join(" ")).update(source).digest("hex").slice(0, 32)}.so`,
  );
  if (isCached(path) && isIntact(path)) return path;
  mkdirSync(folder(), { recursive: true });
  const temporary = `${path}.${process.pid}`;
  writeFileSync(`${temporary}.cc`, source);
  const done = spawnSync("c++", [...flags, "-o", `${temporary}.so`, `${temporary}.cc`], { encoding: "utf8" });
  if (done.status !== 0) throw new Error(`the emulated compiler refuses the program:\n${done.stderr.slice(0, 4000)}`);
  seal(`${temporary}.so`);
  renameSync(`${temporary}.so`, path);
  rmSync(`${temporary}.cc`, { force: true });
  addedToCache(path);
  return path;
}

/** True where there is a C++ compiler. */
export const canEmulate = (): boolean => spawnSync("c++", ["--version"]).status === 0;

type Launch = (gx: number, gy: number, threads: number, shared: number, args: bigint) => void;

export interface EmulatedCalls {
  /** Names of the launched kernels and library calls, in order. */
  log: string[];
}

export function emulatedLibraries(calls: EmulatedCalls = { log: [] }): CudaLibraries {
  const libc = koffi.load("libc.so.6");
  const malloc = libc.func("uint64_t aligned_alloc(uint64_t alignment, uint64_t bytes)");
  const free = libc.func("void free(uint64_t p)");
  const memcpy = libc.func("memcpy", "uint64_t", ["uint64_t", "uint64_t", "uint64_t"]);
  const memcpyIn = libc.func("memcpy", "uint64_t", ["uint64_t", "const uint8_t*", "uint64_t"]);
  const memcpyOut = libc.func("memcpy", "uint64_t", [koffi.out("uint8_t*"), "uint64_t", "uint64_t"]);
  const memset = libc.func("uint64_t memset(uint64_t p, int value, uint64_t bytes)");
  const set = (out: Int32Array | BigUint64Array, value: number): number => {
    if (out instanceof Int32Array) out[0] = value;
    else out[0] = BigInt(value);
    return 0;
  };
  let next = 1;
  const modules = new Map<number, ReturnType<typeof koffi.load>>();
  const functions = new Map<number, { name: string; launch: Launch; owner: number }>();
  const programs = new Map<number, { source: string; path: string }>();
  const witnessed = (settings.cudaWitness.get() ?? "").split(",").filter((name) => name !== "");
  const attributes: Record<number, number> = { 16: 4, 75: 9, 76: 0, 97: 232448 };
  const allocate = (out: BigUint64Array, bytes: number): number =>
    set(out, Number(malloc(256, Math.ceil(Math.max(1, bytes) / 256) * 256)));
  const ok = (): number => 0;
  /** The status of a call that has done its work. */
  const after = (..._work: unknown[]): number => 0;
  const copy = (to: number, from: number, bytes: number): number => after(memcpy(to, from, bytes));

  const driver = {
    cuInit: ok,
    cuDriverGetVersion: (out: Int32Array) => set(out, 13000),
    cuDeviceGetCount: (out: Int32Array) => set(out, 1),
    cuDeviceGet: (out: Int32Array, ordinal: number) => set(out, ordinal),
    cuDeviceGetName: (out: Uint8Array) => after(out.set(Buffer.from("emulated\0"))),
    cuDeviceGetPCIBusId: (out: Uint8Array) => after(out.set(Buffer.from("0000:00:00.0\0"))),
    cuDeviceGetAttribute: (out: Int32Array, what: number) => set(out, attributes[what] ?? 0),
    cuDeviceTotalMem_v2: (out: BigUint64Array) => set(out, 4 * 2 ** 30),
    cuMemGetInfo_v2: (a: BigUint64Array, b: BigUint64Array) => after(set(a, 2 ** 31), set(b, 4 * 2 ** 30)),
    cuDevicePrimaryCtxRetain: (out: BigUint64Array) => set(out, 1),
    cuDevicePrimaryCtxReset_v2: ok,
    cuCtxSetCurrent: ok,
    cuStreamCreate: (out: BigUint64Array) => set(out, 1),
    cuStreamSynchronize: ok,
    cuStreamWaitEvent: ok,
    cuEventCreate: (out: BigUint64Array) => set(out, 1),
    cuEventRecord: ok,
    cuEventQuery: ok,
    cuEventSynchronize: ok,
    cuEventElapsedTime_v2: (out: Float32Array) => after(out.fill(0)),
    cuMemAlloc_v2: allocate,
    cuMemHostAlloc: allocate,
    cuMemFree_v2: (p: number) => after(free(p)),
    cuMemFreeHost: (p: number) => after(free(p)),
    cuMemcpyHtoD_v2: (to: number, from: Uint8Array, bytes: number) => after(memcpyIn(to, from, bytes)),
    cuMemcpyDtoH_v2: (to: Uint8Array, from: number, bytes: number) => after(memcpyOut(to, from, bytes)),
    cuMemcpyHtoDAsync_v2: copy,
    cuMemcpyDtoHAsync_v2: copy,
    cuMemcpyDtoDAsync_v2: copy,
    cuMemsetD8Async: (p: number, value: number, bytes: number) => after(memset(p, value, bytes)),
    cuModuleLoadData: (out: BigUint64Array, image: Uint8Array) => {
      modules.set(next, koffi.load(Buffer.from(image).toString("utf8")));
      return set(out, next++);
    },
    cuModuleUnload: (module: number) => {
      modules.get(module)!.unload();
      modules.delete(module);
      for (const [fn, { owner }] of functions) if (owner === module) functions.delete(fn);
      return 0;
    },
    cuModuleGetFunction: (out: BigUint64Array, module: number, name: string) => {
      const launch = modules
        .get(module)!
        .func(`void w_launch_${name}(int gx, int gy, int threads, int shared, uint64_t args)`) as unknown as Launch;
      functions.set(next, { name, launch, owner: module });
      return set(out, next++);
    },
    cuFuncSetAttribute: ok,
    cuMemHostRegister_v2: ok,
    cuMemHostUnregister: ok,
    cuLaunchKernel: (...args: number[]) => {
      const [fn, gx, gy, , bx, , , shared, , , extra] = args;
      const { name, launch } = functions.get(fn)!;
      calls.log.push(name);
      const words = new BigUint64Array(koffi.view(BigInt(extra), 40));
      launch(gx, gy, bx, shared, words[1]);
      return 0;
    },
    // Blocks run one after the other, so that none can wait for another one.
    cuOccupancyMaxActiveBlocksPerMultiprocessor: (out: Int32Array) => set(out, 0),
    cuLaunchCooperativeKernel: (...args: number[]) => {
      const [fn, gx, gy, , bx, , , shared, , params] = args;
      const { name, launch } = functions.get(fn)!;
      calls.log.push(name);
      launch(gx, gy, bx, shared, new BigUint64Array(koffi.view(BigInt(params), 8))[0]);
      return 0;
    },
  };
  const nvrtc = {
    // Programs that were cached without a witness are compiled again.
    nvrtcVersion: (major: Int32Array, minor: Int32Array) => after(set(major, 0), set(minor, witnessed.length)),
    nvrtcCreateProgram: (out: BigUint64Array, source: string) => {
      programs.set(next, { source, path: "" });
      return set(out, next++);
    },
    nvrtcCompileProgram: (program: number) => {
      const entry = programs.get(program)!;
      const text = entry.source.replaceAll(
        "extern __shared__ __align__(16) char memory[];",
        "char* memory = w_dynamic_shared;",
      );
      // What the host compiles may still be no CUDA C.
      for (const architecture of witnessed) compileCuda({ nvrtc: findNvrtc() }, entry.source, architecture);
      entry.path = build(nativeSource("cuda/emulated/emulator.h") + text + emulatorEntries(entry.source), kernelFlags);
      return 0;
    },
    nvrtcGetCUBINSize: (program: number, out: BigUint64Array) => set(out, programs.get(program)!.path.length),
    nvrtcGetCUBIN: (program: number, out: Uint8Array) => after(out.set(Buffer.from(programs.get(program)!.path))),
    nvrtcGetProgramLogSize: (_: number, out: BigUint64Array) => set(out, 0),
    nvrtcGetProgramLog: ok,
    nvrtcDestroyProgram: ([program]: BigUint64Array) => after(programs.delete(Number(program))),
  };
  const named =
    (name: string, call: (...args: never[]) => unknown) =>
    (...args: never[]): number => {
      calls.log.push(name);
      call(...args);
      return 0;
    };
  const gemm = koffi.load(build(nativeSource("cuda/emulated/gemm.cc"), flags));
  const head = "uint64_t handle, int ta, int tb, int m, int n, int k, uint64_t alpha";
  const blas = {
    cublasCreate_v2: (out: BigUint64Array) => set(out, 1),
    cublasSetStream_v2: ok,
    cublasSetWorkspace_v2: ok,
    cublasGetVersion_v2: (_: number, out: Int32Array) => set(out, 0),
    cublasGemmEx: named(
      "cublasGemmEx",
      gemm.func(
        `void w_gemm(${head}, uint64_t a, int at, int lda, uint64_t b, int bt, int ldb, uint64_t beta, uint64_t c, int ct, int ldc, int compute, int algorithm)`,
      ),
    ),
    cublasGemmStridedBatchedEx: named(
      "cublasGemmStridedBatchedEx",
      gemm.func(
        `void w_gemm_strided(${head}, uint64_t a, int at, int lda, int64_t sa, uint64_t b, int bt, int ldb, int64_t sb, uint64_t beta, uint64_t c, int ct, int ldc, int64_t sc, int count, int compute, int algorithm)`,
      ),
    ),
    cublasGemmBatchedEx: named(
      "cublasGemmBatchedEx",
      gemm.func(
        `void w_gemm_batched(${head}, uint64_t a, int at, int lda, uint64_t b, int bt, int ldb, uint64_t beta, uint64_t c, int ct, int ldc, int count, int compute, int algorithm)`,
      ),
    ),
  };
  const lapack = findOpenBlas();
  const algebra = lapack === null ? null : emulatedSolver(lapack, (name) => calls.log.push(name));
  return {
    driver,
    nvrtc,
    blas: { ...blas, ...algebra?.blas },
    lt: emulatedLt((name) => calls.log.push(name)),
    solver: algebra?.solver ?? null,
    dnn: null,
    fft: emulatedFft((name) => calls.log.push(name)),
    nvml: null,
    nvtx: null,
    nccl: null,
    paths: {},
  } as unknown as CudaLibraries;
}
