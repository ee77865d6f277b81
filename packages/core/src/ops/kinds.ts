// Which ops and functions are of a kind, said once for everybody who reasons about cost: the fuser, the code generators, the
// planner. Knows nothing of kernels, rates or devices.
import { type BinaryFn, binaryFns, type OpName, type UnaryFn, unaryFns } from "../graph/index.js";

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

/**
 * What a function asks of the arithmetic: a few instructions, a division or root, a polynomial that runs in vectors, or a
 * function of the mathematics library.
 */
export type FunctionCost = "simple" | "division" | "vectorised" | "library";

const notSimple: Record<Exclude<FunctionCost, "simple">, readonly (UnaryFn | BinaryFn)[]> = {
  division: ["sqrt", "rsqrt", "reciprocal", "div"],
  vectorised: ["exp", "log", "tanh", "erf", "erfc"],
  library: [
    "expm1",
    "log1p",
    "sin",
    "cos",
    "tan",
    "asin",
    "acos",
    "atan",
    "sinh",
    "cosh",
    "pow",
    "atan2",
    "mod",
    "floordiv",
  ],
};
const efforts = new Map<string, FunctionCost>(
  Object.entries(notSimple).flatMap(([effort, fns]) => fns.map((fn) => [fn, effort as FunctionCost] as const)),
);

export const functionCost = (fn: UnaryFn | BinaryFn): FunctionCost => efforts.get(fn) ?? "simple";

/** Functions that are no arithmetic of the processor: a power series or worse, in vectors or not. */
export const isTranscendental = (fn: UnaryFn | BinaryFn): boolean =>
  functionCost(fn) === "vectorised" || (functionCost(fn) === "library" && fn !== "mod" && fn !== "floordiv");

export const transcendentalFns: readonly (UnaryFn | BinaryFn)[] = [...unaryFns, ...binaryFns].filter(isTranscendental);
