// The CPU device: generated C compiled by the system's compiler, OpenBLAS and LAPACK, all through koffi. An Executable is
// one call into C. Each device has its own number of threads and cores.
import { freemem, totalmem } from "node:os";
import koffi from "koffi";
import { bytesOf, checkOptions, type GraphFn, type Node, numel, WeftError } from "../../graph/index.js";
import { settings } from "../../settings/index.js";
import {
  type CompileOptions,
  type Device,
  type DeviceBuffer,
  type DeviceMemory,
  type DeviceTraits,
  type Executable,
  hostTraits,
  type Interruption,
  type KernelInfo,
  OutOfMemoryError,
  type ProcessGroup,
  type ProgramMemory,
  StoppedError,
} from "../contract.js";
import { Lifetime } from "../executable-lru.js";
import { arena } from "../group/index.js";
import { hasAttentionKernel } from "./attention.js";
import { availableMemory } from "./available-memory.js";
import { findCompiler } from "./compiler.js";
import { defaultThreads, maySpin } from "./cores.js";
import { cpuSchedule, type GeneratedProgram, generateProgram } from "./generate.js";
import { generateAsync } from "./generate-async.js";
import { InterpretedExecutable, isInterpretable } from "./interpreter.js";
import { type Extension, runtimeUnits, unitsOf } from "./native-units.js";
import { findOpenBlas } from "./openblas.js";
import { writeProgram } from "./program.js";
import { programFile, readSaved, type SavedProgram, worthSaving, writeSaved } from "./saved-program.js";
import { cachedLibrary, compileInBackground, discard, type LinkOptions, sharedObject } from "./toolchain.js";

export { compileListeners } from "./toolchain.js";

type Native = ReturnType<typeof koffi.load>;
type NativeFunction = ReturnType<Native["func"]>;

class CpuBuffer implements DeviceBuffer {
  constructor(
    readonly address: number,
    readonly bytes: number,
  ) {}
}

/** Options of {@link CpuDevice}. @inline */
interface CpuOptions {
  /** Number of threads; one per core by default. */
  threads?: number;
  /** Core ids to run on. */
  cores?: readonly number[];
  /** Allocate buffers in memory that other processes of this host can map. */
  shared?: boolean;
}

interface LoadedProgram {
  lib: Native;
  program: Omit<SavedProgram, "library">;
  tables: readonly bigint[];
}

const extensionLink: LinkOptions = { resident: true };

/** Seconds from which a call is worth a thread of its own when nobody waits for it synchronously. */
const worthThread = 500e-6;

const mayInterpret = (fn: GraphFn, { eager = false }: CompileOptions): boolean =>
  eager && settings.interpret.get() && settings.debug.get() === 0 && isInterpretable(fn);

/** Rough time of a call: products at a rate that every machine reaches, memory traffic at that of one core. */
const secondsOf = (kernels: readonly KernelInfo[]): number =>
  kernels.reduce((sum, { flops, bytes }) => sum + flops / 10e9 + bytes / 10e9, 0);

interface Loaded {
  lib: Native;
  path: string;
}

/** Loads a shared object; a cached file that cannot be loaded is compiled again. */
function load(units: readonly string[], options: LinkOptions = {}): Loaded {
  const first = sharedObject(units, options);
  try {
    return { lib: koffi.load(first.path), path: first.path };
  } catch (error) {
    discard(first.path);
    if (first.fresh)
      throw new WeftError(
        `a compiled kernel could not be loaded: ${(error as Error).message}; is the cache folder on a file system mounted with noexec? WEFT_CACHE_DIR names another`,
      );
    const { path } = sharedObject(units, options);
    return { lib: koffi.load(path), path };
  }
}

/** The code of a saved program; null if it cannot be loaded. */
function loadSaved(saved: SavedProgram): Native | null {
  const path = cachedLibrary(saved.library);
  if (path === null) return null;
  try {
    return koffi.load(path);
  } catch {
    discard(path);
    return null;
  }
}

interface Runtime {
  activate: NativeFunction;
  loadExtension: NativeFunction;
  alloc: NativeFunction;
  free: NativeFunction;
  copyIn: NativeFunction;
  copyOut: NativeFunction;
  copyPart: NativeFunction;
  setGroup: NativeFunction;
  interruption: Interruption;
  table: number;
  blas: "none" | "threads" | "openmp";
}

