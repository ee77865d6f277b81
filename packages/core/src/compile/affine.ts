// Indices that are computed only from positions: a gather with them is a view, whose addresses need no data.
import { integerLimits, kindOf } from "../graph/index.js";
import { Ix } from "./index-expr.js";
import type { KExpr } from "./kernel.js";

/**
 * An integer expression of positions and constants as an index; null if it depends on data, is no linear sum of them, or wraps around
 * anywhere.
 */
export function affineIndex(e: KExpr): Ix | null {
  if (kindOf(e.dtype) !== "int") return null;
  const ix = sumOf(e);
  if (ix === null) return null;
  const [least, most] = ix.range();
  const { low, high } = integerLimits(e.dtype);
  return least >= low && most <= high ? ix : null;
}

function sumOf(e: KExpr): Ix | null {
  if (e.kind === "index") return e.dynamic.length === 0 ? e.ix : null;
  if (e.kind === "const") return typeof e.value === "number" ? Ix.constant(e.value) : null;
  if (e.kind === "cast") return affineIndex(e.args[0]);
  if (e.kind === "where") {
    const chosen = known(e.args[0]);
    return chosen === null ? null : affineIndex(e.args[chosen ? 1 : 2]);
  }
  if (e.kind !== "binary" || (e.fn !== "add" && e.fn !== "sub" && e.fn !== "mul")) return null;
  const [a, b] = e.args.map(affineIndex);
  if (a === null || b === null) return null;
  if (e.fn === "add") return a.add(b);
  if (e.fn === "sub") return a.add(b.times(-1));
  if (b.isConstant) return a.times(b.constant);
  return a.isConstant ? b.times(a.constant) : null;
}

/** Whether a comparison of indices holds at every position; null if that differs or is not known. */
function known(e: KExpr): boolean | null {
  if (e.kind !== "binary" || e.fn !== "lt") return null;
  const [a, b] = e.args.map(affineIndex);
  if (a === null || b === null) return null;
  const [low, high] = a.add(b.times(-1)).range();
  if (high < 0) return true;
  return low >= 0 ? false : null;
}
