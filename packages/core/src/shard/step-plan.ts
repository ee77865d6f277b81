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
 * How a parameter is divided over the ranks of the data axis. 0: not at all. 2: its gradient and optimizer state (ZeRO-2).
 * 3: the parameter too, gathered where it is used (ZeRO-3).
 */
export type Stage = 0 | 2 | 3;

export interface StepPlanOptions {
  /** Number of devices; all are used. */
  devices: number;
  rates: Rates;
  /** Bytes per device; unlimited by default. */
  memory?: number;
  /** Gradients are summed in buckets of this size. */
  bucketBytes?: number;
}

/** What a plan decides. */
export interface StepDecision {
  split: StepSplit;
  /** By number of the parameter. */
  stages: readonly Stage[];
  /** Segments of the forward pass whose activations are rematerialized. */
  rematerialized: ReadonlySet<number>;
}

/** A decision with its estimates. */
export interface StepCandidate extends StepDecision {
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
  readonly #params: { whole: number; share: number; state: number }[];
  readonly #reduce: number[];

  constructor(
    readonly model: StepModel,
    readonly split: StepSplit,
    readonly options: StepPlanOptions,
  ) {
    const { fn, roles } = model;
    const { rates, bucketBytes = 4 << 20 } = options;
    const { data } = split;
    const host = rates.between?.devices ?? Number.POSITIVE_INFINITY;
    const linked = (far: boolean): Rates => (far ? { ...rates, links: rates.between!.links } : rates);
    this.cost = model.cost(split, linked(split.model > host));
    const links = linked(data * split.model > host);
    const { segments, transient } = model.activations(split);
    this.#stored = segments.map(({ stored }) => stored);
    this.#gain = segments.map(({ stored, incoming }) => Math.max(0, stored - incoming));
    this.#transient = 2 * transient;
    const collective = (kind: CollectiveKind, received: number, bucketed: boolean): number => {
      const latency = linkTime(links, kind, data, 0);
      const seconds = linkTime(links, kind, data, received);
      return bucketed ? seconds - latency + (latency * received) / bucketBytes : seconds;
    };
    this.#params = roles.params.map((at, i) => {
      const param = fn.params[at];
      const whole = model.bytes(param, split);
      const state = roles.states[i].reduce((n, s) => n + model.bytes(fn.params[s], split), 0);
      const largest = Math.max(1, ...param.shape);
      return { whole, state, share: Math.ceil(largest / data) / largest };
    });
    const part = 1 - 1 / data;
    this.#reduce = this.#params.map(({ whole }) => collective("allReduce", 2 * part * whole, whole < bucketBytes / 4));
    if (data > 1)
      this.#params.forEach(({ whole, state, share }, i) => {
        const [scatter, gather] = [
          collective("reduceScatter", part * whole, false),
          collective("allGather", part * whole, false),
        ];
        const saves = (whole + state) * (1 - share);
        if (saves <= 0) return;
        this.increments.push({ item: i, stage: 2, saves, seconds: scatter + gather - this.#reduce[i] });
        this.increments.push({ item: i, stage: 3, saves: whole * (1 - share), seconds: gather });
      });
    this.cost.segments.forEach((seconds, s) => {
      if (this.#gain[s] > 0) this.increments.push({ item: -1 - s, stage: 0, saves: this.#gain[s], seconds });
    });
    this.#base = roles.batch.reduce((n, at) => n + model.bytes(fn.params[at], split), 0);
  }

  /** Estimated bytes of a device. */
  bytes(stages: readonly Stage[], rematerialized: ReadonlySet<number>): number {
    let bytes = this.#base + this.#transient;
    let gathered = 0;
    this.#params.forEach(({ whole, state, share }, i) => {
      const stage = stages[i];
      bytes += whole * (stage === 3 ? share : 1) + (whole + state) * (stage >= 2 ? share : 1);
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
    let moved = communicate + this.#reduce.reduce((n, seconds) => n + seconds, 0);
    let recompute = 0;
    for (const { item, stage, seconds } of this.increments) if (item >= 0 && stages[item] >= stage) moved += seconds;
    for (const s of rematerialized) recompute += segments[s];
    return {
      name,
      split: this.split,
      stages,
      rematerialized,
      bytes: this.bytes(stages, rematerialized),
      seconds: this.options.rates.call + compute.forward + compute.backward + compute.update + moved + recompute,
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
    const gathers = this.increments.flatMap(({ item, stage }) => (stage === 3 ? [2 * this.#params[item].whole] : []));
    const again = this.increments.flatMap(({ item }) => (item < 0 ? [this.#stored[-1 - item]] : []));
    const tolerance = searchTolerance * this.candidate("", start.stages, start.rematerialized).seconds;
    let best: { costs: number; chosen: Increment[] } | null = null;
    for (const gathered of boundsOf(gathers))
      for (const recomputed of boundsOf(again)) {
        const items = this.#itemsWithin(gathered, recomputed);
        const below: number = best?.costs ?? Number.POSITIVE_INFINITY;
        const found = cheapestCover(items, bytes + gathered + recomputed - limit, tolerance, below);
        if (found !== null) best = { costs: found.costs, chosen: found.chosen.flatMap((way) => way?.increments ?? []) };
      }
    return best === null ? null : this.decision(best.chosen);
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

const divisors = (n: number): number[] => range(n + 1).filter((k) => k > 0 && n % k === 0);

/** Classes for the model axis, added as long as they make the step faster. */
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
  for (const id of model.candidateClasses()) {
    const more = new Set([...chosen, id]);
    const seconds = time(more);
    if (seconds < best) [chosen, best] = [more, seconds];
  }
  return chosen;
}

/** Bytes of a device by the life of every value, after the step is rewritten for a decision. */
function confirmedBytes(model: StepModel, { split, stages, rematerialized }: StepDecision): number {
  const { fn, roles } = model;
  const gathered = new Set(stages.flatMap((stage, i) => (stage === 3 ? [i] : [])));
  const rewritten = rewriteStep(fn, roles, {
    gathered,
    segmentOf: (node) => {
      const segment = model.segmentOf(node);
      return rematerialized.has(segment) && !model.crosses(node) ? segment : -1;
    },
  });
  const share = (at: number): number => {
    const largest = Math.max(1, ...fn.params[at].shape);
    return Math.ceil(largest / split.data) / largest;
  };
  let persistent = fn.params.reduce((n, param) => n + model.bytes(param, split), 0);
  roles.params.forEach((at, i) => {
    const saved = 1 - share(at);
    if (stages[i] === 3) persistent -= saved * model.bytes(fn.params[at], split);
    if (stages[i] >= 2) for (const s of roles.states[i]) persistent -= saved * model.bytes(fn.params[s], split);
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
    if (mark?.kind === "gradient")
      return stages[mark.index] >= 2 ? share(roles.params[mark.index]) * model.bytes(source, split) : 0;
    // Updates are written in place of the state.
    if (mark !== null || model.phaseOf(source) === "update" || !model.isStored(source)) return 0;
    return (source.outputs ?? [source]).reduce((n, _, i) => n + model.bytes(source, split, i), 0);
  });
  return persistent + peak;
}

/** A decision in words. */
export function nameOf(model: StepModel, { split, stages, rematerialized }: StepDecision): string {
  const names = [`data ${split.data}`];
  if (split.model > 1) names.push(`model ${split.model}`);
  for (const stage of [2, 3] as const) {
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
  const classes = devices > 1 ? modelClasses(model, options) : new Set<number>();
  const all = new Set(range(model.segments));
  const none = new Set<number>();
  const candidates: StepCandidate[] = [];
  const problems: SplitProblem[] = [];
  for (const parts of divisors(devices)) {
    if (parts > 1 && (classes.size === 0 || parts > (rates.between?.devices ?? 8))) continue;
    const split = { data: devices / parts, model: parts, classes: parts > 1 ? classes : new Set<number>() };
    const problem = new SplitProblem(model, split, options);
    problems.push(problem);
    const uniform = (stage: Stage): Stage[] => roles.params.map(() => stage);
    const tried: [Stage, ReadonlySet<number>][] = [[0, none]];
    if (Number.isFinite(memory)) {
      if (split.data > 1) tried.push([2, none], [3, none], [3, all]);
      else tried.push([0, all]);
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
    for (let round = 0; round < 5; round++) {
      // Where no estimate fits, the one that needs least is still worth a look.
      const found = problem.solve(limit) ?? problem.decision(problem.increments);
      const decision = { split: problem.split, ...found };
      const made = problem.candidate(nameOf(model, decision), found.stages, found.rematerialized);
      if (best !== null && made.seconds >= 0.99 * best.seconds) break;
      made.bytes = confirmedBytes(model, decision);
      if (made.bytes <= memory) best = made;
      candidates.push(made);
      notifyPlanning(candidates.length);
      if (made.bytes <= memory) break;
      limit *= Math.min(0.97, memory / made.bytes);
    }
  }
  notifyPlanning(null);
  if (best === null) {
    // Among what was confirmed: the estimates before are coarser.
    const least = candidates.slice(estimated).reduce((a, b) => (b.bytes < a.bytes ? b : a));
    throw new WeftError(
      `no placement of the step fits in ${showBytes(memory)} per device: ${least.name} needs about ${showBytes(least.bytes)}. ` +
        "Give more memory, more devices, or a smaller batch",
    );
  }
  return { ...best, model, candidates, memory, rates, planned: performance.now() - begin };
}
