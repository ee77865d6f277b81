// Plans a training step under a memory limit per device: how many devices share the rows of the batch and how many share
// each layer, which parameters and states are split over ranks (ZeRO), and which activations are rematerialized. All of
// these are choices of one search that minimizes the predicted time of a step.
import { linkTime, type Rates } from "../cost/index.js";
import { type CollectiveKind, functionOrder, type GraphFn, range, topological, WeftError } from "../graph/index.js";
import { cheapestCover, type Way } from "./cover.js";
import { showBytes } from "./explain.js";
import { notifyPlanning } from "./listeners.js";
import { markOf } from "./marks.js";
import { peakBytes, type SplitCost, StepModel, type StepSplit } from "./step-model.js";
import { rewriteStep, type StepRoles } from "./step-rewrite.js";

/**
 * How a parameter is divided over the ranks of the data axis, and over those of the model axis if that does not split it. 0: not
 * at all. 1: its optimizer state (ZeRO-1); gradients of micro-steps are added up whole, and exchanged once. 2: its gradient too
 * (ZeRO-2), exchanged in every micro-step. 3: the parameter too, gathered where it is used (ZeRO-3).
 */
export type Stage = 0 | 1 | 2 | 3;

export interface StepPlanOptions {
  /** Number of devices; all are used. */
  devices: number;
  rates: Rates;
  /** Bytes per device; unlimited by default. */
  memory?: number;
  /** Gradients are summed in buckets of this size. */
  bucketBytes?: number;
  /** Micro-steps whose gradients are added up for one update; 1 by default. */
  accumulation?: number;
  /** If nothing fits, the placement that needs least is returned, which may fit after all. Default: an error. */
  orLeast?: boolean;
}

/** What a plan decides. */
interface StepDecision {
  split: StepSplit;
  /** By number of the parameter. */
  stages: readonly Stage[];
  /** Segments of the forward pass whose activations are rematerialized. */
  rematerialized: ReadonlySet<number>;
}

/** A decision with its estimates. */
interface StepCandidate extends StepDecision {
  name: string;
  /** Bytes on the device that needs most. */
  bytes: number;
  /** Predicted seconds of a step, and those of collectives and rematerialization within it. */
  seconds: number;
  communicate: number;
  recompute: number;
}

export interface StepPlan extends StepCandidate {
  model: StepModel;
  candidates: StepCandidate[];
  memory: number;
  rates: Rates;
  /** Whether it needs no more than the limit, by its estimate. */
  fits: boolean;
  /** Planning time in milliseconds. */
  planned: number;
}

/** One increment of a decision: what it saves and costs. */
interface Increment {
  /** Parameter, or segment as -1 - index. */
  item: number;
  stage: Stage;
  saves: number;
  seconds: number;
}

/** The search may end within this part of a step's time of the best decision. */
const searchTolerance = 0.002;

/** Values that a maximum may take, with 0; a few of them where there are many. */
function boundsOf(values: readonly number[], most = 12): number[] {
  const all = [...new Set([0, ...values])].sort((a, b) => a - b);
  if (all.length <= most) return all;
  return [...new Set(range(most).map((k) => all[Math.round((k * (all.length - 1)) / (most - 1))]))];
}

/** Costs and sizes of one split, from which decisions are evaluated without looking at the graph again. */
export class SplitProblem {
  readonly cost: SplitCost;
  readonly increments: Increment[] = [];
  readonly #base: number;
  readonly #stored: number[];
  readonly #gain: number[];
  readonly #transient: number;
  readonly #params: { whole: number; share: number; parts: number; state: number }[];
  readonly #reduce: number[];

