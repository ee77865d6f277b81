// Gathers from padded or concatenated tensors, such as a table with a row of zeros behind it: they read the tensor inside, and the index tells
// where the value around it is meant.
import { isOp, type Node, type Scalar } from "../graph/index.js";
import { build } from "../ops/index.js";
import { uniformValue } from "../transform/index.js";

/** A tensor between elements of one value along an axis, and where it starts. */
interface Surrounded {
  x: Node;
  start: number;
  fill: Scalar;
}

/** What a padded or concatenated tensor has along an axis beside equal elements; null for others. */
function surroundedAlong(node: Node, axis: number): Surrounded | null {
  if (isOp(node, "pad")) {
    const { low, high } = node.attrs;
    const isAlong = low.every((l, i) => i === axis || (l === 0 && high[i] === 0));
    return isAlong ? { x: node.inputs[0], start: low[axis], fill: 0 } : null;
  }
  if (!isOp(node, "concat") || node.attrs.axis !== axis) return null;
  const fills = node.inputs.map(uniformValue);
  const at = fills.indexOf(null);
  const [fill, ...others] = fills.filter((value) => value !== null);
  if (at < 0 || fill === undefined || others.length !== node.inputs.length - 2) return null;
  if (others.some((other) => !Object.is(other, fill))) return null;
  return { x: node.inputs[at], start: node.inputs.slice(0, at).reduce((n, part) => n + part.shape[axis], 0), fill };
}

/** Elements of a tensor with rows of one value around it, which is not copied for them. */
export function prepareSurrounded(node: Node<"gather">): Node | null {
  const [source, indices] = node.inputs;
  const { axis, batch } = node.attrs;
  const found = surroundedAlong(source, axis);
  if (found === null || typeof found.fill !== "number" || found.x.shape[axis] === 0) return null;
  const { x, start, fill } = found;
  const count = x.shape[axis];
  const from = start === 0 ? indices : build.sub(indices, build.fullLike(indices, start));
  // Places before the first and after the last element of the source count as these. Differences of the smallest places overflow.
  const isBelow = build.lt(indices, build.fullLike(indices, start + count));
  const isAbove = build.lt(build.fullLike(indices, start - 1), indices);
  const isEnd = start + count === source.shape[axis];
  const tests = [...(isEnd ? [] : [isBelow]), ...(start === 0 ? [] : [isAbove])];
  if (tests.length === 0) return null;
  const inside = tests.reduce((a, b) => build.binary("and", a, b));
  const shape = [
    ...indices.shape.slice(0, batch),
    ...source.shape.slice(batch, axis).map(() => 1),
    ...indices.shape.slice(batch),
    ...source.shape.slice(axis + 1).map(() => 1),
  ];
  const mask = build.expand(build.reshape(inside, shape), node.shape);
  return build.where(mask, build.gather(x, from, axis, batch), build.fullLike(node, fill));
}
