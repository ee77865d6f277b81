// Estimated cost of a sharding strategy for a whole function: a beam search visits the nodes in order, tries the possible
// splits of each, and keeps the cheapest partial strategies. Costs are memoized by node signature, so that repeated layers
// are evaluated once. Pending reductions are charged immediately, so that no partial strategy hides them.

import { linkTime, type Rates, workTime } from "../cost/index.js";
import { type Node, outputAvals, type Shape, WeftError } from "../graph/index.js";
import { factorsOf } from "../ops/index.js";
import { carriedParts, followOperands, layoutOf, type Strategy } from "./layout.js";
import type { Mesh } from "./mesh.js";
import { Placement } from "./placement.js";
import type { Item, Problem } from "./problem.js";
import { isCollective, planReshard } from "./reshard.js";

/** Restricts the search: which dimension classes each mesh axis may split, and sharding constraints of the user. */
export interface Theme {
  name: string;
  /** Among strategies of about the same cost the one with the lower complexity is chosen. */
  complexity: number;
  allows(axis: string, dimensionClass: number): boolean;
  /** The strategy that a sharding constraint requires for a node. */
  pin?(node: Node): Strategy | null;
}

export interface StrategyEvaluation {
  theme: Theme;
  mesh: Mesh;
  seconds: number;
  compute: number;
  communicate: number;
  /** Bytes received by the device that receives most. */
  bytes: number;
  strategies: Map<Node, Strategy>;
  /** Placement that all readers of a parameter need; null where they differ. */
  required: (Placement | null)[];
}

/** One strategy for a node with given operand placements, and its costs. */
interface Candidate {
  strategy: Strategy;
  /** Required placements of the operands, and placements of the results. */
  needs: number[];
  results: number[];
  seconds: number;
  /** Operands that must be resharded first. */
  moves: { operand: number; to: number; seconds: number; bytes: number }[];
  /** Cost of completing the pending reduction of each result. */
  debts: number[];
  debt: number;
}

interface TransferCost {
  seconds: number;
  bytes: number;
}

interface State {
  /** Placement of every value by slot, and a second placement that was created for a reader. */
  place: Int32Array;
  resharded: Int32Array;
  owed: Float64Array;
  compute: number;
  communicate: number;
  bytes: number;
  debt: number;
  history: History | null;
}

interface History {
  candidate: Candidate;
  before: History | null;
}

const none = -1;
const strategyKey = ({ split, carry }: Strategy): string =>
  `${Object.keys(split)
    .sort()
    .map((axis) => `${axis}${split[axis]}`)
    .join(",")}/${carry}`;

/** The local shape that takes longest: the largest one, or on devices of several speeds the one that is largest for its speed. */
function slowestShape({ mesh, dims }: Placement, shape: Shape): number[] {
  return shape.map((size, i) => {
    const split = dims[i];
    if (split === null) return size;
    const speeds = mesh.partSpeeds(split.axes);
    const slowest = speeds === null ? 1 : Math.min(...mesh.speeds!);
    let most = 0;
    for (let k = 1; k < split.bounds.length; k++) {
      const part = split.bounds[k] - split.bounds[k - 1];
      most = Math.max(most, speeds === null ? part : (part * slowest) / speeds[k - 1]);
    }
    return most;
  });
}

export class Evaluator {
  readonly #ids = new Map<string, number>();
  readonly #placements: Placement[] = [];
  readonly #moves = new Map<string, TransferCost>();
  readonly #cached = new Map<string, Candidate[]>();
  /** Number of candidates evaluated so far: the deterministic measure of the planner's work. */
  evaluated = 0;

  constructor(
    readonly problem: Problem,
    readonly mesh: Mesh,
    readonly rates: Rates,
    /** How many times faster than the rates the slowest device of the mesh computes. */
    readonly speed = 1,
  ) {}

