// Kinds of ops, for the layers that reason about loops and cost.
import type { OpName } from "../graph/index.js";

const views = ["reshape", "permute", "expand", "slice", "flip", "barrier", "pin", "alias"] as const;
const elementwise = ["unary", "binary", "where", "cast", "random", "gather", "pad", "concat"] as const;
const reductions = ["reduce", "argreduce"] as const;
const leaves = ["const", "iota"] as const;
export const factorizations = [
  "cholesky",
  "triangularSolve",
  "solve",
  "det",
  "eigh",
  "qr",
  "svd",
  "lu",
  "eig",
] as const;

const set = (names: readonly OpName[]): ReadonlySet<OpName> => new Set(names);

/** Ops that only rearrange the elements of their operand. */
export const viewOps = set(views);
/** Ops that compute each element independently and can be fused into any loop. */
export const elementwiseOps = set(elementwise);
export const reductionOps = set(reductions);
/** Ops without operands that a loop computes instead of reading. */
export const leafOps = set(leaves);
export const factorizationOps = set(factorizations);

type LoopOp =
  | (typeof views)[number]
  | (typeof elementwise)[number]
  | (typeof reductions)[number]
  | (typeof leaves)[number];

/** Ops that a schedule has its own kind of step or operand for. */
type StructuralOp = "input" | "data" | "pick" | "matmul" | "scan" | "custom" | "collective";

/**
 * Ops that a device runs as one call of a library. Every op that is not in another kind is one, so that a new op without
 * code on some device is a type error in the table of that device.
 */
export type LibraryOp = Exclude<OpName, LoopOp | StructuralOp>;
