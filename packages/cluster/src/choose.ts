// Chooses how a function is sharded over the current workers by calling the planner. It knows graphs and rates, not
// connections.

import type { Rates } from "@weft/core/internal/cost";
import { type GraphFn, type Node, range, WeftError } from "@weft/core/internal/graph";
import {
  type Alternative,
  explainPlan,
  type KernelSeconds,
  Mesh,
  type Partitioned,
  type Placement,
  planSharding,
  type ShardRules,
  type Strategy,
} from "@weft/core/internal/shard";
import { betweenHosts } from "./rates.js";
import { rulesFromEnvironment } from "./rules.js";
import { clusterSettings } from "./settings.js";

export interface ShardingChoice {
  mesh: Mesh;
  params: Placement[];
  strategy?: (node: Node) => Strategy | null;
  /** Required placements of results; null leaves the choice to the partitioner. */
  results: (Placement | null)[];
  why: string;
  /** Seconds predicted by operations, for this plan and for one worker. */
  seconds: number;
  single: number;
  /** What the planner compared, its choice first. */
  alternatives?: readonly Alternative[];
  /** Explains the plan, with the estimated cost of its kernels. */
  explain?(moves: Partitioned["moves"], kernels: KernelSeconds): string;
}

export interface ChooseOptions {
  devices: number;
  /** Workers that can exchange data, as lists of ranks; one list of all by default. A function uses one of them. */
  islands?: readonly (readonly number[])[];
  /** Workers that share memory, as lists of ranks; one list of all by default. */
  hosts?: readonly (readonly number[])[];
  rates: Rates;
  /** How many times faster than the rates each worker computes, by rank; all alike by default. */
  speeds?: readonly number[];
  /** Rates with the links between the hosts of these ranks; assumed links by default. */
  between?(ranks: readonly number[]): Rates;
  /** Current placements of the parameters; null for those that are on no worker yet. */
  params: readonly (Placement | null)[];
  /** Parameters whose buffers the results may reuse. */
  donated: readonly boolean[];
  enabled: boolean;
  /** The user's sharding constraints: rules for named parts of the program, and a mesh. */
  rules?: ShardRules;
  mesh?: Readonly<Record<string, number>>;
}

function meshFromSizes(sizes: Readonly<Record<string, number>>, devices: number): Mesh {
  const mesh = Mesh.of(sizes);
  if (mesh.size > devices)
    throw new WeftError(`the mesh ${JSON.stringify(sizes)} needs ${mesh.size} workers, and there are ${devices}`);
  return mesh;
}

/** The workers that a function may use: those that have its arguments, or the largest island. */
function islandOf(params: readonly (Placement | null)[], islands: readonly (readonly number[])[]): readonly number[] {
  const used = new Set(params.flatMap((param) => param?.mesh.ranks ?? []));
  const having = islands.filter((island) => island.some((rank) => used.has(rank)));
  if (having.length > 1)
    throw new WeftError(
      "the arguments are on workers that cannot reach each other: start all of them with --data-host and certificates, or fetch one of the arguments and create it again",
    );
  return having[0] ?? islands.reduce((most, island) => (island.length > most.length ? island : most));
}

/** One host's workers that may compute the function without the others: those that have all arguments, or the most. */
function hostFor(
  params: readonly (Placement | null)[],
  hosts: readonly (readonly number[])[],
): readonly number[] | null {
  const used = new Set(params.flatMap((param) => param?.mesh.ranks ?? []));
  const able = hosts.filter((host) => [...used].every((rank) => host.includes(rank)));
  return able.length === 0 ? null : able.reduce((most, host) => (host.length > most.length ? host : most));
}

/** The best plan for the workers of one host, and for all hosts with the rates of the network. */
export function chooseSharding(fn: GraphFn, options: ChooseOptions): ShardingChoice {
  const { devices, rates, params, hosts = [range(devices)] } = options;
  const ranks = islandOf(params, options.islands ?? [range(devices)]);
  const near = hosts.map((host) => host.filter((rank) => ranks.includes(rank))).filter((host) => host.length > 0);
  if (near.length === 1) return chooseAmong(fn, ranks, options);
  const among = (some: readonly number[]): ShardingChoice =>
    chooseAmong(fn, some, { ...options, rates: options.between?.(some) ?? betweenHosts(rates) });
  const all = among(ranks);
  const host = clusterSettings.forceShard.get() || options.mesh !== undefined ? null : hostFor(params, near);
  if (host === null) return all;
  const one = chooseAmong(fn, host, options);
  const better = one.seconds <= all.seconds ? one : all;
  // A host with slow links holds up the others: without it the rest may be faster.
  const used = new Set(params.flatMap((param) => param?.mesh.ranks ?? []));
  const rest = near.length < 3 ? null : withoutSlowHost(near, options);
  if (rest === null || [...used].some((rank) => !rest.includes(rank))) return better;
  const fewer = among(rest);
  return fewer.seconds < better.seconds ? fewer : better;
}

/** How much faster links must be without a host before it is left out. */
const worthLeaving = 1.5;

/** The workers without the host whose links are slowest; null where it makes no difference. */
function withoutSlowHost(hosts: readonly (readonly number[])[], { between }: ChooseOptions): number[] | null {
  if (between === undefined) return null;
  const speed = (ranks: readonly number[]): number =>
    Math.min(...Object.values(between(ranks).links).flatMap((links) => links.map(({ bandwidth }) => bandwidth)));
  const all = speed(hosts.flat());
  const rests = hosts.map((host) => hosts.filter((other) => other !== host).flat());
  const best = rests.reduce((a, b) => (speed(b) > speed(a) ? b : a));
  return speed(best) > worthLeaving * all ? best : null;
}

function chooseAmong(fn: GraphFn, ranks: readonly number[], options: ChooseOptions): ShardingChoice {
  const { devices, rates, params, donated, enabled, rules = rulesFromEnvironment() } = options;
  // For tests and comparisons: shard over all workers, whatever the estimated cost.
  const speeds = options.speeds && ranks.map((rank) => options.speeds![rank]);
  const all =
    clusterSettings.forceShard.get() && ranks.length > 1
      ? new Mesh([{ name: "d", size: ranks.length }], [...ranks], speeds)
      : undefined;
  const asked = options.mesh === undefined ? all : meshFromSizes(options.mesh, devices);
  const made = planSharding(fn, {
    ranks: [...ranks],
    rates,
    speeds,
    params,
    enabled: enabled && ranks.length > 1,
    mesh: asked,
    rules,
    donated,
  });
  const { mesh, seconds, single, strategy, results } = made;
  const why =
    mesh.size === 1 ? `one worker of ${devices}: ${made.name}` : `${mesh.size} of ${devices} workers: ${made.name}`;
  const explain: ShardingChoice["explain"] = (moves, kernels) => explainPlan(made, moves, kernels);
  const { params: placed, alternatives } = made;
  return {
    mesh,
    params: placed,
    results,
    strategy: (node) => strategy(node),
    why,
    seconds,
    single,
    alternatives,
    explain,
  };
}
