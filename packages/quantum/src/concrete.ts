// Checks on values where there are values: eagerly, and inside grad; inside jit and vmap a tensor is a placeholder, and the
// check is left to the caller's eyes on the result.
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";

/** The numbers of a tensor, or null where it has none yet. */
export function concreteValues(x: Tensor): number[] | null {
  try {
    return Array.from(x.dataSync(), Number);
  } catch (error) {
    if (error instanceof WeftError) return null;
    throw error;
  }
}