let runtime: Runtime | null = null;
const loadedExtensions = new Set<Extension>();

/** W_STOPPED_CODE of native/program.h. */
const stoppedCode = 1 << 21;

/** The error of a library call (see W_TRY of native/program.h); null for other codes. */
function libraryFailure(code: number): Error | null {
  if (code === stoppedCode) return new StoppedError();
  if (code < 1 << 20) return null;
  const reason = code - (1 << 20);
  return reason === 1
    ? new OutOfMemoryError("cpu: no memory for the workspace of a library call; free tensors or use smaller batches", 0)
    : reason === 3
      ? new WeftError("cpu: eigenvalues of general matrices need LAPACK; install OpenBLAS (libopenblas0)")
      : new WeftError(`cpu: a library call failed (${reason})`);
}

/** The device whose threads, cores and group the runtime library is set to. */
let active: CpuDevice | null = null;

function loadRuntime(): Runtime {
  const { lib } = load(runtimeUnits(), { resident: true });
  const init = lib.func("int wr_init(const char* path, int spins)");
  const blas = init(findOpenBlas(), Number(maySpin())) as number;
  const flags = Number(lib.func("uint64_t wr_stop_flags()")());
  const numbers = new Int32Array(koffi.view(BigInt(flags), 8));
  return {
    activate: lib.func("int wr_activate(const int32_t* cores, int count, int threads)"),
    loadExtension: lib.func("int wr_load_extension(const char* library, const char* blas, int threads)"),
    alloc: lib.func("uint64_t wr_alloc(uint64_t bytes)"),
    free: lib.func("void wr_free(uint64_t p)"),
    copyIn: lib.func("void wr_copy(uint64_t to, const uint8_t* from, uint64_t bytes)"),
    copyOut: lib.func("void wr_copy_out(_Out_ uint8_t* to, uint64_t from, uint64_t bytes)"),
    copyPart: lib.func("void wr_copy_part(uint64_t to, uint64_t from, uint64_t bytes, uint64_t size)"),
    setGroup: lib.func("void wr_set_group(uint64_t call, uint64_t group)"),
    interruption: {
      address: flags,
      begin: (call) => {
        numbers[0] = call;
      },
    },
    table: Number(lib.func("uint64_t wr_table()")()),
    blas: (["none", "threads", "openmp"] as const)[blas],
  };
}

/** Rounds a buffer size up, so that freed buffers can be reused: four sizes per power of two. */
function bucket(bytes: number): number {
  if (bytes <= 256) return 256;
  // An eighth of the next power of two, by bit operations where they reach: every result of a small call asks.
  const step = bytes <= 2 ** 30 ? 1 << (29 - Math.clz32(bytes - 1)) : 2 ** (Math.ceil(Math.log2(bytes)) - 3);
  return Math.ceil(bytes / step) * step;
}

/** Size from which a new buffer is compared with the free memory, and what is left for everything else. */
const largeBuffer = 32 << 20;
const margin = Math.min(256 << 20, totalmem() / 32);

/** Whether a new buffer can be used: the system gives out more memory than it has, and ends a process when it is used. */
const fits = (bytes: number): boolean => bytes < largeBuffer || bytes + margin <= availableMemory();

/** Read once: the system call takes longer than a small kernel. */
const poolLimit = totalmem() / 4;

/** The CPU of this machine, by generated C code. */
export class CpuDevice implements Device {
  readonly name = "cpu";
  readonly traits: DeviceTraits;
  /** Number of threads. */
  readonly threads: number;
  /** The library of matrix products. */
  readonly blas: Runtime["blas"];
  /** Measures every kernel of every run; debug output and the profiler turn it on. */
  timing = false;
  readonly interruption: Interruption;
  #group: ProcessGroup | null = null;
  #hasShared = false;
  readonly #runtime: Runtime;
  readonly #cores: Int32Array;
  /** Number of buffers from the system and from the pool. */
  readonly allocations = { fresh: 0, reused: 0 };
  /** Number of programs that were scheduled here, and that were loaded from disk. */
  readonly programs = { planned: 0, saved: 0 };
  readonly #pools = settings.cpuPool.get();
  readonly #pool = new Map<number, number[]>();
  #used = 0;
  #pooled = 0;
  #peak = 0;
  #scratch: CpuBuffer | null = null;

