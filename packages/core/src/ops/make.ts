// Builds nodes of any op.
import { Node, type OpAttrs, type OpName } from "../graph/index.js";
import { shapeRules } from "./shape.js";

/** Builds a node of any op; the shape rules determine its shape and dtype. */
export function make<K extends OpName>(op: K, inputs: readonly Node[], attrs: OpAttrs[K]): Node<K> {
  return new Node(op, inputs, attrs, shapeRules[op](inputs, attrs));
}

/** The same op with other operands. */
export const withInputs = <K extends OpName>(node: Node<K>, inputs: readonly Node[]): Node<K> =>
  make(node.op, inputs, node.attrs);
