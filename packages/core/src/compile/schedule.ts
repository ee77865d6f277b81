// The schedule of a function: kernels, library calls and loops in order, and the memory location of every value.
import { bytesOf, type GraphFn, InternalError, isOp, type Node, numel, outputAvals } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { type Batching, joinKernels } from "./batch-kernels.js";
import { fuse } from "./fuse.js";
import { isCounted, isZeroBase, type MatrixOperand, matrixOperand } from "./fuse-rules.js";
import type { FuseOptions, Fusion } from "./fusion-group.js";
import { buildKernel, type LoopKernel } from "./kernel.js";
import { type AnyLaneProgram, laneProgramOf, outlineLanes, type RegionOptions } from "./lane-region.js";
import { alignedBytes, carriesInPlace, reserveLoop, withOwnResults } from "./loops.js";
import { memoryKey } from "./memory-key.js";
import { asLate, asSoon, inOrder, paceCollectives, type Work } from "./order.js";
import { finishes, isLastPass, kernelLoads, reducesOver } from "./overwrite.js";
import { type PrepareOptions, prepare } from "./prepare.js";

import { asStrided, axisVariables, type Layouts, resolveViews, type Strided } from "./views.js";

export type ScheduleStep =
  | { kind: "kernel"; kernel: LoopKernel }
  /** Independent kernels in one launch. */
  | { kind: "batch"; kernels: LoopKernel[] }
  /** `epilogue`: a kernel that finishes the product in place (bias, activation), run while its rows are still in cache. */
  /** `workspace`: offset of the call's workspace in the scratch memory of the schedule. */
  | {
      kind: "library";
      node: Node;
      matrices: MatrixOperand[] | null;
      epilogue: LoopKernel | null;
      /** Operands of a custom function's kernel, with their strides. */
      operands?: Strided[];
      workspace: number;
    }
  /** `offset`: offset of the loop's memory in the scratch memory of the enclosing schedule. */
  | { kind: "loop"; node: Node<"scan">; body: Schedule; offset: number }
  /** A scan over small independent problems as one kernel. */
  | { kind: "lane"; node: Node<"scan">; program: AnyLaneProgram }
  /** A collective: started as soon as the operand is ready, finished as late as possible. */
  | { kind: "collective"; node: Node<"collective">; phase: "start" | "finish" }
  | { kind: "copy"; from: Node; to: number };

/** The memory location of a value. */
export type Location =
  | { kind: "input"; index: number }
  | { kind: "output"; index: number }
  | { kind: "scratch"; offset: number };

export interface Schedule {
  fn: GraphFn;
  steps: ScheduleStep[];
  /** By memory key (see memoryKey). */
  locations: Map<string, Location>;
  scratchBytes: number;
  aliases: Map<number, number>;
  /** Kernels that write a result over one of their operands. */
  overwriting: Set<LoopKernel>;
  layouts: Layouts;
}

export interface ScheduleOptions extends PrepareOptions, FuseOptions {
  donated?: readonly boolean[];
  /** How lane programs store the states of their loops, and which parameter values are constant. */
  lanes?: Partial<RegionOptions>;
  /** Which kernels the device can batch into one launch. Default: none. */
  batching?: Batching;
  /** Result i may reuse only the memory of parameter i + `aliasOffset`. Default: of any donated parameter. */
  aliasOffset?: number;
  /** Kernels may write results over operands that nothing reads afterwards, element by element. Default: no. */
  overwrites?: boolean;
  /** Loops with library calls copy results that are equal, or arguments of the step, in kernels, which are fused. Default: separately. */
  copiesInKernels?: boolean;
  /** Bytes of scratch memory that the device's call for an op needs. */
  workspace?: (node: Node) => number;
}

/** A lane's history is local up to a page; beyond, memory is cheaper to read than steps are to rematerialize. */
const laneDefaults: RegionOptions = { localBytes: 4096, memoryBytes: 2 ** 33 };

/** Maximum number of started and unfinished collectives. */
const maxUnderWay = 8;
/** Values up to this size that depend only on parameters (weights cast to a half type) are computed first, in one launch. */
const earlyBytes = 1 << 20;
/** Bytes of a result for which the memory of any donated argument is worth taking. */
const worthSharing = 1 << 20;

