// Estimates the cost of rematerializing a value instead of storing and loading it: its loads and its arithmetic. The fuser
// decides.

import { loopCost } from "../cost/index.js";
import { bytesOf, isFloat, isHalf, isOp, type Node, numel } from "../graph/index.js";
import { isReduction } from "./fuse-rules.js";
import { axisVariables, isView, resolveViews } from "./views.js";

/** The current state of the fuser. */
interface FusionState {
  params: ReadonlySet<Node>;
  stored: ReadonlySet<Node>;
  /** Cheaper to rematerialize than to load. */
  free: ReadonlySet<Node>;
  /** Nodes that a loop computes. */
  groups: { has(node: Node): boolean };
  isLoopNode(node: Node): boolean;
  /** Where views end. */
  stop(node: Node): boolean;
}

const maxDepth = 6;
const lightFns: ReadonlySet<string> = new Set(["neg", "real", "imag", "conj"]);

export class Rematerializer {
  constructor(readonly of: FusionState) {}

  /**
   * The loads that rematerializing a node needs; reductions are loads. With `halves`, so are half-type values that are
   * cast to float32, because they have half the bytes. `bounded`: the search stops after 64 nodes.
   */
  leafLoads(node: Node, bounded: boolean, halves = false): Map<Node, number> {
    const loads = new Map<Node, number>();
    const seen = new Set<Node>();
    // With the number of elements that are read: those of a slice, not of the whole tensor.
    const stack = [{ at: node, count: numel(node.shape) }];
    while (stack.length > 0) {
      const { at, count } = stack.pop()!;
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
      if (isLoad || this.of.params.has(at) || (!this.of.isLoopNode(at) && !isView(at))) loads.set(at, count);
      else if (!bounded || seen.size < 64)
        for (const x of at.inputs) {
          const all = numel(x.shape);
          stack.push({ at: x, count: isView(at) ? Math.min(count, all) : all });
        }
    }
    return loads;
  }

  /**
   * The value that a node scales: behind a few signs, parts and products with small operands. Many nodes with one core are
   * better rematerialized from it than stored (products of one cotangent with the rows of a table).
   */
  core(node: Node): Node {
    let at = node;
    for (let depth = 0; depth < maxDepth; depth++) {
      if (at !== node && (this.of.stored.has(at) || this.of.params.has(at))) break;
      if (!isOp(at, "unary") && !(isOp(at, "binary") && at.attrs.fn === "mul")) break;
      const large = at.inputs.filter((x) => !this.of.free.has(x) && !this.#isSmall(x, numel(at.shape)));
      if (large.length !== 1 || isView(large[0]) || numel(large[0].shape) !== numel(at.shape)) break;
      if (isOp(at, "unary") && !lightFns.has(at.attrs.fn)) break;
      [at] = large;
    }
    return at;
  }

  /** Whether what a node reads in memory stays in cache beside `size` elements. */
  #isSmall(node: Node, size: number): boolean {
    let reads = 0;
    for (const count of this.leafLoads(node, true).values()) reads += count;
    return isView(node) && reads * 8 <= size;
  }

  /**
   * Cost of the expression of a node, at least 1000 where it is long. What is read at several places (the parts of a roll) is computed once per place, so
   * that rolls of rolls of rolls double at every step.
   */
  arithmetic(node: Node): number {
    let cost = 0;
    const places = new Map([[node, 1]]);
    const waiting = [node];
    // Nodes have higher numbers than their operands: each comes after all that read it.
    while (waiting.length > 0 && cost < 1000) {
      const at = waiting.reduce((latest, other) => (other.id > latest.id ? other : latest));
      waiting.splice(waiting.indexOf(at), 1);
      if (this.of.params.has(at) || (at !== node && (this.of.stored.has(at) || isReduction(at)))) continue;
      if (!this.of.isLoopNode(at) && !isView(at)) continue;
      const count = places.get(at)!;
      cost += isView(at) ? 0 : count * loopCost(at);
      const moves = isView(at) || isOp(at, "concat") || isOp(at, "pad");
      for (const x of at.inputs) {
        const found = places.get(x);
        if (found === undefined) waiting.push(x);
        places.set(x, moves ? (found ?? 0) + count : Math.max(found ?? 0, count));
      }
    }
    return cost;
  }

  /** Cost of rematerializing a node for each of its readers, in units of the node's own memory. */
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
