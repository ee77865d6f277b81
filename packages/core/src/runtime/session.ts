// The session of a device: runs pending graphs and caches compiled functions. This module also holds the current device.
import { createHash } from "node:crypto";
import {
  type CompileOptions,
  type Device,
  type DeviceBuffer,
  defaultDevice,
  type Executable,
  type ExecutableHandle,
  ExecutableLru,
  type ProgramMemory,
} from "../device/index.js";
import {
  type Aval,
  attachValue,
  avalOf,
  bytesOf,
  type GraphFn,
  makeStorage,
  type Node,
  numel,
  printGraph,
  type Storage,
  showAval,
  showValue,
  siteOf,
  storageBytes,
  storageView,
  structuralKey,
  structureOf,
  topological,
  WeftError,
} from "../graph/index.js";
import { build, fromComplexes, make, type Value } from "../ops/index.js";
import { type CustomKernelSupport, copyGraph, recognizeAttention, simplify } from "../transform/index.js";
import { assertClosed } from "./closed.js";
import { Compiled, type CompiledFunction } from "./compiled.js";
import { debugLevel, logRun } from "./debug.js";
import { ConstantLifter } from "./lift.js";
import { memoryManager, TensorValue } from "./memory.js";
import { isSearching, reportFound, searchFunction } from "./nans.js";
import { profiler } from "./profile.js";
import { taped } from "./tape.js";
import { detach, isTracing } from "./tracing.js";

/** Compiled functions that stay loaded although nobody holds them; the least recently used one is released first. */
const maxExecutables = 1024;

/** Work that computes nodes: a function of the computed nodes that they depend on, and of constants. */
interface Pending {
  readonly params: readonly Node[];
  readonly results: readonly Node[];
  readonly fn: GraphFn;
  readonly key: string;
}

