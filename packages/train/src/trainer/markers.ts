// Marks of a step's values as tensors; see shard/marks.ts of core.
import { type MarkKind, markNode } from "@weft/core/internal/shard";
import { Tensor, treeMap } from "@weft/core/internal/tensor";

/** Marks a tensor. */
export const mark = (x: Tensor, kind: MarkKind, index = 0): Tensor => new Tensor(markNode(x.node, kind, index));

/** Marks every tensor of a tree with its position. */
export function markTree<T>(tree: T, kind: MarkKind): T {
  let index = 0;
  return treeMap((leaf) => mark(leaf, kind, index++), tree);
}
