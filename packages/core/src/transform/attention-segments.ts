// Masks that compare segment ids: a query sees the keys whose id equals its own (sequences packed into one row, variable lengths).
// Kernels take the ids instead of the mask, and skip what belongs to other segments.
import { type DType, isOp, type Node, type Shape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { axesOfReshape, narrowed } from "./narrow.js";

/** Ids that int32 holds without loss. */
const idTypes: readonly DType[] = ["int8", "uint8", "int16", "uint16", "int32"];

/** The node that a broadcast or reshaped one holds in the same order. */
function sourceOf(node: Node): Node {
  const [x] = node.inputs;
  if (isOp(node, "expand")) return sourceOf(x);
  return isOp(node, "reshape") && axesOfReshape(x.shape, node.shape) !== null ? sourceOf(x) : node;
}

/** Whether a mask compares a tensor with itself, so that every query sees at least the key of its own position. */
export const comparesItself = (mask: Node): boolean =>
  isOp(mask, "binary") && mask.attrs.fn === "eq" && sourceOf(mask.inputs[0]) === sourceOf(mask.inputs[1]);

/**
 * The ids [..., queries + keys] of queries and keys one after the other, from a bool mask in the layout of the scores that compares
 * an id per query with an id per key; null for other masks.
 */
export function segmentIds(mask: Node, scores: Shape): Node | null {
  if (scores.length < 3 || mask.shape.length !== scores.length || !isOp(mask, "binary") || mask.attrs.fn !== "eq")
    return null;
  const batch = scores.slice(0, -3);
  const [queries, keys] = scores.slice(-2);
  const own = (x: Node, shape: Shape, length: number): Node | null => {
    const small = narrowed(x);
    const fits = small.shape.slice(-3).every((d, i) => d === 1 || d === shape[i]);
    if (!fits || !idTypes.includes(small.dtype)) return null;
    const wide = build.expandTo(small, [...batch, ...shape]);
    return build.cast(build.reshape(wide, [...batch, length]), "int32");
  };
  const sides = [mask.inputs, [...mask.inputs].reverse()].map(([a, b]) => [
    own(a, [1, queries, 1], queries),
    own(b, [1, 1, keys], keys),
  ]);
  const found = sides.find(([a, b]) => a !== null && b !== null);
  return found === undefined ? null : build.concat(found as Node[], batch.length);
}
