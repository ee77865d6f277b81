// Marks in the graph of a step: barriers whose tags say what a value is, so that rewrites and strategies find it after the
// graph was simplified. A barrier returns its operand.
import { isOp, type Node } from "@weft/core/internal/graph";
import { make } from "@weft/core/internal/ops";
import { Tensor, treeMap } from "@weft/core/internal/tensor";

/** What is marked. Tags of checkpoints are not negative, so these never collide with them. */
const kinds = ["loss", "sums", "gradient"] as const;
export type MarkKind = (typeof kinds)[number];

export interface Mark {
  kind: MarkKind;
  /** Position of the leaf, for trees. */
  index: number;
}

const tagOf = ({ kind, index }: Mark): number => -1 - (index * kinds.length + kinds.indexOf(kind));

/** Marks a tensor. */
export const mark = (x: Tensor, kind: MarkKind, index = 0): Tensor =>
  new Tensor(make("barrier", [x.node], { tag: tagOf({ kind, index }) }));

/** Marks every tensor of a tree with its position. */
export function markTree<T>(tree: T, kind: MarkKind): T {
  let index = 0;
  return treeMap((leaf) => mark(leaf, kind, index++), tree);
}

/** The mark of a node; null if it has none. */
export function markOf(node: Node): Mark | null {
  if (!isOp(node, "barrier") || node.attrs.tag >= 0) return null;
  const code = -1 - node.attrs.tag;
  return { kind: kinds[code % kinds.length], index: Math.floor(code / kinds.length) };
}

/** The marked nodes of a function. */
export function marksIn(order: readonly Node[]): { node: Node; mark: Mark }[] {
  return order.flatMap((node) => {
    const found = markOf(node);
    return found === null ? [] : [{ node, mark: found }];
  });
}
