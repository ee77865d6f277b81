// Recorded runs of a program: one CUDA graph per set of addresses that occurs twice. Arguments whose addresses change in
// every call (results that the user holds, new batches) are copied through staging buffers, so that a call is still one
// graph launch.
import { OutOfMemoryError } from "../contract.js";
import { type CudaBuffer, type CudaContext, noMemory } from "./context.js";
import { CudaError, result64 } from "./driver.js";
import type { Addresses, CudaProgram } from "./program.js";

/** Maximum number of recorded graphs per program. */
const maxGraphs = 8;
/** Warm-up calls with new addresses before arguments get staging buffers. */
const warmupCalls = 6;
/** Limit of staging buffers per program: copies must cost less than the launches that they save. */
const maxHomeBytes = 64 << 20;
const worthRecording = 3;
/** Calls without recording after the GPU had no memory for a graph. */
const pauseCalls = 64;

const isFull = (error: unknown): boolean => error instanceof CudaError && error.code === noMemory;

function equal(a: readonly number[], b: readonly number[]): boolean {
  for (let i = 0; i < a.length; i++) if (a[i] !== b[i]) return false;
  return true;
}

/** The bytes of a program's arguments, and which of them share memory with a result. */
interface Arguments {
  inputs: readonly number[];
  outputs: readonly number[];
  /** Result -> parameter whose memory it takes over. */
  aliases: ReadonlyMap<number, number>;
}

interface StagingBuffers {
  inputs: Map<number, CudaBuffer>;
  outputs: Map<number, CudaBuffer>;
}

export class RecordedRuns {
  readonly #graphs = new Map<string, number>();
  readonly #seen = new Set<string>();
  /** The graph of the last call; most calls have the same addresses again. */
  #last: (Addresses & { exec: number }) | null = null;
  #previous: Addresses | null = null;
  #misses = 0;
  /** Calls before the next graph is recorded. */
  #pause = 0;
  /** Arguments move that are too large for staging buffers: a new graph may replace one from time to time. */
  #mayReplace = false;
  /** Calls since the last change of donated arguments. */
  #calls = 0;
  readonly #staging: StagingBuffers = { inputs: new Map(), outputs: new Map() };
  readonly #moving = { inputs: new Set<number>(), outputs: new Set<number>() };
  launches = 0;

  constructor(
    readonly context: CudaContext,
    readonly program: CudaProgram,
    readonly args: Arguments,
  ) {}

