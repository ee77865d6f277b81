// A cluster as a Device: buffers are ids with a placement on the workers, a run is a message, and values come back
// asynchronously. What is run is planned and cut here, in the client (programs.ts); what is lost with a worker is made
// again (lineage.ts).
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
import { costOf, factorsOf } from "@weft/core/internal/ops";
import { captureSite, tape } from "@weft/core/internal/runtime";
import { Mesh, type Partitioned, Placement, type Rates, reshard } from "@weft/core/internal/shard";
import { denseStrides } from "./boxes.js";
import { ClusterBuffer, withSite } from "./buffer.js";
import type { Connection } from "./connection.js";
import { say } from "./debug.js";
import { fetchTensor, LostError, moment } from "./fetch.js";
import { maxKnownBytes } from "./known.js";
import { Lineage, type Repeat } from "./lineage.js";
import type { Prediction } from "./predict.js";
import { type CompiledCall, Programs } from "./programs.js";
import { stage, Uploads, unstage } from "./upload.js";

/** Places of its own that a tensor has beside the one where it was made. */
const maxCopies = 2;
export class ClusterDevice implements Device {
  readonly name: string;
  #used = 0;
  #peak = 0;
  #connected = false;
  #waiting: (() => void)[] = [];
  readonly #uploads: Uploads;
  #step = 0;
  /** Runs, those that needed more than one worker, tensors moved between programs, programs planned, and tensors that were
   * lost with a worker and made again. */
  readonly counts: { runs: number; sharded: number; reshards: number; readonly plans: number; recomputed: number };
  readonly #lineage: Lineage;
  /** What is planned and sent, and how; what the user asks of the planner is said there. */
  readonly programs: Programs;

