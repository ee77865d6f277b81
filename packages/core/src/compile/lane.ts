// Lane programs: a batch of small independent problems as one kernel. Each lane (a GPU thread, a SIMD lane) carries one
// problem through all its loops with its state in registers. This file schedules the scalars of a program: what runs before,
// inside and between the loops, what is stored where, and how a reverse loop gets the states of a forward one.
import { expectedSteps, laneLimits } from "../cost/index.js";
import type { Aval, DType, Node } from "../graph/index.js";
import { bytesOf } from "../graph/index.js";
import type { Ix } from "./index-expr.js";
import type { LaneLoop, LaneScalar } from "./lane-scalar.js";
import { NotLane } from "./lane-scalar.js";

export interface LaneStore {
  output: number;
  /** In elements of the output. */
  address: Ix;
  part: 0 | 1;
  value: LaneScalar;
  /** The loop in whose every step it happens; null: once. */
  loop: LaneLoop | null;
  /** The value is uniform: one lane writes it. */
  once: boolean;
}

/** Where the values of a loop's steps are stored for the loop that reads them. */
export type HistoryPolicy =
  /** In an array of the lane: registers, cache, or local memory. */
  | { kind: "local" }
  /** In an output of the kernel, lanes contiguous. */
  | { kind: "memory"; output: number }
  /** Checkpoints: every `every`-th state is stored; the reader rematerializes each segment. */
  | { kind: "checkpoint"; every: number; reader: LaneLoop };

export type LaneItem =
  | { kind: "code"; scalars: LaneScalar[]; stores: LaneStore[]; recorded: LaneScalar[] }
  | { kind: "loop"; loop: LaneLoop; items: LaneItem[]; states: number[] };

export interface LaneProgram {
  /** One thread (or SIMD lane) per problem. */
  form: "thread";
  prefix: readonly number[];
  lanes: number;
  inputs: Node[];
  outputs: Aval[];
  items: LaneItem[];
  stores: LaneStore[];
  policies: Map<LaneLoop, HistoryPolicy>;
  /** Arithmetic of one lane through the whole program. */
  flops: number;
  /** Arithmetic and loads of one step of each loop, for reports. */
  counts: LoopCount[];
  /** Number of scalars in the text. */
  scalars: number;
}

interface LoopCount {
  length: number;
  reverse: boolean;
  operations: number;
  loads: number;
  stores: number;
  states: number;
  history: number;
  policy: string;
}

export interface LaneOptions {
  /** Maximum bytes of local history per lane. */
  localBytes: number;
  /** Maximum bytes of history that all lanes together may write to memory. */
  memoryBytes: number;
  /** Whether the device has thread blocks with shared memory, for problems too large for a thread. */
  blocks?: boolean;
  /**
   * Up to this many lanes, reverse loops read back more than states: the device is bound by the latency of steps, not by
   * memory.
   */
  savingLanes?: number;
  /** For tests: "local", "memory" or "checkpoint". */
  force?: string | undefined;
}

/** Everything that the stores need, operands first; loops with the states that are used. */
export function liveScalars(stores: readonly LaneStore[]): Set<LaneScalar> {
  const live = new Set<LaneScalar>();
  const stack = stores.map((s) => s.value);
  const ends = new Set<LaneLoop>();
  const enter = (loop: LaneLoop | null): void => {
    for (let at = loop; at !== null && !ends.has(at); at = at.parent) {
      ends.add(at);
      stack.push(...(at.stop?.values ?? []));
    }
  };
  for (const store of stores) enter(store.loop);
  while (stack.length > 0) {
    const s = stack.pop()!;
    if (live.has(s)) continue;
    live.add(s);
    enter(s.loop);
    enter(s.of);
    stack.push(...s.args);
    if (s.op === "state" || s.op === "final") stack.push(s.of!.init[s.value], s.of!.next[s.value]);
    if (s.op === "past") stack.push(s.of!.history[s.value]);
  }
  return live;
}

const isLeaf = (s: LaneScalar): boolean => s.op === "const" || s.op === "state" || s.op === "final";

class Scheduler {
  readonly #live: LaneScalar[];
  readonly #stage = new Map<LaneScalar, number>();
  readonly #loopStage = new Map<LaneLoop, number>();
  readonly loops: LaneLoop[];
  readonly #states = new Map<LaneLoop, Set<number>>();
  readonly #recorded = new Map<LaneLoop, Set<LaneScalar>>();

