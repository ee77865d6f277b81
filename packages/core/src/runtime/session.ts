// The session of a device: runs pending graphs and caches compiled functions. This module also holds the current device.
import { createHash } from "node:crypto";
import {
  type Device,
  type DeviceBuffer,
  defaultDevice,
  type Executable,
  type ExecutableHandle,
  ExecutableLru,
} from "../device/index.js";
import {
  type Aval,
  attachValue,
  avalOf,
  bytesOf,
  type GraphFn,
  makeLeaf,
  makeStorage,
  type Node,
  numel,
  printGraph,
  type Storage,
  showAval,
  siteOf,
  storageView,
  structuralKey,
  topological,
  WeftError,
} from "../graph/index.js";
import { fromComplexes, make, type Value } from "../ops/index.js";
import { type CustomKernelSupport, copyGraph, recognizeAttention, simplify } from "../transform/index.js";
import { debugLevel, logRun } from "./debug.js";
import { ConstantLifter } from "./lift.js";
import { memory, TensorValue } from "./memory.js";
import { profiler } from "./profile.js";
import { taped } from "./tape.js";

/** Compiled functions that stay loaded although nobody holds them; the least recently used one is released first. */
const maxExecutables = 1024;

interface CompiledFunction {
  readonly executable: Executable;
  readonly fn: GraphFn;
  readonly key: string;
  /** Memory of the results that a call allocates. */
  readonly bytes: number;
}

/**
 * A compiled function that its holder may run. It stays loaded until the holder calls `release`, or until the holder itself
 * is garbage collected.
 */
export class Compiled implements CompiledFunction {
  readonly executable: Executable;
  readonly fn: GraphFn;
  readonly key: string;
  readonly bytes: number;
  readonly #handle: ExecutableHandle<CompiledFunction>;

  constructor(handle: ExecutableHandle<CompiledFunction>) {
    ({ executable: this.executable, fn: this.fn, key: this.key, bytes: this.bytes } = handle.value);
    this.#handle = handle;
    collected.register(this, handle, this);
  }

  /** Ends this holder's use; the code is unloaded when the session's cache has dropped it too. */
  release(): void {
    collected.unregister(this);
    this.#handle.release();
  }
}

const collected = new FinalizationRegistry<ExecutableHandle<CompiledFunction>>((handle) => handle.release());

export class Session {
  readonly #compiled: ExecutableLru<CompiledFunction>;
  #lifter = new ConstantLifter();
  compiles = 0;
  runs = 0;
  kernelsRun = 0;
  /** Called after every run, with kernel times if the device has timers. Timing slows runs down. */
  readonly watchers = new Set<(executable: Executable, startMs: number) => void>();

  constructor(
    readonly device: Device,
    executables = maxExecutables,
  ) {
    this.#compiled = new ExecutableLru(executables);
  }

  /** The compiled form of a function, from the cache when an equal one was compiled before. The caller releases it. */
  compile(fn: GraphFn, donated: readonly boolean[] = [], constants: ReadonlyMap<number, Value> = new Map()): Compiled {
    return new Compiled(this.#acquire(fn, donated, constants));
  }

  #acquire(
    fn: GraphFn,
    donated: readonly boolean[] = [],
    constants: ReadonlyMap<number, Value> = new Map(),
  ): ExecutableHandle<CompiledFunction> {
    const key = `${structuralKey(fn)}${donated.some(Boolean) ? `/${donated.map(Number).join("")}` : ""}${constantsKey(constants)}`;
    return this.#compiled.acquire(key, () => this.#compileNew(fn, key, donated, constants));
  }

