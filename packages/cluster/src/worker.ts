// A worker: one device in its own process. It executes the dispatcher's instructions in order and serves results to
// clients directly. It reconnects when the dispatcher restarts.
import { setImmediate as nextTurn } from "node:timers/promises";
import type { Rates } from "@weft/core/internal/cost";
import {
  type CachedExecutable,
  checkBuffers,
  createDevice,
  type Device,
  type DeviceBuffer,
  type Executable,
  type ExecutableHandle,
  groupLibrary,
  movedBytes,
  OutOfMemoryError,
} from "@weft/core/internal/device";
import { bytesOf, type GraphFn, limits, numel, shortened, WeftError } from "@weft/core/internal/graph";
import { decodeFunction } from "@weft/core/internal/ops";
import { instructionRecords } from "@weft/core/internal/runtime";
import { BackgroundThread } from "./background.js";
import { denseStrides } from "./boxes.js";
import { type CalibrateOptions, workerRates } from "./calibrate.js";
import { loadData, startClocks } from "./clocks.js";
import { withRank } from "./collectives.js";
import { Compilations } from "./compilations.js";
import { CurrentWork } from "./current-work.js";
import { DataServer } from "./data-server.js";
import { logDebug } from "./debug.js";
import { rankFromEnvironment } from "./environment.js";
import { failureOf } from "./failure.js";
import { inHeaders } from "./frames.js";
import { ProgressReports } from "./progress.js";
import { decodeAll, encode, type FromWorker, type ToWorker, toWorker } from "./protocol.js";
import { type Security, securityFrom } from "./security.js";
import { FailedError, type Failure, Namespace } from "./store.js";
import { type Channel, hostId, isSilence, openStream, unreachable } from "./wire.js";
import { WorkQueue } from "./work-queue.js";
import { checkGroup, checkReach, partBytes, type UploadPart } from "./worker-checks.js";
import { type GroupOfProgram, joinJob, WorkerGroups } from "./worker-groups.js";

/** Options of a worker; it connects to a dispatcher on localhost:9000 by default. @inline */
export interface WorkerOptions extends Security, CalibrateOptions {
  /** Host of the dispatcher; default: localhost. */
  host?: string;
  /** Port of the dispatcher. */
  port?: number;
  /** cpu, cuda, cuda:3, reference. */
  device?: string;
  /** Number of cores, or the core ids; CPU workers only. */
  cores?: number | readonly number[];
  /** A name for `weft top`. */
  label?: string;
  /** Host name at which clients reach this worker; loopback by default. */
  dataHost?: string;
  /** Seconds to wait for a dispatcher at startup. */
  wait?: number;
  /** Compiled functions that stay loaded without a program that uses them (1,024 by default). */
  executables?: number;
}

interface Program {
  executable: ExecutableHandle<CachedExecutable> | null;
  /** Why the program cannot run; its code is reported for every run. */
  problem: Failure | null;
  fn: GraphFn | null;
  group: GroupOfProgram | null;
  donated: readonly boolean[];
}

const maxExecutables = 1024;
const maxClients = 65_536;
/** Seconds for a dispatcher to answer. */
const answerSeconds = 20;

function makeDevice({ device = "cpu", cores }: WorkerOptions): Device {
  const count = typeof cores === "number";
  if (count ? !Number.isInteger(cores) || cores < 1 : cores?.length === 0)
    throw new WeftError(`cores: ${JSON.stringify(cores)}: give a whole number above 0, or a list of core ids`);
  return createDevice(device, { threads: count ? cores : undefined, cores: count ? undefined : cores, shared: true });
}

