// Chooses how a function is sharded over the current workers by calling the planner. It knows graphs and rates, not
// connections.

import type { Rates } from "@weft/core/internal/cost";
import { type GraphFn, type Node, range, WeftError } from "@weft/core/internal/graph";
import {
  explainPlan,
  type KernelSeconds,
  Mesh,
  type Partitioned,
  type Placement,
  planSharding,
  type ShardRules,
  type Strategy,
} from "@weft/core/internal/shard";
import { rulesFromEnvironment } from "./rules.js";
import { clusterSettings } from "./settings.js";

export interface Choice {
  mesh: Mesh;
  params: Placement[];
  strategy?: (node: Node) => Strategy | null;
  /** Required placements of results; null leaves the choice to the partitioner. */
  results: (Placement | null)[];
  why: string;
  /** Seconds predicted by operations, for this plan and for one worker. */
  seconds: number;
  single: number;
  /** Explains the plan, with the estimated cost of its kernels. */
  explain?(moves: Partitioned["moves"], kernels: KernelSeconds): string;
}

export interface ChooseOptions {
  devices: number;
  rates: Rates;
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

export function choose(fn: GraphFn, options: ChooseOptions): Choice {
  const { devices, rates, params, donated, enabled, rules = rulesFromEnvironment() } = options;
  // For tests and comparisons: shard over all workers, whatever the estimated cost.
  const all = clusterSettings.forceShard.get() && devices > 1 ? Mesh.of({ d: devices }) : undefined;
  const asked = options.mesh === undefined ? all : meshFromSizes(options.mesh, devices);
  const made = planSharding(fn, {
    ranks: range(devices),
    rates,
    params,
    enabled: enabled && devices > 1,
    mesh: asked,
    rules,
    donated,
  });
  const { mesh, seconds, single, strategy, results } = made;
  const why =
    mesh.size === 1 ? `one worker of ${devices}: ${made.name}` : `${mesh.size} of ${devices} workers: ${made.name}`;
  const explain: Choice["explain"] = (moves, kernels) => explainPlan(made, moves, kernels);
  return { mesh, params: made.params, results, strategy: (node) => strategy(node), why, seconds, single, explain };
}