  #compileNew(
    fn: GraphFn,
    key: string,
    donated: readonly boolean[],
    constants: ReadonlyMap<number, Value>,
  ): CompiledFunction {
    const keep = this.customKernelSupport();
    const copy = copyGraph(fn);
    const simple =
      keep === null ? simplify(copy) : simplify(recognizeAttention(copy, { customKernelSupport: () => keep }), keep);
    assertClosed(simple);
    const executable = profiler.span("compile", () => this.device.compile(simple, { donated, constants }));
    if (debugLevel() >= 3) console.error(printGraph(simple));
    if (debugLevel() >= 4) console.error(this.device.source?.(simple, { donated, constants }) ?? "(no source)");
    // Memory that a call adds. Scratch memory is reused, and results that alias a donated argument add nothing, so that a
    // large training step does not trigger a collection every time.
    const bytes = simple.outputs.reduce(
      (n, o, i) => (executable.aliases.has(i) ? n : n + numel(o.shape) * bytesOf(o.dtype)),
      0,
    );
    this.compiles++;
    return { executable, fn: simple, key, bytes };
  }

  /** The custom functions that the device has kernels for; null if it has none. */
  customKernelSupport(): CustomKernelSupport | null {
    const { device } = this;
    return device.supportsCustomKernel === undefined
      ? null
      : (node, usesOutput) => device.supportsCustomKernel!(node, usesOutput);
  }

  /** Runs a compiled function on values; donated values are consumed. */
  run(
    compiled: CompiledFunction,
    inputs: readonly TensorValue[],
    donated: readonly boolean[] = [],
    sites: readonly (string | null)[] = [],
    wanted = false,
  ): TensorValue[] {
    const { executable, fn } = compiled;
    memory.relieve(compiled.bytes, this.device);
    const buffers = inputs.map((value) => this.#bufferOf(value));
    const watched = debugLevel() > 0 || profiler.active;
    this.device.timing = watched || this.watchers.size > 0;
    const start = this.device.timing ? performance.now() : 0;
    const results = memory.withRetry(this.device, () => executable.run(buffers, wanted));
    this.runs++;
    this.kernelsRun += executable.kernels.length;
    for (const watch of this.watchers) watch(executable, start);
    if (watched) {
      const milliseconds = performance.now() - start;
      logRun(this.device, executable, milliseconds, compiled.key);
      profiler.record(executable, start, milliseconds);
    }
    donated.forEach((isDonated, i) => {
      if (!isDonated) return;
      const buffer = inputs[i].takeBuffer();
      if (!results.includes(buffer)) this.device.free(buffer);
    });
    return results.map((buffer, i) => new TensorValue(this.device, buffer, avalOf(fn.outputs[i]), sites[i] ?? null));
  }

  #bufferOf(value: TensorValue): DeviceBuffer {
    if (value.device !== this.device)
      throw new WeftError(
        `a ${showAval(value.aval)} tensor lives on ${value.device.name}, the current device is ${this.device.name}; ` +
          "read it with data() and make it again here with weft.tensor",
      );
    return value.buffer;
  }

  /**
   * Computes the given nodes, and those on the way that are marked as kept, and stores their values. `wanted`: the values are
   * read next.
   */
  realize(nodes: readonly Node[], wanted = false): void {
    const roots = [...new Set(nodes.filter((node) => node.value === null))];
    if (roots.length === 0) return;
    const order = topological(roots, (node) => node.value !== null);
    const params = order.filter((node) => node.value !== null);
    const results = [
      ...roots,
      ...order.filter((node) => kept.has(node) && node.value === null && !roots.includes(node)),
    ];
    const exact = { params, outputs: results };
    const fn = this.#compiled.has(structuralKey(exact)) ? exact : this.#lifter.lift(exact);
    const handle = this.#acquire(fn);
    let values: TensorValue[];
    try {
      const constants = fn.params.slice(params.length).map((node) => this.#uploadConstant(node as Node<"const">));
      values = this.run(
        handle.value,
        [...params.map((param) => param.value as TensorValue), ...constants],
        [],
        results.map(siteOf),
        wanted,
      );
      for (const value of constants) value.free();
    } finally {
      handle.release();
    }
    results.forEach((node, i) => {
      attachValue(node, values[i]);
      kept.delete(node);
      detach(node);
    });
  }

  #uploadConstant({ attrs: { value, dtype } }: Node<"const">): TensorValue {
    const number = typeof value === "number" ? { re: value, im: 0 } : value;
    return this.upload({ shape: [], dtype }, fromComplexes(dtype, [], [number]).data);
  }

  upload(aval: Aval, data: Storage): TensorValue {
    const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
    const expected = numel(aval.shape) * bytesOf(aval.dtype);
    if (bytes.byteLength !== expected)
      throw new WeftError(`${bytes.byteLength} bytes do not fill a tensor of ${expected} bytes`);
    memory.relieve(expected, this.device);
    const buffer = memory.withRetry(this.device, () => this.device.allocate(expected));
    this.device.upload(buffer, bytes);
    return new TensorValue(this.device, buffer, aval, null);
  }

  /** The elements of a value, in a new array or in `into`. */
  download(value: TensorValue, into?: Storage): Storage {
    value.assertUsable();
    const { dtype, shape } = value.aval;
    if (into !== undefined) {
      value.device.download(value.buffer, new Uint8Array(into.buffer, into.byteOffset, into.byteLength));
      return into;
    }
    const fetched = value.device.fetch?.(value.buffer) ?? null;
    if (fetched !== null) return storageView(dtype, fetched, 0, numel(shape));
    const data = makeStorage(dtype, numel(shape));
    value.device.download(value.buffer, new Uint8Array(data.buffer));
    return data;
  }

  /** The elements if they are available without waiting for the device; otherwise null. */
  peek(value: TensorValue): Storage | null {
    if (value.device.peek === undefined) return this.download(value);
    value.assertUsable();
    const bytes = value.device.peek(value.buffer);
    if (bytes === null) return null;
    return storageView(value.aval.dtype, bytes.slice().buffer, 0, numel(value.aval.shape));
  }

  /** The same without blocking the event loop, if the device supports it. */
  async downloadAsync(value: TensorValue, into?: Storage): Promise<Storage> {
    value.assertUsable();
    const { dtype, shape } = value.aval;
    const bytes = into && new Uint8Array(into.buffer, into.byteOffset, into.byteLength);
    const fetching = value.device.fetchAsync?.(value.buffer, bytes) ?? null;
    if (fetching === null) return this.download(value, into);
    const fetched = await fetching;
    return into ?? storageView(dtype, fetched, 0, numel(shape));
  }

  /** Number of compiled functions in the cache. */
  get cached(): number {
    return this.#compiled.size;
  }

  /** Empties the cache of compiled functions; those without a holder are unloaded. */
  forgetCompiled(): void {
    this.#compiled.clear();
  }
}

