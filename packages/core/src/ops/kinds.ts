// Kinds of ops, shared by every layer that reasons about loops and cost.
import type { OpName } from "../graph/index.js";

const set = (...names: OpName[]): ReadonlySet<OpName> => new Set(names);

/** Ops that only say where elements come from. */
export const viewOps = set("reshape", "permute", "expand", "slice", "flip", "barrier", "pin", "alias");
/** Ops that compute each element by itself and so join any loop. */
export const elementwiseOps = set("unary", "binary", "where", "cast", "random", "gather", "pad", "concat");
export const reductionOps = set("reduce", "argreduce");
/** Ops without operands that a loop writes down instead of reading. */
export const leafOps = set("const", "iota");
export const factorizations = ["cholesky", "triangularSolve", "solve", "det", "eigh", "qr", "svd"] as const;
export const factorizationOps = set(...factorizations);
