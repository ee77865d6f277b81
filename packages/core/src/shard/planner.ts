// The sharding planner: chooses how to split a function over a set of devices by estimated cost. It evaluates one device,
// fewer devices, single dimensions, any dimension, and grids, and takes the cheapest; a small problem stays on one device.

import { linkOf, linkTime, opCost, type Rates, ratesAt } from "../cost/index.js";
import { type CollectiveKind, type GraphFn, type Node, range, showAval, showShape, WeftError } from "../graph/index.js";
import { settings } from "../settings/index.js";
import { Evaluator, type StrategyEvaluation, type Theme } from "./evaluate.js";
import type { Strategy } from "./layout.js";
import { notifyPlanning } from "./listeners.js";
import { Mesh } from "./mesh.js";
import { Placement } from "./placement.js";
import { Problem } from "./problem.js";
import { isCollective, planReshard } from "./reshard.js";
import { constrainedStrategies, type ShardRules, shardingConstraints } from "./rules.js";

export interface PlannerOptions {
  /** Ranks of the available devices. */
  ranks: readonly number[];
  rates: Rates;
  /** How many times faster than the rates each device computes, in the order of the ranks: shards are then uneven. */
  speeds?: readonly number[];
  /** Placements of the parameters; null where the planner may choose (replicated, or not yet on any device). */
  params: readonly (Placement | null)[];
  /** A mesh given by the user: no other is evaluated. */
  mesh?: Mesh;
  /** Sharding rules for named scopes; annotations in the program (`shard`) apply as well. */
  rules?: ShardRules;
  /** Ignores annotations and rules. Default: WEFT_IGNORE_ANNOTATIONS=1. */
  ignoreAnnotations?: boolean;
  /** Donated parameters: results of the same shape take over their buffers and must have their placement. */
  donated?: readonly boolean[];
  /** Minimum speedup of more devices over fewer. Default: 1.05. */
  gain?: number;
  /** False: one device. Default: true unless WEFT_AUTO_SHARD=0. */
  enabled?: boolean;
}

export interface Alternative {
  name: string;
  devices: number;
  mesh: Mesh;
  /** Infinite where the evaluation was aborted because the cost exceeded the best by far. */
  seconds: number;
  compute: number;
  communicate: number;
  bytes: number;
}

export interface ShardingPlan {
  mesh: Mesh;
  /** Required placements of the parameters. */
  params: Placement[];
  /** Required placements of the results; null keeps their placement. */
  results: (Placement | null)[];
  strategy(node: Node): Strategy | null;
  /** Predicted seconds of this plan and of one device. */
  seconds: number;
  single: number;
  name: string;
  alternatives: Alternative[];
  rates: Rates;
  /** Planning time in milliseconds. */
  planned: number;
}

/** Device counts to evaluate: divisors and powers of two. */
function counts(available: number): number[] {
  const list = range(available + 1).filter((n) => n > 1 && (available % n === 0 || Number.isInteger(Math.log2(n))));
  return list.sort((a, b) => b - a);
}

/** Speeds that differ by more than this make a device slow beside another. */
const slowBeside = 1.3;

interface RankedClass {
  id: number;
  weight: number;
}

/** Dimension classes by how much of the work they would divide. */
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

/** Describes a class by a parameter dimension: `dimension 0 of a2 (64)`. */
function nameOfClass(problem: Problem, id: number): string {
  const places = problem.fn.params.flatMap((param, i) =>
    problem.classes
      .ofParam(param)
      .flatMap((own, dim) => (own === id ? [`dimension ${dim} of a${i} ${showShape(param.shape)}`] : [])),
  );
  if (places.length === 0) return "an inner dimension";
  // The last parameter is the most descriptive: data comes after weights and state.
  const more = places.length > 1 ? ` and ${places.length - 1} more` : "";
  return `${places[places.length - 1]}${more}`;
}

