// Prepares a graph that holds finished gradients for being differentiated again. The variables of a finished gradient are copies of their
// operands, so a function and its derivative hold the same nodes twice. Compilation merges equal nodes, but not what a second reverse
// pass makes of each of them, because their cotangents differ.
import { isOp, type Node, recordSite, siteOf, topological } from "../graph/index.js";
import { nodeKey } from "./simplify.js";
import { rebuild } from "./walk.js";

const finished = new WeakSet<Node>();

/** Notes that nothing will be differentiated with respect to these variables any more. */
export function finishVariables(variables: readonly Node[]): void {
  for (const node of variables) finished.add(node);
}

/** Removes variables of finished gradients and merges equal nodes; returns the outputs themselves where there are no such variables. */
export function mergeFinishedGradients(outputs: readonly Node[]): readonly Node[] {
  const isLeaf = (node: Node): boolean =>
    node.value !== null || (isOp(node, "alias") && !finished.has(node)) || node.op === "input" || node.op === "data";
  const order = topological(outputs, isLeaf);
  if (!order.some((node) => finished.has(node))) return outputs;
  const map = new Map<Node, Node>();
  const numbers = new Map<Node, number>();
  const known = new Map<string, Node>();
  for (const node of order) {
    let made = node;
    if (!isLeaf(node)) {
      const inputs = node.inputs.map((input) => map.get(input)!);
      if (finished.has(node)) made = inputs[0];
      else {
        made = rebuild(node, inputs);
        const key = nodeKey(made, numbers);
        const same = known.get(key);
        if (same === undefined) known.set(key, made);
        else made = same;
        recordSite(made, siteOf(node));
      }
    }
    map.set(node, made);
    if (!numbers.has(made)) numbers.set(made, numbers.size);
  }
  return outputs.map((output) => map.get(output)!);
}
