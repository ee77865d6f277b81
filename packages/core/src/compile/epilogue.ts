// Recognizes the kernel that finishes a matrix product: a bias, an activation or both, as vendor libraries apply them inside
// the product. Everything else stays a kernel.
import type { Node } from "../graph/index.js";
import type { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel } from "./kernel.js";

export interface LibraryEpilogue {
  /** A constant factor of the product, applied first. */
  scale: number;
  /** One number per column, added to every row. */
  bias: Node | null;
  activation: "none" | "relu" | "gelu";
}

type Of<K extends KExpr["kind"]> = Extract<KExpr, { kind: K }>;

const isConst = (e: KExpr, value: number): boolean => e.kind === "const" && Number(e.value) === value;
const isBinary = (e: KExpr, fn: Of<"binary">["fn"]): e is Of<"binary"> => e.kind === "binary" && e.fn === fn;

/** The argument of where(x <= 0, 0, x). */
function reluOf(e: KExpr): KExpr | null {
  if (e.kind !== "where") return null;
  const [condition, zero, x] = e.args;
  const isRelu =
    isBinary(condition, "le") && condition.args[0] === x && isConst(condition.args[1], 0) && isConst(zero, 0);
  return isRelu ? x : null;
}

/** The factors of a product as a list: a constant, and the rest. */
function factors(e: KExpr): { constant: number; rest: KExpr[] } {
  if (e.kind === "const") return { constant: Number(e.value), rest: [] };
  if (!isBinary(e, "mul")) return { constant: 1, rest: [e] };
  const [a, b] = e.args.map(factors);
  return { constant: a.constant * b.constant, rest: [...a.rest, ...b.rest] };
}

const near = (a: number, b: number): boolean => Math.abs(a - b) <= 1e-6 * Math.abs(b);

/** The argument of the tanh form of gelu: 0.5 x (1 + tanh(sqrt(2/pi) (x + 0.044715 x^3))). */
function geluOf(e: KExpr): KExpr | null {
  const whole = factors(e);
  if (!near(whole.constant, 0.5) || whole.rest.length !== 2) return null;
  for (const [x, gate] of [whole.rest, [...whole.rest].reverse()]) {
    if (!isBinary(gate, "add") || !isConst(gate.args[1], 1)) continue;
    const [tanh] = gate.args;
    if (tanh.kind !== "unary" || tanh.fn !== "tanh") continue;
    const inner = factors(tanh.args[0]);
    const [sum] = inner.rest;
    if (!near(inner.constant, Math.sqrt(2 / Math.PI)) || inner.rest.length !== 1 || !isBinary(sum, "add")) continue;
    const cube = factors(sum.args[1]);
    const isCube = near(cube.constant, 0.044715) && cube.rest.length === 3 && cube.rest.every((f) => f === x);
    if (sum.args[0] === x && isCube) return x;
  }
  return null;
}

/** Whether an address in a row of `columns` numbers is the column of the element at `whole`. */
function isColumn(address: Ix, whole: Ix, columns: number): boolean {
  if (address.constant !== 0 || whole.constant !== 0) return false;
  const inRow = [...whole.terms].filter(([, { factor }]) => factor % columns !== 0);
  if (inRow.some(([, { atom, factor }]) => atom.kind !== "var" || atom.size * factor > columns)) return false;
  if (address.terms.size !== inRow.length) return false;
  return inRow.every(([name, { factor }]) => address.terms.get(name)?.factor === factor);
}

/** The epilogue that a kernel computes, if a library can apply it inside the product. */
export function libraryEpilogue(kernel: LoopKernel, product: Node): LibraryEpilogue | null {
  const [store] = kernel.stores;
  const columns = product.shape[product.shape.length - 1];
  const isProduct = (e: KExpr): boolean =>
    e.kind === "load" && e.guard === null && kernel.buffers[e.buffer] === product && e.address.equals(store.address);
  /** The factor of a scaled product; null for everything else. */
  const scaleOf = (e: KExpr): number | null => {
    if (isProduct(e)) return 1;
    const { constant, rest } = factors(e);
    return rest.length === 1 && isProduct(rest[0]) && Number.isFinite(constant) ? constant : null;
  };
  const relu = reluOf(store.value);
  const gelu = relu === null ? geluOf(store.value) : null;
  const activation = relu !== null ? "relu" : gelu !== null ? "gelu" : "none";
  const inside = relu ?? gelu ?? store.value;
  const scale = scaleOf(inside);
  if (scale !== null) return activation === "none" && scale === 1 ? null : { scale, bias: null, activation };
  if (!isBinary(inside, "add")) return null;
  for (const [x, b] of [inside.args, [...inside.args].reverse()]) {
    const factor = scaleOf(x);
    if (factor === null || b.kind !== "load" || b.guard !== null || b.dynamic.length > 0) continue;
    if (b.dtype !== product.dtype || kernel.buffers[b.buffer].dtype !== product.dtype) continue;
    if (isColumn(b.address, store.address, columns))
      return { scale: factor, bias: kernel.buffers[b.buffer], activation };
  }
  return null;
}