  constructor(readonly connection: Connection) {
    this.name = `cluster at ${connection.address}`;
    this.#uploads = new Uploads(connection);
    const programs = new Programs(connection);
    this.programs = programs;
    this.counts = {
      runs: 0,
      sharded: 0,
      reshards: 0,
      recomputed: 0,
      get plans() {
        return programs.planned;
      },
    };
    this.#lineage = new Lineage({
      isGone: (worker) => connection.lostWorkers.has(worker),
      isFailed: (id) => connection.failures.has(id),
      renew: (it) => this.#renew(it),
      spare: (like) => this.#emptyLike(like),
      free: (it) => this.free(it),
      unstage,
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

  /** Facts of its workers, as of now. */
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

  /** Now, or when the first worker is there; in order. */
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
      if (it.staged !== null && !this.#uploads.has(it.id)) unstage(it.staged);
      it.staged = null;
      if (it.home !== null) this.connection.free(it.id);
      this.#freeCopies(it);
      this.#lineage.freed(it);
    });
  }

  #freeCopies(it: ClusterBuffer): void {
    for (const copy of it.copies?.values() ?? []) this.free(copy);
    it.copies = null;
  }

  /** A tensor that will be made again: its old parts are let go of. */
  #renew(it: ClusterBuffer): void {
    this.#uploads.forget(it.id);
    if (it.home !== null) this.connection.free(it.id);
    this.#freeCopies(it);
    if (it.freed) {
      it.freed = false;
      this.#track(it.bytes);
    }
    it.renew();
  }

  #emptyLike({ bytes, shape, dtype, site }: ClusterBuffer): ClusterBuffer {
    return Object.assign(this.allocate(bytes), { shape, dtype, site });
  }

  /** A copy that workers can read; where it goes is decided when it is first used. */
  upload(buffer: DeviceBuffer, from: Uint8Array): void {
    const it = buffer as ClusterBuffer;
    it.staged = stage(from);
    if (from.byteLength <= maxKnownBytes) it.value = from.slice();
  }

  peek(buffer: DeviceBuffer): Uint8Array | null {
    return (buffer as ClusterBuffer).value;
  }

  download(): void {
    throw new WeftError(
      "values of a cluster come asynchronously; use await t.data(), t.item() or t.array() instead of the ...Sync functions",
    );
  }

  fetchAsync(buffer: DeviceBuffer, into?: Uint8Array): Promise<ArrayBuffer> {
    const it = buffer as ClusterBuffer;
    return this.#withRepair(it, async () => {
      if (!this.#connected) await this.connection.ready.catch(() => {});
      return fetchTensor(this.connection, it, into);
    });
  }

  /** Waits for a tensor; where a worker that had parts of it is lost meanwhile, it is made again if that is possible. */
  async #withRepair<T>(it: ClusterBuffer, wait: () => Promise<T>): Promise<T> {
    for (let attempt = 1; ; attempt++) {
      const { id } = it;
      try {
        const result = await wait();
        it.computed = true;
        return result;
      } catch (error) {
        if (attempt > maxRepairs || it.freed || this.lost !== null || !(error instanceof LostError)) throw error;
        // Somebody else who needed it may have done it.
        if (it.id !== id) continue;
        // Who gave up may say so before the dispatcher says because of whom.
        for (let turn = 0; turn < 40 && !this.#lineage.isLost(it); turn++) await moment(50);
        const problem = it.id === id ? this.#repair([it]) : null;
        if (problem === null) continue;
        const reason = error.told ? null : this.#brokenness(it);
        throw new WeftError(addReason(reason === null ? error.message : withSite(reason, it.site), problem));
      }
    }
  }

  /** Makes tensors again that went with a worker; says why not where that cannot be. */
  #repair(broken: readonly ClusterBuffer[]): string | null {
    const lost = broken.filter((it) => this.#lineage.isLost(it));
    if (lost.length < broken.length) return "";
    const done = this.#lineage.restore(lost);
    if (typeof done === "string") return done;
    this.counts.recomputed += done.made;
    this.connection.send({ t: "recomputed", tensors: done.made });
    say("client", () => `${done.made} tensors are made again by ${done.calls} calls, ${done.sent} are sent again`);
    return null;
  }

  /** Waits until every worker has its part of a tensor. */
  async computed(buffer: DeviceBuffer): Promise<void> {
    const it = buffer as ClusterBuffer;
    if (!this.#connected) await this.connection.ready;
    if (it.failure !== null) throw new WeftError(withSite(it.failure, it.site));
    if (it.home === null) return;
    const ids = [...new Set(it.home.placement.mesh.ranks.map((rank) => it.home!.members.get(rank)!))];
    await Promise.all(ids.map((id) => this.connection.link(id).peek(it.id)));
    it.computed = true;
  }

  compile(fn: GraphFn, options: CompileOptions): Executable {
    const kernels = functionOrder(fn)
      .filter((node) => !fn.params.includes(node) && !isOp(node, "const") && !isOp(node, "pick"))
      .map((node) => ({
        name: isOp(node, "custom") ? node.attrs.rule.name : node.op,
        kind: "kernel" as const,
        ...costOf(node),
      }));
    const { donated = [], known = new Map() } = options;
    const call: CompiledCall = { fn, donated, known, prepared: new Map() };
    const issue: Repeat = (inputs, outputs) => this.#issue(call, inputs, outputs, issue);
    const lifetime = new Lifetime(() => this.#do(() => this.programs.release(call)));
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

  #issue(call: CompiledCall, inputs: ClusterBuffer[], outputs: ClusterBuffer[], again: Repeat): void {
    const { fn } = call;
    try {
      this.#mend(inputs);
      const ready = this.programs.for(
        call,
        inputs.map((input) => this.#placementNow(input)),
        inputs.map((input) => input.id),
      );
      inputs.forEach((input, i) => {
        input.shape ??= fn.params[i].shape;
        input.dtype ??= fn.params[i].dtype;
      });
      const used = inputs.map((input, i) => this.#bring(input, ready.partitioned.params[i]));
      outputs.forEach((output, i) => {
        output.home = { members: ready.members, placement: ready.partitioned.results[i] };
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
      this.#lineage.made({ again, inputs, outputs, members: ready.members, seconds: ready.seconds });
      for (const output of outputs) if (output.freed) this.connection.free(output.id);
    } catch (error) {
      for (const output of outputs) output.failure = (error as Error).message;
    }
  }

  /** Inputs that were lost are made again; throws where one cannot be used. */
  #mend(inputs: readonly ClusterBuffer[]): void {
    const broken = inputs.filter((input) => this.#brokenness(input) !== null);
    if (broken.length === 0) return;
    const reason = this.#brokenness(broken[0])!;
    const problem = this.lost === null ? this.#repair(broken) : "";
    if (problem !== null) throw new WeftError(addReason(reason, problem));
  }

  /** Why a tensor cannot be used; null when it can. */
  #brokenness(it: ClusterBuffer): string | null {
    if (this.lost !== null) return this.lost;
    if (it.failure !== null) return it.failure;
    const known = this.connection.failures.get(it.id);
    if (known !== undefined) return known.message;
    if (it.home === null) return null;
    for (const worker of it.home.members.values()) {
      const reason = this.connection.lostWorkers.get(worker);
      // What every worker has is still there.
      if (reason !== undefined && !it.home.placement.isReplicated)
        return `${reason}; its parts of tensors are gone: make them again`;
    }
    return null;
  }

  /** Where a tensor is, in today's numbers of workers; null while it is on none. */
  #placementNow(it: ClusterBuffer): Placement | null {
    if (it.home === null) return null;
    const { workers } = this.connection;
    const { members, placement } = it.home;
    const index = new Map(workers.map((worker, rank) => [worker.id, rank]));
    const ranks = placement.mesh.ranks.map((rank) => index.get(members.get(rank)!));
    if (ranks.every((rank, i) => rank === placement.mesh.ranks[i])) return placement;
    if (ranks.every((rank) => rank !== undefined))
      return this.#settle(
        it,
        new Placement(new Mesh(placement.mesh.axes, ranks as number[]), placement.dims, placement.pending),
      );
    // Some are gone and everybody had it all: one of those that are left has it.
    const survivor = ranks.find((rank) => rank !== undefined);
    if (survivor === undefined) throw new WeftError("the workers that held this tensor are gone: make it again");
    return this.#settle(
      it,
      Placement.replicated(new Mesh([{ name: "d", size: 1 }], [survivor]), placement.dims.length),
    );
  }

  #settle(it: ClusterBuffer, placement: Placement): Placement {
    it.home = { placement, members: this.programs.membersOf(placement.mesh.ranks) };
    return placement;
  }

  /** Whether attention stays one function: every worker has a kernel for it, and there is enough of it for all. */
  keeps(node: Node<"custom">, usesOutput: (index: number) => boolean): boolean {
    const { workers } = this.connection;
    const fits =
      workers.length > 0 && workers.every(({ attention }) => attention && canFuse(node, usesOutput, attention));
    return fits && (workers.length === 1 || factorsOf(node).factors.some(({ size }) => size >= workers.length));
  }

  /** What the planner is told about these workers. */
  get rates(): Rates {
    return this.programs.rates;
  }

  /** What was planned last, for explanations. */
  get lastChoice(): string | null {
    return this.programs.lastChoice;
  }
  get lastPlan(): Partitioned | null {
    return this.programs.lastPlan;
  }

  /** The last plan in words: what was chosen, at which price, and what else was tried. */
  explain(): string {
    return this.programs.explain();
  }

  /** How long the last function that was planned should take, by the kernels of its workers; null before the first. */
  predict(): Prediction | null {
    return this.programs.predict();
  }

  /** The tensor as the program wants it: placed for the first time, as it is, or moved. */
  #bring(it: ClusterBuffer, to: Placement): ClusterBuffer {
    if (it.home === null) {
      this.#place(it, to);
      return it;
    }
    if (it.home.placement.equals(to)) return it;
    const key = `${this.connection.generation}|${to.key}`;
    const known = it.copies?.get(key);
    if (known !== undefined && this.#brokenness(known) === null) return known;
    it.copies ??= new Map();
    it.copies.delete(key);
    if (known !== undefined) this.free(known);
    const copy = this.#move(it, to);
    // Two programs that take turns may want it in two places; more would cost more memory than moving it costs time.
    if (it.copies.size >= maxCopies) {
      const [oldest, gone] = it.copies.entries().next().value!;
      it.copies.delete(oldest);
      this.free(gone);
    }
    it.copies.set(key, copy);
    return copy;
  }

  #place(it: ClusterBuffer, placement: Placement): void {
    const { staged } = it;
    if (staged === null) throw new WeftError("a tensor without a value was used");
    it.home = { members: this.programs.membersOf(placement.mesh.ranks), placement };
    this.#uploads.send(it, staged, () => {
      if (!this.#lineage.keep(it, staged)) unstage(staged);
      if (it.staged === staged) it.staged = null;
    });
  }

  #taped(): boolean {
    return tape() !== null;
  }

  /** A copy of a tensor elsewhere: a program of its own over the workers of both places. */
  #move(it: ClusterBuffer, to: Placement): ClusterBuffer {
    const from = it.home!.placement;
    const shape = it.shape!;
    const dtype = it.dtype!;
    this.counts.reshards++;
    const { functions } = reshard(from, to, shape, dtype);
    const members = this.programs.membersOf([...functions.keys()]);
    // Workers that have nothing of it take part with nothing.
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
    const program = this.programs.mover([from, to], shape, dtype, functions);
    const copy = this.allocate(it.bytes);
    copy.shape = shape;
    copy.dtype = dtype;
    copy.home = { placement: to, members };
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

  /** Who holds what of a tensor, for people and tests. */
  describe(buffer: DeviceBuffer): { worker: string; start: readonly number[]; stop: readonly number[] }[] {
    const { home, shape } = buffer as ClusterBuffer;
    if (home === null || shape === null) return [];
    return home.placement.mesh.ranks.map((rank) => ({
      worker: home.members.get(rank)!,
      ...home.placement.box(rank, shape),
    }));
  }

  placement(buffer: DeviceBuffer): Placement | null {
    return (buffer as ClusterBuffer).home?.placement ?? null;
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

/** Workers that one wait may survive. */
const maxRepairs = 2;

/** An error with the reason why what it speaks of was not made again, before the line of the program. */
const addReason = (message: string, why: string): string =>
  why === "" ? message : message.replace(/(\n {2}computed at|$)/, ` (${why})$1`);