  run(addresses: Addresses): void {
    this.#calls++;
    const { inputs, outputs } = this.#staging;
    if (inputs.size + outputs.size === 0) {
      this.#runAt(addresses);
      return;
    }
    for (const [i, home] of inputs) this.#copy(home.address, addresses.inputs[i], this.args.inputs[i]);
    this.#runAt({
      inputs: addresses.inputs.map((address, i) => inputs.get(i)?.address ?? address),
      outputs: addresses.outputs.map((address, o) => outputs.get(o)?.address ?? address),
      scratch: addresses.scratch,
    });
    for (const [o, home] of outputs) this.#copy(addresses.outputs[o], home.address, this.args.outputs[o]);
  }

  #copy(to: number, from: number, bytes: number): void {
    const { context } = this;
    if (bytes > 0) context.check("cuMemcpyDtoD", context.driver.cuMemcpyDtoDAsync_v2(to, from, bytes, context.stream));
  }

  #runAt(addresses: Addresses): void {
    const { inputs, outputs, scratch } = addresses;
    const last = this.#last;
    if (last !== null && last.scratch === scratch && equal(last.inputs, inputs) && equal(last.outputs, outputs)) {
      if (!this.#launch(last.exec)) this.program.issue(addresses);
      return;
    }
    const key = `${inputs.join(",")}/${outputs.join(",")}/${scratch}`;
    const exec = this.#graphs.get(key);
    // Where more sets of addresses take turns than graphs are kept, recording one per call would cost more than it saves.
    const isFull = this.#graphs.size >= maxGraphs;
    const mayRecord = this.#seen.has(key) && (!isFull || this.#mayReplace) && this.#pause-- <= 0;
    if (exec === undefined && !mayRecord) {
      if (this.#seen.size > 64) this.#seen.clear();
      this.#seen.add(key);
      this.program.issue(addresses);
      this.#missed(addresses);
      return;
    }
    if (!isFull) this.#misses = 0;
    else if (exec === undefined) this.#pause = pauseCalls;
    this.#previous = addresses;
    const found = exec ?? this.#record(key, addresses);
    if (found === null || !this.#launch(found)) {
      this.program.issue(addresses);
      return;
    }
    this.#last = { ...addresses, exec: found };
    // The least recently used one comes first.
    this.#graphs.delete(key);
    this.#graphs.set(key, found);
  }

  /** False if the GPU has no memory for the graph, which is then dropped; nothing has run. */
  #launch(exec: number): boolean {
    const { driver, stream } = this.context;
    const code = driver.cuGraphLaunch(exec, stream);
    if (code === noMemory) {
      this.#dropGraphs();
      return false;
    }
    this.context.check("cuGraphLaunch", code);
    this.launches++;
    return true;
  }

  /** Frees what recorded graphs need; the program is launched kernel by kernel for a while. */
  #dropGraphs(pause = pauseCalls): void {
    for (const exec of this.#graphs.values()) this.context.driver.cuGraphExecDestroy(exec);
    this.#graphs.clear();
    this.#last = null;
    this.#pause = pause;
  }

  /** Null if the GPU has no memory for a graph. */
  #record(key: string, addresses: Addresses): number | null {
    const { context } = this;
    const { driver } = context;
    // Thread-local capture: other threads' work does not matter.
    context.check("cuStreamBeginCapture", driver.cuStreamBeginCapture_v2(context.stream, 1));
    context.capturing = true;
    try {
      this.program.issue(addresses);
    } catch (error) {
      // The stream must leave capture mode in any case.
      driver.cuStreamEndCapture(context.stream, new BigUint64Array(1));
      throw error;
    } finally {
      context.capturing = false;
    }
    const graph = result64("cuStreamEndCapture", (out) => driver.cuStreamEndCapture(context.stream, out));
    let exec: number;
    try {
      exec = result64("cuGraphInstantiate", (out) => driver.cuGraphInstantiateWithFlags(out, graph, 0));
    } catch (error) {
      if (!isFull(error)) throw error;
      this.#dropGraphs();
      return null;
    } finally {
      driver.cuGraphDestroy(graph);
    }
    this.#graphs.set(key, exec);
    if (this.#graphs.size > maxGraphs) {
      const [oldest, old] = this.#graphs.entries().next().value!;
      driver.cuGraphExecDestroy(old);
      this.#graphs.delete(oldest);
      if (this.#last?.exec === old) this.#last = null;
    }
    return exec;
  }

  /** Records which addresses change; after the warm-up calls, these arguments get staging buffers. */
  #missed(addresses: Addresses): void {
    const previous = this.#previous;
    this.#previous = addresses;
    if (previous === null || this.program.kernels.length < worthRecording) return;
    addresses.inputs.forEach((address, i) => {
      if (address !== previous.inputs[i]) this.#moving.inputs.add(i);
    });
    addresses.outputs.forEach((address, o) => {
      if (address !== previous.outputs[o] && !this.args.aliases.has(o)) this.#moving.outputs.add(o);
    });
    if (++this.#misses < warmupCalls) return;
    this.#misses = 0;
    const { inputs, outputs, aliases } = this.args;
    // A result that takes over an argument's memory must be written there.
    const given = new Set(aliases.values());
    const movers = [...this.#moving.inputs];
    if (movers.some((i) => given.has(i))) {
      // A donated argument moved, for example because the program got another state: start over.
      this.#moving.inputs.clear();
      this.#moving.outputs.clear();
      this.#dropGraphs(this.#calls < pauseCalls ? pauseCalls : 0);
      this.#calls = 0;
      return;
    }
    const results = [...this.#moving.outputs];
    const bytes = movers.reduce((n, i) => n + inputs[i], 0) + results.reduce((n, o) => n + outputs[o], 0);
    this.#mayReplace = bytes > maxHomeBytes;
    if (this.#mayReplace) return;
    this.#dropGraphs(0);
    try {
      for (const i of movers) this.#stage(this.#staging.inputs, i, inputs[i]);
      for (const o of results) this.#stage(this.#staging.outputs, o, outputs[o]);
    } catch (error) {
      // The call has run already. An error would make the runtime repeat it, on arguments that it may have overwritten.
      if (!(error instanceof OutOfMemoryError)) throw error;
      this.#freeStaging();
    }
  }

  #stage(buffers: Map<number, CudaBuffer>, index: number, bytes: number): void {
    if (!buffers.has(index)) buffers.set(index, this.context.allocate(Math.max(1, bytes)));
  }

  /** Destroys the recorded graphs and frees the staging buffers; the stream has finished with both. */
  release(): void {
    this.#dropGraphs();
    this.#freeStaging();
  }

  #freeStaging(): void {
    for (const buffers of [this.#staging.inputs, this.#staging.outputs]) {
      for (const buffer of buffers.values()) this.context.free(buffer);
      buffers.clear();
    }
  }
}
