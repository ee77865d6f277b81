// The planner: how a function should be spread over a set of devices, by prices alone. It tries one device, fewer
// devices, one dimension at a time, all of them, and grids, and takes the cheapest; a small problem stays whole.

import { linkOf, linkTime, opCost, type Rates, ratesAt } from "../cost/index.js";
import { type CollectiveKind, type GraphFn, type Node, range, showAval, showShape, WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { Evaluator, type StrategyEvaluation, type Theme } from "./evaluate.js";
import type { Strategy } from "./layout.js";
import { Mesh } from "./mesh.js";
import { Placement } from "./placement.js";
import { Problem } from "./problem.js";
import { isCollective, planReshard } from "./reshard.js";
import { constrainedStrategies, type ShardRules, shardingConstraints } from "./rules.js";

export interface PlannerOptions {
  /** Ranks of the devices that may be used. */
  ranks: readonly number[];
  rates: Rates;
  /** Where the parameters are; null for those that may be put anywhere (they are on every device, or not yet on any). */
  params: readonly (Placement | null)[];
  /** A grid that the user asks for: then no other is tried. */
  mesh?: Mesh;
  /** Rules for named parts of the program; wishes inside it (`shard`) count by themselves. */
  rules?: ShardRules;
  /** Neither wishes nor rules count; WEFT_IGNORE_ANNOTATIONS=1 unless told. */
  ignoreAnnotations?: boolean;
  /** Parameters that the caller gives away: results of the same shape take their places, and must be where they were. */
  donated?: readonly boolean[];
  /** More devices must promise at least this factor over fewer; 1.05 unless told. */
  gain?: number;
  /** False: one device. WEFT_AUTO_SHARD=0 unless told. */
  enabled?: boolean;
}

export interface Alternative {
  name: string;
  devices: number;
  mesh: Mesh;
  /** Infinite where the price was not found out, because it was far above the best already. */
  seconds: number;
  compute: number;
  communicate: number;
  bytes: number;
}

export interface ShardingPlan {
  mesh: Mesh;
  /** Where the parameters should be when the function starts. */
  params: Placement[];
  /** Where results must end up; null leaves them where they are. */
  results: (Placement | null)[];
  strategy(node: Node): Strategy | null;
  /** Predicted seconds of this plan and of one device. */
  seconds: number;
  single: number;
  name: string;
  alternatives: Alternative[];
  rates: Rates;
  /** Milliseconds that planning took. */
  planned: number;
}

/** Numbers of devices worth a try: divisors and powers of two. */
function counts(available: number): number[] {
  const list = range(available + 1).filter((n) => n > 1 && (available % n === 0 || Number.isInteger(Math.log2(n))));
  return list.sort((a, b) => b - a);
}

interface RankedClass {
  id: number;
  weight: number;
}

/** Classes of dimensions by how much of the work they would divide. */
function rankClasses(problem: Problem): RankedClass[] {
  const weights = new Map<number, number>();
  for (const { node } of problem.items) {
    if (problem.work.get(node)!.kind === "nothing") continue;
    const { flops, bytes } = opCost(node);
    const present = new Set(problem.classesOf(node));
    for (const id of present) weights.set(id, (weights.get(id) ?? 0) + flops + bytes);
  }
  return [...weights].map(([id, weight]) => ({ id, weight })).sort((a, b) => b.weight - a.weight);
}

/** Where a class shows: `dimension 0 of a2 (64)`. */
function nameOfClass(problem: Problem, id: number): string {
  const places = problem.fn.params.flatMap((param, i) =>
    problem.classes
      .ofParam(param)
      .flatMap((own, dim) => (own === id ? [`dimension ${dim} of a${i} ${showShape(param.shape)}`] : [])),
  );
  if (places.length === 0) return "an inner dimension";
  // The last argument says most: data comes after parameters and state.
  const more = places.length > 1 ? ` and ${places.length - 1} more` : "";
  return `${places[places.length - 1]}${more}`;
}

/** For each result the donated parameter whose place it takes, or -1: the next of equal shape and dtype. */
function takeOver(fn: GraphFn, donated: readonly boolean[]): number[] {
  const free = fn.params.map((_, i) => i).filter((i) => donated[i]);
  return fn.outputs.map((output) => {
    const at = free.findIndex((i) => showAval(fn.params[i]) === showAval(output));
    return at < 0 ? -1 : free.splice(at, 1)[0];
  });
}

/** No plan gains where the whole function takes less than its devices need to say hello. */
const leastLatency = ({ links }: Rates): number =>
  Math.min(...Object.values(links).flatMap((list) => list.map(({ latency }) => latency)));

/** Devices start a call so far apart as their slowest answer: less than that is not worth sharing. */
const apart = ({ links }: Rates, members: number): number =>
  members < 2 ? 0 : Math.max(...Object.values(links).map((list) => linkOf(list, members)?.latency ?? 0));

const simplerFirst = (a: StrategyEvaluation, b: StrategyEvaluation): number =>
  a.mesh.size - b.mesh.size || a.theme.complexity - b.theme.complexity || a.seconds - b.seconds;

/**
 * Evaluated candidates after which the search is not widened. A count, not a time limit, so that a busy machine gets the
 * same plan as an idle one.
 */
const maxEvaluated = 30_000;

class ShardingPlanner {
  readonly problem: Problem;
  readonly #evaluators = new Map<string, Evaluator>();
  readonly tried: StrategyEvaluation[] = [];
  /** Given up half-way: more than half as dear again as the best. */
  readonly dear: { theme: Theme; mesh: Mesh }[] = [];
  readonly alone: Mesh;
  readonly singleCompute: number;
  readonly singleBring: { seconds: number; bytes: number };
  readonly single: number;
  readonly #begin = performance.now();
  readonly #takeOver: number[];
  readonly #rules: ShardRules;
  readonly #asked: ReturnType<typeof shardingConstraints>;

  constructor(
    readonly fn: GraphFn,
    readonly options: PlannerOptions,
  ) {
    this.problem = new Problem(fn);
    // What already lies on one device alone stays there.
    const home = options.params.find((placed) => placed !== null && placed.mesh.size === 1)?.mesh;
    this.alone = home ?? new Mesh([{ name: "d", size: 1 }], [options.ranks[0]]);
    this.singleCompute = this.problem.singleTime(ratesAt(options.rates, 1));
    this.singleBring = this.#bring(this.alone, []);
    this.single = this.singleCompute + this.singleBring.seconds;
    this.#takeOver = takeOver(fn, options.donated ?? []);
    const ignore = options.ignoreAnnotations ?? settings.ignoreAnnotations.get();
    this.#rules = ignore ? new Map() : (options.rules ?? new Map());
    this.#asked = ignore
      ? { axes: [], devices: Number.POSITIVE_INFINITY, any: false, pinned: false }
      : shardingConstraints(fn, this.#rules);
  }

  #evaluator(mesh: Mesh): Evaluator {
    let found = this.#evaluators.get(mesh.key);
    if (found === undefined) {
      found = new Evaluator(this.problem, mesh, ratesAt(this.options.rates, mesh.size));
      this.#evaluators.set(mesh.key, found);
    }
    return found;
  }

  /** Seconds and bytes to bring parameters that lie on other meshes to where they are needed. */
  #bring(mesh: Mesh, wanted: readonly (Placement | null)[]): { seconds: number; bytes: number } {
    const { params, rates } = this.options;
    let seconds = 0;
    let bytes = 0;
    params.forEach((placed, i) => {
      if (placed === null || placed.mesh.key === mesh.key) return;
      const { shape, dtype } = this.fn.params[i];
      const to = wanted[i] ?? Placement.replicated(mesh, shape.length);
      for (const move of planReshard(placed, to, shape, dtype)) {
        if (!isCollective(move)) continue;
        seconds += linkTime(rates, move.kind as CollectiveKind, move.members, move.bytes);
        bytes += move.bytes;
      }
    });
    return { seconds, bytes };
  }

  /** Parameters as a mesh has them; what lies elsewhere is brought first. Null where it is too dear. */
  evaluate(theme: Theme, mesh: Mesh, width: number): StrategyEvaluation | null {
    const params = this.options.params.map((placed) =>
      placed !== null && placed.mesh.key === mesh.key ? placed : null,
    );
    const cheapest = Math.min(this.single, ...this.tried.map(({ seconds }) => seconds));
    const bound = this.isAsked ? undefined : 1.5 * cheapest;
    const pinned = { ...theme, pin: this.#asked.pinned ? constrainedStrategies(mesh, this.#rules) : undefined };
    const result = this.#evaluator(mesh).run(pinned, params, this.#takeOver, width, bound);
    if (result === null) {
      this.dear.push({ theme, mesh });
      return null;
    }
    const bring = this.#bring(mesh, result.wanted);
    result.seconds += bring.seconds;
    result.communicate += bring.seconds;
    result.bytes += bring.bytes;
    this.tried.push(result);
    return result;
  }

  line(devices: number): Mesh {
    return new Mesh([{ name: "d", size: devices }], this.options.ranks.slice(0, devices));
  }

  /** One dimension, any dimension, and any but the one that divides most. */
  themes(): Theme[] {
    const all = rankClasses(this.problem);
    // What divides little of the work is not worth a try of its own.
    const ranked = all.filter(({ weight }) => weight > 0.3 * all[0].weight).slice(0, 4);
    const any: Theme = { name: "any dimension", complexity: 1, allows: () => true };
    const single = ranked.map(
      ({ id }): Theme => ({ name: nameOfClass(this.problem, id), complexity: 0, allows: (_, own) => own === id }),
    );
    if (ranked.length === 0) return [any];
    const others: Theme = {
      name: `any but ${single[0].name}`,
      complexity: 1,
      allows: (_, own) => own !== ranked[0].id,
    };
    return [...single, any, others];
  }

  /** A grid: its first axis cuts the dimension that divides most, the second one any other. */
  gridTheme(): Theme | null {
    const [first] = rankClasses(this.problem);
    if (first === undefined) return null;
    return {
      name: `${nameOfClass(this.problem, first.id)} by others`,
      complexity: 2,
      allows: (axis, own) => (axis === "batch") === (own === first.id),
    };
  }

  search(): void {
    const { ranks, mesh } = this.options;
    const meshes = mesh !== undefined ? [mesh] : this.#asked.any ? this.#askedMeshes() : [];
    for (const fixed of meshes) for (const theme of this.themes()) this.evaluate(theme, fixed, 1);
    if (meshes.length > 0) return;
    const all = this.line(ranks.length);
    const [simple, mixed] = [0, 1].map((complexity) =>
      this.themes().filter((theme) => theme.complexity === complexity),
    );
    for (const theme of simple) this.evaluate(theme, all, 1);
    // What is spent on communication is all that another way could save.
    if (this.#toSave() > 0.03) for (const theme of mixed) this.evaluate(theme, all, 1);
    if (this.#toSave() > 0.2) {
      const theme = this.#leader()?.theme ?? mixed[0];
      for (const devices of counts(ranks.length))
        if (devices < ranks.length) this.evaluate(theme, this.line(devices), 1);
    }
    if (this.#toSave() > 0.08) this.#grids();
    // The best so far once more, with more histories, if that does not take long.
    const leader = this.#leader();
    if (leader === null || this.#toSave() <= 0.03 || this.#evaluated > maxEvaluated) return;
    const wider = { ...leader.theme, name: `${leader.theme.name}, searched wider` };
    this.evaluate(wider, leader.mesh, this.problem.items.length > 500 ? 2 : 6);
  }

  /** Meshes with the axes that the user named. */
  #askedMeshes(): Mesh[] {
    const { axes, devices } = this.#asked;
    const ranks = this.options.ranks.slice(0, Math.min(devices, this.options.ranks.length));
    if (axes.length < 2) return [new Mesh([{ name: axes[0] ?? "d", size: ranks.length }], ranks)];
    // Every way to write the number of devices as a product of one factor an axis.
    const products = (left: number, count: number): number[][] =>
      count === 1
        ? [[left]]
        : range(left + 1)
            .filter((n) => n > 0 && left % n === 0)
            .flatMap((n) => products(left / n, count - 1).map((rest) => [n, ...rest]));
    return products(ranks.length, axes.length).map(
      (sizes) =>
        new Mesh(
          axes.map((name, i) => ({ name, size: sizes[i] })),
          ranks,
        ),
    );
  }

  /** Whether the user decided that the function is shared: then one device is no alternative. */
  get isAsked(): boolean {
    return this.options.mesh !== undefined || this.#asked.any;
  }

  #grids(): void {
    const { ranks } = this.options;
    const theme = this.gridTheme();
    for (const rows of counts(ranks.length)) {
      const columns = ranks.length / rows;
      if (theme === null || !Number.isInteger(columns) || columns < 2) continue;
      const axes = [
        { name: "batch", size: rows },
        { name: "model", size: columns },
      ];
      this.evaluate(theme, new Mesh(axes, ranks), 1);
    }
  }

  get #evaluated(): number {
    return [...this.#evaluators.values()].reduce((n, { evaluated }) => n + evaluated, 0);
  }

  #leader(): StrategyEvaluation | null {
    return [...this.tried].sort((a, b) => a.seconds - b.seconds)[0] ?? null;
  }

  /** The part of the best way's time that is not work divided by the number of devices. */
  #toSave(): number {
    const leader = this.#leader();
    if (leader === null) return 1;
    const ideal = Math.min(leader.compute, this.single / this.options.ranks.length);
    return Math.max(leader.communicate, (leader.seconds - ideal) / 4) / leader.seconds;
  }

  /** Fewer devices and simpler ways win unless others are clearly better. */
  #choose(gain: number): StrategyEvaluation | null {
    let chosen: StrategyEvaluation | null = null;
    let bar = this.isAsked ? Number.POSITIVE_INFINITY : this.single;
    for (const candidate of [...this.tried].sort(simplerFirst)) {
      const margin = this.isAsked ? 0 : apart(this.options.rates, candidate.mesh.size);
      if (candidate.seconds * gain + margin > bar) continue;
      chosen = candidate;
      bar = candidate.seconds;
    }
    if (chosen === null) return null;
    // Of ways that cost the same, the one that talks least: arithmetic is predicted better than waiting for each other.
    const { seconds, mesh, theme } = chosen;
    const same = this.tried.filter(
      (other) =>
        other.mesh.size === mesh.size && other.theme.complexity <= theme.complexity && other.seconds < 1.01 * seconds,
    );
    return same.reduce((a, b) => (b.communicate < a.communicate ? b : a), chosen);
  }

  plan(): ShardingPlan {
    const { options, single, alone } = this;
    const mayGain = this.isAsked || single > 2 * leastLatency(options.rates);
    const enabled = options.enabled ?? settings.autoShard.get();
    if (enabled && options.ranks.length > 1 && mayGain) this.search();
    const gain = options.gain ?? 1.05;
    const chosen = this.#choose(gain);
    const alternatives: Alternative[] = [
      {
        name: "one device",
        devices: 1,
        mesh: alone,
        seconds: single,
        compute: this.singleCompute,
        communicate: this.singleBring.seconds,
        bytes: this.singleBring.bytes,
      },
      ...this.tried.map(({ theme, mesh, seconds, compute, communicate, bytes }) => ({
        name: theme.name,
        devices: mesh.size,
        mesh,
        seconds,
        compute,
        communicate,
        bytes,
      })),
      ...this.dear.map(({ theme, mesh }) => ({
        name: theme.name,
        devices: mesh.size,
        mesh,
        seconds: Number.POSITIVE_INFINITY,
        compute: Number.POSITIVE_INFINITY,
        communicate: Number.POSITIVE_INFINITY,
        bytes: Number.POSITIVE_INFINITY,
      })),
    ];
    const mesh = chosen?.mesh ?? alone;
    const strategies = chosen?.strategies;
    const params = this.fn.params.map((param, i) => {
      const placed = options.params[i];
      if (placed !== null && placed.mesh.key === mesh.key) return placed;
      return chosen?.wanted[i] ?? Placement.replicated(mesh, param.shape.length);
    });
    return {
      mesh,
      params,
      results: this.#takeOver.map((param) => (param < 0 ? null : params[param])),
      strategy: (node) => strategies?.get(node) ?? null,
      seconds: chosen?.seconds ?? single,
      single,
      name: chosen?.theme.name ?? "one device",
      alternatives,
      rates: options.rates,
      planned: performance.now() - this.#begin,
    };
  }
}

/** The cheapest way to spread a (simplified) function over some of the given devices. */
export function planSharding(fn: GraphFn, options: PlannerOptions): ShardingPlan {
  if (options.ranks.length === 0) throw new WeftError("plan: there are no devices");
  return new ShardingPlanner(fn, options).plan();
}
