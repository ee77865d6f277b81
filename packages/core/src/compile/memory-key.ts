// The key of a node's memory in a schedule.
import { isOp, type Node } from "../graph/index.js";

/** The key of a node's memory: results of a multi-result node are distinguished by their index. */
export function memoryKey(node: Node, index = 0): string {
  if (isOp(node, "pick")) return `${node.inputs[0].id}:${node.attrs.index}`;
  return node.outputs === null ? String(node.id) : `${node.id}:${index}`;
}
