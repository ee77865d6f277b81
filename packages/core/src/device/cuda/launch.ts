// Modules of kernels and their launches: compiled sources loaded into a context, functions looked up by name, and arguments packed
// for the driver.
import { nativeSource } from "../native-source.js";
import { compileCuda } from "./compiler.js";
import type { CudaContext } from "./context.js";
import { result64 } from "./driver.js";
import { libraryModule } from "./library-modules.js";

/** Launches kernels with packed arguments in one reused block of memory. */
export class Launcher {
  readonly #words: BigUint64Array;
  readonly #block: number;
  static readonly #argumentWords = 504;

  constructor(readonly context: CudaContext) {
    const { address, view } = context.hostBlock(4096);
    this.#block = address;
    this.#words = new BigUint64Array(view.buffer, view.byteOffset, 512);
    const size = Launcher.#argumentWords;
    const at = (word: number): bigint => BigInt(address + 8 * word);
    // { BUFFER_POINTER, block, BUFFER_SIZE, &size, END }
    this.#words.set([0n, 1n, at(0), 2n, at(size), 0n], size);
  }

  launch(
    fn: number,
    blocks: readonly [number, number],
    threads: number,
    args: readonly (number | bigint)[],
    shared = 0,
  ): void {
    for (let i = 0; i < args.length; i++) this.#words[i] = BigInt.asUintN(64, BigInt(args[i]));
    const size = Launcher.#argumentWords;
    this.#words[size] = BigInt(args.length * 8);
    const { driver } = this.context.libraries;
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

export function libraryFunction(context: CudaContext, name: string, text: "library" | "linalg" = "library"): number {
  let functions = modules.get(context);
  if (functions === undefined) {
    functions = new Map();
    modules.set(context, functions);
  }
  let fn = functions.get(name);
  if (fn === undefined) {
    const { key, source } =
      text === "linalg" ? { key: "linalg", source: nativeSource("cuda/native/linalg.cu") } : libraryModule(name);
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