/** Bytes of an element of a kernel's buffer. */
const elementBytes = (kernel: LoopKernel, key: string): number =>
  bytesOf(kernel.buffers.find((node) => memoryKey(node) === key)!.dtype);

class Scheduler {
  readonly params: ReadonlySet<Node>;
  readonly #sizes = new Map<string, number>();
  readonly #stop = (node: Node): boolean => this.params.has(node) || this.fusion.stored.has(node);

  constructor(
    readonly fn: GraphFn,
    readonly fusion: Fusion,
    readonly options: ScheduleOptions,
  ) {
    this.params = new Set(fn.params);
    this.#paramKeys = new Set(fn.params.map((param) => memoryKey(param)));
  }

  readonly #paramKeys: ReadonlySet<string>;
  readonly #overwriting = new Set<LoopKernel>();

  #note(node: Node): string {
    const key = memoryKey(node);
    this.#sizes.set(key, numel(node.shape) * bytesOf(node.dtype));
    return key;
  }

  /** The stored node behind a contiguous operand. */
  operandOf(node: Node): Node {
    return resolveViews(node, axisVariables(node.shape), this.#stop).node;
  }

  #matrix(node: Node): MatrixOperand {
    const operand = matrixOperand(node, this.#stop, this.fusion.layouts);
    if (operand === null) throw new InternalError(`the operand %${node.id} of a matrix product is not in memory`);
    return operand;
  }

  #strided(node: Node): Strided {
    const operand = asStrided(node, this.#stop, this.fusion.layouts);
    if (operand === null) throw new InternalError(`the operand %${node.id} of a fused kernel is not in memory`);
    return operand;
  }

  #kernelWork(position: Map<Node, number>): Work[] {
    return this.fusion.groups.flatMap((group) => {
      if (group.size === 0) return [];
      const kernel = buildKernel(group, this.fusion, this.params);
      if (kernel.written.size === 0) return [];
      const reads = new Set<string>();
      const writes = new Set<string>();
      kernel.buffers.forEach((node, i) => {
        (kernel.written.has(i) ? writes : reads).add(this.#note(node));
      });
      const written = group.members.reduce((n, m) => n + numel(m.shape) * bytesOf(m.dtype), 0);
      const early = written <= earlyBytes && [...reads].every((key) => this.#paramKeys.has(key));
      const at = early ? -1 : Math.max(...group.members.map((m) => position.get(m)!));
      return [{ step: { kind: "kernel" as const, kernel }, reads, writes, at, early }];
    });
  }

  #libraryWork(position: Map<Node, number>): Work[] {
    const calls = this.fusion.library.filter((node) => node.op !== "collective");
    return calls.map((node) => {
      const writes = new Set<string>();
      outputAvals(node).forEach((aval, i) => {
        const key = memoryKey(node, i);
        this.#sizes.set(key, numel(aval.shape) * bytesOf(aval.dtype));
        writes.add(key);
      });
      const matrices = node.op === "matmul" ? node.inputs.map((input) => this.#matrix(input)) : null;
      const operands = node.op === "custom" ? node.inputs.map((input) => this.#strided(input)) : undefined;
      const inputs =
        (matrices ?? operands)?.map((m) => m.node) ??
        node.inputs
          .filter((x) => !isZeroBase(node, x) && !isCounted(node, x, this.options.countsOnes))
          .map((x) => this.operandOf(x));
      const reads = new Set(inputs.map((input) => this.#note(input)));
      const step: ScheduleStep = isOp(node, "scan")
        ? this.#scanStep(node)
        : { kind: "library", node, matrices, epilogue: null, operands, workspace: 0 };
      return { step, reads, writes, at: position.get(node)! };
    });
  }

  /**
   * Two steps per collective. All devices must issue them in one order, which the sequence numbers define; finishing
   * follows the same order. The number of unfinished collectives is limited, because each holds its operand and its
   * result.
   */
  #collectiveWork(position: Map<Node, number>): Work[] {
    const nodes = this.fusion.library.filter((node): node is Node<"collective"> => isOp(node, "collective"));
    nodes.sort((a, b) => a.attrs.sequence - b.attrs.sequence || position.get(a)! - position.get(b)!);
    const needed = new Map<Node, number>();
    for (const [node, at] of position)
      for (const input of node.inputs)
        if (input.op === "collective") needed.set(input, Math.min(needed.get(input) ?? at, at));
    const starts: Work[] = [];
    const ends: Work[] = [];
    let gathers = -1;
    nodes.forEach((node, k) => {
      const reads = new Set([this.#note(this.operandOf(node.inputs[0]))]);
      const writes = new Set([this.#note(node)]);
      // Awaited where the program needs it, before work that comes later in the program and would only take memory. A
      // gathered tensor is larger than its parts: it is started when the one before it is needed.
      const due = (needed.get(node) ?? position.size + k) - 0.5;
      const at = node.attrs.kind === "allGather" ? gathers : -1;
      if (node.attrs.kind === "allGather") gathers = due;
      const start: Work = { step: { kind: "collective", node, phase: "start" }, reads, writes, at };
      start.after = [...starts.slice(-1), ...(k >= maxUnderWay ? [ends[k - maxUnderWay]] : [])];
      const end: Work = {
        step: { kind: "collective", node, phase: "finish" },
        reads,
        writes,
        after: [start, ...ends.slice(-1)],
        at: due,
      };
      starts.push(start);
      ends.push(end);
    });
    return [...starts, ...ends];
  }

  #scanStep(node: Node<"scan">): ScheduleStep {
    const program = laneProgramOf(node);
    if (program !== null) return { kind: "lane", node, program };
    const { constants: _, ...lanes } = this.options.lanes ?? {};
    const body = this.options.copiesInKernels ? withOwnResults(node) : node.attrs.body;
    return {
      kind: "loop",
      node,
      body: scheduleFunction(body, { ...this.options, ...carriesInPlace(node), lanes }),
      offset: 0,
    };
  }

  run(): Schedule {
    const position = new Map(this.fusion.order.map((node, i) => [node, i]));
    const all = [...this.#kernelWork(position), ...this.#libraryWork(position), ...this.#collectiveWork(position)];
    const sizes = {
      params: this.#paramKeys,
      results: new Set(this.fusion.results.map((node) => memoryKey(node))),
      bytesOf: (key: string) => this.#sizes.get(key) ?? 0,
    };
    const work = this.#joined(
      withEpilogues(paceCollectives(asSoon(asLate(inOrder(all), sizes), sizes), sizes), this.fusion),
    );
    const locations = new Map<string, Location>();
    this.fn.params.forEach((param, index) => {
      locations.set(memoryKey(param), { kind: "input", index });
    });
    // Results of the function: written in place, or copied at the end. Of equal ones the last is written in place: states come last.
    const owners = new Map(this.fusion.results.map((node, index) => [memoryKey(node), index]));
    this.fusion.results.forEach((node, index) => {
      const key = memoryKey(node);
      if (locations.has(key) || owners.get(key) !== index) work.push(copyWork(node, index, key, work.length));
      else locations.set(key, { kind: "output", index });
      this.#note(node);
    });
    const inPlace = [...this.#reduceInPlace(work, locations), ...this.#updateInPlace(work, locations)].reverse();
    const aliases = this.#aliases(work, locations);
    const scratchBytes = this.#placeScratch(work, locations);
    for (const [operand, result] of inPlace) locations.set(operand, locations.get(result)!);
    // Empty tensors are written by no step, but may be read.
    for (const node of this.fusion.stored) {
      const key = memoryKey(node);
      if (numel(node.shape) === 0 && !locations.has(key)) locations.set(key, { kind: "scratch", offset: 0 });
    }
    // A product with an epilogue is written to the location of the epilogue's result, and finished there.
    for (const { step } of work) {
      if (step.kind !== "library" || step.epilogue === null) continue;
      const [store] = step.epilogue.stores;
      locations.set(memoryKey(step.node), locations.get(memoryKey(step.epilogue.buffers[store.buffer]))!);
    }
    return {
      fn: this.fn,
      steps: work.map((w) => w.step),
      locations,
      scratchBytes,
      aliases,
      overwriting: this.#overwriting,
      layouts: this.fusion.layouts,
    };
  }

  /** An operand that only an all-reduce reads is written to the location of the sum: half the memory, and less traffic. */
  #reduceInPlace(work: readonly Work[], locations: ReadonlyMap<string, Location>): Map<string, string> {
    const pairs = new Map<string, string>();
    for (const { step, reads, writes } of work) {
      if (step.kind !== "collective" || step.phase !== "start" || step.node.attrs.kind !== "allReduce") continue;
      const [[operand], [result]] = [[...reads], [...writes]];
      const readers = work.filter((w) => w.reads.has(operand));
      const producer = work.find((w) => w.writes.has(operand));
      if (locations.has(operand) || producer === undefined || readers.some((w) => w.reads !== reads)) continue;
      producer.writes.delete(operand);
      producer.writes.add(result);
      reads.delete(operand);
      reads.add(result);
      pairs.set(operand, result);
    }
    return pairs;
  }

  /** The base of an update whose last reader the update is: both have one location, and only the update is written. */
  #updateInPlace(work: readonly Work[], locations: ReadonlyMap<string, Location>): Map<string, string> {
    const pairs = new Map<string, string>();
    work.forEach(({ step }, s) => {
      if (step.kind !== "library" || !isOp(step.node, "updateSlice")) return;
      const [base, ...others] = step.node.inputs.map((x) => memoryKey(this.operandOf(x)));
      if (locations.has(base) || others.includes(base)) return;
      if (!work.some((w) => w.writes.has(base)) || work.some((w, t) => t > s && w.reads.has(base))) return;
      const result = memoryKey(step.node);
      for (const { reads, writes } of work) for (const keys of [reads, writes]) if (keys.delete(base)) keys.add(result);
      pairs.set(base, result);
    });
    return pairs;
  }

  #joined(work: Work[]): Work[] {
    if (this.options.batching === undefined) return work;
    const items = work.map((w) => ({ ...w, kernel: w.step.kind === "kernel" ? w.step.kernel : null }));
    return joinKernels(items, this.options.batching).map((run) => {
      const [first] = run;
      if (run.length === 1) return first;
      return {
        step: { kind: "batch" as const, kernels: run.map((w) => w.kernel!) },
        reads: new Set(run.flatMap((w) => [...w.reads])),
        writes: new Set(run.flatMap((w) => [...w.writes])),
        at: first.at,
      };
    });
  }

  /** Results that may reuse the memory of a donated parameter: written last, or read and written element by element. */
  #aliases(work: readonly Work[], locations: ReadonlyMap<string, Location>): Map<number, number> {
    const aliases = new Map<number, number>();
    const { donated = [], aliasOffset } = this.options;
    const given = this.fn.params.flatMap((_, i) => (donated[i] ? [i] : []));
    const free = new Set(given);
    const reuse = (o: number, candidates: Iterable<number>): void => {
      if (aliases.has(o)) return;
      const output = this.fn.outputs[o];
      const node = this.fusion.results[o];
      const key = memoryKey(node);
      const location = locations.get(key);
      if (location?.kind !== "output" || location.index !== o) return;
      const writer = work.findIndex((w) => w.writes.has(key));
      // Nobody writes a result without elements.
      if (writer < 0) return;
      for (const i of candidates) {
        if (!free.has(i) || (aliasOffset !== undefined && i !== aliasOffset + o)) continue;
        const param = this.fn.params[i];
        if (param.dtype !== output.dtype || numel(param.shape) !== numel(output.shape)) continue;
        if (!this.#mayOverwrite(work, writer, memoryKey(param), key)) continue;
        aliases.set(o, i);
        free.delete(i);
        return;
      }
    };
    // A state that is passed from call to call keeps its addresses: first arguments that are updated in place, then those in the place
    // of the result, counted from the first or, where other results come before the state, from the last one.
    const count = this.fn.outputs.length;
    const updated = (o: number): number[] => {
      const key = memoryKey(this.fusion.results[o]);
      const writer = work.find((w) => w.writes.has(key));
      return given.filter((i) => writer?.reads.has(memoryKey(this.fn.params[i])));
    };
    const inPlace = (o: number): number[] => given.slice(o, o + 1);
    const fromLast = (o: number): number[] => given.filter((_, k) => given.length - k === count - o);
    // Other results reuse only large memory: a caller may hold a small one, and the state would move in every call.
    const others = (o: number): Iterable<number> =>
      aliasOffset !== undefined || numel(this.fn.outputs[o].shape) * bytesOf(this.fn.outputs[o].dtype) >= worthSharing
        ? free
        : [];
    for (const candidates of [updated, inPlace, fromLast, others])
      this.fn.outputs.forEach((_, o) => {
        reuse(o, candidates(o));
      });
    return aliases;
  }

  #mayOverwrite(work: readonly Work[], writer: number, from: string, to: string): boolean {
    for (let s = writer + 1; s < work.length; s++) if (work[s].reads.has(from)) return false;
    const { step, reads } = work[writer];
    if (!reads.has(from)) return true;
    return this.#kernelOverwriting(step, from, to, false) !== null || this.#updates(step, from);
  }

  /** Whether a step is an update that writes only into its base. */
  #updates(step: ScheduleStep, from: string): boolean {
    return (
      step.kind === "library" &&
      isOp(step.node, "updateSlice") &&
      step.node.inputs.every((x, i) => (memoryKey(this.operandOf(x)) === from) === (i === 0))
    );
  }

  /** The kernel of a step that reads an operand only where it writes a result, and only before; null if there is none. */
  #kernelOverwriting(step: ScheduleStep, from: string, to: string, afterPasses: boolean): LoopKernel | null {
    const kernels = step.kind === "kernel" ? [step.kernel] : step.kind === "batch" ? step.kernels : [];
    const kernel = kernels.find((k) => k.stores.some((s) => memoryKey(k.buffers[s.buffer]) === to));
    if (kernel === undefined) return null;
    // Kernels of one launch run in no order.
    if (kernels.some((k) => k !== kernel && kernelLoads(k, from).length > 0)) return null;
    // Element by element: one address, and every read of it happens in the loop that writes, or in a pass before it.
    const store = kernel.stores.find((s) => memoryKey(kernel.buffers[s.buffer]) === to);
    if (store === undefined || kernel.columnSums.length > 0) return null;
    if (
      kernel.kind === "columns"
        ? reducesOver(kernel, from)
        : kernel.reductions.length > 0 && !(afterPasses && isLastPass(kernel, store))
    )
      return null;
    return kernelLoads(kernel, from).every((address) => address.equals(store.address)) ? kernel : null;
  }

  /** The memory of an operand that a step reads last, and may write a result of the same size over; null if there is none. */
  #overwritten(
    step: ScheduleStep,
    to: string,
    candidates: Iterable<[string, { offset: number; size: number }]>,
    size: number,
  ): string | null {
    if (!this.options.overwrites || (step.kind !== "kernel" && step.kind !== "batch")) return null;
    for (const [from, place] of candidates) {
      if (place.size !== size || this.#sizes.get(from) !== this.#sizes.get(to)) continue;
      const kernel = this.#kernelOverwriting(step, from, to, true);
      if (kernel === null || elementBytes(kernel, from) !== elementBytes(kernel, to)) continue;
      this.#overwriting.add(kernel);
      return from;
    }
    return null;
  }

  #placeScratch(work: readonly Work[], locations: Map<string, Location>): number {
    const lastUse = new Map<string, number>();
    work.forEach((w, s) => {
      for (const key of [...w.reads, ...w.writes]) lastUse.set(key, s);
    });
    const holes: { offset: number; size: number }[] = [];
    let top = 0;
    const take = (size: number): number => {
      let best = -1;
      holes.forEach((hole, i) => {
        if (hole.size >= size && (best < 0 || hole.size < holes[best].size)) best = i;
      });
      if (best < 0) {
        // Grow the last hole if it ends at the top.
        const last = holes.findIndex((h) => h.offset + h.size === top);
        const offset = last >= 0 ? holes.splice(last, 1)[0].offset : top;
        top = offset + size;
        return offset;
      }
      const hole = holes[best];
      const { offset } = hole;
      hole.offset += size;
      hole.size -= size;
      if (hole.size === 0) holes.splice(best, 1);
      return offset;
    };
    const release = (offset: number, size: number): void => {
      holes.push({ offset, size });
      holes.sort((a, b) => a.offset - b.offset);
      for (let i = holes.length - 2; i >= 0; i--) {
        if (holes[i].offset + holes[i].size === holes[i + 1].offset) {
          holes[i].size += holes[i + 1].size;
          holes.splice(i + 1, 1);
        }
      }
    };
    const live = new Map<string, { offset: number; size: number }>();
    work.forEach((w, s) => {
      const ending = [...live].filter(([key]) => lastUse.get(key) === s && w.reads.has(key));
      for (const key of w.writes) {
        if (locations.has(key)) continue;
        const size = alignedBytes(this.#sizes.get(key) ?? 0);
        const over = this.#overwritten(
          w.step,
          key,
          ending.filter(([from]) => live.has(from)),
          size,
        );
        const offset = over === null ? take(size) : live.get(over)!.offset;
        if (over !== null) live.delete(over);
        locations.set(key, { kind: "scratch", offset });
        live.set(key, { offset, size });
      }
      if (w.step.kind === "loop") reserveLoop(w.step, take, release);
      if (w.step.kind === "library") {
        const size = this.options.workspace?.(w.step.node) ?? 0;
        if (size > 0) {
          w.step.workspace = take(alignedBytes(size));
          release(w.step.workspace, alignedBytes(size));
        }
      }
      for (const [key, place] of live) {
        if (lastUse.get(key) !== s) continue;
        release(place.offset, place.size);
        live.delete(key);
      }
    });
    return top;
  }
}

