// How a function is spread over the workers that are there: asks the planner. Knows graphs and rates, nothing of
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

export interface Choice {
  mesh: Mesh;
  params: Placement[];
  strategy?: (node: Node) => Strategy | null;
  /** Where results must end up; null leaves them where they are. */
  results: (Placement | null)[];
  why: string;
  /** Predicted seconds by operations, of this and of one worker: what was compared. */
  seconds: number;
  single: number;
  /** The plan in words, with the prices of its kernels. */
  explain?(moves: Partitioned["moves"], kernels: KernelSeconds): string;
}

export interface ChooseOptions {
  devices: number;
  rates: Rates;
  /** Where the parameters are; null for those that are not on any worker yet. */
  params: readonly (Placement | null)[];
  /** Parameters whose places results take. */
  donated: readonly boolean[];
  enabled: boolean;
  /** What the user asks for: rules for named parts of the program, and a grid. */
  rules?: ShardRules;
  mesh?: Readonly<Record<string, number>>;
}

function meshFromSizes(sizes: Readonly<Record<string, number>>, devices: number): Mesh {
  const mesh = Mesh.of(sizes);
  if (mesh.size > devices)
    throw new WeftError(`the mesh ${JSON.stringify(sizes)} needs ${mesh.size} workers, and ${devices} are there`);
  return mesh;
}

export function choose(fn: GraphFn, options: ChooseOptions): Choice {
  const { devices, rates, params, donated, enabled, rules = rulesFromEnvironment() } = options;
  // For tests and comparisons: everything over all workers, whatever it is worth.
  const all = process.env.WEFT_FORCE_SHARD === "1" && devices > 1 ? Mesh.of({ d: devices }) : undefined;
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
