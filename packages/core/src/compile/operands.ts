// Operands of a loop node: each with the index it is read at, in terms of the node's own axes.
import { isOp, type Node } from "../graph/index.js";
import { reductionOperand } from "./fuse-rules.js";
import type { Ix } from "./index-expr.js";
import { axisVariables } from "./views.js";

interface Operand {
  node: Node;
  /** The node over whose elements the reading loop runs: the node itself, or a reduction's input. */
  domain: Node;
  /**
   * The operand's index for each element of the domain; null where it depends on values (gather) or leaves the range
   * (pad).
   */
  index: readonly Ix[] | null;
}

/** `copied`: the node is a view that is written out, so it reads itself. `onePass`: see reductionOperand. */
export function operands(node: Node, copied: boolean, onePass = false): Operand[] {
  const own = axisVariables(node.shape);
  if (copied) return [{ node, domain: node, index: own }];
  if (node.op === "reduce" || node.op === "argreduce") {
    const { operand } = reductionOperand(node, onePass);
    return [{ node: operand, domain: operand, index: axisVariables(operand.shape) }];
  }
  if (isOp(node, "gather")) {
    const { axis, batch } = node.attrs;
    const [x, indices] = node.inputs;
    const at = [...own.slice(0, batch), ...own.slice(axis, axis + indices.shape.length - batch)];
    return [
      { node: x, domain: node, index: null },
      { node: indices, domain: node, index: at },
    ];
  }
  if (node.op === "pad" || node.op === "concat")
    return node.inputs.map((x) => ({ node: x, domain: node, index: null }));
  if (node.op === "random") return node.inputs.map((x) => ({ node: x, domain: node, index: null }));
  return node.inputs.map((x) => ({ node: x, domain: node, index: own }));
}