function copyWork(node: Node, index: number, key: string, at: number): Work {
  return {
    step: { kind: "copy", from: node, to: index },
    reads: new Set([key]),
    writes: new Set([`copy${index}`]),
    at,
  };
}

/** Element-wise kernels that only finish one product become part of its call. */
function withEpilogues(work: Work[], fusion: Fusion): Work[] {
  const readers = new Map<string, number>();
  for (const w of work) for (const key of w.reads) readers.set(key, (readers.get(key) ?? 0) + 1);
  const results = new Set(fusion.results.map((node) => memoryKey(node)));
  const absorbed = new Set<Work>();
  work.forEach((w, at) => {
    const { step } = w;
    if (step.kind !== "library" || step.node.op !== "matmul" || step.node.shape.length !== 2) return;
    const key = memoryKey(step.node);
    if (readers.get(key) !== 1 || results.has(key) || fusion.layouts.has(step.node)) return;
    const user = work.findIndex((other) => other.reads.has(key));
    const finish = work[user]?.step;
    if (finish?.kind !== "kernel" || !finishes(finish.kernel, step.node)) return;
    // The other operands of the epilogue must be ready before the product runs.
    const later = new Set(work.slice(at + 1, user).flatMap((other) => [...other.writes]));
    const inputs = [...work[user].reads].filter((read) => read !== key);
    if (inputs.some((read) => later.has(read))) return;
    work[at] = {
      step: { ...step, epilogue: finish.kernel },
      reads: new Set([...w.reads, ...inputs]),
      writes: work[user].writes,
      at: w.at,
    };
    absorbed.add(work[user]);
  });
  return work.filter((w) => !absorbed.has(w));
}

export function scheduleFunction(fn: GraphFn, options: ScheduleOptions): Schedule {
  const force = settings.laneHistory.get();
  const prepared = outlineLanes(prepare(fn, options), {
    ...laneDefaults,
    ...(force ? { force } : {}),
    ...options.lanes,
  });
  const fusion = fuse(prepared, options);
  return new Scheduler(prepared, fusion, options).run();
}

/** The stored node behind a contiguous operand of a library call. */
export function contiguousOperand(schedule: Schedule, node: Node): Node {
  const isPlaced = (n: Node): boolean => schedule.locations.has(memoryKey(n)) && n.outputs === null;
  return resolveViews(node, axisVariables(node.shape), isPlaced).node;
}