/** Bytes of results that do not take the memory of a donated argument. */
const ownResultBytes = ({ outputs }: GraphFn, { aliases }: ProgramMemory): number =>
  outputs.reduce((n, { shape, dtype }, i) => (aliases.has(i) ? n : n + numel(shape) * bytesOf(dtype)), 0);

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
    const key = functionKey(fn, donated, constants);
    return new Compiled(this.#compiled.acquire(key, () => this.#compileNew(fn, key, { donated, constants })));
  }

  /** The same without blocking the event loop while a compiler runs, if the device supports it. */
  async compileAsync(
    fn: GraphFn,
    donated: readonly boolean[] = [],
    constants: ReadonlyMap<number, Value> = new Map(),
  ): Promise<Compiled> {
    const key = functionKey(fn, donated, constants);
    if (!this.#compiled.has(key)) await this.#compileInBackground(fn, key, { donated, constants });
    return this.compile(fn, donated, constants);
  }

  /** Memory that the program of a function needs besides its arguments: for intermediate values, and for results of its own. */
  memoryOf(
    fn: GraphFn,
    donated: readonly boolean[] = [],
    constants: ReadonlyMap<number, Value> = new Map(),
  ): { scratchBytes: number; resultBytes: number } {
    const known = (memory: ProgramMemory) => ({
      scratchBytes: memory.scratchBytes,
      resultBytes: ownResultBytes(fn, memory),
    });
    const planned = this.device.programMemory?.(this.simplified(fn), { donated, constants });
    if (planned !== undefined) return known(planned);
    const compiled = this.compile(fn, donated, constants);
    const memory = known(compiled.executable);
    compiled.release();
    return memory;
  }

  /** A copy of a function in the form that the device compiles, and that planner and partitioner accept. */
  simplified(fn: GraphFn): GraphFn {
    const keep = this.customKernelSupport();
    const copy = copyGraph(fn);
    const simple =
      keep === null ? simplify(copy) : simplify(recognizeAttention(copy, { customKernelSupport: () => keep }), keep);
    assertClosed(simple.outputs, simple.params);
    return simple;
  }

  #compileNew(fn: GraphFn, key: string, options: CompileOptions): CompiledFunction {
    const simple = this.simplified(fn);
    const executable = profiler.span("compile", () => this.device.compile(simple, options));
    return this.#compiledFunction(simple, key, options, executable);
  }

  #compiledFunction(simple: GraphFn, key: string, options: CompileOptions, executable: Executable): CompiledFunction {
    if (debugLevel() >= 3) console.error(printGraph(simple));
    if (debugLevel() >= 4) console.error(this.device.source?.(simple, options) ?? "(no source)");
    // Memory that a call adds. Scratch memory is reused, and results that alias a donated argument add nothing, so that a
    // large training step does not trigger a collection every time.
    const bytes = ownResultBytes(simple, executable);
    this.compiles++;
    return { executable, fn: simple, key, bytes };
  }

  /** The custom functions that the device has kernels for; null if it has none. */
  customKernelSupport(): CustomKernelSupport | null {
    const { device } = this;
    return device.supportsCustomKernel === undefined ? null : (node) => device.supportsCustomKernel!(node);
  }

  /** Throws where a node of a function gives NaN or an infinity, if these are looked for. */
  #searchNumbers(fn: GraphFn, buffers: readonly DeviceBuffer[]): void {
    const { nodes, flags } = searchFunction(fn);
    if (nodes.length === 0) return;
    const compiled = this.compile(flags);
    const results = memoryManager.withRetry(this.device, () => compiled.executable.run(buffers));
    const flag = new Int32Array(1);
    const isFound = results.map((buffer) => {
      this.device.download(buffer, new Uint8Array(flag.buffer));
      this.device.free(buffer);
      return flag[0] !== 0;
    });
    compiled.release();
    reportFound(fn, nodes, isFound);
  }

  /** Runs a compiled function on values; donated values are consumed. `traced`: the same function before simplification. */
  run(
    compiled: CompiledFunction,
    inputs: readonly TensorValue[],
    donated: readonly boolean[] = [],
    sites: readonly (string | null)[] = [],
    wanted = false,
    traced: GraphFn = compiled.fn,
  ): TensorValue[] {
    memoryManager.relieve(compiled.bytes, this.device);
    const buffers = inputs.map((value) => this.#bufferOf(value));
    const results = this.#runNow(compiled, buffers, traced, wanted);
    donated.forEach((isDonated, i) => {
      if (!isDonated) return;
      const buffer = inputs[i].takeBuffer();
      if (!results.includes(buffer)) this.device.free(buffer);
    });
    return this.#valuesOf(compiled, results, sites);
  }

  #runNow(
    compiled: CompiledFunction,
    buffers: readonly DeviceBuffer[],
    traced: GraphFn,
    wanted = false,
  ): DeviceBuffer[] {
    const { executable } = compiled;
    if (isSearching() && !this.device.traits.remote) this.#searchNumbers(traced, buffers);
    const watched = debugLevel() > 0 || profiler.active;
    this.device.timing = watched || this.watchers.size > 0;
    const start = this.device.timing ? performance.now() : 0;
    const results = memoryManager.withRetry(this.device, () => executable.run(buffers, wanted));
    this.runs++;
    this.kernelsRun += executable.kernels.length;
    for (const watch of this.watchers) watch(executable, start);
    if (watched) {
      const milliseconds = performance.now() - start;
      logRun(this.device, executable, milliseconds, compiled.key);
      profiler.record(executable, start, milliseconds);
    }
    return results;
  }

  /**
   * The same without blocking the event loop during a long computation, if the device supports it. Donated values are consumed at
   * once. Calls run one after the other.
   */
  runAsync(
    compiled: CompiledFunction,
    inputs: readonly TensorValue[],
    donated: readonly boolean[] = [],
    traced: GraphFn = compiled.fn,
  ): Promise<TensorValue[]> {
    const { executable } = compiled;
    const buffers = inputs.map((value) => this.#bufferOf(value));
    const begin = (): Promise<DeviceBuffer[]> | null =>
      this.#runsInBackground(executable)
        ? memoryManager.withRetry(this.device, () => executable.runAsync!(buffers))
        : null;
    // From now on the caller can neither use donated values nor free others under the running call.
    const held = inputs.filter((_, i) => !donated[i]);
    for (const value of held) value.hold();
    const taken = inputs.filter((_, i) => donated[i]).map((value) => value.takeBuffer());
    const call = async (): Promise<TensorValue[]> => {
      let results: readonly DeviceBuffer[] = [];
      try {
        memoryManager.relieve(compiled.bytes, this.device);
        const running = begin();
        if (running === null) results = this.#runNow(compiled, buffers, traced);
        else {
          results = await running;
          this.runs++;
          this.kernelsRun += executable.kernels.length;
        }
        return this.#valuesOf(compiled, results, []);
      } finally {
        for (const value of held) value.readerDone();
        for (const buffer of taken) if (!results.includes(buffer)) this.device.free(buffer);
      }
    };
    this.#background++;
    const turn = this.#turn.then(call).finally(() => this.#background--);
    this.#turn = turn.then(() => {}).catch(() => {});
    return turn;
  }

  #runsInBackground({ runAsync, isLong }: Executable): boolean {
    const isWatched = debugLevel() > 0 || profiler.active || this.watchers.size > 0 || isSearching();
    return runAsync !== undefined && isLong === true && !isWatched;
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
    const pending = this.#pendingOf(nodes);
    if (pending !== null) this.#realizeNow(pending, wanted);
  }

  #realizeNow(pending: Pending, wanted: boolean): void {
    const { fn, key } = pending;
    const handle = this.#compiled.acquire(key, () => this.#compileNew(fn, key, { eager: true }));
    try {
      this.#finish(
        pending,
        this.#withConstants(pending, (inputs) => this.#runPending(pending, handle, inputs, wanted)),
      );
    } finally {
      handle.release();
    }
  }

  /**
   * The same without blocking the event loop, if the device supports it: neither while a compiler runs nor during a long
   * computation. Calls run one after the other. Null: the values are there already.
   */
  realizeAsync(nodes: readonly Node[]): Promise<void> | null {
    const pending = this.#pendingOf(nodes);
    if (pending === null) return null;
    if (this.device.compileAsync === undefined || (this.#background === 0 && this.#isShort(pending))) {
      this.#realizeNow(pending, true);
      return null;
    }
    this.#background++;
    const turn = this.#turn.then(() => this.#realizeInBackground(nodes)).finally(() => this.#background--);
    this.#turn = turn.catch(() => {});
    return turn;
  }

  /** Number of calls of `realizeAsync` that are not finished. */
  #background = 0;

  /** Whether a program neither runs long nor needs a compiler. */
  #isShort({ fn, key }: Pending): boolean {
    const cached = this.#compiled.peek(key);
    if (cached === undefined) return this.device.compilesAtOnce?.(fn, { eager: true }) ?? false;
    return cached.executable.isLong === false;
  }

  #turn: Promise<void> = Promise.resolve();

  async #realizeInBackground(nodes: readonly Node[]): Promise<void> {
    for (;;) {
      const pending = this.#pendingOf(nodes);
      if (pending === null) return;
      const { fn, key } = pending;
      if (!this.#compiled.has(key)) await this.#compileInBackground(fn, key, { eager: true });
      // Other parts of the program ran meanwhile, and may have computed some of the nodes.
      if (!this.#compiled.has(key) || this.#pendingOf(nodes)?.key !== key) continue;
      const handle = this.#compiled.acquire(key, () => this.#compileNew(fn, key, { eager: true }));
      try {
        await this.#runInBackground(this.#pendingOf(nodes)!, handle);
        return;
      } finally {
        handle.release();
      }
    }
  }

  /** Adds the compiled form of a function to the cache. */
  async #compileInBackground(fn: GraphFn, key: string, options: CompileOptions): Promise<void> {
    const simple = this.simplified(fn);
    const executable = (await this.device.compileAsync?.(simple, options)) ?? this.device.compile(simple, options);
    const made = this.#compiledFunction(simple, key, options, executable);
    if (this.#compiled.has(key)) executable.release();
    else this.#compiled.acquire(key, () => made).release();
  }

  async #runInBackground(pending: Pending, handle: ExecutableHandle<CompiledFunction>): Promise<void> {
    const { executable, bytes } = handle.value;
    if (!this.#runsInBackground(executable)) {
      this.#finish(
        pending,
        this.#withConstants(pending, (inputs) => this.#runPending(pending, handle, inputs, true)),
      );
      return;
    }
    memoryManager.relieve(bytes, this.device);
    const values = pending.params.map((param) => param.value as TensorValue);
    const constants = pending.fn.params
      .slice(pending.params.length)
      .map((node) => this.uploadConstant(node as Node<"const">));
    const inputs = [...values, ...constants];
    const buffers = inputs.map((value) => this.#bufferOf(value));
    this.device.timing = false;
    // Arguments that the program releases meanwhile are freed when the call has read them.
    for (const value of values) value.hold();
    try {
      const running = memoryManager.withRetry(this.device, () => executable.runAsync!(buffers));
      if (running === null) {
        this.#finish(pending, this.#runPending(pending, handle, inputs, true));
        return;
      }
      const results = await running;
      this.runs++;
      this.kernelsRun += executable.kernels.length;
      this.#finish(pending, this.#valuesOf(handle.value, results, pending.results.map(siteOf)));
    } finally {
      for (const value of values) value.readerDone();
      for (const value of constants) value.free();
    }
  }

  /** What must run to compute nodes; null if nothing. */
  #pendingOf(nodes: readonly Node[]): Pending | null {
    const roots = [...new Set(nodes.filter((node) => node.value === null))];
    if (roots.length === 0) return null;
    const order = topological(roots, (node) => node.value !== null);
    const params = order.filter((node) => node.value !== null);
    const results = [
      ...roots,
      ...order.filter((node) => kept.has(node) && node.value === null && !roots.includes(node)),
    ];
    const exact = { params, outputs: results };
    const structure = structureOf(exact);
    const exactKey = `${structure.key}/eager`;
    if (this.#compiled.has(exactKey)) return { params, results, fn: exact, key: exactKey };
    const fn = this.#lifter.lift(structure);
    return { params, results, fn, key: fn === exact ? exactKey : `${structuralKey(fn)}/eager` };
  }

  #withConstants(pending: Pending, run: (inputs: readonly TensorValue[]) => TensorValue[]): TensorValue[] {
    const { fn, params } = pending;
    const constants = fn.params.slice(params.length).map((node) => this.uploadConstant(node as Node<"const">));
    try {
      return run([...params.map((param) => param.value as TensorValue), ...constants]);
    } finally {
      for (const value of constants) value.free();
    }
  }

  #runPending(
    { results, fn }: Pending,
    handle: ExecutableHandle<CompiledFunction>,
    inputs: readonly TensorValue[],
    wanted: boolean,
  ): TensorValue[] {
    return this.run(handle.value, inputs, [], results.map(siteOf), wanted, fn);
  }

  /** Stores the values of a run. A node that was computed meanwhile keeps its value. */
  #finish({ results }: Pending, values: readonly TensorValue[]): void {
    results.forEach((node, i) => {
      if (node.value !== null) {
        values[i].free();
        return;
      }
      attachValue(node, values[i]);
      kept.delete(node);
      detach(node);
    });
  }

  #valuesOf(
    { fn }: CompiledFunction,
    buffers: readonly DeviceBuffer[],
    sites: readonly (string | null)[],
  ): TensorValue[] {
    return buffers.map((buffer, i) => new TensorValue(this.device, buffer, avalOf(fn.outputs[i]), sites[i] ?? null));
  }

  /** A constant as a value, for a program that takes it as a parameter. */
  uploadConstant({ attrs: { value, dtype } }: Node<"const">): TensorValue {
    const number = typeof value === "number" ? { re: value, im: 0 } : value;
    return this.upload({ shape: [], dtype }, fromComplexes(dtype, [], [number]).data);
  }

  upload(aval: Aval, data: Storage): TensorValue {
    const bytes = storageBytes(data);
    const expected = numel(aval.shape) * bytesOf(aval.dtype);
    if (bytes.byteLength !== expected)
      throw new WeftError(`${bytes.byteLength} bytes do not fill a tensor of ${expected} bytes`);
    memoryManager.relieve(expected, this.device);
    const buffer = memoryManager.withRetry(this.device, () => this.device.allocate(expected));
    this.device.upload(buffer, bytes);
    return new TensorValue(this.device, buffer, aval, null);
  }

  /**
   * A value of another shape with the same leading elements in row-major order: the rest is dropped, or zeros are added. Copies
   * memory without compiling anything, if the device can.
   */
  resized(value: TensorValue, aval: Aval): TensorValue {
    value.assertUsable();
    const { device } = this;
    const bytes = numel(aval.shape) * bytesOf(aval.dtype);
    if (device.resize !== undefined) {
      memoryManager.relieve(bytes, device);
      const buffer = memoryManager.withRetry(device, () => device.resize!(this.#bufferOf(value), bytes));
      return new TensorValue(device, buffer, aval, null);
    }
    const [have, want] = [numel(value.aval.shape), numel(aval.shape)];
    const row = build.reshape(dataNode(value), [have]);
    const cut = build.pad(build.sliceAxis(row, 0, 0, Math.min(have, want)), [0], [Math.max(0, want - have)]);
    const node = build.reshape(cut, aval.shape);
    this.realize([node]);
    return node.value as TensorValue;
  }

  /** The elements of a value, in a new array or in `into`. */
  download(value: TensorValue, into?: Storage): Storage {
    value.assertUsable();
    const { dtype, shape } = value.aval;
    if (into !== undefined) {
      value.device.download(value.buffer, storageBytes(into));
      return into;
    }
    const fetched = value.device.fetch?.(value.buffer) ?? null;
    if (fetched !== null) return storageView(dtype, fetched, 0, numel(shape));
    const data = makeStorage(dtype, numel(shape));
    value.device.download(value.buffer, storageBytes(data));
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
    const bytes = into && storageBytes(into);
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

/** Cache key of a function outside of pending work. */
const functionKey = (fn: GraphFn, donated: readonly boolean[], constants: ReadonlyMap<number, Value>): string =>
  `${structuralKey(fn)}${donated.some(Boolean) ? `/${donated.map(Number).join("")}` : ""}${constantsKey(constants)}`;

/** Cache key of constant parameters. */
function constantsKey(constants: ReadonlyMap<number, Value>): string {
  if (constants.size === 0) return "";
  const hash = createHash("sha256");
  for (const [i, { data }] of constants)
    hash.update(`${i}:`).update(new Uint8Array(data.buffer, data.byteOffset, data.byteLength));
  return `/${hash.digest("hex").slice(0, 32)}`;
}

/** Nodes whose values are stored when they are intermediate results, such as the parameters of a training loop. */
const kept = new WeakSet<Node>();
export const materializeWhenComputed = (node: Node): void => {
  if (node.value === null) kept.add(node);
};

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
  if (typeof (device as Partial<Device> | null | undefined)?.compile !== "function")
    throw new WeftError(`useDevice: expected a device, got ${showValue(device)}; setDevice takes names`);
  const used = taped(device);
  current = sessions.get(used) ?? new Session(used);
  sessions.set(used, current);
  profiler.ranges = device.ranges ?? null;
  return current;
}

/** Maximum depth of a pending graph; deeper graphs are run, so that a loop that reads no value stays bounded. */
const maxPendingDepth = 400;

export function boundPending(node: Node): void {
  if (node.depth > maxPendingDepth && node.value === null && !isTracing()) session().realize([node]);
}
