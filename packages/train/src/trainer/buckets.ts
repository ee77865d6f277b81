// Sums gradients over ranks in buckets: leaves that the backward pass finishes together are sent together, and each
// bucket is sent as soon as it is full, during the rest of the backward pass.
import { bytesOf } from "@weft/core/internal/graph";
import { concat, indexAdd, type Tensor, treeLeaves, treeMap, zerosLike } from "@weft/core/internal/tensor";
import { stateDict } from "@weft/core/nn";
import type { RankGroup } from "./group.js";

/** Leaf indices in the order in which the backward pass finishes them: end of the model first, tables last. */
export function backwardOrder(names: readonly string[]): number[] {
  const depth = (name: string): number => {
    if (name.startsWith("classifier")) return 0;
    if (name.startsWith("encoder.norm")) return 1;
    const layer = /^encoder\.layers\.(\d+)\.(\w+)/.exec(name);
    // Within a layer the feed-forward part follows attention, so its gradients are ready first.
    if (layer !== null) return 1000 - 2 * Number(layer[1]) - (/^(linear|norm2)/.test(layer[2]) ? 1 : 0);
    return name.startsWith("positions") ? 2000 : 2001;
  };
  return names.map((_, i) => i).sort((a, b) => depth(names[a]) - depth(names[b]) || a - b);
}

/** Groups of leaf indices of about `limit` bytes each; a larger leaf gets its own bucket. */
export function planBuckets(leaves: readonly Tensor[], names: readonly string[], limit: number): number[][] {
  const buckets: number[][] = [];
  let open: number[] = [];
  let bytes = 0;
  for (const i of backwardOrder(names)) {
    const size = leaves[i].size * bytesOf(leaves[i].dtype);
    if (open.length > 0 && bytes + size > limit) {
      buckets.push(open);
      open = [];
      bytes = 0;
    }
    open.push(i);
    bytes += size;
  }
  if (open.length > 0) buckets.push(open);
  return buckets;
}

/** The gradients summed over all ranks; inside jit. */
export function sumGradients<P>(grads: P, group: RankGroup, limit: number): P {
  if (group.size === 1) return grads;
  const names = namesOf(grads);
  const leaves = treeLeaves(grads);
  const summed = new Array<Tensor>(leaves.length);
  for (const bucket of planBuckets(leaves, names, limit)) {
    if (bucket.length === 1) {
      summed[bucket[0]] = group.sum(leaves[bucket[0]]);
      continue;
    }
    const whole = group.sum(concat(bucket.map((i) => leaves[i].reshape([leaves[i].size]))));
    let from = 0;
    for (const i of bucket) {
      summed[i] = whole.index(`${from}:${from + leaves[i].size}`).reshape([...leaves[i].shape]);
      from += leaves[i].size;
    }
  }
  let next = 0;
  return treeMap(() => summed[next++], grads);
}

/**
 * Whether sending the touched rows of an embedding gradient is cheaper than sending the whole table: tokens of all
 * ranks against rows of the table.
 */
export const sendsTouchedRows = (tokens: number, ranks: number, vocabulary: number): boolean =>
  ranks > 1 && ranks * tokens < vocabulary;

/** The embedding gradient from every rank's tokens [count] and their gradients [count, width]; inside jit. */
export function sumRows(table: Tensor, ids: Tensor, rows: Tensor, group: RankGroup): Tensor {
  return indexAdd(zerosLike(table), group.gather(ids), group.gather(rows));
}

/** Dotted names of the leaves in the order of `treeLeaves`. */
export function namesOf(tree: unknown): string[] {
  const byLeaf = new Map<Tensor, string>();
  for (const [name, leaf] of Object.entries(stateDict(tree))) byLeaf.set(leaf, name);
  return treeLeaves(tree).map((leaf) => byLeaf.get(leaf) as string);
}
