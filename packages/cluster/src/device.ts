// A cluster as a Device: buffers are ids with a placement on the workers, a run is a message, and values arrive
// asynchronously. Functions are planned and partitioned in the client (executable-cache.ts); tensors of dead workers
// are recomputed (lineage.ts).

import { opCost, type Rates } from "@weft/core/internal/cost";
import {
  type CompileOptions,
  canFuse,
  type Device,
  type DeviceBuffer,
  type DeviceMemory,
  type DeviceTraits,
  type Executable,
  hostTraits,
  Lifetime,
} from "@weft/core/internal/device";
import { bytesOf, functionOrder, type GraphFn, isOp, type Node, numel, WeftError } from "@weft/core/internal/graph";
import { factorsOf } from "@weft/core/internal/ops";
import { captureSite, tape } from "@weft/core/internal/runtime";
import { Mesh, type Partitioned, Placement, reshard } from "@weft/core/internal/shard";
import { denseStrides } from "./boxes.js";
import { ClusterBuffer, isGone, withCallSite } from "./buffer.js";
import type { Connection } from "./connection.js";
import { maxConstantBytes } from "./constants.js";
import { logDebug } from "./debug.js";
import { ClusterError, LostTensorError } from "./errors.js";
import { type ClusterFunction, ExecutableCache } from "./executable-cache.js";
import { delay, fetchTensor } from "./fetch.js";
import { Lineage, type RecomputeStep } from "./lineage.js";
import type { CallPrediction } from "./predict.js";
import { releaseStaging, stage, Uploads } from "./upload.js";

/** Maximum number of copies of a tensor in other placements. */
const maxCopies = 2;
/**
 * Milliseconds for a dispatcher to confirm which workers are there: any of them may be missing, or only those that this process itself
 * has not heard from for seconds. And for another worker in place of the last one.
 */
const reportMs = 4000;
const silentReportMs = 1500;
const replacementMs = 10_000;

/** Waits until a condition holds, or the time is over. */
async function holds(condition: () => boolean, ms: number): Promise<void> {
  for (const deadline = performance.now() + ms; !condition() && performance.now() < deadline; ) await delay(50);
}

/** The device that `connect` makes current: it shards functions over the workers of a dispatcher. */
export class ClusterDevice implements Device {
  readonly name: string;
  #used = 0;
  #peak = 0;
  #connected = false;
  #waiting: (() => void)[] = [];
  readonly #uploads: Uploads;
  #step = 0;
  /**
   * Runs, runs on more than one worker, tensors resharded between programs, functions planned, and tensors recomputed
   * after a worker failure.
   */
  readonly counts: { runs: number; sharded: number; reshards: number; readonly plans: number; recomputed: number };
  readonly #lineage: Lineage;
  /** Plans, partitions and defines functions on the workers; holds the user's sharding constraints. */
  readonly executables: ExecutableCache;

