// What it takes to compute a value a second time instead of writing and loading it: what must be loaded, the arithmetic, and the
// price of both. Knows what is stored and where loops end; who decides is the fuser.

import { loopCost } from "../cost/index.js";
import { bytesOf, isFloat, isHalf, isOp, type Node, numel } from "../graph/index.js";
import { isReduction } from "./fuse-rules.js";
import { axisVariables, isView, resolveViews } from "./views.js";

/** The fuser's knowledge, as it stands when it is asked. */
export interface FusionState {
  params: ReadonlySet<Node>;
  stored: ReadonlySet<Node>;
  /** Cheaper to compute again than to load. */
  free: ReadonlySet<Node>;
  /** Nodes that a loop computes. */
  groups: { has(node: Node): boolean };
  isLoopNode(node: Node): boolean;
  /** Where views end. */
  stop(node: Node): boolean;
}

export class Rematerializer {
  constructor(readonly of: FusionState) {}

  /**
   * What must be loaded to compute a node again, with its arithmetic; reductions are loads. With `halves`, so are values of
   * half types that are computed with as float32: half as many bytes as what follows from them. `bounded`: what lies behind 64 nodes is left out; so much is not worth it.
   */
  leafLoads(node: Node, bounded: boolean, halves = false): Map<Node, number> {
    const loads = new Map<Node, number>();
    const seen = new Set<Node>();
    const stack = [node];
    while (stack.length > 0) {
      const at = stack.pop()!;
      if (seen.has(at) || this.of.free.has(at)) continue;
      seen.add(at);
      const isLoad = at !== node && (this.of.stored.has(at) || this.of.params.has(at) || isReduction(at));
      if (!isLoad && halves && isOp(at, "cast") && isHalf(at.inputs[0].dtype) && at.dtype === "float32") {
        const place = resolveViews(at.inputs[0], axisVariables(at.shape), this.of.stop).node;
        if (numel(place.shape) === numel(at.shape) && !this.of.free.has(place)) {
          loads.set(place, numel(place.shape));
          continue;
        }
      }
      if (isLoad || this.of.params.has(at) || (!this.of.isLoopNode(at) && !isView(at))) loads.set(at, numel(at.shape));
      else if (!bounded || seen.size < 64) stack.push(...at.inputs);
    }
    return loads;
  }

  arithmetic(node: Node): number {
    let cost = 0;
    const seen = new Set<Node>();
    const stack = [node];
    while (stack.length > 0 && cost < 1000) {
      const at = stack.pop()!;
      if (seen.has(at) || this.of.params.has(at)) continue;
      seen.add(at);
      if (at !== node && (this.of.stored.has(at) || isReduction(at))) continue;
      if (!this.of.isLoopNode(at) && !isView(at)) continue;
      cost += isView(at) ? 0 : loopCost(at);
      stack.push(...at.inputs);
    }
    return cost;
  }

  /** What computing a node again for each of its readers costs, in units of the node's own memory. */
  cost(node: Node, loads: ReadonlyMap<Node, number>, readers: number, halves: boolean): number {
    const size = numel(node.shape);
    const unit = isFloat(node.dtype) ? bytesOf(node.dtype) : null;
    let cost = 0;
    for (const [leaf, count] of loads) {
      // Small operands stay in cache.
      if (count * 8 <= size) continue;
      const each = (count / size) * (unit === null ? 1 : bytesOf(leaf.dtype) / unit);
      const isNew = halves && !this.of.stored.has(leaf) && this.of.groups.has(leaf) && !isReduction(leaf);
      cost += each * (readers + (isNew ? 1 : 0));
    }
    return cost;
  }
}
