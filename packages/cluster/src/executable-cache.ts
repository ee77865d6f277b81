// Cache of sharded executables: a function is planned and partitioned for the placements of its inputs, its shards are
// defined on the workers, and it is planned again when arguments turn out to be reused. It knows placements and
// messages, not tensor values.

import type { Rates } from "@weft/core/internal/cost";
import { type DType, type GraphFn, type Shape, toPlain, WeftError } from "@weft/core/internal/graph";
import type { Value } from "@weft/core/internal/ops";
import { tape } from "@weft/core/internal/runtime";
import { settings } from "@weft/core/internal/settings";
import { type Partitioned, type Placement, partitionFunction } from "@weft/core/internal/shard";
import { type ChooseOptions, chooseSharding, type ShardingChoice } from "./choose.js";
import { distinctFunctions, hasCollective } from "./collectives.js";
import type { Connection } from "./connection.js";
import { scatterConstants } from "./constants.js";
import { logDebug } from "./debug.js";
import { reportPlan } from "./plan-report.js";
import { type CallPrediction, predictParts, predictWhole } from "./predict.js";
import type { ConstantArguments } from "./protocol.js";
import { betweenHosts, ratesFor, withoutLinks, workerSpeeds } from "./rates.js";
import { hostsOf, islandsOf } from "./reach.js";
import { renumber } from "./renumber.js";

/** A function partitioned for one set of input placements. */
interface ShardedExecutable {
  program: number;
  partitioned: Partitioned;
  ranks: number[];
  members: Map<number, string>;
  why: string;
  /** Predicted seconds per call. */
  seconds: number;
  /** Tensor ids of the last call: arguments that recur may deserve a better placement. */
  last: number[];
  settled: boolean;
  /** Predicted time by kernels, and the explanation of the plan, both with current rates. */
  predict(): CallPrediction;
  explain(): string;
}

/** A compiled function with its sharded executables. */
export interface ClusterFunction {
  fn: GraphFn;
  donated: readonly boolean[];
  /** Arguments with a known constant value, by index. */
  constants: ReadonlyMap<number, Value>;
  /** Executables by input placements and generation of workers. */
  executables: Map<string, ShardedExecutable>;
}

let lastProgram = 0;
/** Maximum number of cached reshard programs. */
const maxReshardPrograms = 256;
/**
 * Maximum predicted slowdown at which a program without communication is preferred: workers that communicate wait for
 * the slowest of them in every call, which link rates do not include.
 */
const communicationFreeMargin = 1.15;

export class ExecutableCache {
  /** The user's sharding constraints. */
  constraints: Pick<ChooseOptions, "rules" | "mesh"> = {};
  /** The planner; tests may replace it. */
  chooser: (fn: GraphFn, options: ChooseOptions) => ShardingChoice = chooseSharding;
  planned = 0;
  /** What was called last: predictions and explanations are about it, also where its plan was made earlier. */
  #last: ShardedExecutable | null = null;
  /** Reshard programs by source placement, target placement, shape and dtype. */
  readonly #reshardPrograms = new Map<string, number>();

  constructor(readonly connection: Connection) {}

  /** Rates of the current workers, as the planner uses them. */
  get rates(): Rates {
    return ratesFor(this.connection.workers);
  }

  /** The plan of the last call. */
  get lastChoice(): string | null {
    return this.#last?.why ?? null;
  }
  get lastPlan(): Partitioned | null {
    return this.#last?.partitioned ?? null;
  }

  /** Predicted time of the last call, by its kernels; null before the first. */
  predict(): CallPrediction | null {
    return this.#last?.predict() ?? null;
  }

