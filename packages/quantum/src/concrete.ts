// Reading values for checks. Tensors have values in eager mode and inside grad; inside jit and vmap they are tracers, and
// the checks are skipped.
import { isComplex, WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { Operator } from "./operators/index.js";

/** The values of a tensor, or null if it is a tracer. */
export function concreteValues(x: Tensor): number[] | null {
  try {
    return Array.from(x.dataSync(), Number);
  } catch (error) {
    if (error instanceof WeftError) return null;
    throw error;
  }
}

/** A matrix as numbers, or null if it is a tracer or a batch. */
export function concreteOperator(x: Tensor): Operator | null {
  if (x.rank !== 2) return null;
  const values = concreteValues(x);
  if (values === null) return null;
  const [rows, columns] = x.shape;
  const step = isComplex(x.dtype) ? 2 : 1;
  return Operator.build(rows, columns, (i, j) => {
    const at = (i * columns + j) * step;
    return { re: values[at], im: step === 2 ? values[at + 1] : 0 };
  });
}
