// Operands of a batching rule.
import type { Node, OpName } from "../graph/index.js";
import { expand, reshape } from "./build.js";

export interface Batched {
  node: Node;
  batched: boolean;
}

export interface BatchContext<K extends OpName> {
  /** The original node: its attributes and unbatched shapes. */
  node: Node<K>;
  inputs: Batched[];
  size: number;
}

/** The operand with a batch axis; an operand without one is broadcast. */
export function withBatch({ node, batched }: Batched, size: number): Node {
  return batched ? node : expand(reshape(node, [1, ...node.shape]), [size, ...node.shape]);
}
