// Small programs outside jit without the C compiler: the first runs are computed in JavaScript by the reference rules, and the
// compiler works in the background. Which runs are interpreted depends on the program and the number of its runs alone, never on
// how long the compiler takes, so that results are reproducible to the last bit.
import { opCost } from "../../cost/index.js";
import { bytesOf, functionOrder, type GraphFn, type Node, numel, type OpName, storageView } from "../../graph/index.js";
import { evaluate, factorizationOps, type Value } from "../../ops/index.js";
import type { CompileOptions, Device, DeviceBuffer, Executable, KernelInfo } from "../contract.js";
import { Lifetime } from "../executable-lru.js";

/** Number of runs that are interpreted; a program that runs more often is compiled. */
const interpretedRuns = 16;
/** The run at which the compiler starts in the background. */
const backgroundRun = 4;
/** Maximum number of operations on elements in one run; about a millisecond. */
const maxOperations = 16384;
/** Maximum number of nodes. */
const maxNodes = 64;

/** Ops whose results depend on the library that computes them, that communicate, or that are long. */
const compiledOps: ReadonlySet<OpName> = new Set<OpName>([
  ...factorizationOps,
  ...(["scan", "custom", "collective", "conv"] as OpName[]),
]);

/** Whether a program is small enough to be interpreted. */
export function isInterpretable(fn: GraphFn): boolean {
  const order = functionOrder(fn);
  if (order.length > maxNodes) return false;
  let operations = 0;
  for (const node of order) {
    if (compiledOps.has(node.op) || node.outputs !== null) return false;
    operations += numel(node.shape);
    for (const input of node.inputs) operations += numel(input.shape);
    if (node.op === "matmul" || node.op === "argsort") operations += opCost(node).flops;
  }
  return operations <= maxOperations;
}

export class InterpretedExecutable implements Executable {
  readonly scratchBytes = 0;
  readonly isLong = false;
  readonly aliases: ReadonlyMap<number, number> = new Map();
  readonly #lifetime = new Lifetime(() => this.#compiled?.release());
  readonly #fn: GraphFn;
  readonly #device: Device;
  readonly #options: CompileOptions;
  #runs = 0;
  #compiled: Executable | null = null;

  constructor(fn: GraphFn, device: Device, options: CompileOptions) {
    this.#fn = fn;
    this.#device = device;
    this.#options = { ...options, eager: false };
  }

  get kernels(): readonly KernelInfo[] {
    return this.#isCompiled ? this.#compiled!.kernels : [{ name: "interpreted", kind: "kernel", flops: 0, bytes: 0 }];
  }

  get lastTimes(): Float64Array | undefined {
    return this.#isCompiled ? this.#compiled!.lastTimes : undefined;
  }

  get #isCompiled(): boolean {
    return this.#compiled !== null && this.#runs > interpretedRuns;
  }

  run(inputs: readonly DeviceBuffer[]): DeviceBuffer[] {
    this.#lifetime.check();
    this.#runs++;
    if (this.#runs > interpretedRuns) {
      this.#compiled ??= this.#device.compile(this.#fn, this.#options);
      return this.#compiled.run(inputs);
    }
    if (this.#runs === backgroundRun) this.#compileInBackground();
    const values = inputs.map((buffer, i) => this.#read(buffer, this.#fn.params[i]));
    const results: DeviceBuffer[] = [];
    try {
      for (const value of evaluate(this.#fn, values, null)) results.push(this.#write(value));
    } catch (error) {
      for (const buffer of results) this.#device.free(buffer);
      throw error;
    }
    return results;
  }

  release(): void {
    this.#lifetime.release();
  }

  /** An error is reported by the run that needs the compiled program. */
  #compileInBackground(): void {
    this.#device.compileAsync?.(this.#fn, this.#options).then(
      (executable) => {
        if (this.#compiled !== null || this.#lifetime.isReleased) executable.release();
        else this.#compiled = executable;
      },
      () => {},
    );
  }

  #read(buffer: DeviceBuffer, node: Node): Value {
    const bytes = new Uint8Array(numel(node.shape) * bytesOf(node.dtype));
    this.#device.download(buffer, bytes);
    return { shape: node.shape, dtype: node.dtype, data: storageView(node.dtype, bytes.buffer, 0, numel(node.shape)) };
  }

  #write({ data }: Value): DeviceBuffer {
    const buffer = this.#device.allocate(data.byteLength);
    this.#device.upload(buffer, new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
    return buffer;
  }
}
