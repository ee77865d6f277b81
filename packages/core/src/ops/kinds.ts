// Kinds of ops, for the layers that reason about loops and cost.
import type { OpName } from "../graph/index.js";

const set = (...names: OpName[]): ReadonlySet<OpName> => new Set(names);

/** Ops that only move elements. */
export const viewOps = set("reshape", "permute", "expand", "slice", "flip", "barrier", "pin", "alias");
/** Elementwise ops, which can be fused into any loop. */
export const elementwiseOps = set("unary", "binary", "where", "cast", "random", "gather", "pad", "concat");
export const reductionOps = set("reduce", "argreduce");
/** Ops without operands, which a loop computes instead of loading. */
export const leafOps = set("const", "iota");
export const factorizations = ["cholesky", "triangularSolve", "solve", "det", "eigh", "qr", "svd"] as const;
export const factorizationOps = set(...factorizations);
