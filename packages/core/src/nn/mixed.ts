// Mixed precision: parameters are kept in float32 (the master weights) and used in a half type. The cast is part of the
// differentiated function, so gradients come back in float32, and an optimizer's small updates are not rounded away.
import { checkOptions, type DType, DTypeError, isHalf } from "../graph/index.js";
import type { Tensor } from "../tensor/index.js";
import { mapNamed } from "./state.js";

/** Options of {@link castParameters}. @inline */
interface CastOptions {
  /**
   * Parameters that are not cast, by dotted name. By default norms (computed in float32) and embeddings (rows are cast after
   * the lookup, instead of the whole table in every step).
   */
  keep?: (name: string, parameter: Tensor) => boolean;
}

const keptByDefault = (name: string): boolean => /norm|embedding/i.test(name);

/** Casts the float32 parameters of a tree to a half type for a mixed-precision forward pass, once per step. */
export function castParameters<P>(params: P, dtype: DType, options: CastOptions = {}): P {
  const { keep = keptByDefault } = checkOptions("castParameters", options, ["keep"]);
  if (!isHalf(dtype) && dtype !== "float32")
    throw new DTypeError(`castParameters: dtype is bfloat16, float16 or float32, got ${dtype}`);
  return mapNamed(params, (name, leaf) => (leaf.dtype === "float32" && !keep(name, leaf) ? leaf.cast(dtype) : leaf));
}