  constructor(
    /** The connection to the dispatcher. */
    readonly connection: Connection,
  ) {
    this.name = `cluster at ${connection.address}`;
    this.#uploads = new Uploads(connection);
    const executables = new ExecutableCache(connection);
    this.executables = executables;
    this.counts = {
      runs: 0,
      sharded: 0,
      reshards: 0,
      recomputed: 0,
      get plans() {
        return executables.planned;
      },
    };
    this.#lineage = new Lineage({
      isDead: (worker) => connection.isDead(worker),
      isFailed: (id) => connection.failures.has(id),
      reset: (it) => this.#reset(it),
      scratchLike: (like) => this.#emptyLike(like),
      free: (it) => this.free(it),
      releaseStaging,
    });
    connection.onEnd = () => this.#lineage.clear();
    connection.ready.then(
      () => this.#begin(),
      () => this.#begin(),
    );
  }

  get lost(): string | null {
    return this.connection.lost;
  }

  /** Traits of the current set of workers. */
  get traits(): DeviceTraits {
    return {
      ...hostTraits,
      asynchronous: true,
      remote: true,
      hostMemory: false,
      usesHostCores: false,
      devices: this.connection.workers.length,
    };
  }

  /** Number of workers. */
  get workers(): number {
    return this.connection.workers.length;
  }

  close(): void {
    this.connection.close();
  }

  #begin(): void {
    this.#connected = true;
    for (const action of this.#waiting.splice(0)) action();
  }

  /** Runs the action now, or in order once the first worker is connected. */
  #do(action: () => void): void {
    if (this.#connected) action();
    else this.#waiting.push(action);
  }

  allocate(bytes: number): ClusterBuffer {
    this.#track(bytes);
    return new ClusterBuffer(bytes);
  }

  #track(bytes: number): void {
    this.#used += bytes;
    this.#peak = Math.max(this.#peak, this.#used);
  }

  free(buffer: DeviceBuffer): void {
    const it = buffer as ClusterBuffer;
    if (it.freed) return;
    it.freed = true;
    this.#used -= it.bytes;
    this.#do(() => {
      // Workers that have not read an upload yet may end: what they did not read is sent again from here.
      if (it.staging !== null && !this.#uploads.has(it.id)) {
        releaseStaging(it.staging);
        it.staging = null;
      }
      if (it.location !== null) this.connection.free(it.id);
      this.#freeCopies(it);
      this.#lineage.freed(it);
    });
  }

  #freeCopies(it: ClusterBuffer): void {
    for (const copy of it.copies?.values() ?? []) this.free(copy);
    it.copies = null;
  }

  /** Prepares a tensor for recomputation: releases its old shards and assigns a new id. */
  #reset(it: ClusterBuffer): void {
    this.#uploads.forget(it.id);
    if (it.location !== null) this.connection.free(it.id);
    this.#freeCopies(it);
    if (it.freed) {
      it.freed = false;
      this.#track(it.bytes);
    }
    it.reset();
  }

  #emptyLike({ bytes, shape, dtype, site }: ClusterBuffer): ClusterBuffer {
    return Object.assign(this.allocate(bytes), { shape, dtype, site });
  }

  /** Stages a copy of the bytes. The placement is decided when the tensor is first used. */
  upload(buffer: DeviceBuffer, from: Uint8Array): void {
    const it = buffer as ClusterBuffer;
    it.staging = stage(from);
    if (from.byteLength <= maxConstantBytes) it.value = from.slice();
  }

  peek(buffer: DeviceBuffer): Uint8Array | null {
    return (buffer as ClusterBuffer).value;
  }

  download(): void {
    throw new WeftError(
      "values of a cluster are fetched asynchronously; use await t.data(), t.item() or t.array() instead of the ...Sync functions",
    );
  }

  fetchAsync(buffer: DeviceBuffer, into?: Uint8Array): Promise<ArrayBuffer> {
    const it = buffer as ClusterBuffer;
    return this.#withRecovery(it, async () => {
      if (!this.#connected) await this.connection.ready.catch(() => {});
      const bytes = await fetchTensor(this.connection, it, into);
      // A program may call process.exit next: the records of every worker must be on its tape by then.
      if (this.#taped()) await this.computed(it);
      return bytes;
    });
  }

  /** Waits for a tensor and recomputes it if a worker that held a shard dies meanwhile. */
  async #withRecovery<T>(it: ClusterBuffer, wait: () => Promise<T>): Promise<T> {
    let begun: number | null = null;
    for (let attempt = 1; ; attempt++) {
      const { id } = it;
      try {
        const result = begun === null ? await wait() : await this.#withinLimit(wait(), begun, it);
        it.computed = true;
        return result;
      } catch (error) {
        if (!(error instanceof LostTensorError)) throw error;
        begun ??= performance.now();
        if (it.freed || this.lost !== null) throw new ClusterError(withCallSite(error.message, it.site), error.code);
        const seconds = (performance.now() - begun) / 1e3;
        if (attempt > maxRecoveryAttempts || (attempt > fewRecoveryAttempts && seconds > recoverySeconds)) {
          const often = `lost ${attempt} times within ${seconds.toFixed(1)} s: workers end faster than it is recomputed`;
          throw new ClusterError(withCallSite(addReason(error.message, often), it.site), error.code);
        }
        // Another wait may already have recovered it.
        if (it.id !== id) continue;
        // A worker may report an aborted collective before the dispatcher reports the dead worker.
        if (!this.#lineage.isLost(it)) {
          const confirmed = this.connection.confirm();
          await holds(() => this.#lineage.isLost(it) || confirmed(), error.silent ? silentReportMs : reportMs);
        }
        // The last worker may be replaced by another one that is starting.
        await holds(() => this.workers > 0 || this.lost !== null, replacementMs);
        const problem = it.id === id ? this.#recover([it]) : null;
        if (problem === null) continue;
        const reason = error.reported ? null : this.#failureReason(it);
        throw new ClusterError(withCallSite(addReason(reason ?? error.message, problem), it.site), error.code);
      }
    }
  }

  /** Waits for a tensor that is being recomputed. Recovery has a time, whatever was predicted: the rest may be slow, or wait too. */
  async #withinLimit<T>(coming: Promise<T>, begun: number, it: ClusterBuffer): Promise<T> {
    const { seconds } = this.#lineage.limits;
    let timer: NodeJS.Timeout | undefined;
    const late = new Promise<never>((_, reject) => {
      const text = `this tensor was lost with a worker and not recomputed within ${seconds} s (WEFT_RECOMPUTE_SECONDS)`;
      const giveUp = (): void => reject(new ClusterError(withCallSite(text, it.site), "lost"));
      const left = Math.max(0, begun + 1e3 * seconds - performance.now());
      // A process that computed meanwhile looks at what has arrived before it gives up.
      timer = setTimeout(() => (timer = setTimeout(giveUp, 300)), Math.min(left, 2 ** 31 - 1));
    });
    try {
      return await Promise.race([coming, late]);
    } finally {
      clearTimeout(timer);
    }
  }

  /** Recomputes lost tensors. Returns null on success, otherwise the reason. */
  #recover(broken: readonly ClusterBuffer[]): string | null {
    const lost = broken.filter((it) => this.#lineage.isLost(it));
    if (lost.length < broken.length) return "";
    const done = this.#lineage.recover(lost);
    if (typeof done === "string") return done;
    this.counts.recomputed += done.made;
    this.connection.send({ t: "recomputed", tensors: done.made });
    logDebug(
      "client",
      () => `${done.made} tensors are recomputed by ${done.calls} calls, ${done.sent} are uploaded again`,
    );
    return null;
  }

  /** Waits until every worker has computed its shard of a tensor. */
  async computed(buffer: DeviceBuffer): Promise<void> {
    const it = buffer as ClusterBuffer;
    if (!this.#connected) await this.connection.ready;
    if (it.failure !== null) throw new WeftError(withCallSite(it.failure, it.site));
    if (it.location === null) return;
    const ids = [...new Set(it.location.placement.mesh.ranks.map((rank) => it.location!.members.get(rank)!))];
    await Promise.all(ids.map((id) => this.connection.link(id).peek(it.id)));
    it.computed = true;
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    const kernels = functionOrder(fn)
      .filter((node) => !fn.params.includes(node) && !isOp(node, "const") && !isOp(node, "pick"))
      .map((node) => ({
        name: isOp(node, "custom") ? node.attrs.rule.name : node.op,
        kind: "kernel" as const,
        ...opCost(node),
      }));
    const { donated = [], constants = new Map() } = options;
    const call: ClusterFunction = { fn, donated, constants, executables: new Map() };
    const issue: RecomputeStep = (inputs, outputs) => this.#issue(call, inputs, outputs, issue);
    const lifetime = new Lifetime(() => this.#do(() => this.executables.release(call)));
    const run = (inputs: readonly DeviceBuffer[]): DeviceBuffer[] => {
      lifetime.check();
      if (this.lost !== null) throw new WeftError(this.lost);
      const site = captureSite();
      const outputs = fn.outputs.map((output) => {
        const buffer = this.allocate(numel(output.shape) * bytesOf(output.dtype));
        buffer.shape = output.shape;
        buffer.dtype = output.dtype;
        buffer.site = site;
        return buffer;
      });
      this.#do(() => issue(inputs as ClusterBuffer[], outputs));
      return outputs;
    };
    return { kernels, scratchBytes: 0, aliases: new Map(), run, release: () => lifetime.release() };
  }

  #issue(call: ClusterFunction, inputs: ClusterBuffer[], outputs: ClusterBuffer[], recompute: RecomputeStep): void {
    const { fn } = call;
    try {
      this.#recoverInputs(inputs);
      const ready = this.executables.for(
        call,
        inputs.map((input) => this.#currentPlacement(input)),
        inputs.map((input) => input.id),
      );
      inputs.forEach((input, i) => {
        input.shape ??= fn.params[i].shape;
        input.dtype ??= fn.params[i].dtype;
      });
      const used = inputs.map((input, i) => this.#withPlacement(input, ready.partitioned.params[i]));
      outputs.forEach((output, i) => {
        output.location = { members: ready.members, placement: ready.partitioned.results[i] };
      });
      this.counts.runs++;
      if (ready.ranks.length > 1) this.counts.sharded++;
      const read = used.map((input) => input.id);
      this.connection.send({
        t: "run",
        program: ready.program,
        inputs: read,
        outputs: outputs.map((output) => output.id),
        step: this.#step++,
        site: this.#taped() ? (outputs[0]?.site?.() ?? null) : null,
        free: this.connection.takeFreed(read),
      });
      this.#lineage.record({ recompute, inputs, outputs, members: ready.members, seconds: ready.seconds });
      for (const output of outputs) if (output.freed) this.connection.free(output.id);
    } catch (error) {
      for (const output of outputs) output.failure = (error as Error).message;
    }
  }

  /** Recomputes lost inputs; throws if one cannot be used. */
  #recoverInputs(inputs: readonly ClusterBuffer[]): void {
    const broken = inputs.filter((input) => this.#failureReason(input) !== null);
    if (broken.length === 0) return;
    const reason = this.#failureReason(broken[0])!;
    const problem = this.lost === null ? this.#recover(broken) : "";
    if (problem !== null) throw new WeftError(addReason(reason, problem));
  }

  /** Why a tensor cannot be used; null if it can. */
  #failureReason(it: ClusterBuffer): string | null {
    if (this.lost !== null) return this.lost;
    if (it.failure !== null) return it.failure;
    const failure = this.connection.failures.get(it.id);
    if (failure !== undefined) return failure.message;
    const isDead = (worker: string): boolean => this.connection.isDead(worker);
    if (it.location === null || !isGone(it.location, isDead)) return null;
    const dead = [...it.location.members.values()].find(isDead)!;
    return `${this.connection.deathOf(dead)}; its shards are lost: recompute them`;
  }

  /** The placement of a tensor in the current worker numbering; null while it is on no worker. */
  #currentPlacement(it: ClusterBuffer): Placement | null {
    if (it.location === null) return null;
    const { workers } = this.connection;
    const { members, placement } = it.location;
    const index = new Map(workers.map((worker, rank) => [worker.id, rank]));
    const ranks = placement.mesh.ranks.map((rank) => index.get(members.get(rank)!));
    if (ranks.every((rank, i) => rank === placement.mesh.ranks[i])) return placement;
    if (ranks.every((rank) => rank !== undefined))
      return this.#relocate(
        it,
        new Placement(
          new Mesh(placement.mesh.axes, ranks as number[], placement.mesh.speeds),
          placement.dims,
          placement.pending,
        ),
      );
    // Some workers died and the tensor was replicated: use a surviving one.
    const survivor = ranks.find((rank) => rank !== undefined);
    if (survivor === undefined) throw new WeftError("the workers that held this tensor are dead: recompute it");
    return this.#relocate(
      it,
      Placement.replicated(new Mesh([{ name: "d", size: 1 }], [survivor]), placement.dims.length),
    );
  }

  #relocate(it: ClusterBuffer, placement: Placement): Placement {
    it.location = { placement, members: this.executables.membersOf(placement.mesh.ranks) };
    return placement;
  }

  /** Whether attention stays one fused op: every worker has a kernel for it, and it can be split over all workers. */
  supportsCustomKernel(node: Node<"custom">): boolean {
    const { workers } = this.connection;
    const fits = workers.length > 0 && workers.every(({ attention }) => attention && canFuse(node, attention));
    return fits && (workers.length === 1 || factorsOf(node).factors.some(({ size }) => size >= workers.length));
  }

  /** Rates of the current workers, as the planner uses them. */
  get rates(): Rates {
    return this.executables.rates;
  }

  /** The decision of the last call, in words. */
  get lastChoice(): string | null {
    return this.executables.lastChoice;
  }
  /** The partitioned function of the last call; null before the first. */
  get lastPlan(): Partitioned | null {
    return this.executables.lastPlan;
  }

  /** Explains the plan of the last call: the choice, its estimated cost, and the alternatives considered. */
  explain(): string {
    return this.executables.explain();
  }

  /** Predicted time of the last call, by its kernels; null before the first. */
  predict(): CallPrediction | null {
    return this.executables.predict();
  }

  /** The tensor in the placement that a program requires: uploaded, reused as it is, or resharded. */
  #withPlacement(it: ClusterBuffer, to: Placement): ClusterBuffer {
    if (it.location === null) {
      this.#place(it, to);
      return it;
    }
    if (it.location.placement.equals(to)) return it;
    const key = `${this.connection.generation}|${to.key}`;
    const existing = it.copies?.get(key);
    if (existing !== undefined && this.#failureReason(existing) === null) return existing;
    it.copies ??= new Map();
    it.copies.delete(key);
    if (existing !== undefined) this.free(existing);
    const copy = this.#move(it, to);
    // Two alternating programs may need it in two placements; more copies would cost too much memory.
    if (it.copies.size >= maxCopies) {
      const [oldest, evicted] = it.copies.entries().next().value!;
      it.copies.delete(oldest);
      this.free(evicted);
    }
    it.copies.set(key, copy);
    return copy;
  }

  #place(it: ClusterBuffer, placement: Placement): void {
    const { staging } = it;
    if (staging === null) throw new WeftError("a tensor without a value was used");
    it.location = { members: this.executables.membersOf(placement.mesh.ranks), placement };
    this.#uploads.send(it, staging, () => {
      if (!this.#lineage.retain(it, staging)) releaseStaging(staging);
      if (it.staging === staging) it.staging = null;
    });
  }

  #taped(): boolean {
    return tape() !== null;
  }

  /** Reshards a tensor with a program over the workers of both placements. */
  #move(it: ClusterBuffer, to: Placement): ClusterBuffer {
    const from = it.location!.placement;
    const shape = it.shape!;
    const dtype = it.dtype!;
    this.counts.reshards++;
    const { functions } = reshard(from, to, shape, dtype);
    const members = this.executables.membersOf([...functions.keys()]);
    // Workers without a shard take part with an empty one.
    const others = [...functions.keys()].filter((rank) => !from.mesh.has(rank));
    const element = bytesOf(dtype);
    const empty = shape.map(() => 0);
    if (others.length > 0)
      this.connection.send({
        t: "upload",
        id: it.id,
        bytes: 0,
        parts: others.map((rank) => ({
          worker: members.get(rank)!,
          offset: 0,
          sizes: empty,
          strides: denseStrides(empty, element),
          element,
        })),
      });
    const program = this.executables.reshardProgram([from, to], shape, dtype, functions);
    const copy = this.allocate(it.bytes);
    copy.shape = shape;
    copy.dtype = dtype;
    copy.location = { placement: to, members };
    copy.site = it.site;
    this.connection.send({
      t: "run",
      program,
      inputs: [it.id],
      outputs: [copy.id],
      step: this.#step++,
      site: this.#taped() ? (it.site?.() ?? null) : null,
    });
    return copy;
  }

  /** The slice of a tensor that each worker holds, for diagnostics and tests. */
  describe(buffer: DeviceBuffer): { worker: string; start: readonly number[]; stop: readonly number[] }[] {
    const { location, shape } = buffer as ClusterBuffer;
    if (location === null || shape === null) return [];
    return location.placement.mesh.ranks.map((rank) => ({
      worker: location.members.get(rank)!,
      ...location.placement.box(rank, shape),
    }));
  }

  placement(buffer: DeviceBuffer): Placement | null {
    return (buffer as ClusterBuffer).location?.placement ?? null;
  }

  synchronize(): void {}

  memory(): DeviceMemory {
    return {
      usedBytes: this.#used,
      pooledBytes: 0,
      peakBytes: this.#peak,
      totalBytes: this.connection.workers.reduce((n, w) => n + w.memoryBytes, 0),
    };
  }

  trim(): void {}
}

/** Maximum number of recovery attempts per await, and of those that may take longer than this: who waits shall know within about ten seconds. */
const maxRecoveryAttempts = 8;
const fewRecoveryAttempts = 2;
const recoverySeconds = 4;

/** Appends the reason why a tensor was not recomputed. */
const addReason = (message: string, why: string): string => (why === "" ? message : `${message} (${why})`);