  constructor(
    readonly stores: readonly LaneStore[],
    loops: readonly LaneLoop[],
  ) {
    this.#live = [...liveScalars(stores)].sort((a, b) => a.id - b.id);
    if (this.#live.length > laneLimits.scalars) throw new NotLane("the step is too large to unroll");
    const used = new Set<LaneLoop>();
    const note = (loop: LaneLoop | null): void => {
      for (let at = loop; at !== null; at = at.parent) used.add(at);
    };
    for (const s of this.#live) {
      note(s.loop);
      note(s.of);
      if (s.op === "state" || s.op === "final") {
        const set = this.#states.get(s.of!) ?? new Set<number>();
        set.add(s.value);
        this.#states.set(s.of!, set);
      }
      if (s.op === "past") {
        const set = this.#recorded.get(s.of!) ?? new Set<LaneScalar>();
        set.add(s.of!.history[s.value]);
        this.#recorded.set(s.of!, set);
      }
    }
    for (const store of stores) note(store.loop);
    this.loops = loops.filter((loop) => used.has(loop));
    // A loop may be needed (its final state) before what it reads has a place (a step of another loop): until nothing moves.
    for (let moved = true; moved; ) {
      this.#loopStage.clear();
      moved = this.#live.filter((s) => this.#place(s)).length > 0;
    }
  }

  get size(): number {
    return this.#live.length;
  }

  statesOf(loop: LaneLoop): number[] {
    return [...(this.#states.get(loop) ?? [])].sort((a, b) => a - b);
  }

  recordedOf(loop: LaneLoop): LaneScalar[] {
    return [...(this.#recorded.get(loop) ?? [])];
  }

  #inside(loop: LaneLoop | null, outer: LaneLoop): boolean {
    for (let at = loop; at !== null; at = at.parent) if (at === outer) return true;
    return false;
  }

  /** Finds the position, inside its own loop, at which a scalar is computed. Operands have smaller ids. Whether it moved. */
  #place(s: LaneScalar): boolean {
    let stage = 0;
    for (const a of s.args) if (a.loop === s.loop) stage = Math.max(stage, this.#stage.get(a)!);
    if (s.op === "final" || s.op === "past") {
      // A loop inside the same scope must have run; an outer one has.
      const after = this.#turnAfter(s.of!, s.loop);
      stage = Math.max(stage, after);
    }
    const moved = this.#stage.get(s) !== stage;
    this.#stage.set(s, stage);
    return moved;
  }

  #turnAfter(loop: LaneLoop, scope: LaneLoop | null): number {
    return loop.parent === scope ? this.#stageOfLoop(loop) + 1 : 0;
  }

  #stageOfLoop(loop: LaneLoop): number {
    const cached = this.#loopStage.get(loop);
    if (cached !== undefined) return cached;
    this.#loopStage.set(loop, 0);
    let stage = 0;
    const outside = (s: LaneScalar): void => {
      if (s.loop === loop.parent) stage = Math.max(stage, this.#stage.get(s) ?? 0);
      if ((s.op === "past" || s.op === "final") && s.of !== loop && s.of!.parent === loop.parent)
        stage = Math.max(stage, this.#stageOfLoop(s.of!) + 1);
    };
    for (const i of this.statesOf(loop)) outside(loop.init[i]);
    for (const s of loop.stop?.values ?? []) outside(s);
    for (const s of this.#live) {
      if (!this.#inside(s.loop, loop)) continue;
      outside(s);
      for (const a of s.args) outside(a);
    }
    for (const i of this.statesOf(loop)) outside(loop.next[i]);
    // Initial values of inner loops may come from outside too: a value stored by a loop of one step has no time in its
    // address.
    for (const nested of this.loops) {
      if (nested === loop || !this.#inside(nested, loop)) continue;
      for (const i of this.statesOf(nested)) {
        outside(nested.init[i]);
        outside(nested.next[i]);
      }
      for (const s of nested.stop?.values ?? []) outside(s);
    }
    for (const store of this.stores) if (this.#inside(store.loop, loop)) outside(store.value);
    this.#loopStage.set(loop, stage);
    return stage;
  }

  items(scope: LaneLoop | null): LaneItem[] {
    const mine = this.#live.filter((s) => s.loop === scope && !isLeaf(s));
    const inner = this.loops.filter((loop) => loop.parent === scope);
    const stores = this.stores.filter((s) => s.loop === scope);
    const recorded = scope === null ? [] : this.recordedOf(scope);
    const stageOf = (s: LaneScalar): number => (s.loop === scope ? (this.#stage.get(s) ?? 0) : 0);
    const last = Math.max(
      0,
      ...mine.map(stageOf),
      ...stores.map((s) => stageOf(s.value)),
      ...inner.map((loop) => this.#stageOfLoop(loop)),
    );
    const items: LaneItem[] = [];
    for (let stage = 0; stage <= last; stage++) {
      const code = {
        kind: "code" as const,
        scalars: mine.filter((s) => stageOf(s) === stage),
        stores: stores.filter((s) => stageOf(s.value) === stage),
        recorded: recorded.filter((s) => stageOf(s) === stage),
      };
      if (code.scalars.length + code.stores.length + code.recorded.length > 0) items.push(code);
      for (const loop of inner)
        if (this.#stageOfLoop(loop) === stage)
          items.push({ kind: "loop", loop, items: this.items(loop), states: this.statesOf(loop) });
    }
    return items;
  }

  count(loop: LaneLoop, policy: HistoryPolicy | undefined): LoopCount {
    const mine = this.#live.filter((s) => s.loop === loop);
    return {
      length: loop.length,
      reverse: loop.reverse,
      operations: mine.filter((s) => s.args.length > 0).length,
      loads: mine.filter((s) => s.op === "load" || s.op === "past").length,
      stores: this.stores.filter((s) => s.loop === loop).length,
      states: this.statesOf(loop).length,
      history: this.recordedOf(loop).length,
      policy: policy?.kind ?? "none",
    };
  }

  /** The only loop that reads a loop's history, step by step backwards; null where there is none. */
  reader(loop: LaneLoop): LaneLoop | null {
    let reader: LaneLoop | null = null;
    for (const s of this.#live) {
      if (s.op !== "past" || s.of !== loop) continue;
      const by = s.loop;
      if (by === null || by.parent !== loop.parent || by.length !== loop.length || by.reverse === loop.reverse)
        return null;
      if (!s.address!.equals(by.time) || (reader !== null && reader !== by)) return null;
      reader = by;
    }
    return reader;
  }

  flopsOf(loop: LaneLoop | null): number {
    const own = this.#live.filter((s) => s.loop === loop && s.args.length > 0).length;
    return (
      own + this.loops.filter((l) => l.parent === loop).reduce((n, l) => n + expectedSteps(l) * this.flopsOf(l), 0)
    );
  }

  historyBytes(loop: LaneLoop): number {
    return this.recordedOf(loop).reduce((n, s) => n + bytesOf(s.dtype), 0) * loop.length;
  }

  stateBytes(loop: LaneLoop): number {
    return this.statesOf(loop).reduce((n, i) => n + bytesOf(loop.init[i].dtype), 0);
  }
}

/** Chooses how to store the steps of a loop: all locally, all in memory, or checkpoints. */
function choosePolicy(
  schedule: Scheduler,
  loop: LaneLoop,
  lanes: number,
  options: LaneOptions,
  addOutput: (dtype: DType) => number,
): HistoryPolicy {
  const bytes = schedule.historyBytes(loop);
  const reader = schedule.reader(loop);
  const every = Math.max(1, Math.round(Math.sqrt(loop.length)));
  const checkpoint: HistoryPolicy | null =
    reader !== null && loop.length >= 4 && loop.stop === null ? { kind: "checkpoint", every, reader } : null;
  const dtypes = new Set(schedule.recordedOf(loop).map((s) => s.dtype));
  const mayStore = dtypes.size === 1 && loop.parent === null;
  const memory = (): HistoryPolicy => ({ kind: "memory", output: addOutput([...dtypes][0]) });
  const { force } = options;
  if (force === "checkpoint" && checkpoint !== null) return checkpoint;
  if (force === "memory" && mayStore) return memory();
  if (force === "local" || bytes <= options.localBytes) return { kind: "local" };
  if (checkpoint !== null) {
    const kept = (loop.length / every) * schedule.stateBytes(loop) + (bytes / loop.length) * every;
    if (kept <= options.localBytes * 2) return checkpoint;
  }
  if (mayStore && bytes * lanes <= options.memoryBytes) return memory();
  if (checkpoint !== null) return checkpoint;
  if (mayStore) return memory();
  throw new NotLane("too much history for a lane");
}

interface ProgramParts {
  prefix: readonly number[];
  lanes: number;
  inputs: Node[];
  outputs: Aval[];
  stores: LaneStore[];
  loops: readonly LaneLoop[];
}

export function scheduleProgram(parts: ProgramParts, options: LaneOptions): LaneProgram {
  const { prefix, lanes, inputs, stores } = parts;
  const schedule = new Scheduler(stores, parts.loops);
  const outputs = [...parts.outputs];
  const policies = new Map<LaneLoop, HistoryPolicy>();
  for (const loop of schedule.loops) {
    const recorded = schedule.recordedOf(loop);
    if (recorded.length === 0) continue;
    // The slots that are read, renumbered.
    const policy = choosePolicy(schedule, loop, lanes, options, (dtype) => {
      outputs.push({ shape: [recorded.length, loop.length, lanes], dtype });
      return outputs.length - 1;
    });
    policies.set(loop, policy);
  }
  return {
    form: "thread",
    prefix,
    lanes,
    inputs,
    outputs,
    stores,
    items: schedule.items(null),
    policies,
    flops: schedule.flopsOf(null),
    counts: schedule.loops.map((loop) => schedule.count(loop, policies.get(loop))),
    scalars: schedule.size,
  };
}