  #id(placement: Placement): number {
    let id = this.#ids.get(placement.key);
    if (id === undefined) {
      id = this.#placements.push(placement) - 1;
      this.#ids.set(placement.key, id);
    }
    return id;
  }

  #move(from: number, to: number, shapeId: number): TransferCost {
    const key = `${from}>${to}:${shapeId}`;
    let cost = this.#moves.get(key);
    if (cost === undefined) {
      cost = { seconds: 0, bytes: 0 };
      const { shape, dtype } = this.problem.avals[shapeId];
      for (const move of planReshard(this.#placements[from], this.#placements[to], shape, dtype)) {
        if (!isCollective(move)) continue;
        cost.seconds += linkTime(this.rates, move.kind as never, move.members, move.bytes);
        cost.bytes += move.bytes;
      }
      this.#moves.set(key, cost);
    }
    return cost;
  }

  /** Evaluates a strategy; null where it is impossible. */
  #evaluate(
    item: Item,
    strategy: Strategy,
    operands: readonly number[],
    placements: readonly Placement[],
  ): Candidate | null {
    const { node } = item;
    const layout = layoutOf(node, this.mesh, strategy, placements);
    if (layout === null) return null;
    const local = {
      operands: layout.operands.map((placement, i) => slowestShape(placement, node.inputs[i].shape)),
      results: outputAvals(node).map((aval, i) => slowestShape(layout.results[i], aval.shape)),
    };
    const results = layout.results.map((placement) => this.#id(placement));
    const debts = results.map((id, i) => this.#debt(id, this.problem.avalOf[item.first + i]));
    const needs = layout.operands.map((placement) => this.#id(placement));
    const moves = needs.flatMap((to, operand) => {
      if (to === operands[operand]) return [];
      return [{ operand, to, ...this.#move(operands[operand], to, this.problem.avalOf[item.inputs[operand]]) }];
    });
    const seconds = workTime(node, this.problem.work.get(node)!, local, this.rates, (part) =>
      this.problem.loopTime(node as Node<"scan">, this.rates, part),
    );
    return {
      strategy,
      needs,
      results,
      seconds: seconds / this.speed,
      moves,
      debts,
      debt: debts.reduce((n, debt) => n + debt, 0),
    };
  }

  /** Strategies to try for a node; `mask` says for every mesh axis and factor whether the theme allows the split. */
  #strategies(node: Node, mask: readonly boolean[], placements: readonly Placement[]): Strategy[] {
    const follow = followOperands(node, this.mesh, placements);
    const { factors } = factorsOf(node);
    const decides = this.problem.decides(node);
    let lists: Record<string, number>[] = [{}];
    this.mesh.axes.forEach(({ name }, a) => {
      const options = new Set<number>();
      if (follow.split[name] !== undefined) options.add(follow.split[name]);
      if (decides || follow.split[name] === undefined)
        factors.forEach((_, f) => {
          if (mask[a * factors.length + f]) options.add(f);
        });
      if (decides || options.size === 0) options.add(none);
      lists = lists.flatMap((split) => [...options].map((f) => (f === none ? split : { ...split, [name]: f })));
    });
    const candidates = [follow];
    for (const split of lists.slice(0, 48)) {
      const carry = this.mesh.axes
        .map(({ name }) => name)
        .filter((name) => split[name] === undefined && carriedParts(node, name, placements) !== null);
      candidates.push({ split, carry });
      if (carry.length > 0 && decides) candidates.push({ split, carry: [] });
    }
    return [...new Map(candidates.map((candidate) => [strategyKey(candidate), candidate])).values()];
  }

  #candidates(
    item: Item,
    mask: readonly boolean[],
    maskKey: string,
    pin: Strategy | null,
    operands: readonly number[],
  ): Candidate[] {
    const key = `${item.sig}|${pin === null ? maskKey : strategyKey(pin)}|${operands.join()}`;
    let cached = this.#cached.get(key);
    if (cached === undefined) {
      const placements = operands.map((id) => this.#placements[id]);
      const strategies = pin === null ? this.#strategies(item.node, mask, placements) : [pin];
      this.evaluated += strategies.length;
      cached = strategies.flatMap((strategy) => this.#evaluate(item, strategy, operands, placements) ?? []);
      this.#cached.set(key, cached);
    }
    return cached;
  }

  /** For every mesh axis and factor of a node, whether the theme allows the split. */
  #mask(item: Item, theme: Theme): boolean[] {
    const { factors } = factorsOf(item.node);
    const classes = this.problem.classesOf(item.node);
    return this.mesh.axes.flatMap(({ name, size }) =>
      factors.map((factor, f) => factor.size > 1 && size > 1 && theme.allows(name, classes[f])),
    );
  }

  /**
   * Returns the cheapest strategy found with a beam of `width`, or null where every candidate costs more than `bound`.
   * `takeOver[i]` is the parameter whose buffer result i takes over in the next call, or -1.
   */
  run(
    theme: Theme,
    params: readonly (Placement | null)[],
    takeOver: readonly number[],
    width: number,
    bound = Number.POSITIVE_INFINITY,
  ): StrategyEvaluation | null {
    const { problem } = this;
    const start: State = {
      place: new Int32Array(problem.slots).fill(none),
      resharded: new Int32Array(problem.slots).fill(none),
      owed: new Float64Array(problem.slots),
      compute: 0,
      communicate: 0,
      bytes: 0,
      debt: 0,
      history: null,
    };
    problem.fn.params.forEach((param, i) => {
      start.place[i] = this.#id(params[i] ?? Placement.replicated(this.mesh, param.shape.length));
    });
    let states = [start];
    for (const item of problem.items) {
      const mask = this.#mask(item, theme);
      const maskKey = mask.map(Number).join("");
      const pin = theme.pin?.(item.node) ?? null;
      const next: { from: State; candidate: Candidate; communicate: number; bytes: number; rank: number }[] = [];
      for (const from of states) {
        const operands = item.inputs.map((slot) => from.place[slot]);
        let settled = 0;
        for (const slot of item.inputs) settled += from.owed[slot];
        const before = from.compute + from.communicate + from.debt - settled;
        for (const candidate of this.#candidates(item, mask, maskKey, pin, operands)) {
          let communicate = 0;
          let bytes = 0;
          for (const move of candidate.moves) {
            if (from.resharded[item.inputs[move.operand]] === move.to) continue;
            communicate += move.seconds;
            bytes += move.bytes;
          }
          next.push({
            from,
            candidate,
            communicate,
            bytes,
            rank: before + candidate.seconds + communicate + candidate.debt,
          });
        }
      }
      this.evaluated += next.length;
      if (next.length === 0)
        throw new WeftError(`${item.node.op} %${item.node.id} cannot be split as its sharding constraint requires`);
      const survivors = width === 1 ? [cheapest(next)] : best(next, width);
      if (survivors[0].rank > bound) return null;
      const children = new Map<State, number>();
      for (const { from } of survivors) children.set(from, (children.get(from) ?? 0) + 1);
      // A single successor reuses the arrays of its predecessor.
      states = survivors.map((option) => this.#advance(option, item, children.get(option.from)! > 1));
    }
    return this.#finish(theme, params, takeOver, states);
  }

  #debt(id: number, avalId: number): number {
    const placement = this.#placements[id];
    if (placement.pending === null) return 0;
    return this.#move(id, this.#id(placement.withPending(null)), avalId).seconds;
  }

  #advance(
    option: { from: State; candidate: Candidate; communicate: number; bytes: number },
    item: Item,
    copy: boolean,
  ): State {
    const { from, candidate } = option;
    const state: State = {
      place: copy ? from.place.slice() : from.place,
      resharded: copy ? from.resharded.slice() : from.resharded,
      owed: copy ? from.owed.slice() : from.owed,
      compute: from.compute + candidate.seconds,
      communicate: from.communicate + option.communicate,
      bytes: from.bytes + option.bytes,
      debt: from.debt,
      history: { candidate, before: from.history },
    };
    for (const slot of item.inputs) {
      state.debt -= state.owed[slot];
      state.owed[slot] = 0;
    }
    for (const { operand, to } of candidate.moves) state.resharded[item.inputs[operand]] = to;
    candidate.results.forEach((id, i) => {
      const slot = item.first + i;
      state.place[slot] = id;
      state.owed[slot] = candidate.debts[i];
      state.debt += candidate.debts[i];
    });
    return state;
  }

  #finish(
    theme: Theme,
    params: readonly (Placement | null)[],
    takeOver: readonly number[],
    states: readonly State[],
  ): StrategyEvaluation {
    const { problem } = this;
    const totals = states.map((state) => {
      let seconds = 0;
      let bytes = 0;
      const { strategies, required } = this.#settleParams(state, params);
      const done = new Set<string>();
      problem.outputs.forEach((slot, i) => {
        const has = this.#placements[state.place[slot]];
        // A result that replaces a donated parameter must have its placement; other results keep theirs.
        const taken = takeOver[i] < 0 ? null : (required[takeOver[i]] ?? this.#placements[state.place[takeOver[i]]]);
        const to = this.#id(taken ?? has.withPending(null));
        const key = `${slot}>${to}`;
        if (to === state.place[slot] || to === state.resharded[slot] || done.has(key)) return;
        done.add(key);
        const cost = this.#move(state.place[slot], to, problem.avalOf[slot]);
        seconds += cost.seconds;
        bytes += cost.bytes;
      });
      return { state, seconds, bytes, strategies, required, total: state.compute + state.communicate + seconds };
    });
    totals.sort((a, b) => a.total - b.total);
    const [{ state, seconds, bytes, strategies, required }] = totals;
    return {
      theme,
      mesh: this.mesh,
      seconds: this.rates.call + state.compute + state.communicate + seconds,
      compute: this.rates.call + state.compute,
      communicate: state.communicate + seconds,
      bytes: state.bytes + bytes,
      strategies,
      required,
    };
  }

  /**
   * The chosen strategies, and the placement of each free parameter if all readers agree on one. Views of replicated
   * values are asked for what their own readers need: a weight is split before it is transposed, not after.
   */
  #settleParams(
    state: State,
    params: readonly (Placement | null)[],
  ): { strategies: Map<Node, Strategy>; required: (Placement | null)[] } {
    const { items } = this.problem;
    const strategies = new Map<Node, Strategy>();
    /** -2: readers disagree. */
    const requested = new Int32Array(this.problem.slots).fill(none);
    for (const slot of this.problem.outputs) if (slot >= params.length) requested[slot] = -2;
    let at = state.history;
    for (let i = items.length - 1; i >= 0; i--) {
      const item = items[i];
      const { candidate } = at!;
      at = at!.before;
      let { strategy, needs } = candidate;
      if (requested[item.first] >= 0 && requested[item.first] !== candidate.results[0] && item.inputs.length === 1) {
        const direct = this.#asViewOf(item, state.place[item.inputs[0]], this.#placements[requested[item.first]]);
        if (direct !== null) ({ strategy, needs } = direct);
      }
      strategies.set(item.node, strategy);
      item.inputs.forEach((slot, k) => {
        requested[slot] = requested[slot] === none || requested[slot] === needs[k] ? needs[k] : -2;
      });
    }
    return {
      strategies,
      required: params.map((placed, slot) =>
        placed === null && requested[slot] >= 0 ? this.#placements[requested[slot]] : null,
      ),
    };
  }

  /** A strategy for a view of a replicated value that produces the required placement directly; null where there is none. */
  #asViewOf(item: Item, has: number, requested: Placement): { strategy: Strategy; needs: number[] } | null {
    const operand = this.#placements[has];
    const isView = this.problem.work.get(item.node)!.kind === "nothing";
    if (!isView || !operand.isReplicated || requested.pending !== null) return null;
    const [maps] = factorsOf(item.node).outputs;
    const split: Record<string, number> = {};
    requested.dims.forEach((cut, dim) => {
      const map = maps[dim];
      if (cut !== null && map !== null) for (const axis of cut.axes) split[axis] = map.factor;
    });
    const strategy = { split, carry: [] };
    const layout = layoutOf(item.node, this.mesh, strategy, [operand]);
    if (layout === null || !layout.results[0].equals(requested)) return null;
    return { strategy, needs: layout.operands.map((placement) => this.#id(placement)) };
  }
}

interface Ranked {
  rank: number;
  candidate: Candidate;
}

function cheapest<T extends Ranked>(options: readonly T[]): T {
  let found = options[0];
  for (const option of options) if (option.rank < found.rank) found = option;
  return found;
}

/** The `width` cheapest candidates; equal costs with equal placements are one candidate. */
function best<T extends Ranked>(options: T[], width: number): T[] {
  options.sort((a, b) => a.rank - b.rank);
  const seen = new Set<string>();
  const survivors: T[] = [];
  for (const option of options) {
    const key = `${option.rank}|${option.candidate.results.join()}`;
    if (seen.has(key)) continue;
    seen.add(key);
    survivors.push(option);
    if (survivors.length === width) break;
  }
  return survivors;
}
