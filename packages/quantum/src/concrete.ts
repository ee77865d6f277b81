// Reading values for checks. Tensors have values in eager mode and inside grad; inside jit and vmap they are tracers, and
// the checks are skipped.
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";

/** The values of a tensor, or null if it is a tracer. */
export function concreteValues(x: Tensor): number[] | null {
  try {
    return Array.from(x.dataSync(), Number);
  } catch (error) {
    if (error instanceof WeftError) return null;
    throw error;
  }
}
