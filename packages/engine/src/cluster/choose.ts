// How a function is spread over the workers that are there: asks the planner. Knows graphs and rates, nothing of
// connections.
import { type GraphFn, type Node, range } from "../graph/index.js";
import { explainPlan, Mesh, type Placement, plan, type Rates, type Strategy } from "../shard/index.js";
import { say } from "./debug.js";
import { rulesFromEnvironment } from "./rules.js";

export interface Choice {
  mesh: Mesh;
  params: Placement[];
  strategy?: (node: Node) => Strategy | null;
  /** Where results must end up; null leaves them where they are. */
  results: (Placement | null)[];
  why: string;
  /** Predicted seconds, of this and of one worker. */
  seconds: number;
  single: number;
}

export interface ChooseOptions {
  devices: number;
  rates: Rates;
  /** Where the parameters are; null for those that are not on any worker yet. */
  params: readonly (Placement | null)[];
  /** Parameters whose places results take. */
  donated: readonly boolean[];
  enabled: boolean;
}

export function choose(fn: GraphFn, { devices, rates, params, donated, enabled }: ChooseOptions): Choice {
  // For tests and comparisons: everything over all workers, whatever it is worth.
  const all = process.env.WEFT_FORCE_SHARD === "1" && devices > 1 ? Mesh.of({ d: devices }) : undefined;
  const made = plan(fn, {
    ranks: range(devices),
    rates,
    params,
    donated,
    enabled: enabled && devices > 1,
    mesh: all,
    rules: rulesFromEnvironment(),
  });
  say("planner", () => explainPlan(made));
  const { mesh, seconds, single, strategy, results } = made;
  const why =
    mesh.size === 1 ? `one worker of ${devices}: ${made.name}` : `${mesh.size} of ${devices} workers: ${made.name}`;
  return { mesh, params: made.params, strategy: (node) => strategy(node), results, why, seconds, single };
}
