// A rank whose shard is empty still takes part in the collectives of the others: what they would have been used for is a constant
// there, and must not take them out of the program.
import { isOp, type Node, numel } from "../graph/index.js";
import { build } from "../ops/index.js";

const known = new WeakMap<Node, boolean>();

/** Whether a node is a collective, or is computed from one. */
function followsCollective(node: Node): boolean {
  const found = known.get(node);
  if (found !== undefined) return found;
  // Iterative, because programs are deep.
  const open = [node];
  while (open.length > 0) {
    const top = open[open.length - 1];
    const next = top.inputs.find((x) => !known.has(x));
    if (next !== undefined && !isOp(top, "collective")) {
      open.push(next);
      continue;
    }
    known.set(top, isOp(top, "collective") || top.inputs.some((x) => known.get(x)));
    open.pop();
  }
  return known.get(node)!;
}

/** The value, and nothing of the inputs, but after the collectives that they come from. */
export function afterCollectives(value: Node, inputs: readonly Node[]): Node {
  const parts = inputs.flatMap((x) => (x.outputs === null ? [x] : x.inputs)).filter(followsCollective);
  if (parts.length === 0) return value;
  const nothing = parts.map((x) => build.cast(build.slice(build.reshape(x, [numel(x.shape)]), [0], [0]), value.dtype));
  const joined = build.concat([build.reshape(value, [numel(value.shape)]), ...nothing], 0);
  return build.reshape(joined, value.shape);
}
