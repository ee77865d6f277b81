// Estimates of the decisions about a training step for one split over devices, and the search for the fastest that fits: which
// parameters and states are divided over ranks (ZeRO), and which activations are rematerialized.
import { linkTime, type Rates } from "../cost/index.js";
import { type CollectiveKind, range } from "../graph/index.js";
import { cheapestCover, type Way } from "./cover.js";
import { DeviceGrid, type DeviceShare, stepDevices } from "./step-devices.js";
import { confirmedBytes, livePeak, type Stage, zeroAxes, zeroShare } from "./step-memory.js";
import type { SplitCost, StepModel, StepSplit } from "./step-model.js";

export interface StepPlanOptions {
  /** Number of devices; all are used. */
  devices: number;
  /** Rates of the first device. */
  rates: Rates;
  /** How fast the devices are, in any unit; alike by default. */
  speeds?: readonly number[] | undefined;
  /** Bytes per device, or those of each; unlimited by default. */
  memory?: number | readonly number[] | undefined;
  /** Gradients are summed in buckets of this size. */
  bucketBytes?: number;
  /** Micro-steps whose gradients are added up for one update; 1 by default. */
  accumulation?: number;
  /** If nothing fits, the placement that needs least is returned, which may fit after all. Default: an error. */
  orLeast?: boolean;
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
  /** Bytes on the device that has least left, and its limit. */
  bytes: number;
  limit: number;
  /** Predicted seconds of a step, and those of collectives and rematerialization within it. */
  seconds: number;
  communicate: number;
  recompute: number;
}

/** What a device has of a planned step; seconds without those of collectives. */
export interface PlannedPart extends DeviceShare {
  bytes: number;
  seconds: number;
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

/** Costs and sizes of one device of a split, from which decisions are evaluated without looking at the graph again. */
class DeviceProblem {
  readonly cost: SplitCost;
  readonly stored: number[];
  /** Bytes that rematerializing a segment saves. */
  readonly gain: number[];
  /** Of each parameter: its bytes, those of its state, and the part of both that the device has once they are divided. */
  readonly params: { whole: number; state: number; share: number }[];
  readonly #base: number;

  constructor(
    model: StepModel,
    readonly split: StepSplit,
    readonly part: DeviceShare,
    grid: DeviceGrid,
    rates: Rates,
  ) {
    const { fn, roles } = model;
    this.cost = model.cost(split, rates);
    const { segments, transient } = model.activations(split);
    this.stored = segments.map(({ stored }) => stored);
    this.gain = segments.map(({ stored, incoming }) => Math.max(0, stored - incoming));
    this.params = roles.params.map((at, i) => {
      const state = roles.states[i].reduce((n, s) => n + model.bytes(fn.params[s], split), 0);
      return { whole: model.bytes(fn.params[at], split), state, share: zeroShare(model, i, split, grid, part.rank) };
    });
    this.#base = 2 * transient + roles.batch.reduce((n, at) => n + model.bytes(fn.params[at], split), 0);
  }

  /** Estimated bytes of a decision. */
  bytes(stages: readonly Stage[], rematerialized: ReadonlySet<number>): number {
    let bytes = this.#base;
    let gathered = 0;
    this.params.forEach(({ whole, state, share }, i) => {
      const stage = stages[i];
      const part = (least: Stage): number => (stage >= least ? share : 1);
      bytes += whole * part(3) + whole * part(2) + state * part(1);
      // The one in use, and the next one.
      if (stage === 3) gathered = Math.max(gathered, 2 * whole);
    });
    let again = 0;
    this.stored.forEach((stored, s) => {
      bytes += stored - (rematerialized.has(s) ? this.gain[s] : 0);
      if (rematerialized.has(s)) again = Math.max(again, stored);
    });
    return bytes + gathered + again;
  }

  /** Seconds that the device computes in a step, and those of them in which it rematerializes. */
  seconds(rematerialized: ReadonlySet<number>, accumulation: number, call: number): { all: number; again: number } {
    const { compute, segments } = this.cost;
    const { speed } = this.part;
    let again = 0;
    for (const s of rematerialized) again += accumulation * segments[s];
    const once = accumulation * (call + compute.forward + compute.backward) + compute.update;
    return { all: (once + again) / speed, again: again / speed };
  }
}

/** The decisions of one split, and the search for the fastest that fits. */
export class SplitProblem {
  readonly increments: Increment[] = [];
  readonly #devices: DeviceProblem[];
  /** The device that has least left where nothing is divided. The search keeps to its limit. */
  readonly #tightest: DeviceProblem;
  readonly #grid: DeviceGrid;
  readonly #rates: Rates;
  readonly #most: number;
  readonly #reduce: number[];