/** For each result the donated parameter whose buffer it takes over, or -1: the next of equal shape and dtype. */
function takeOver(fn: GraphFn, donated: readonly boolean[]): number[] {
  const free = fn.params.map((_, i) => i).filter((i) => donated[i]);
  return fn.outputs.map((output) => {
    const at = free.findIndex((i) => showAval(fn.params[i]) === showAval(output));
    return at < 0 ? -1 : free.splice(at, 1)[0];
  });
}

/** Sharding cannot gain where the whole function takes less than one message. */
const leastLatency = ({ links }: Rates): number =>
  Math.min(...Object.values(links).flatMap((list) => list.map(({ latency }) => latency)));

/** Devices start a call as far apart as the slowest latency; a smaller gain is not worth sharding. */
const startSkew = ({ links }: Rates, members: number): number =>
  members < 2 ? 0 : Math.max(...Object.values(links).map((list) => linkOf(list, members)?.latency ?? 0));

const simplerFirst = (a: StrategyEvaluation, b: StrategyEvaluation): number =>
  a.mesh.size - b.mesh.size || a.theme.complexity - b.theme.complexity || a.seconds - b.seconds;

/**
 * Number of evaluated candidates after which the search is not widened. A count, not a time limit, so that a busy machine
 * computes the same plan as an idle one.
 */
const maxEvaluated = 30_000;

class ShardingPlanner {
  readonly problem: Problem;
  readonly #evaluators = new Map<string, Evaluator>();
  readonly tried: StrategyEvaluation[] = [];
  /** Aborted evaluations: more than 1.5 times as expensive as the best. */
  readonly aborted: { theme: Theme; mesh: Mesh }[] = [];
  readonly singleDevice: Mesh;
  readonly singleCompute: number;
  readonly singleTransfer: { seconds: number; bytes: number };
  readonly single: number;
  readonly #begin = performance.now();
  readonly #takeOver: number[];
  readonly #rules: ShardRules;
  readonly #constraints: ReturnType<typeof shardingConstraints>;
  readonly options: PlannerOptions;
  readonly #speeds: ReadonlyMap<number, number>;