  constructor(
    readonly model: StepModel,
    readonly split: StepSplit,
    readonly options: StepPlanOptions,
  ) {
    const { fn, roles } = model;
    const { rates, bucketBytes = 4 << 20, accumulation = 1 } = options;
    const { data } = split;
    const host = rates.between?.devices ?? Number.POSITIVE_INFINITY;
    const linked = (far: boolean): Rates => (far ? { ...rates, links: rates.between!.links } : rates);
    this.cost = model.cost(split, linked(split.model > host));
    const links = linked(data * split.model > host);
    const { segments, transient } = model.activations(split);
    this.#stored = segments.map(({ stored }) => stored);
    this.#gain = segments.map(({ stored, incoming }) => Math.max(0, stored - incoming));
    this.#transient = 2 * transient;
    const collective = (kind: CollectiveKind, members: number, received: number, bucketed: boolean): number => {
      const latency = linkTime(links, kind, members, 0);
      const seconds = linkTime(links, kind, members, received);
      return bucketed ? seconds - latency + (latency * received) / bucketBytes : seconds;
    };
    this.#params = roles.params.map((at, i) => {
      const param = fn.params[at];
      const whole = model.bytes(param, split);
      const state = roles.states[i].reduce((n, s) => n + model.bytes(fn.params[s], split), 0);
      return { whole, state, ...zeroParts(model, i, split) };
    });
    this.#reduce = this.#params.map(({ whole }) =>
      collective("allReduce", data, 2 * (1 - 1 / data) * whole, whole < bucketBytes / 4),
    );
    this.#params.forEach(({ whole, state, share, parts }, item) => {
      if (share === 1) return;
      const received = (1 - 1 / parts) * whole;
      const [scatter, gather] = (["reduceScatter", "allGather"] as const).map((kind) =>
        collective(kind, parts, received, false),
      );
      const saves = whole * (1 - share);
      const exchange = scatter + gather - this.#reduce[item];
      if (accumulation === 1)
        this.increments.push({ item, stage: 2, saves: saves + state * (1 - share), seconds: exchange });
      else {
        this.increments.push({ item, stage: 1, saves: state * (1 - share), seconds: exchange });
        this.increments.push({ item, stage: 2, saves, seconds: (accumulation - 1) * scatter });
      }
      // Gathered in both passes of every micro-step, and not after the update.
      this.increments.push({ item, stage: 3, saves, seconds: (2 * accumulation - 1) * gather });
    });
    this.cost.segments.forEach((seconds, s) => {
      if (this.#gain[s] > 0)
        this.increments.push({ item: -1 - s, stage: 0, saves: this.#gain[s], seconds: accumulation * seconds });
    });
    this.#base = roles.batch.reduce((n, at) => n + model.bytes(fn.params[at], split), 0);
  }

  /** Estimated bytes of a device. */
  bytes(stages: readonly Stage[], rematerialized: ReadonlySet<number>): number {
    let bytes = this.#base + this.#transient;
    let gathered = 0;
    this.#params.forEach(({ whole, state, share }, i) => {
      const stage = stages[i];
      const part = (least: Stage): number => (stage >= least ? share : 1);
      bytes += whole * part(3) + whole * part(2) + state * part(1);
      // The one in use, and the next one.
      if (stage === 3) gathered = Math.max(gathered, 2 * whole);
    });
    let again = 0;
    this.#stored.forEach((stored, s) => {
      bytes += stored - (rematerialized.has(s) ? this.#gain[s] : 0);
      if (rematerialized.has(s)) again = Math.max(again, stored);
    });
    return bytes + gathered + again;
  }

  candidate(name: string, stages: readonly Stage[], rematerialized: ReadonlySet<number>): StepCandidate {
    const { compute, communicate, segments } = this.cost;
    const { accumulation = 1 } = this.options;
    let moved = accumulation * communicate + this.#reduce.reduce((n, seconds) => n + seconds, 0);
    let recompute = 0;
    for (const { item, stage, seconds } of this.increments) if (item >= 0 && stages[item] >= stage) moved += seconds;
    for (const s of rematerialized) recompute += accumulation * segments[s];
    return {
      name,
      split: this.split,
      stages,
      rematerialized,
      bytes: this.bytes(stages, rematerialized),
      seconds:
        accumulation * (this.options.rates.call + compute.forward + compute.backward) +
        compute.update +
        moved +
        recompute,
      communicate: moved,
      recompute,
    };
  }

  decision(chosen: Iterable<Increment>): { stages: Stage[]; rematerialized: Set<number> } {
    const stages: Stage[] = this.#params.map(() => 0);
    const rematerialized = new Set<number>();
    for (const { item, stage } of chosen) {
      if (item < 0) rematerialized.add(-1 - item);
      else if (stage > stages[item]) stages[item] = stage;
    }
    return { stages, rematerialized };
  }

  /**
   * The fastest decision within the limit; null if there is none. What is gathered at one time and what is recomputed at one time
   * are bounded first; within a pair of bounds, memory adds up, and the choice is a knapsack.
   */
  solve(limit: number): { stages: Stage[]; rematerialized: Set<number> } | null {
    const start = this.decision([]);
    const bytes = this.bytes(start.stages, start.rematerialized);
    if (bytes <= limit) return start;
    const tolerance = searchTolerance * this.candidate("", start.stages, start.rematerialized).seconds;
    let best: { costs: number; chosen: Increment[] } | null = null;
    for (const { gathered, recomputed } of this.#bounds()) {
      const items = this.#itemsWithin(gathered, recomputed);
      const below: number = best?.costs ?? Number.POSITIVE_INFINITY;
      const found = cheapestCover(items, bytes + gathered + recomputed - limit, tolerance, below);
      if (found !== null) best = { costs: found.costs, chosen: found.chosen.flatMap((way) => way?.increments ?? []) };
    }
    return best === null ? null : this.decision(best.chosen);
  }

  /** The decision that needs least memory: what takes more at one time than it saves is left out. */
  least(): { stages: Stage[]; rematerialized: Set<number> } {
    let best = this.decision([]);
    let bytes = this.bytes(best.stages, best.rematerialized);
    for (const { gathered, recomputed } of this.#bounds()) {
      const ways = this.#itemsWithin(gathered, recomputed).map((item) => item.ways[item.ways.length - 1]);
      const tried = this.decision(ways.flatMap((way) => way.increments));
      const needs = this.bytes(tried.stages, tried.rematerialized);
      if (needs < bytes) [best, bytes] = [tried, needs];
    }
    return best;
  }

  /** Bounds of what is gathered and what is recomputed at one time, in pairs. */
  #bounds(): { gathered: number; recomputed: number }[] {
    const gathers = this.increments.flatMap(({ item, stage }) => (stage === 3 ? [2 * this.#params[item].whole] : []));
    const again = this.increments.flatMap(({ item }) => (item < 0 ? [this.#stored[-1 - item]] : []));
    return boundsOf(gathers).flatMap((gathered) => boundsOf(again).map((recomputed) => ({ gathered, recomputed })));
  }

  /** Choices of every parameter and segment that gather and recompute no more at one time. */
  #itemsWithin(gathered: number, recomputed: number): { ways: (Way & { increments: Increment[] })[] }[] {
    const lists = new Map<number, Increment[]>();
    for (const increment of this.increments) {
      const { item, stage } = increment;
      if (stage === 3 && 2 * this.#params[item].whole > gathered) continue;
      if (item < 0 && this.#stored[-1 - item] > recomputed) continue;
      lists.set(item, [...(lists.get(item) ?? []), increment]);
    }
    return [...lists.values()].map((list) => ({
      // The second increment of a parameter needs the first.
      ways: list.map((_, i) => {
        const increments = list.slice(0, i + 1);
        const sum = (part: (increment: Increment) => number): number => increments.reduce((n, x) => n + part(x), 0);
        return {
          increments,
          saves: sum(({ saves }) => saves),
          costs: Math.max(
            0,
            sum(({ seconds }) => seconds),
          ),
        };
      }),
    }));
  }
}

/** Over how many devices the state of a parameter may be divided, and the part of it that one of them has. */
function zeroParts(model: StepModel, i: number, split: StepSplit): { parts: number; share: number } {
  const param = model.fn.params[model.roles.params[i]];
  const dim = split.model === 1 ? -1 : model.splitDim(param, split.classes);
  const parts = dim < 0 ? split.data * split.model : split.data;
  const size = Math.max(1, ...param.shape.filter((_, at) => at !== dim));
  return { parts, share: Math.ceil(size / parts) / size };
}

const divisors = (n: number): number[] => range(n + 1).filter((k) => k > 0 && n % k === 0);

/** Classes of layers for the model axis, added as long as they make the step faster. */
function modelClasses(model: StepModel, options: StepPlanOptions): Set<number> {
  const { devices, rates } = options;
  const parts = divisors(devices)
    .filter((k) => k > 1 && k <= (rates.between?.devices ?? 8))
    .at(-1);
  if (parts === undefined) return new Set();
  const time = (classes: ReadonlySet<number>): number => {
    const { compute, communicate } = model.cost({ data: devices / parts, model: parts, classes }, rates);
    return compute.forward + compute.backward + compute.update + communicate;
  };
  let chosen = new Set<number>();
  let best = time(chosen);
  const sequence = model.sequenceClasses();
  for (const id of model.candidateClasses()) {
    if (sequence.has(id)) continue;
    const more = new Set([...chosen, id]);
    const seconds = time(more);
    if (seconds < best) [chosen, best] = [more, seconds];
  }
  return chosen;
}

/** Bytes of a device by the life of every value, after the step is rewritten for a decision. */
function confirmedBytes(
  model: StepModel,
  { split, stages, rematerialized }: StepDecision,
  accumulation: number,
): number {
  const { fn, roles } = model;
  const gathered = new Set(stages.flatMap((stage, i) => (stage === 3 ? [i] : [])));
  const rewritten = rewriteStep(fn, roles, {
    gathered,
    segmentOf: (node) => {
      const segment = model.segmentOf(node);
      return rematerialized.has(segment) && !model.crosses(node) ? segment : -1;
    },
  });
  const shares = roles.params.map((_, i) => zeroParts(model, i, split).share);
  let persistent = fn.params.reduce((n, param) => n + model.bytes(param, split), 0);
  roles.params.forEach((at, i) => {
    const saved = 1 - shares[i];
    const whole = model.bytes(fn.params[at], split);
    if (stages[i] === 3) persistent -= saved * whole;
    if (stages[i] >= 1) for (const s of roles.states[i]) persistent -= saved * model.bytes(fn.params[s], split);
    // Sums of micro-steps.
    if (accumulation > 1) persistent += whole * (stages[i] >= 2 ? shares[i] : 1);
  });
  const params = new Set(fn.params);
  // Ranks sum every gradient as soon as it is there, so that order decides what lives at one time.
  const gradients = functionOrder(rewritten.fn)
    .filter((node) => markOf(node)?.kind === "gradient")
    .sort((a, b) => a.depth - b.depth);
  const order = topological([...gradients, ...rewritten.fn.outputs], (node) => params.has(node));
  const peak = peakBytes(order, (node) => {
    const source = rewritten.origin.get(node);
    if (source === undefined || params.has(node)) return 0;
    const mark = markOf(node);
    if (mark?.kind === "forward" || mark?.kind === "backward") return model.bytes(source, split);
    if (mark?.kind === "gradient") return stages[mark.index] >= 1 ? shares[mark.index] * model.bytes(source, split) : 0;
    // Updates are written in place of the state.
    if (mark !== null || model.phaseOf(source) === "update" || !model.isStored(source)) return 0;
    return (source.outputs ?? [source]).reduce((n, _, i) => n + model.bytes(source, split, i), 0);
  });
  return persistent + peak;
}

/** Whether the model axis divides the positions of sequences alone. */
function isSequence(model: StepModel, { classes }: StepSplit): boolean {
  const own = model.sequenceClasses();
  return classes.size > 0 && [...classes].every((id) => own.has(id));
}

/** A decision in words. */
function nameOf(model: StepModel, { split, stages, rematerialized }: StepDecision): string {
  const names = [`data ${split.data}`];
  if (split.model > 1) names.push(`${isSequence(model, split) ? "sequence" : "model"} ${split.model}`);
  for (const stage of [1, 2, 3] as const) {
    const count = stages.filter((own) => own === stage).length;
    if (count > 0)
      names.push(`ZeRO-${stage}${count < stages.length ? ` for ${count} of ${stages.length} tensors` : ""}`);
  }
  const count = rematerialized.size;
  if (count > 0) names.push(`rematerialize${count < model.segments ? ` ${count} of ${model.segments} segments` : ""}`);
  return names.join(", ");
}

/** Plans a simplified step whose loss and gradients are marked. */
export function planStep(fn: GraphFn, roles: StepRoles, options: StepPlanOptions): StepPlan {
  const begin = performance.now();
  const model = new StepModel(fn, roles);
  const { devices, memory = Number.POSITIVE_INFINITY, rates } = options;
  const none = new Set<number>();
  // What the model axis may divide: layers, or sequences.
  const divided = devices === 1 ? [] : [modelClasses(model, options), model.sequenceClasses()];
  const splits: StepSplit[] = divisors(devices).flatMap((parts) => {
    const data = devices / parts;
    if (parts === 1) return [{ data, model: 1, classes: none }];
    if (parts > (rates.between?.devices ?? 8) || data > model.rows) return [];
    return divided.filter(({ size }) => size > 0).map((classes) => ({ data, model: parts, classes }));
  });
  const all = new Set(range(model.segments));
  const candidates: StepCandidate[] = [];
  const problems: SplitProblem[] = [];
  for (const split of splits) {
    const problem = new SplitProblem(model, split, options);
    problems.push(problem);
    const uniform = (stage: Stage): Stage[] => roles.params.map(() => stage);
    const tried: [Stage, ReadonlySet<number>][] = [[0, none]];
    if (Number.isFinite(memory)) {
      const stages = new Set(problem.increments.flatMap(({ item, stage }) => (item < 0 ? [] : [stage])));
      for (const stage of stages) tried.push([stage, none]);
      tried.push([stages.has(3) ? 3 : 0, all]);
    }
    for (const [stage, again] of tried) {
      const decision = { split, stages: uniform(stage), rematerialized: again };
      candidates.push(problem.candidate(nameOf(model, decision), decision.stages, again));
      notifyPlanning(candidates.length);
    }
  }
  let best: StepCandidate | null = null;
  const estimated = candidates.length;
  for (const problem of problems) {
    // Estimates are coarse: what the life of every value needs decides, and a tighter limit makes up for the difference.
    let limit = memory;
    for (let isLast = false; !isLast; ) {
      const solved = problem.solve(limit);
      // Where no estimate fits, the one that needs least is still worth a look.
      isLast = solved === null;
      const found = solved ?? problem.least();
      const decision = { split: problem.split, ...found };
      const made = problem.candidate(nameOf(model, decision), found.stages, found.rematerialized);
      if (best !== null && made.seconds >= 0.99 * best.seconds) break;
      const estimate = made.bytes;
      made.bytes = confirmedBytes(model, decision, options.accumulation ?? 1);
      candidates.push(made);
      notifyPlanning(candidates.length);
      if (made.bytes <= memory) {
        best = made;
        break;
      }
      limit = Math.min(memory - (made.bytes - estimate), 0.98 * estimate);
    }
  }
  notifyPlanning(null);
  if (best === null) {
    // Among what was confirmed: the estimates before are coarser.
    const least = candidates.slice(estimated).reduce((a, b) => (b.bytes < a.bytes ? b : a));
    if (options.orLeast === true)
      return { ...least, model, candidates, memory, rates, fits: false, planned: performance.now() - begin };
    throw new WeftError(
      `no placement of the step fits in ${showBytes(memory)} per device: ${least.name} needs about ${showBytes(least.bytes)}. ` +
        "Give more memory, more devices, or a smaller batch",
    );
  }
  return { ...best, model, candidates, memory, rates, fits: true, planned: performance.now() - begin };
}