  constructor(
    readonly model: StepModel,
    readonly split: StepSplit,
    readonly options: StepPlanOptions,
  ) {
    const { roles } = model;
    const { rates, bucketBytes = 4 << 20, accumulation = 1 } = options;
    const { data } = split;
    const host = rates.between?.devices ?? Number.POSITIVE_INFINITY;
    const linked = (far: boolean): Rates => (far ? { ...rates, links: rates.between!.links } : rates);
    this.#rates = linked(split.model > host);
    const links = linked(data * split.model > host);
    const devices = stepDevices(options.devices, options.speeds, options.memory);
    this.#most = Math.max(...devices.memory);
    this.#grid = new DeviceGrid(devices, split);
    this.#devices = this.#grid.deciding(model.rows).map((part) => this.#problemOf(part));
    const none = { stages: roles.params.map((): Stage => 0), rematerialized: new Set<number>() };
    this.#tightest = this.#devices.reduce((a, b) => (this.#needs(b, none) > this.#needs(a, none) ? b : a));
    const collective = (kind: CollectiveKind, members: number, received: number, bucketed: boolean): number => {
      const latency = linkTime(links, kind, members, 0);
      const seconds = linkTime(links, kind, members, received);
      return bucketed ? seconds - latency + (latency * received) / bucketBytes : seconds;
    };
    const { params, gain, stored } = this.#tightest;
    this.#reduce = params.map(({ whole }) =>
      collective("allReduce", data, 2 * (1 - 1 / data) * whole, whole < bucketBytes / 4),
    );
    params.forEach(({ whole, state, share }, item) => {
      if (share === 1) return;
      const parts = zeroAxes(model, item, split).parts;
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
    stored.forEach((_, s) => {
      const seconds = Math.max(...this.#devices.map(({ cost, part }) => cost.segments[s] / part.speed));
      if (gain[s] > 0)
        this.increments.push({ item: -1 - s, stage: 0, saves: gain[s], seconds: accumulation * seconds });
    });
  }

  #problemOf(part: DeviceShare): DeviceProblem {
    return new DeviceProblem(this.model, { ...this.split, rows: part.rows }, part, this.#grid, this.#rates);
  }

  /** Bytes of a device, and what it has less than the largest one. */
  #needs(device: DeviceProblem, { stages, rematerialized }: Pick<StepDecision, "stages" | "rematerialized">): number {
    return this.needs(device.part, device.bytes(stages, rematerialized));
  }

  needs({ memory }: DeviceShare, bytes: number): number {
    return memory === this.#most ? bytes : bytes + this.#most - memory;
  }

  /** Estimated bytes of the device whose limit the search keeps. */
  bytes(stages: readonly Stage[], rematerialized: ReadonlySet<number>): number {
    return this.#needs(this.#tightest, { stages, rematerialized });
  }

  candidate(name: string, stages: readonly Stage[], rematerialized: ReadonlySet<number>): StepCandidate {
    const { accumulation = 1, rates } = this.options;
    let moved = this.#reduce.reduce((n, seconds) => n + seconds, 0);
    for (const { item, stage, seconds } of this.increments) if (item >= 0 && stages[item] >= stage) moved += seconds;
    moved += accumulation * Math.max(...this.#devices.map(({ cost }) => cost.communicate));
    const times = this.#devices.map((device) => device.seconds(rematerialized, accumulation, rates.call));
    // The others wait for the device that takes longest.
    const longest = times.reduce((a, b) => (b.all > a.all ? b : a));
    const worst = this.#devices.reduce((a, b) =>
      this.#needs(b, { stages, rematerialized }) > this.#needs(a, { stages, rematerialized }) ? b : a,
    );
    return {
      name,
      split: this.split,
      stages,
      rematerialized,
      bytes: worst.bytes(stages, rematerialized),
      limit: worst.part.memory,
      seconds: longest.all + moved,
      communicate: moved,
      recompute: longest.again,
    };
  }

  /** Sets the bytes of a candidate to what the life of every value needs, and returns those that count against the limit. */
  confirm(candidate: StepCandidate): number {
    const peak = livePeak(this.model, candidate);
    let most = Number.NEGATIVE_INFINITY;
    for (const { part, split } of this.#devices) {
      const bytes = confirmedBytes(
        this.model,
        candidate,
        peak,
        split,
        part,
        this.#grid,
        this.options.accumulation ?? 1,
      );
      const needs = this.needs(part, bytes);
      if (needs > most) [most, candidate.bytes, candidate.limit] = [needs, bytes, part.memory];
    }
    return most;
  }

  /** What every device has of a decision. */
  parts(decision: StepDecision): PlannedPart[] {
    const { accumulation = 1, rates, devices } = this.options;
    const peak = livePeak(this.model, decision);
    return range(devices).map((rank) => {
      const part = this.#grid.part(rank, this.model.rows);
      const device = this.#problemOf(part);
      return {
        ...part,
        bytes: confirmedBytes(this.model, decision, peak, device.split, part, this.#grid, accumulation),
        seconds: device.seconds(decision.rematerialized, accumulation, rates.call).all,
      };
    });
  }

  decision(chosen: Iterable<Increment>): { stages: Stage[]; rematerialized: Set<number> } {
    const stages: Stage[] = this.#tightest.params.map(() => 0);
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
    const { params, stored } = this.#tightest;
    const gathers = this.increments.flatMap(({ item, stage }) => (stage === 3 ? [2 * params[item].whole] : []));
    const again = this.increments.flatMap(({ item }) => (item < 0 ? [stored[-1 - item]] : []));
    return boundsOf(gathers).flatMap((gathered) => boundsOf(again).map((recomputed) => ({ gathered, recomputed })));
  }

  /** Choices of every parameter and segment that gather and recompute no more at one time. */
  #itemsWithin(gathered: number, recomputed: number): { ways: (Way & { increments: Increment[] })[] }[] {
    const { params, stored } = this.#tightest;
    const lists = new Map<number, Increment[]>();
    for (const increment of this.increments) {
      const { item, stage } = increment;
      if (stage === 3 && 2 * params[item].whole > gathered) continue;
      if (item < 0 && stored[-1 - item] > recomputed) continue;
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
