// Checks of the functions that loops and branches trace: carries must keep their structure, shapes and dtypes, and predicates must be scalars.
import { type Node, ShapeError, showShape, WeftError } from "../graph/index.js";
import { nodeOf } from "./convert.js";
import { Tensor } from "./tensor.js";
import { refusePromise } from "./trace.js";
import { flattenTree, type TreeDef } from "./tree.js";

/** The nodes of a carry after a step; structure, shapes and dtypes must be those before it. */
export function sameLeaves(who: string, carry: unknown, def: TreeDef, before: readonly Node[]): Node[] {
  refusePromise(who, carry);
  const next = flattenTree(carry);
  if (next.leaves.length === before.length && next.def.key !== def.key)
    throw new WeftError(
      `${who}: the carry changes its structure, or a value in it that is not a tensor, from step to step; ` +
        "keep the structure, and carry numbers as tensors",
    );
  if (next.leaves.length !== before.length)
    throw new WeftError(
      `${who}: the carry has ${before.length} tensors at the start and ${next.leaves.length} after a step`,
    );
  return next.leaves.map((leaf, i) => {
    if (showShape(leaf.shape) !== showShape(before[i].shape) || leaf.dtype !== before[i].dtype)
      throw new ShapeError(
        `${who}: carry ${i} is ${before[i].dtype} ${showShape(before[i].shape)} at the start and ` +
          `${leaf.dtype} ${showShape(leaf.shape)} after a step; they must agree`,
      );
    return leaf.node;
  });
}

/** The node of a predicate: one bool. */
export function predicateOf(who: string, value: unknown): Node {
  refusePromise(who, value);
  if (typeof value === "boolean") return nodeOf(who, value);
  if (value instanceof Tensor && value.dtype === "bool" && value.shape.length === 0) return value.node;
  const got = value instanceof Tensor ? `${value.dtype} ${showShape(value.shape)}` : typeof value;
  throw new ShapeError(`${who}: the predicate must be one bool, got ${got}`);
}
