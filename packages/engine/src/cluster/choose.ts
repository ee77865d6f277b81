// How a function is spread over the workers that are there: asks the planner, or keeps it whole on one worker. Knows
// graphs and rates, nothing of connections.
import { functionOrder, type GraphFn, type Node, numel } from "../graph/index.js";
import { costOf } from "../ops/index.js";
import { Mesh, Placement, type Strategy } from "../shard/index.js";
import { say } from "./debug.js";

export interface Choice {
  mesh: Mesh;
  params: Placement[];
  strategy?: (node: Node) => Strategy | null;
  why: string;
}

export interface ChooseOptions {
  devices: number;
  /** Where the parameters are; null for those that are not on any worker yet. */
  params: readonly (Placement | null)[];
  enabled: boolean;
}

const flopsOf = (fn: GraphFn): number => functionOrder(fn).reduce((n, node) => n + costOf(node).flops, 0);

/** Work below this is done by one worker. */
const smallWork = 2e7;
const smallTensor = 1 << 15;

export function choose(fn: GraphFn, { devices, params, enabled }: ChooseOptions): Choice {
  const used = params.filter((p): p is Placement => p !== null);
  const spread = used.find((p) => p.mesh.size > 1);
  const flops = flopsOf(fn);
  const count =
    !enabled || devices === 1 ? 1 : spread !== undefined ? spread.mesh.size : flops < smallWork ? 1 : devices;
  if (count === 1) {
    const at = used.find((p) => p.mesh.size === 1)?.mesh ?? new Mesh([{ name: "d", size: 1 }], [0]);
    const choice = {
      mesh: at,
      params: fn.params.map((p) => Placement.replicated(at, p.shape.length)),
      why: `one worker: ${flops} operations`,
    };
    say("planner", () => choice.why);
    return choice;
  }
  const mesh = spread?.mesh ?? new Mesh([{ name: "d", size: count }]);
  const placed = fn.params.map((param, i) => {
    const has = params[i];
    if (has !== null && has.mesh.key === mesh.key) return has;
    const [rows] = param.shape;
    return param.shape.length > 0 && rows >= count && numel(param.shape) >= smallTensor
      ? Placement.split(mesh, param.shape, { 0: "d" })
      : Placement.replicated(mesh, param.shape.length);
  });
  const choice = { mesh, params: placed, why: `${count} workers: ${flops} operations, large arguments cut by rows` };
  say("planner", () => choice.why);
  return choice;
}
