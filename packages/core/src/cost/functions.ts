// Arithmetic cost of scalar functions: the one table of which functions are expensive, for the fuser, the code generators and
// the planner.
import { type BinaryFn, binaryFns, isOp, type Node, type UnaryFn, unaryFns } from "../graph/index.js";

/** Implementation of a function: a few instructions, a division or root, a vectorized polynomial, or a math library call. */
type FunctionCost = "simple" | "division" | "vectorized" | "library";

const notSimple: Record<Exclude<FunctionCost, "simple">, readonly (UnaryFn | BinaryFn)[]> = {
  division: ["sqrt", "rsqrt", "reciprocal", "div"],
  vectorized: ["exp", "log", "tanh", "erf", "erfc"],
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
    "asinh",
    "acosh",
    "atanh",
    "hypot",
    "nextafter",
    "pow",
    "atan2",
    "mod",
    "floordiv",
  ],
};
const costs = new Map<string, FunctionCost>(
  Object.entries(notSimple).flatMap(([cost, fns]) => fns.map((fn) => [fn, cost as FunctionCost] as const)),
);

export const functionCost = (fn: UnaryFn | BinaryFn): FunctionCost => costs.get(fn) ?? "simple";

/** Functions that a processor computes by a series or a library, not by an instruction. */
export const isTranscendental = (fn: UnaryFn | BinaryFn): boolean =>
  functionCost(fn) === "vectorized" || (functionCost(fn) === "library" && fn !== "mod" && fn !== "floordiv");

export const transcendentalFns: readonly (UnaryFn | BinaryFn)[] = [...unaryFns, ...binaryFns].filter(isTranscendental);

/** Functions whose value is cheaper to store and reload within a kernel than to compute twice. */
export const isExpensive = (fn: UnaryFn | BinaryFn): boolean => isTranscendental(fn) || fn === "sqrt" || fn === "rsqrt";

/** Arithmetic cost of an op inside a loop, in simple operations per element. */
export function loopCost(node: Node): number {
  if (isOp(node, "unary"))
    return isTranscendental(node.attrs.fn) ? 12 : functionCost(node.attrs.fn) === "division" ? 4 : 1;
  if (isOp(node, "binary")) return isTranscendental(node.attrs.fn) ? 30 : node.attrs.fn === "div" ? 4 : 1;
  if (node.op === "random") return 60;
  if (node.op === "gather" || node.op === "pad" || node.op === "concat") return 4;
  return 1;
}
