// What workers are sent to run: a function is planned and cut the first time that it meets inputs that lie where they lie,
// its parts are defined on their workers, and it is planned once more when arguments turn out to come again. Knows
// placements and messages, nothing of tensors and their values.

import type { Rates } from "@weft/core/internal/cost";
import { type DType, type GraphFn, type Shape, toPlain, WeftError } from "@weft/core/internal/graph";
import type { Value } from "@weft/core/internal/ops";
import { tape } from "@weft/core/internal/runtime";
import { type Partitioned, type Placement, partition } from "@weft/core/internal/shard";
import { type Choice, type ChooseOptions, choose } from "./choose.js";
import type { Connection } from "./connection.js";
import { scatterConstants } from "./constants.js";
import { log } from "./debug.js";
import { type CallPrediction, predictParts, predictWhole } from "./predict.js";
import type { ConstantArguments } from "./protocol.js";
import { ratesFor, withoutLinks } from "./rates.js";
import { hasCollective, renumber } from "./renumber.js";

/** A function as it was cut for inputs that lie in one way. */
export interface ShardedExecutable {
  program: number;
  partitioned: Partitioned;
  ranks: number[];
  members: Map<number, string>;
  why: string;
  /** Predicted seconds of a call. */
  seconds: number;
  /** The tensors of the last call: those that come again may be worth a better place. */
  last: number[];
  settled: boolean;
}

/** A compiled function, whatever it is called with. */
export interface ClusterFunction {
  fn: GraphFn;
  donated: readonly boolean[];
  known: ReadonlyMap<number, Value>;
  /** What it was cut into, by where its inputs lay and which workers were there. */
  executables: Map<string, ShardedExecutable>;
}

let lastProgram = 0;
/** ExecutableCache that move tensors are kept up to here. */
const maxReshardPrograms = 256;
/**
 * How much slower a program that moves nothing may be predicted to be than one that does: workers that exchange data wait for
 * the slowest of them in every call, which no rate of a link contains.
 */
const communicationFreeMargin = 1.15;

export class ExecutableCache {
  /** What the user asks of the planner. */
  constraints: Pick<ChooseOptions, "rules" | "mesh"> = {};
  /** Who decides how a function is spread: the planner, unless a test has its own ideas. */
  chooser: (fn: GraphFn, options: ChooseOptions) => Choice = choose;
  /** What was planned last, for explanations. */
  lastChoice: string | null = null;
  lastPlan: Partitioned | null = null;
  planned = 0;
  #explain: () => string = () => "nothing was planned yet";
  /** ExecutableCache that move tensors, by from where, to where and what. */
  readonly #reshardPrograms = new Map<string, number>();

  constructor(readonly connection: Connection) {}

  /** What the planner is told about these workers. */
  get rates(): Rates {
    return ratesFor(this.connection.workers);
  }

  /** How long the last function that was planned should take, by the kernels of its workers; null before the first. */
  predict(): CallPrediction | null {
    return this.lastPlan === null ? null : predictParts(this.lastPlan, this.rates);
  }

  /** The last plan in words: what was chosen, at which price, and what else was tried. */
  explain(): string {
    return this.#explain();
  }

  membersOf(ranks: readonly number[]): Map<number, string> {
    return new Map(ranks.map((rank) => [rank, this.connection.workers[rank].id]));
  }

  /** The program for inputs that lie like this; `ids` says which tensors they are. */
  for(call: ClusterFunction, placements: readonly (Placement | null)[], ids: readonly number[]): ShardedExecutable {
    const { executables } = call;
    const { generation } = this.connection;
    const key = `${generation}|${placements.map((placement) => placement?.key ?? "-").join("|")}`;
    let ready = executables.get(key);
    if (ready === undefined) {
      // ExecutableCache of workers that are gone cannot run again.
      for (const [old, entry] of executables) {
        if (old.startsWith(`${generation}|`)) continue;
        this.#forget(entry.program);
        executables.delete(old);
      }
      const choice = this.#choose(call, placements);
      ready = this.#lower(call, choice, partition(call.fn, choice));
    } else if (!ready.settled) ready = this.#replan(call, placements, ids, ready);
    executables.set(key, ready);
    ready.last = [...ids];
    return ready;
  }