  constructor(options: CpuOptions = {}) {
    checkOptions("cpu", options, ["threads", "cores", "shared"]);
    this.threads = options.threads ?? options.cores?.length ?? settings.threads.get() ?? defaultThreads();
    if (!Number.isInteger(this.threads) || this.threads < 1)
      throw new WeftError(`cpu: threads is ${this.threads}; give a whole number of at least 1`);
    this.#cores = Int32Array.from(options.cores ?? []);
    runtime ??= loadRuntime();
    this.#runtime = runtime;
    this.interruption = runtime.interruption;
    this.#activate();
    this.blas = runtime.blas;
    if (options.shared === true) this.shared = true;
    this.traits = { ...hostTraits, sharesHost: true, threads: this.threads };
  }

  /** True where generated code can be compiled on this machine. */
  static available(): boolean {
    return findCompiler() !== null;
  }

  get group(): ProcessGroup | null {
    return this.#group;
  }

  /** With a shared-memory group, new buffers are readable by its other processes. */
  set group(group: ProcessGroup | null) {
    const was = this.#group?.kind === "shm";
    this.#group = group;
    // Earlier buffers are not shared.
    if (!this.shared && !was) this.trim();
    if (!this.shared && !was && this.#scratch !== null) {
      this.#release(this.#scratch.address);
      this.#used -= this.#scratch.bytes;
      this.#scratch = null;
    }
    if (active === this) this.#useGroup();
  }