/** Cache key of constant parameters. */
function constantsKey(constants: ReadonlyMap<number, Value>): string {
  if (constants.size === 0) return "";
  const hash = createHash("sha256");
  for (const [i, { data }] of constants)
    hash.update(`${i}:`).update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return `/${hash.digest("hex").slice(0, 32)}`;
}

function assertClosed(fn: GraphFn): void {
  const params = new Set(fn.params);
  for (const node of topological(fn.outputs, (n) => params.has(n))) {
    if (node.op === "input" && !params.has(node))
      throw new WeftError(
        "a tensor that exists only inside a traced function (vmap, jit, scan) has no value: it was read inside the " +
          "function, or stored and used outside; return it from the function, or show it with weft.debug.print",
      );
  }
}

/** Nodes whose values are stored when they are intermediate results, such as the parameters of a training loop. */
const kept = new WeakSet<Node>();
export const materializeWhenComputed = (node: Node): void => {
  if (node.value === null) kept.add(node);
};

/** Number of nested traces, which may need the inputs of computed nodes. */
let traces = 0;
const waiting: Node[] = [];

/** Drops the inputs of a computed node, unless a trace may still differentiate through it. */
function detach(node: Node): void {
  if (traces > 0) {
    waiting.push(node);
    return;
  }
  for (const input of node.inputs) (input.value as TensorValue | null)?.readerDone();
  makeLeaf(node);
}

/** Runs a function that a transform traces. */
export function tracing<T>(body: () => T): T {
  if (traces === 0) collectives = 0;
  traces++;
  try {
    return body();
  } finally {
    traces--;
    if (traces === 0) for (const node of waiting.splice(0)) detach(node);
  }
}

let collectives = 0;

/** Sequence number of the next collective in the traced program; null outside a trace. */
export const nextCollective = (): number | null => (traces === 0 ? null : collectives++);

export const isTracing = (): boolean => traces > 0;

/** A leaf node that holds a value. */
export function dataNode(value: TensorValue): Node {
  const node = make("data", [], { shape: value.aval.shape, dtype: value.aval.dtype });
  attachValue(node, value);
  return node;
}

let current: Session | null = null;
let makeDefault: () => Device = defaultDevice;

/** Replaces the default device, for packages with their own devices. */
export function setDefaultDevice(make: () => Device): void {
  makeDefault = make;
}

/** The session of the current device. */
export function session(): Session {
  current ??= useDevice(makeDefault());
  return current;
}

/**
 * The graph to differentiate (with respect to `wrt`, if known), with patterns replaced by the custom functions that the device
 * has forward and gradient kernels for.
 */
export const forGradient = (
  outputs: readonly Node[],
  params: readonly Node[],
  wrt?: readonly Node[],
): readonly Node[] =>
  recognizeAttention(
    { params, outputs },
    { customKernelSupport: () => session().customKernelSupport(), gradient: true, wrt },
  ).outputs;

/** One session per device, so that compiled functions are reused when the device is chosen again. */
const sessions = new WeakMap<Device, Session>();

/** Runs everything that follows on another device; tensors of the old device stay there. */
export function useDevice(device: Device): Session {
  const used = taped(device);
  current = sessions.get(used) ?? new Session(used);
  sessions.set(used, current);
  profiler.ranges = device.ranges ?? null;
  return current;
}

/** Maximum depth of a pending graph; deeper graphs are run, so that a loop that reads no value stays bounded. */
const maxPendingDepth = 400;

export function boundPending(node: Node): void {
  if (node.depth > maxPendingDepth && node.value === null && traces === 0) session().realize([node]);
}
