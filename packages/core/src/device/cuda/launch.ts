// Modules of kernels and their launches: compiled sources loaded into a context, functions looked up by name, and arguments packed
// for the driver.
import { settings } from "../../settings/index.js";
import { compileCuda } from "./compiler.js";
import type { CudaContext } from "./context.js";
import { result64 } from "./driver.js";
import { libraryModule } from "./library-modules.js";

/** CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION. */
const overlapAttribute = 6;
/** Where the configuration of such a launch and its attribute lie, in words of 32 bits behind the arguments. */
const configAt = 1024;
const attributeAt = configAt + 16;
/** The oldest driver that records such launches into graphs. */
const overlapDriver = 12040;

/** Launches kernels with packed arguments in one reused block of memory. */
export class Launcher {
  readonly #words: BigUint64Array;
  readonly #block: number;
  static readonly #argumentWords = 504;
  /** Kernels of a graph are put on the multiprocessors while the one before still runs, and wait for its end there (w_begin). */
  overlaps: boolean;

  constructor(readonly context: CudaContext) {
    const { address, view } = context.hostBlock(8192);
    this.#block = address;
    this.#words = new BigUint64Array(view.buffer, view.byteOffset, 1024);
    this.overlaps =
      Number(context.architecture.slice(3)) >= 90 &&
      context.driverVersion >= overlapDriver &&
      settings.cudaOverlap.get();
    const config = new Uint32Array(view.buffer, view.byteOffset);
    // { grid, block, shared bytes, stream, attributes, 1 }, and the attribute.
    this.#config = config.subarray(configAt, configAt + 14);
    this.#words.set([BigInt(address + 4 * attributeAt), 1n], (configAt + 10) / 2);
    config.set([overlapAttribute, 0, 1], attributeAt);
    const size = Launcher.#argumentWords;
    const at = (word: number): bigint => BigInt(address + 8 * word);
    // { BUFFER_POINTER, block, BUFFER_SIZE, &size, END }
    this.#words.set([0n, 1n, at(0), 2n, at(size), 0n], size);
  }

  readonly #config: Uint32Array;

  /** `begins`: the kernel starts with w_begin. */
  launch(
    fn: number,
    blocks: readonly [number, number],
    threads: number,
    args: readonly (number | bigint)[],
    shared = 0,
    begins = false,
  ): void {
    for (let i = 0; i < args.length; i++) this.#words[i] = BigInt.asUintN(64, BigInt(args[i]));
    const size = Launcher.#argumentWords;
    this.#words[size] = BigInt(args.length * 8);
    const { driver } = this.context.libraries;
    if (begins && this.overlaps && this.context.capturing) {
      this.#config.set([blocks[0], blocks[1], 1, threads, 1, 1, shared]);
      this.#words[(configAt + 8) / 2] = BigInt(this.context.stream);
      const extra = this.#block + 8 * (size + 1);
      const code = driver.cuLaunchKernelEx(this.#block + 4 * configAt, fn, 0, extra);
      this.context.check("cuLaunchKernelEx", code);
      return;
    }
    const code = driver.cuLaunchKernel(
      fn,
      blocks[0],
      blocks[1],
      1,
      threads,
      1,
      1,
      shared,
      this.context.stream,
      0,
      this.#block + 8 * (size + 1),
    );
    this.context.check("cuLaunchKernel", code);
  }

  /** Launches a kernel whose blocks wait for each other: at most as many as the device runs at once. */
  launchTogether(fn: number, blocks: number, threads: number, args: readonly (number | bigint)[]): void {
    const { context } = this;
    const { driver } = context.libraries;
    const each = new Int32Array(1);
    context.check(
      "cuOccupancyMaxActiveBlocksPerMultiprocessor",
      driver.cuOccupancyMaxActiveBlocksPerMultiprocessor(each, fn, threads, 0),
    );
    const grid = Math.max(1, Math.min(blocks, each[0] * context.multiprocessors));
    for (let i = 0; i < args.length; i++) this.#words[i] = BigInt.asUintN(64, BigInt(args[i]));
    const params = 511;
    this.#words[params] = BigInt(this.#block);
    const code = driver.cuLaunchCooperativeKernel(
      fn,
      grid,
      1,
      1,
      threads,
      1,
      1,
      0,
      context.stream,
      this.#block + 8 * params,
    );
    context.check("cuLaunchCooperativeKernel", code);
  }
}

/** Kernels that are written by hand; each module is compiled once per device, when first needed. */
const modules = new WeakMap<CudaContext, Map<string, number>>();

export function libraryFunction(context: CudaContext, name: string): number {
  let functions = modules.get(context);
  if (functions === undefined) {
    functions = new Map();
    modules.set(context, functions);
  }
  let fn = functions.get(name);
  if (fn === undefined) {
    const { key, source } = libraryModule(name);
    let module = functions.get(`module ${key}`);
    if (module === undefined) {
      module = loadModule(context, source);
      functions.set(`module ${key}`, module);
    }
    fn = functionOf(context, module, name);
    functions.set(name, fn);
  }
  return fn;
}

export function loadModule(context: CudaContext, source: string): number {
  const cubin = compileCuda(context.libraries, source, context.architecture);
  return result64("cuModuleLoadData", (out) => context.libraries.driver.cuModuleLoadData(out, cubin) as number);
}

export const functionOf = (context: CudaContext, module: number, name: string): number =>
  result64(
    `cuModuleGetFunction(${name})`,
    (out) => context.libraries.driver.cuModuleGetFunction(out, module, name) as number,
  );

/** CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES. */
const dynamicSharedAttribute = 8;

/** Lets the blocks of a kernel have more than 48 KiB of shared memory. */
export function allowSharedMemory(context: CudaContext, fn: number, bytes: number): void {
  const { driver } = context.libraries;
  context.check("cuFuncSetAttribute", driver.cuFuncSetAttribute(fn, dynamicSharedAttribute, bytes));
}