  /** Predicts a plan over these workers: between hosts with the rates of their links. */
  #predictAmong(plan: Partitioned, ranks: readonly number[]): CallPrediction {
    const members = ranks.map((rank) => this.connection.workers[rank]);
    const isFar = hostsOf(members).length > 1;
    const speeds = workerSpeeds(this.connection.workers);
    return predictParts(
      plan,
      isFar ? betweenHosts(this.rates, members) : this.rates,
      ranks.map((rank) => speeds[rank]),
    );
  }

  /** Explains the plan of the last call: the choice, its estimated cost, and the alternatives considered. */
  explain(): string {
    return this.#last?.explain() ?? "nothing has been planned yet";
  }

  membersOf(ranks: readonly number[]): Map<number, string> {
    return new Map(ranks.map((rank) => [rank, this.connection.workers[rank].id]));
  }

  /** The executable for inputs in these placements; `ids` identifies the tensors. */
  for(call: ClusterFunction, placements: readonly (Placement | null)[], ids: readonly number[]): ShardedExecutable {
    const { executables } = call;
    const { generation } = this.connection;
    const key = `${generation}|${placements.map((placement) => placement?.key ?? "-").join("|")}`;
    let ready = executables.get(key);
    if (ready === undefined) {
      // Programs of an earlier generation cannot run again.
      for (const [old, entry] of executables) {
        if (old.startsWith(`${generation}|`)) continue;
        this.forget(entry.program);
        executables.delete(old);
      }
      const choice = this.#choose(call, placements);
      ready = this.#lower(call, choice, partitionFunction(call.fn, choice));
    } else if (!ready.settled) ready = this.#replan(call, placements, ids, ready);
    executables.set(key, ready);
    ready.last = [...ids];
    this.#last = ready;
    return ready;
  }

  #choose({ fn, donated }: ClusterFunction, params: readonly (Placement | null)[], rates = this.rates): ShardingChoice {
    const devices = this.connection.workers.length;
    if (devices === 0)
      throw new WeftError(`the dispatcher at ${this.connection.address} has no workers; start one: weft worker`);
    const enabled = settings.autoShard.get();
    const { workers } = this.connection;
    const places = { islands: islandsOf(workers), hosts: hostsOf(workers) };
    const speeds = workerSpeeds(workers);
    const between = (ranks: readonly number[]): Rates =>
      betweenHosts(
        rates,
        ranks.map((rank) => workers[rank]),
      );
    const measured = { rates, between, speeds: speeds.some((speed) => speed !== 1) ? speeds : undefined };
    return this.chooser(fn, { devices, ...places, ...measured, params, donated, enabled, ...this.constraints });
  }

  /** Defines a partitioned function on its workers. */
  #lower(call: ClusterFunction, choice: ShardingChoice, partitioned: Partitioned): ShardedExecutable {
    const predict = (): CallPrediction => this.#predictAmong(partitioned, choice.mesh.ranks);
    const explain = (): string => {
      const kernels = { seconds: predict().seconds, single: predictWhole(call.fn, this.rates).seconds };
      return choice.explain?.(partitioned.moves, kernels) ?? choice.why;
    };
    logDebug("planner", explain);
    this.planned++;
    const ranks = [...choice.mesh.ranks];
    const functions = new Map(ranks.map((rank, i) => [rank, partitioned.functions[i]]));
    const program = this.define(functions, call.donated, scatterConstants(call.constants, partitioned.params));
    const shapes = {
      params: call.fn.params.map(({ shape }) => shape),
      results: call.fn.outputs.map(({ shape }) => shape),
    };
    const workerOf = (rank: number): string => this.connection.workers[rank].id;
    const candidates = choice.alternatives ?? [];
    this.connection.send(reportPlan(program, choice.why, partitioned, shapes, candidates, workerOf));
    tape()?.write({
      type: "plan",
      program,
      devices: ranks.length,
      why: choice.why,
      params: partitioned.params.map(String),
      results: partitioned.results.map(String),
    });
    const { why, seconds } = choice;
    const ready = { program, partitioned, ranks, members: this.membersOf(ranks), why, seconds, predict, explain };
    return { ...ready, last: [], settled: false };
  }

  /**
   * Called on the second call of a program. Arguments that recur (mostly weights) would be resharded inside every call
   * if their placement does not fit. If the program is faster with another placement of them, or communicates nothing
   * and is hardly slower, they get a copy in that placement.
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
    let partitioned = partitionFunction(call.fn, choice);
    if (partitioned.moves.length > 0 && again.every(Boolean)) {
      const still = this.#choose(call, free, withoutLinks(this.rates));
      if (still.seconds <= choice.seconds * communicationFreeMargin) {
        choice = still;
        partitioned = partitionFunction(call.fn, still);
      }
    }
    const moves = partitioned.moves.length;
    const slower = choice.seconds > now.seconds * (moves === 0 ? communicationFreeMargin : 1);
    if (slower || (choice.seconds === now.seconds && moves >= now.partitioned.moves.length)) return now;
    this.forget(now.program);
    return { ...this.#lower(call, choice, partitioned), settled: true };
  }

  /** Makes the workers forget every program of a compiled function. */
  release({ executables }: ClusterFunction): void {
    for (const { program } of executables.values()) this.forget(program);
    executables.clear();
  }

  forget(program: number): void {
    this.connection.send({ t: "forget", program });
  }

  /** Sends every worker its function; ranks become positions in the member list. Returns the number of the program. */
  define(
    functions: ReadonlyMap<number, GraphFn>,
    donated: readonly boolean[],
    constants: ConstantArguments[] = [],
  ): number {
    const program = ++lastProgram;
    const ranks = [...functions.keys()];
    const place = new Map(ranks.map((rank, i) => [rank, i]));
    const { graphs, which } = distinctFunctions(ranks.map((rank) => renumber(toPlain(functions.get(rank)!), place)));
    this.connection.send({
      t: "define",
      program,
      members: ranks.map((rank) => this.connection.workers[rank].id),
      generation: this.connection.generation,
      graphs,
      which,
      constants: constants.length > 0 ? constants : undefined,
      collective: graphs.some(hasCollective),
      donated: [...donated],
    });
    return program;
  }

  /** The program that reshards a tensor, from the functions of its workers. */
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
        this.forget(stale);
        this.#reshardPrograms.delete(old);
      }
      program = this.define(functions, [false]);
      this.#reshardPrograms.set(key, program);
    }
    return program;
  }
}