/** One device that executes instructions of a dispatcher; `weft worker` runs one. */
export class Worker {
  /** The device that it offers. */
  readonly device: Device;
  readonly #options: WorkerOptions;
  readonly #security: Security;
  readonly #data: DataServer;
  readonly #spaces = new Map<number, Namespace>();
  readonly #programs = new Map<string, Program>();
  readonly #compilations: Compilations;
  readonly #groups: WorkerGroups;
  readonly #work: CurrentWork;
  readonly #begin = performance.now();
  #channel: Channel | null = null;
  #background: BackgroundThread | null = null;
  /** Where other workers connect with this one. */
  #linkPort = 0;
  /** Whether this worker is a rank of an MPI job. */
  #mpi = false;
  readonly #queue = new WorkQueue();
  #draining = false;
  #stopped = false;
  #warned = "";
  readonly #rates: Rates | null;
  /** The id that the dispatcher gave it; "?" before that. */
  id = "?";
  #runs = 0;
  #kernels = 0;
  #busy = 0;

  constructor(options: WorkerOptions) {
    this.#options = options;
    this.#security = securityFrom(options, options.host ?? "localhost", ["worker-token"]);
    this.device = makeDevice(options);
    this.#work = new CurrentWork(this.device.interruption);
    this.#compilations = new Compilations(this.device, options.executables ?? maxExecutables);
    this.#groups = new WorkerGroups(
      this.device,
      () => this.#background!,
      (group) => this.#send({ t: "broken", group }),
    );
    this.#rates = workerRates(this.device, options);
    this.#data = new DataServer(
      this.device,
      (client) => this.#spaces.get(client),
      options.dataHost ?? "localhost",
      this.#security,
    );
  }

  /** Runs until stop(). Calls `onReady` whenever the dispatcher accepts this worker. */
  async run(onReady: (id: string) => void = () => {}): Promise<void> {
    await this.#data.listen();
    this.#mpi = joinJob();
    const { host = "localhost", port = 9000, wait = 10, dataHost = "localhost" } = this.#options;
    const deadline = performance.now() + wait * 1e3;
    const stats = setInterval(() => this.#sendStats(), 1000).unref();
    this.#background = new BackgroundThread();
    this.#background.watch(this.#work.shared);
    this.#linkPort = await this.#background.listen({ host: dataHost, security: this.#security });
    try {
      let everConnected = false;
      while (!this.#stopped) {
        const problem = await this.#session(host, port, (id) => {
          everConnected = true;
          onReady(id);
        });
        this.#cleanUp();
        if (this.#stopped) break;
        if (problem instanceof WeftError) throw problem;
        if (!everConnected && performance.now() > deadline) throw new WeftError(problem);
        logDebug("worker", () => `connection to ${host}:${port} lost (${problem}); trying again`);
        await new Promise((resolve) => setTimeout(resolve, everConnected ? 300 : 100));
      }
    } finally {
      clearInterval(stats);
      this.#background.end();
      this.#data.close();
    }
  }

  /** Disconnects and releases the device. */
  stop(): void {
    this.#stopped = true;
    this.#background?.end();
    this.#channel?.stream.end();
    this.#channel?.close();
  }

  /** One connection from hello to its end. Returns a WeftError for a permanent failure, text for a transient one. */
  async #session(host: string, port: number, onReady: (id: string) => void): Promise<WeftError | string> {
    const place = rankFromEnvironment();
    let channel: Channel;
    try {
      channel = await openStream(host, port, "worker", this.#security, true, answerSeconds);
    } catch (error) {
      if (isSilence(error))
        return `no answer from ${host}:${port} within ${answerSeconds} s; is that a weft dispatcher?`;
      return error instanceof WeftError
        ? new WeftError(`the dispatcher at ${host}:${port} refused this worker: ${error.message}`)
        : unreachable(host, port, error as Error);
    }
    this.#channel = channel;
    const { stream } = channel;
    if (this.#stopped) channel.close();
    return new Promise((resolve) => {
      let isOver = false;
      const over = (why: WeftError | string): void => {
        if (isOver) return;
        isOver = true;
        this.#background?.report(null);
        // Closing alone would leave the stream open, and this worker with a dispatcher that it has left.
        stream.cancel();
        channel.close();
        resolve(why);
      };
      stream.on("data", (bytes: Buffer) => {
        if (isOver) return;
        try {
          const messages = this.#decode(bytes);
          for (const message of messages) {
            if (message.t === "refused") over(new WeftError(`the dispatcher refused this worker: ${message.message}`));
            else if (message.t === "welcome") {
              if (this.id !== "?") throw new WeftError("it welcomes this worker twice");
              this.id = message.worker;
              const { worker, key } = message;
              this.#background?.report({ host, port, security: this.#security, worker, key });
              logDebug("worker", () => `this is ${this.id} on ${this.device.name}`);
              onReady(this.id);
            } else this.#enqueue(message, bytes.length / messages.length);
          }
        } catch (error) {
          this.#warn(`the dispatcher at ${host}:${port} is left: ${(error as Error).message}`);
          over((error as Error).message);
        }
      });
      stream.on("error", (error) => over(error.message));
      stream.on("end", () => over("closed by the dispatcher"));
      this.#send({
        t: "hello",
        device: this.device.name,
        label: this.#options.label ?? null,
        process: { host: hostId(), pid: process.pid },
        data: { host: this.#options.dataHost ?? "localhost", port: this.#data.port, tls: this.#data.tls },
        links: this.#linkPort,
        threads: this.device.traits.threads,
        memoryBytes: this.device.memory().totalBytes,
        rates: this.#rates,
        attention: this.device.traits.attention,
        accelerator: this.device.traits.accelerator,
        mpi: this.#mpi ? { job: place.name, rank: place.rank, size: place.size } : null,
      });
    });
  }

  /** The dispatcher validates what clients send: what is invalid nevertheless is left out, and reported once. */
  #decode(bytes: Buffer): ToWorker[] {
    try {
      return decodeAll(toWorker, bytes);
    } catch (error) {
      this.#warn(`a message is ignored: ${(error as Error).message}`);
      return [];
    }
  }

  /** Prints a warning, once while it stays the same: a dispatcher may cause it several times per second. */
  #warn(text: string): void {
    if (text !== this.#warned) process.stderr.write(`weft: ${text}\n`);
    this.#warned = text;
  }

  #send(message: FromWorker): void {
    if (message.t === "failed") message.message = shortened(message.message);
    this.#channel?.stream.write(encode(message));
  }

  readonly #progress = new ProgressReports((message) => this.#send(message));

  #sendStats(): void {
    if (this.id === "?") return;
    let tensors = 0;
    for (const space of this.#spaces.values()) tensors += space.tensors;
    this.#send({
      t: "stats",
      stats: {
        runs: this.#runs,
        kernels: this.#kernels,
        tensors,
        bytes: this.device.memory().usedBytes,
        busySeconds: this.#busy,
        uptimeSeconds: (performance.now() - this.#begin) / 1e3,
        sentBytes: this.#data.sentBytes,
        allocations: this.device.allocations ?? null,
        movedBytes: movedBytes(),
        utilization: this.device.utilization?.() ?? null,
      },
    });
  }

  /** Drops the state of all clients of a lost dispatcher. */
  #cleanUp(): void {
    this.#queue.clear();
    this.#progress.forget(null);
    this.id = "?";
    for (const client of [...this.#spaces.keys()]) this.#leave(client);
    this.#groups.closeAll();
    this.#programs.clear();
  }

  /** Clients come and go at once, and bytes of uploads arrive meanwhile; other messages wait for their turn. */
  #enqueue(message: ToWorker, bytes: number): void {
    if (message.t === "client") {
      if (this.#spaces.has(message.client)) throw new WeftError(`it introduces client ${message.client} twice`);
      if (this.#spaces.size >= maxClients) throw new WeftError(`it introduces more than ${maxClients} clients`);
      const space = new Namespace(message.client, message.key, message.settings, this.device);
      this.#spaces.set(message.client, space);
      this.#data.introduce(space);
      return;
    }
    if (message.t === "leave") {
      this.#leave(message.client);
      return;
    }
    if (message.t === "abandon") {
      this.#groups.abandon(message.group, message.reason);
      return;
    }
    if (message.t === "upload" && message.part.offset === null) {
      void this.#receive(message);
      return;
    }
    this.#queue.push(message, bytes);
    if (!this.#draining) void this.#drain();
  }

  async #drain(): Promise<void> {
    this.#draining = true;
    let last = performance.now();
    for (let work = this.#queue.next(); work !== undefined; work = this.#queue.next()) {
      const begin = performance.now();
      const { message } = work;
      try {
        this.#within(message);
      } catch (error) {
        this.#failMessage(message, error as Error);
      }
      this.#queue.done(work);
      const now = performance.now();
      if ("client" in message && !this.#queue.isHeld(message.client)) this.#completed(message, (now - begin) / 1e3);
      // Yield so that fetches are served during a long queue.
      if (now - last > 4) {
        await nextTurn();
        last = performance.now();
      }
    }
    this.#draining = false;
  }

  /** Marks the outputs of a failed instruction as failed for its client; instructions of other clients continue. */
  #failMessage(message: ToWorker, error: Error): void {
    const failure = failureOf(error);
    logDebug("worker", () => `"${message.t}" failed: ${failure.message}`);
    const ids = message.t === "run" ? message.outputs : message.t === "upload" ? [message.id] : [];
    if (!("client" in message) || ids.length === 0) return;
    for (const id of ids) this.#spaces.get(message.client)?.fail(id, failure);
    this.#send({ t: "failed", client: message.client, ids, ...failure, worker: this.id });
  }

  /** Follows an instruction within the time that its client has. */
  #within(message: ToWorker): void {
    const client = "client" in message ? message.client : 0;
    this.#work.during(client, this.#spaces.get(client)?.settings.maxSeconds, () => this.#handle(message));
  }

  #handle(message: ToWorker): void {
    if (message.t === "define") this.#define(message);
    else if (message.t === "run") {
      // Free first, so that results can reuse the memory.
      this.#free(message.client, message.free ?? []);
      this.#run(message);
    } else if (message.t === "upload")
      this.#store(message, (space, buffer) => this.#copyPart(space, message.part, buffer));
    else if (message.t === "free") this.#free(message.client, message.ids);
    else if (message.t === "forget") this.#forget(`${message.client}/${message.program}`);
    else if (message.t === "probe") {
      const stop = startClocks();
      loadData();
      this.#data.notify(message.client, { measured: stop(message.measure) });
    }
  }

  #completed({ t, client }: Extract<ToWorker, { client: number }>, seconds = 0): void {
    if (this.#spaces.has(client)) this.#progress.count(client, seconds, t === "define");
  }

  #free(client: number, ids: readonly number[]): void {
    const space = this.#spaces.get(client);
    for (const id of ids) space?.drop(id);
  }

  #leave(client: number): void {
    this.#spaces.get(client)?.clear();
    this.#spaces.delete(client);
    this.#queue.drop(client);
    this.#compilations.leave(client);
    this.#progress.forget(client);
    this.#data.forget(client);
    for (const key of [...this.#programs.keys()]) if (key.startsWith(`${client}/`)) this.#forget(key);
    this.#groups.leave(client);
    if (this.#spaces.size === 0) this.device.trim();
    logDebug("worker", () => `client ${client} left`);
  }

  #define(message: Extract<ToWorker, { t: "define" }>): void {
    const { client, program, graph, group, donated, constants = [] } = message;
    const entry: Program = { executable: null, problem: null, fn: null, group, donated };
    const space = this.#spaces.get(client);
    if (space === undefined) return;
    const key = `${client}/${program}`;
    this.#forget(key);
    if (++space.programs > limits.programs) {
      space.programs--;
      throw new WeftError(`define: client ${client} has ${limits.programs} programs already`);
    }
    this.#programs.set(key, entry);
    const take = (executable: ExecutableHandle<CachedExecutable>): void => {
      entry.executable = executable;
      // It was forgotten meanwhile.
      if (this.#programs.get(key) !== entry) executable.release();
      logDebug(
        "worker",
        () => `program ${program} of client ${client}: ${executable.value.executable.kernels.length} kernels`,
      );
    };
    const fail = (error: Error): void => {
      entry.problem = failureOf(error);
      logDebug("worker", () => `program ${program} of client ${client} cannot run: ${entry.problem?.message}`);
    };
    try {
      const fn = decodeFunction(group === null ? graph : withRank(graph, group.rank));
      checkGroup(fn, group);
      entry.fn = fn;
      if (group !== null) this.#groups.join(group);
      const seconds = space.settings.maxCompileSeconds;
      const made = this.#compilations.compile({ client, fn, donated, constants, seconds });
      if (made instanceof Promise) this.#whenCompiled(message, made.then(take, fail));
      else take(made);
    } catch (error) {
      fail(error as Error);
    }
  }

  /** Other clients' instructions go on; those of this client wait until its program is compiled. */
  #whenCompiled(message: Extract<ToWorker, { t: "define" }>, done: Promise<void>): void {
    const goOn = this.#queue.hold(message.client);
    void done.then(() => {
      // It has left meanwhile.
      if (!goOn()) return;
      this.#completed(message);
      if (!this.#draining) void this.#drain();
    });
  }

  /** Drops a program; its executable stays in the cache for programs with the same function. */
  #forget(key: string): void {
    this.#programs.get(key)?.executable?.release();
    const space = this.#spaces.get(Number(key.split("/")[0]));
    if (this.#programs.delete(key) && space !== undefined) space.programs--;
  }

  #run(message: Extract<ToWorker, { t: "run" }>): void {
    const { client, program, inputs, outputs } = message;
    const space = this.#spaces.get(client);
    if (space === undefined) return;
    const entry = this.#programs.get(`${client}/${program}`);
    try {
      if (entry === undefined) throw new WeftError(`program ${program} was not defined`);
      if (entry.problem !== null) throw new FailedError(entry.problem);
      if (entry.executable === null) throw new WeftError("the program was not compiled");
      if (entry.group !== null) this.#groups.join(entry.group);
      this.#execute(space, entry, entry.executable.value.executable, message);
    } catch (error) {
      const failure = failureOf(error as Error, space.settings);
      // Abort the group: its other members would wait for this one.
      if (entry?.group != null) this.#groups.breakOff(entry.group.name, failure.message);
      for (const id of outputs) space.fail(id, failure);
      const { id } = this;
      this.#send({ t: "failed", client, ids: outputs, ...failure, worker: id });
      logDebug("worker", () => `program ${program} of client ${client} failed on [${inputs}]: ${failure.message}`);
    }
  }

  #execute(space: Namespace, entry: Program, executable: Executable, message: Extract<ToWorker, { t: "run" }>): void {
    const { inputs, outputs } = message;
    const fn = entry.fn!;
    if (outputs.length !== fn.outputs.length || new Set(outputs).size !== outputs.length)
      throw new WeftError(`run: the program has ${fn.outputs.length} outputs, not [${outputs.slice(0, 20)}]`);
    const bytes = fn.outputs.reduce((n, o) => n + numel(o.shape) * bytesOf(o.dtype), 0);
    space.admit(outputs.length, bytes);
    const buffers = inputs.map((id) => space.get(id).buffer);
    checkBuffers(fn, buffers);
    const given = inputs.filter((_, i) => entry.donated[i]);
    if (given.some((id) => inputs.indexOf(id) !== inputs.lastIndexOf(id)))
      throw new WeftError("run: a donated tensor is also another argument");
    const traced = space.settings.tape === true;
    this.device.timing = traced;
    const { measure } = message;
    const stop = measure === undefined ? null : startClocks();
    const begin = performance.now();
    // Donated memory belongs to this call.
    const owned: DeviceBuffer[] = [];
    let results: readonly DeviceBuffer[] = [];
    try {
      inputs.forEach((id, i) => {
        if (!entry.donated[i]) return;
        // A buffer that a fetch still reads is copied: the fetch must see the old value.
        buffers[i] = space.donate(id) ?? this.#cloneBuffer(buffers[i]);
        owned.push(buffers[i]);
      });
      results = this.#withRetry(() => executable.run(buffers));
    } finally {
      for (const buffer of owned) if (!results.includes(buffer)) this.device.free(buffer);
    }
    if (traced || stop !== null) this.device.synchronize();
    const end = performance.now();
    // Before the results are available: whoever waits for them has the measurement then.
    if (stop !== null) this.#data.notify(space.client, { measured: stop(measure!) });
    this.#busy += (end - begin) / 1e3;
    this.#runs++;
    this.#kernels += executable.kernels.length;
    if (traced) {
      // Before the results: whoever has a result also has the records of its instructions.
      const { program, inputs: read, outputs: written, step, site } = message;
      const worker = Number(/\d+/.exec(this.id)?.[0] ?? 0);
      const facts = { program, inputs: read, outputs: written, step, site, worker, workerId: this.id, begin, end };
      for (const tape of inHeaders(instructionRecords(facts, fn.outputs, executable)))
        this.#data.notify(space.client, { tape });
    }
    results.forEach((buffer, i) => {
      space.put(outputs[i], buffer);
    });
  }

  #cloneBuffer(buffer: DeviceBuffer): DeviceBuffer {
    const bytes = new Uint8Array(buffer.bytes);
    this.device.download(buffer, bytes);
    const copy = this.device.allocate(buffer.bytes);
    this.device.upload(copy, bytes);
    return copy;
  }

  #withRetry<T>(action: () => T): T {
    try {
      return action();
    } catch (error) {
      if (!(error instanceof OutOfMemoryError)) throw error;
      this.device.trim();
      return action();
    }
  }

  /** Stores a worker's shard of an upload. */
  #store(
    { client, id, bytes: total, part }: Extract<ToWorker, { t: "upload" }>,
    fill: (space: Namespace, buffer: DeviceBuffer) => void,
  ): void {
    const space = this.#spaces.get(client);
    if (space === undefined) return;
    try {
      const bytes = partBytes(part);
      space.admit(1, bytes);
      const buffer = this.#withRetry(() => this.device.allocate(bytes));
      fill(space, buffer);
      space.put(id, buffer);
    } catch (error) {
      const failure = failureOf(error as Error);
      space.fail(id, failure);
      this.#send({ t: "failed", client, ids: [id], ...failure, worker: this.id });
    }
    if (total > 0) this.#data.notify(client, { uploaded: id });
  }

  /**
   * Waits for the bytes of an upload over a socket while other clients' instructions run. The dispatcher holds back what follows
   * from this client until then.
   */
  async #receive(message: Extract<ToWorker, { t: "upload" }>): Promise<void> {
    const { client, id } = message;
    const bytes = await this.#data.waitForUpload(client, id);
    this.#store(message, (_, buffer) => {
      if (bytes === null) throw new WeftError(`upload: the bytes of tensor ${id} did not arrive`);
      if (bytes.length !== buffer.bytes)
        throw new WeftError(`upload: ${bytes.length} bytes arrived for a shard of ${buffer.bytes}`);
      this.device.upload(buffer, bytes);
    });
    this.#send({ t: "arrived", client, id });
    this.#completed(message);
  }

  #copyPart(space: Namespace, part: UploadPart, buffer: DeviceBuffer): void {
    if (buffer.bytes === 0) return;
    const library = groupLibrary();
    const { memory } = space;
    if (memory === null) throw new WeftError("upload: the client has not passed its memory to this worker");
    checkReach(part, memory.bytes);
    const from = memory.base + part.offset!;
    const sizes = BigInt64Array.from(part.sizes, BigInt);
    const strides = BigInt64Array.from(part.strides, BigInt);
    const dense = BigInt64Array.from(denseStrides(part.sizes, part.element), BigInt);
    const own = this.device.traits.hostMemory ? (buffer as { address?: number }).address : undefined;
    if (own !== undefined) {
      library.copyBox(own, dense, from, strides, sizes, part.sizes.length, part.element);
      return;
    }
    const bytes = new Uint8Array(buffer.bytes);
    library.copyBoxOut(bytes, 0, dense, from, strides, sizes, part.sizes.length, part.element);
    this.device.upload(buffer, bytes);
  }
}
