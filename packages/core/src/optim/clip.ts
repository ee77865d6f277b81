// Limits on gradients: torch.nn.utils.clip_grad_norm_ as a pure function.
import { WeftError } from "../graph/index.js";
import { minimum, type Tensor, treeLeaves, treeMap } from "../tensor/index.js";
import { requireNumber } from "./common.js";

/** 2-norm of all tensors of a tree, taken as one vector. */
export function globalNorm(tree: unknown): Tensor {
  const squares = treeLeaves(tree).map((leaf) => leaf.abs().square().sum());
  if (squares.length === 0) throw new WeftError("globalNorm: the tree holds no tensor");
  return squares.reduce((a, b) => a.add(b)).sqrt();
}

/**
 * Scales gradients so that their global norm is at most `limit`. Returns the gradients and the norm before clipping.
 */
export function clipByGlobalNorm<P>(grads: P, limit: number): [P, Tensor] {
  requireNumber("clipByGlobalNorm", "limit", limit, 0);
  const norm = globalNorm(grads);
  const factor = minimum(norm.add(1e-6).reciprocal().mul(limit), 1);
  return [treeMap((g) => g.mul(factor.cast(g.dtype)), grads), norm];
}
