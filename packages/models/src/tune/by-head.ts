// Fused projections to queries, keys and values, stored by head. In the layout of the files, all queries come before all keys, so that
// contiguous parts of the dimension are not heads, and devices could not divide attention by heads.
import type { Tensor } from "@weft/core";
import { mapNamed } from "@weft/core/nn";
import type { CommonConfig, FusedProjection, Params } from "../architectures/index.js";
import type { Model } from "../model/index.js";

const parts = 3;

/** Weight [inputs, 3 * width] as [inputs, heads, 3, size]; a bias keeps its one dimension, so that it still counts as a vector. */
function toHeads(leaf: Tensor, { heads, size }: FusedProjection): Tensor {
  const lead = leaf.shape.slice(0, -1);
  const byHead = leaf.reshape([...lead, parts, heads, size]).transpose(-3, -2);
  return lead.length === 0 ? byHead.reshape([parts * heads * size]) : byHead;
}

/** The inverse of {@link toHeads}. */
function fromHeads(leaf: Tensor, { heads, size }: FusedProjection): Tensor {
  const isBias = leaf.shape.length === 1;
  const byHead = isBias ? leaf.reshape([heads, parts, size]) : leaf;
  const lead = isBias ? [] : leaf.shape.slice(0, -3);
  return byHead.transpose(-3, -2).reshape([...lead, parts * heads * size]);
}

type Described = Pick<Model, "architecture" | "config">;
const fusedOf = ({ architecture, config }: Described, name: string): FusedProjection | null =>
  architecture.fused?.(name, config as CommonConfig) ?? null;

/** Parameters with fused projections by head; others are the same. */
export const storedByHead = (model: Described, params: Params): Params =>
  mapNamed(params, (name, leaf) => {
    const fused = fusedOf(model, name);
    return fused === null ? leaf : toHeads(leaf, fused);
  });

/** Parameters in the layout of the files again. */
export const storedAsInFiles = (model: Described, params: Params): Params =>
  mapNamed(params, (name, leaf) => {
    const fused = fusedOf(model, name);
    return fused === null ? leaf : fromHeads(leaf, fused);
  });