  #choose({ fn, donated }: ClusterFunction, params: readonly (Placement | null)[], rates = this.rates): Choice {
    const devices = this.connection.workers.length;
    if (devices === 0)
      throw new WeftError(`the dispatcher at ${this.connection.address} has no workers; start one: weft worker`);
    const enabled = process.env.WEFT_AUTO_SHARD !== "0";
    return this.chooser(fn, { devices, rates, params, donated, enabled, ...this.constraints });
  }

  /** Sends the parts of a function that was cut as was chosen to their workers. */
  #lower(call: ClusterFunction, choice: Choice, partitioned: Partitioned): ShardedExecutable {
    this.lastChoice = choice.why;
    this.lastPlan = partitioned;
    this.#explain = () => {
      const [parts, whole] = [predictParts(partitioned, this.rates), predictWhole(call.fn, this.rates)];
      const kernels = { seconds: parts.seconds, single: whole.seconds };
      return choice.explain?.(partitioned.moves, kernels) ?? choice.why;
    };
    log("planner", this.#explain);
    this.planned++;
    const ranks = [...choice.mesh.ranks];
    const functions = new Map(ranks.map((rank, i) => [rank, partitioned.functions[i]]));
    const program = this.#define(functions, call.donated, scatterConstants(call.known, partitioned.params));
    tape()?.write({
      type: "plan",
      program,
      devices: ranks.length,
      why: choice.why,
      params: partitioned.params.map(String),
      results: partitioned.results.map(String),
    });
    const { why, seconds } = choice;
    return { program, partitioned, ranks, members: this.membersOf(ranks), why, seconds, last: [], settled: false };
  }

  /**
   * The second call of a program: arguments that came before (weights, mostly) would be moved inside every call where they
   * lie badly. If the program is faster with them elsewhere, or moves nothing and is hardly slower, they get a copy there
   * that stays as long as they do.
   */
  #replan(
    call: ClusterFunction,
    placements: readonly (Placement | null)[],
    ids: readonly number[],
    now: ShardedExecutable,
  ): ShardedExecutable {
    const again = ids.map((id, i) => call.donated[i] !== true && now.last[i] === id);
    now.settled = true;
    if (now.partitioned.moves.length === 0 || !again.some(Boolean)) return now;
    const free = placements.map((placement, i) => (again[i] ? null : placement));
    let choice = this.#choose(call, free);
    let partitioned = partition(call.fn, choice);
    if (partitioned.moves.length > 0 && again.every(Boolean)) {
      const still = this.#choose(call, free, withoutLinks(this.rates));
      if (still.seconds <= choice.seconds * communicationFreeMargin) {
        choice = still;
        partitioned = partition(call.fn, still);
      }
    }
    const moves = partitioned.moves.length;
    const slower = choice.seconds > now.seconds * (moves === 0 ? communicationFreeMargin : 1);
    if (slower || (choice.seconds === now.seconds && moves >= now.partitioned.moves.length)) return now;
    this.#forget(now.program);
    return { ...this.#lower(call, choice, partitioned), settled: true };
  }

  /** Makes the workers forget every program of a compiled function. */
  release({ executables }: ClusterFunction): void {
    for (const { program } of executables.values()) this.#forget(program);
    executables.clear();
  }

  #forget(program: number): void {
    this.connection.send({ t: "forget", program });
  }

  /** Sends every worker its function; ranks become places in the list of members. */
  #define(
    functions: ReadonlyMap<number, GraphFn>,
    donated: readonly boolean[],
    known: ConstantArguments[] = [],
  ): number {
    const program = ++lastProgram;
    const ranks = [...functions.keys()];
    const place = new Map(ranks.map((rank, i) => [rank, i]));
    const graphs = ranks.map((rank) => renumber(toPlain(functions.get(rank)!), place));
    this.connection.send({
      t: "define",
      program,
      members: ranks.map((rank) => this.connection.workers[rank].id),
      generation: this.connection.generation,
      graphs,
      ...(known.length > 0 && { known }),
      collective: graphs.some(hasCollective),
      donated: [...donated],
    });
    return program;
  }

  /** The program that moves a tensor, by the functions of its workers. */
  reshardProgram(
    [from, to]: readonly [Placement, Placement],
    shape: Shape,
    dtype: DType,
    functions: ReadonlyMap<number, GraphFn>,
  ): number {
    const { generation } = this.connection;
    const key = `${generation}|${from.key}|${to.key}|${dtype}${shape}`;
    let program = this.#reshardPrograms.get(key);
    if (program === undefined) {
      for (const [old, stale] of this.#reshardPrograms) {
        if (this.#reshardPrograms.size < maxReshardPrograms && old.startsWith(`${generation}|`)) continue;
        this.#forget(stale);
        this.#reshardPrograms.delete(old);
      }
      program = this.#define(functions, [false]);
      this.#reshardPrograms.set(key, program);
    }
    return program;
  }
}