  constructor(
    readonly fn: GraphFn,
    given: PlannerOptions,
  ) {
    this.#speeds = new Map(given.ranks.map((rank, i) => [rank, given.speeds?.[i] ?? 1]));
    // The fastest devices first: fewer devices are the faster ones.
    const options = { ...given, ranks: [...given.ranks].sort((a, b) => this.#speed(b) - this.#speed(a)) };
    this.options = options;
    this.problem = new Problem(fn);
    // A parameter that is on a single device stays there.
    const home = options.params.find((placed) => placed !== null && placed.mesh.size === 1)?.mesh;
    this.singleDevice = home ?? new Mesh([{ name: "d", size: 1 }], [options.ranks[0]]);
    this.singleCompute = this.problem.singleTime(ratesAt(options.rates, 1)) / this.#speed(this.singleDevice.ranks[0]);
    this.singleTransfer = this.#transfer(this.singleDevice, []);
    this.single = this.singleCompute + this.singleTransfer.seconds;
    this.#takeOver = takeOver(fn, options.donated ?? []);
    const ignore = options.ignoreAnnotations ?? settings.ignoreAnnotations.get();
    this.#rules = ignore ? new Map() : (options.rules ?? new Map());
    this.#constraints = ignore
      ? { axes: [], devices: Number.POSITIVE_INFINITY, any: false, pinned: false }
      : shardingConstraints(fn, this.#rules);
  }

  #speed(rank: number): number {
    return this.#speeds.get(rank) ?? 1;
  }

  /** A mesh whose shards are as large as its devices are fast. */
  #mesh(axes: Mesh["axes"], ranks: readonly number[]): Mesh {
    return new Mesh(
      axes,
      ranks,
      ranks.map((rank) => this.#speed(rank)),
    );
  }

  #evaluator(mesh: Mesh): Evaluator {
    let found = this.#evaluators.get(mesh.key);
    if (found === undefined) {
      const slowest = Math.min(...mesh.ranks.map((rank) => this.#speed(rank)));
      found = new Evaluator(this.problem, mesh, ratesAt(this.options.rates, mesh.size), slowest);
      this.#evaluators.set(mesh.key, found);
    }
    return found;
  }

  /** Seconds and bytes to transfer parameters from other meshes to where they are needed. */
  #transfer(mesh: Mesh, required: readonly (Placement | null)[]): { seconds: number; bytes: number } {
    const { params, rates } = this.options;
    let seconds = 0;
    let bytes = 0;
    params.forEach((placed, i) => {
      if (placed === null || placed.mesh.key === mesh.key) return;
      const { shape, dtype } = this.fn.params[i];
      const to = required[i] ?? Placement.replicated(mesh, shape.length);
      for (const move of planReshard(placed, to, shape, dtype)) {
        if (!isCollective(move)) continue;
        seconds += linkTime(rates, move.kind as CollectiveKind, move.members, move.bytes);
        bytes += move.bytes;
      }
    });
    return { seconds, bytes };
  }

  /** Evaluates a theme on a mesh, transfers from other meshes included. Null where it is too expensive. */
  evaluate(theme: Theme, mesh: Mesh, width: number): StrategyEvaluation | null {
    const params = this.options.params.map((placed) =>
      placed !== null && placed.mesh.key === mesh.key ? placed : null,
    );
    const cheapest = Math.min(this.single, ...this.tried.map(({ seconds }) => seconds));
    const bound = this.isRequired ? undefined : 1.5 * cheapest;
    const pinned = { ...theme, pin: this.#constraints.pinned ? constrainedStrategies(mesh, this.#rules) : undefined };
    const result = this.#evaluator(mesh).run(pinned, params, this.#takeOver, width, bound);
    notifyPlanning(this.tried.length + this.aborted.length + 1);
    if (result === null) {
      this.aborted.push({ theme, mesh });
      return null;
    }
    const transfer = this.#transfer(mesh, result.required);
    result.seconds += transfer.seconds;
    result.communicate += transfer.seconds;
    result.bytes += transfer.bytes;
    this.tried.push(result);
    return result;
  }

  line(devices: number): Mesh {
    return this.#mesh([{ name: "d", size: devices }], this.options.ranks.slice(0, devices));
  }

  /** Themes: one dimension class each, any class, and any but the one that divides most of the work. */
  themes(): Theme[] {
    const all = rankClasses(this.problem);
    // A class that divides little of the work is not evaluated separately.
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

  /** A grid: its first axis splits the class that divides most of the work, the second one any other. */
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
    const meshes = mesh !== undefined ? [mesh] : this.#constraints.any ? this.#constrainedMeshes() : [];
    for (const fixed of meshes) for (const theme of this.themes()) this.evaluate(theme, fixed, 1);
    if (meshes.length > 0) return;
    const all = this.line(ranks.length);
    const [simple, mixed] = [0, 1].map((complexity) =>
      this.themes().filter((theme) => theme.complexity === complexity),
    );
    for (const theme of simple) this.evaluate(theme, all, 1);
    // Without the slow devices: what is not divided takes as long as on the slowest one.
    for (const devices of this.#withoutSlow()) for (const theme of simple) this.evaluate(theme, this.line(devices), 1);
    // Communication is all that another strategy could save.
    if (this.#toSave() > 0.03) for (const theme of mixed) this.evaluate(theme, all, 1);
    if (this.#toSave() > 0.2) {
      const theme = this.#leader()?.theme ?? mixed[0];
      for (const devices of counts(ranks.length))
        if (devices < ranks.length) this.evaluate(theme, this.line(devices), 1);
    }
    if (this.#toSave() > 0.08) this.#grids();
    // Evaluates the best candidate again with a wider beam, unless the search is already large.
    const leader = this.#leader();
    if (leader === null || this.#toSave() <= 0.03 || this.#evaluated > maxEvaluated) return;
    const wider = { ...leader.theme, name: `${leader.theme.name}, searched wider` };
    this.evaluate(wider, leader.mesh, this.problem.items.length > 500 ? 2 : 6);
  }

  /** Numbers of devices, the fastest first, after which much slower ones follow. */
  #withoutSlow(): number[] {
    const { ranks } = this.options;
    return range(ranks.length).filter((n) => n > 1 && this.#speed(ranks[n - 1]) > slowBeside * this.#speed(ranks[n]));
  }

  /** Meshes with the axes that the user named. */
  #constrainedMeshes(): Mesh[] {
    const { axes, devices } = this.#constraints;
    const ranks = this.options.ranks.slice(0, Math.min(devices, this.options.ranks.length));
    if (axes.length < 2) return [this.#mesh([{ name: axes[0] ?? "d", size: ranks.length }], ranks)];
    // All factorizations of the device count with one factor per axis.
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

  /** Whether the user requires sharding: then one device is no alternative. */
  get isRequired(): boolean {
    return this.options.mesh !== undefined || this.#constraints.any;
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

  /** Fraction of the best time that is not evenly divided work. */
  #toSave(): number {
    const leader = this.#leader();
    if (leader === null) return 1;
    const ideal = Math.min(leader.compute, this.single / this.options.ranks.length);
    return Math.max(leader.communicate, (leader.seconds - ideal) / 4) / leader.seconds;
  }

  /** Fewer devices and simpler strategies win unless others are clearly better. */
  #choose(gain: number): StrategyEvaluation | null {
    let chosen: StrategyEvaluation | null = null;
    let bar = this.isRequired ? Number.POSITIVE_INFINITY : this.single;
    for (const candidate of [...this.tried].sort(simplerFirst)) {
      const margin = this.isRequired ? 0 : startSkew(this.options.rates, candidate.mesh.size);
      if (candidate.seconds * gain + margin > bar) continue;
      chosen = candidate;
      bar = candidate.seconds;
    }
    if (chosen === null) return null;
    // Among strategies of equal cost, the one with the least communication: compute is predicted more accurately.
    const { seconds, mesh, theme } = chosen;
    const same = this.tried.filter(
      (other) =>
        other.mesh.size === mesh.size && other.theme.complexity <= theme.complexity && other.seconds < 1.01 * seconds,
    );
    return same.reduce((a, b) => (b.communicate < a.communicate ? b : a), chosen);
  }

  plan(): ShardingPlan {
    const { options, single, singleDevice } = this;
    const mayGain = this.isRequired || single > 2 * leastLatency(options.rates);
    const enabled = options.enabled ?? settings.autoShard.get();
    if (enabled && options.ranks.length > 1 && mayGain) this.search();
    const gain = options.gain ?? 1.05;
    const chosen = this.#choose(gain);
    const alternatives: Alternative[] = [
      {
        name: "one device",
        devices: 1,
        mesh: singleDevice,
        seconds: single,
        compute: this.singleCompute,
        communicate: this.singleTransfer.seconds,
        bytes: this.singleTransfer.bytes,
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
      ...this.aborted.map(({ theme, mesh }) => ({
        name: theme.name,
        devices: mesh.size,
        mesh,
        seconds: Number.POSITIVE_INFINITY,
        compute: Number.POSITIVE_INFINITY,
        communicate: Number.POSITIVE_INFINITY,
        bytes: Number.POSITIVE_INFINITY,
      })),
    ];
    const mesh = chosen?.mesh ?? singleDevice;
    const strategies = chosen?.strategies;
    const params = this.fn.params.map((param, i) => {
      const placed = options.params[i];
      if (placed !== null && placed.mesh.key === mesh.key) return placed;
      return chosen?.required[i] ?? Placement.replicated(mesh, param.shape.length);
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

/** Plans a (simplified) function over some of the given devices. */
export function planSharding(fn: GraphFn, options: PlannerOptions): ShardingPlan {
  if (options.ranks.length === 0)
    throw new WeftError("planSharding: ranks is empty; give the rank of at least one device");
  const plan = new ShardingPlanner(fn, options).plan();
  notifyPlanning(null);
  return plan;
}