  #useGroup(): void {
    this.#runtime.setGroup(this.#group?.native?.call ?? 0, this.#group?.native?.group ?? 0);
  }

  /** Sets the runtime library, which all CPU devices of a process share, to this device. */
  #activate(): void {
    if (this.#runtime.activate(this.#cores, this.#cores.length, this.threads) !== 0)
      throw new WeftError(
        `cpu: this process may not run on cores ${this.#cores.join(", ")}; see taskset -p ${process.pid}`,
      );
    active = this;
    this.#useGroup();
  }

  /** Whether new buffers are shared without a group, as in worker processes. */
  shared = false;

  #reserve(size: number): number {
    if (!this.shared && this.#group?.kind !== "shm") return Number(this.#runtime.alloc(size));
    this.#hasShared = true;
    return arena.allocate(size) || Number(this.#runtime.alloc(size));
  }

  #release(address: number): void {
    if (!this.#hasShared || !arena.free(address)) this.#runtime.free(address);
  }

  allocate(bytes: number): CpuBuffer {
    const size = this.#pools ? bucket(bytes) : bytes;
    const pooled = this.#pool.get(size)?.pop();
    if (pooled !== undefined) {
      this.allocations.reused++;
      this.#pooled -= size;
      this.#track(bytes);
      return new CpuBuffer(pooled, bytes);
    }
    const room = settings.cpuMemory.get() || totalmem();
    const address = this.#used + bytes > room || !fits(size) ? 0 : this.#reserve(size);
    if (address === 0)
      throw new OutOfMemoryError(
        `cpu: no memory for a tensor of ${bytes} bytes (${this.#used} in use, ${room} in all, ${availableMemory()} available)`,
        bytes,
      );
    this.allocations.fresh++;
    this.#track(bytes);
    return new CpuBuffer(address, bytes);
  }

  #track(bytes: number): void {
    this.#used += bytes;
    if (this.#used > this.#peak) this.#peak = this.#used;
  }

  free(buffer: DeviceBuffer): void {
    const { address, bytes } = buffer as CpuBuffer;
    this.#used -= bytes;
    if (!this.#pools) {
      this.#release(address);
      return;
    }
    const size = bucket(bytes);
    this.#pooled += size;
    const list = this.#pool.get(size);
    if (list === undefined) this.#pool.set(size, [address]);
    else list.push(address);
    // Pooled memory is bounded by live memory, or by a quarter of the host memory.
    if (this.#pooled > this.#used && this.#pooled > poolLimit) this.trim();
  }

  trim(): void {
    for (const list of this.#pool.values()) for (const address of list) this.#release(address);
    this.#pool.clear();
    this.#pooled = 0;
  }

  upload(buffer: DeviceBuffer, from: Uint8Array): void {
    if (from.byteLength > 0) this.#runtime.copyIn((buffer as CpuBuffer).address, from, from.byteLength);
  }

  download(buffer: DeviceBuffer, into: Uint8Array): void {
    if (into.byteLength > 0) this.#runtime.copyOut(into, (buffer as CpuBuffer).address, into.byteLength);
  }

  resize(buffer: DeviceBuffer, bytes: number): DeviceBuffer {
    const resized = this.allocate(bytes);
    this.#runtime.copyPart(resized.address, (buffer as CpuBuffer).address, Math.min(bytes, buffer.bytes), bytes);
    return resized;
  }

  /** Scratch memory, shared by all programs because they run one at a time. */
  #scratchFor(bytes: number): number {
    if (this.#scratch === null || this.#scratch.bytes < bytes) {
      if (this.#scratch !== null) this.free(this.#scratch);
      this.#scratch = null;
      this.#scratch = this.allocate(bytes);
    }
    return this.#scratch.address;
  }

  /** The generated C source of a function. */
  source(fn: GraphFn, options: CompileOptions = {}): string {
    return writeProgram(cpuSchedule(fn, options)).units.join("\n");
  }

  supportsCustomKernel(node: Node<"custom">): boolean {
    return hasAttentionKernel(node);
  }

  programMemory(fn: GraphFn, options: CompileOptions): ProgramMemory {
    return cpuSchedule(fn, options);
  }

  /** The kernels of a function without compiling it, for predictions. */
  static kernelsOf(fn: GraphFn, options: CompileOptions = {}): KernelInfo[] {
    return writeProgram(cpuSchedule(fn, options)).kernels;
  }

  /** Loads libraries of rarer ops, each once per process. */
  #need(extensions: readonly Extension[]): void {
    for (const extension of extensions) {
      if (loadedExtensions.has(extension)) continue;
      const { path } = sharedObject(unitsOf(extension), extensionLink);
      const blas = this.blas === "none" ? null : findOpenBlas();
      if (this.#runtime.loadExtension(path, blas, this.threads) !== 0) {
        discard(path);
        throw new WeftError(`cpu: the library ${extension} could not be loaded; the next call compiles it again`);
      }
      loadedExtensions.add(extension);
    }
  }

  /** A program that was compiled by an earlier process. */
  #saved(fn: GraphFn, file: string | null): LoadedProgram | null {
    const saved = file === null ? null : readSaved(file, fn);
    if (saved === null) return null;
    this.#need(saved.extensions);
    const lib = loadSaved(saved);
    if (lib === null) return null;
    this.programs.saved++;
    return { lib, program: saved, tables: [] };
  }

  /** Compiles generated code, unless that has happened before, and loads it. */
  #load(generated: GeneratedProgram, file: string | null): LoadedProgram {
    const { units, tables, ...program } = generated;
    this.programs.planned++;
    this.#need(program.extensions);
    const { lib, path } = load(units);
    if (file !== null && program.kernels.length >= worthSaving && tables.length === 0) writeSaved(file, path, program);
    return { lib, program, tables };
  }

  #checkGroup({ tables }: GeneratedProgram, group: ProcessGroup | null): void {
    if (group === null && tables.length > 0)
      throw new WeftError(
        "this function exchanges data with other processes, and this one is in no group; call distributed.init() of @weft/cluster first",
      );
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    if (mayInterpret(fn, options)) return new InterpretedExecutable(fn, this, options);
    const file = programFile(fn, options);
    const saved = this.#saved(fn, file);
    if (saved !== null) return this.#executable(fn, saved);
    const generated = generateProgram(fn, options);
    this.#checkGroup(generated, this.#group);
    return this.#executable(fn, this.#load(generated, file));
  }

  compilesAtOnce(fn: GraphFn, options: CompileOptions): boolean {
    return mayInterpret(fn, options);
  }

  async compileAsync(fn: GraphFn, options: CompileOptions): Promise<Executable> {
    if (mayInterpret(fn, options)) return new InterpretedExecutable(fn, this, options);
    const file = programFile(fn, options);
    const saved = this.#saved(fn, file);
    if (saved !== null) return this.#executable(fn, saved);
    // Workers have other groups for other programs meanwhile.
    const group = this.#group;
    const generated = await generateAsync(fn, options);
    this.#checkGroup(generated, group);
    for (const extension of generated.extensions) await compileInBackground(unitsOf(extension), extensionLink);
    await compileInBackground(generated.units, {}, options.signal);
    return this.#executable(fn, this.#load(generated, file));
  }

  #executable(fn: GraphFn, { lib, program, ...loaded }: LoadedProgram): Executable {
    const { kernels, scratchBytes } = program;
    const aliases: ReadonlyMap<number, number> = new Map(program.aliases);
    let run: NativeFunction | null = lib.func(
      "int weft_run(const double* a, uint64_t rt, int threads, _Out_ double* times, const int64_t* tables)",
    );
    const inputs = fn.params.length;
    const outputBytes = fn.outputs.map((o) => numel(o.shape) * bytesOf(o.dtype));
    const ownAddresses = new Float64Array(inputs + outputBytes.length + 1);
    const times = new Float64Array(kernels.length);
    const tables = BigInt64Array.from(loaded.tables);
    const isLong = secondsOf(kernels) > worthThread && kernels.every(({ kind }) => kind !== "collective");
    // Idle threads wait inside the runtime library, so that only calls that run in the background are in this code.
    let running = 0;
    let isReleased = false;
    const unload = (): void => {
      run = null;
      lib.unload();
    };
    const lifetime = new Lifetime(() => {
      isReleased = true;
      if (running === 0) unload();
    });
    const freeOutputs = (outputs: readonly DeviceBuffer[]): void =>
      outputs.forEach((buffer, i) => {
        if (!aliases.has(i)) this.free(buffer);
      });
    /** Writes the addresses of a call and allocates its results. */
    const issue = (buffers: readonly DeviceBuffer[], addresses: Float64Array, scratch: number): DeviceBuffer[] => {
      const outputs: DeviceBuffer[] = [];
      for (let i = 0; i < inputs; i++) addresses[i] = (buffers[i] as CpuBuffer).address;
      try {
        for (let i = 0; i < outputBytes.length; i++) {
          const alias = aliases.get(i);
          outputs.push(alias === undefined ? this.allocate(outputBytes[i]) : buffers[alias]);
          addresses[inputs + i] = (outputs[i] as CpuBuffer).address;
        }
      } catch (error) {
        freeOutputs(outputs);
        throw error;
      }
      addresses[inputs + outputBytes.length] = scratch;
      return outputs;
    };
    const checked = (outputs: DeviceBuffer[], failed: number): DeviceBuffer[] => {
      if (failed === 0) return outputs;
      freeOutputs(outputs);
      throw (
        libraryFailure(failed) ?? this.#group?.failure(failed) ?? new WeftError(`cpu: a program failed (${failed})`)
      );
    };
    return {
      kernels,
      scratchBytes,
      aliases,
      isLong,
      get lastTimes() {
        return times;
      },
      release: () => lifetime.release(),
      run: (buffers) => {
        lifetime.check();
        if (active !== this) this.#activate();
        const outputs = issue(buffers, ownAddresses, scratchBytes > 0 ? this.#scratchFor(scratchBytes) : 0);
        return checked(
          outputs,
          run!(ownAddresses, this.#runtime.table, this.threads, this.timing ? times : null, tables),
        );
      },
      runAsync: (buffers) => {
        lifetime.check();
        // A device with cores of its own computes on a thread that is pinned to them: the calling one.
        if (this.timing || this.#cores.length > 0) return null;
        if (active !== this) this.#activate();
        // Calls in the background may overlap with others: each has its own addresses and scratch memory.
        const addresses = new Float64Array(ownAddresses.length);
        const scratch = scratchBytes > 0 ? this.allocate(scratchBytes) : null;
        let outputs: DeviceBuffer[];
        try {
          outputs = issue(buffers, addresses, scratch?.address ?? 0);
        } catch (error) {
          if (scratch !== null) this.free(scratch);
          throw error;
        }
        running++;
        return new Promise<number>((resolve, reject) => {
          run!.async(
            ...([addresses, this.#runtime.table, this.threads, null, tables] as const),
            (error: Error | null, failed: number) => (error ? reject(error) : resolve(failed)),
          );
        })
          .finally(() => {
            // Also keeps the addresses alive during the call.
            addresses.fill(0);
            if (scratch !== null) this.free(scratch);
            if (--running === 0 && isReleased) unload();
          })
          .then((failed) => checked(outputs, failed));
      },
    };
  }

  synchronize(): void {}

  memory(): DeviceMemory {
    return {
      usedBytes: this.#used,
      pooledBytes: this.#pooled,
      peakBytes: this.#peak,
      totalBytes: Math.min(
        totalmem(),
        freemem() + this.#used + this.#pooled,
        settings.cpuMemory.get() || Number.POSITIVE_INFINITY,
      ),
    };
  }
}
