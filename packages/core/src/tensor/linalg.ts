// Linear algebra on the last two axes, batched over the others, real and complex, with gradients.
import {
  checkOptions,
  type DType,
  isComplex,
  isHalf,
  type Node,
  ShapeError,
  showShape,
  showValue,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { broadcastAll, commonDType, inFloat32, nodeAs, nodeOf, resolveAxes, type TensorLike, wrap } from "./convert.js";
import { abs, equal, mul, real, sqrt, where } from "./math.js";
import { type Axes, max, sum } from "./reduce.js";
import type { Tensor } from "./tensor.js";

/** The node of a matrix operand in a dtype of the factorizations. */
export function matrix(op: string, a: TensorLike, square = false): Node {
  const node = nodeOf(op, a);
  const [m, n] = node.shape.slice(-2);
  if (node.shape.length < 2 || (square && m !== n))
    throw new ShapeError(
      `${op}: needs ${square ? "square matrices" : "matrices"} in the last two axes, got ${showShape(node.shape)}`,
    );
  return build.cast(node, factorDType(node.dtype));
}

/** The factorizations run in single and double precision. */
export const factorDType = (dtype: DType): DType => (isHalf(dtype) ? "float32" : toInexact(dtype));

/**
 * Eigenvalues (ascending) and eigenvectors (columns) of Hermitian matrices. Only the lower triangle is read.
 *
 * @example
 * ```ts
 * import { eigh, tensor } from "@weft/core";
 *
 * const { values, vectors } = eigh(tensor([[2, 0], [0, 1]]));
 * console.log(await values.array()); // [1, 2]
 * console.log(vectors.shape); // [2, 2]
 * ```
 */
export function eigh(a: TensorLike): { values: Tensor; vectors: Tensor } {
  const [values, vectors] = build.picks(build.make("eigh", [matrix("eigh", a, true)], {}));
  return { values: wrap(values), vectors: wrap(vectors) };
}

/**
 * Lower Cholesky factor l of a Hermitian positive definite matrix, a = l l^H, of which the lower triangle is read; with `upper` the
 * factor u of a = u^H u, from the upper triangle. NaN if the matrix is not positive definite.
 */
export function cholesky(a: TensorLike, options: { upper?: boolean } = {}): Tensor {
  const { upper = false } = checkOptions("cholesky", options, ["upper"]);
  const node = matrix("cholesky", a, true);
  const lower = build.make("cholesky", [upper ? build.adjoint(node) : node], {});
  return wrap(upper ? build.adjoint(lower) : lower);
}

/** Brings a and b to one dtype and one batch; b may be a vector. */
function system(op: string, a: TensorLike, b: TensorLike): { a: Node; b: Node; vector: boolean } {
  const dtype = factorDType(commonDType(op, [a, b]));
  const x = build.cast(matrix(op, a, true), dtype);
  const right = nodeAs(op, b, dtype);
  const n = x.shape[x.shape.length - 1];
  const vector = right.shape.length === 1;
  const y = vector ? build.reshape(right, [...right.shape, 1]) : right;
  if (y.shape.length < 2 || y.shape[y.shape.length - 2] !== n)
    throw new ShapeError(
      `${op}: ${showShape(x.shape)} and right-hand side ${showShape(right.shape)} do not fit; it needs ${n} rows`,
    );
  const batch = broadcastAll(op, [x.shape.slice(0, -2), y.shape.slice(0, -2)]);
  return { a: build.expandTo(x, [...batch, n, n]), b: build.expandTo(y, [...batch, ...y.shape.slice(-2)]), vector };
}

const unvector = (x: Node, vector: boolean): Tensor => wrap(vector ? build.reshape(x, x.shape.slice(0, -1)) : x);

/**
 * Solves a x = b. b is a vector or has right-hand sides in its columns. NaN if a is singular.
 *
 * @example
 * ```ts
 * import { solve, tensor } from "@weft/core";
 *
 * const a = tensor([[2, 0], [0, 4]]);
 * console.log(await solve(a, tensor([2, 4])).array()); // [1, 1]
 * ```
 */
export function solve(a: TensorLike, b: TensorLike): Tensor {
  const s = system("solve", a, b);
  return unvector(build.make("solve", [s.a, s.b], {}), s.vector);
}

/** Options of {@link triangularSolve}. @inline */
interface TriangularOptions {
  /** Whether the lower triangle of a is used, or the upper one. */
  lower?: boolean;
  /** Solve with the conjugate transpose of a. */
  adjoint?: boolean;
  /** The diagonal is taken as ones. */
  unit?: boolean;
}

/** Solves a x = b with a triangular matrix a, lower by default. */
export function triangularSolve(a: TensorLike, b: TensorLike, options: TriangularOptions = {}): Tensor {
  const known = ["lower", "adjoint", "unit"] as const;
  const { lower = true, adjoint = false, unit = false } = checkOptions("triangularSolve", options, known);
  const s = system("triangularSolve", a, b);
  return unvector(build.make("triangularSolve", [s.a, s.b], { lower, adjoint, unit }), s.vector);
}

/** Matrix inverse. NaN if the matrix is singular. */
export function inv(a: TensorLike): Tensor {
  const node = matrix("inv", a, true);
  const n = node.shape[node.shape.length - 1];
  return wrap(build.make("solve", [node, build.identityLike(n, node.dtype, node.shape.slice(0, -2))], {}));
}

/** Determinant. */
export const det = (a: TensorLike): Tensor => wrap(build.make("det", [matrix("det", a, true)], {}));

/** Thin QR decomposition; the columns that complete q follow from those of the identity. */
function qrNodes(a: Node, complete: boolean): { q: Node; r: Node } {
  const [m, n] = a.shape.slice(-2);
  if (!complete || m <= n) {
    const [q, r] = build.picks(build.make("qr", [a], {}));
    return { q, r };
  }
  const rank = a.shape.length;
  const wide = build.concat([a, build.identityLike(m, a.dtype, a.shape.slice(0, -2))], rank - 1);
  const [q, r] = build.picks(build.make("qr", [wide], {}));
  return { q, r: build.triangle(build.sliceAxis(r, rank - 1, 0, n), false, false) };
}

/**
 * QR decomposition: q has orthonormal columns, and the diagonal of r is real and non-negative. The mode "reduced" gives
 * q [..., m, min(m, n)], "complete" a square q.
 */
export function qr(a: TensorLike, options: { mode?: "reduced" | "complete" } = {}): { q: Tensor; r: Tensor } {
  const { mode = "reduced" } = checkOptions("qr", options, ["mode"]);
  if (mode !== "reduced" && mode !== "complete")
    throw new WeftError(`qr: mode must be "reduced" or "complete", got ${showValue(mode)}`);
  const { q, r } = qrNodes(matrix("qr", a), mode === "complete");
  return { q: wrap(q), r: wrap(r) };
}

/**
 * Singular value decomposition a = u diag(s) vh, with s in descending order. Thin: u [..., m, k], vh [..., k, n] with k = min(m, n),
 * unless `fullMatrices` asks for square ones.
 *
 * @example
 * ```ts
 * import { svd, tensor } from "@weft/core";
 *
 * const { u, s, vh } = svd(tensor([[3, 0], [0, 4], [0, 0]]));
 * console.log(await s.array()); // [4, 3]
 * console.log(u.shape, vh.shape); // [3, 2] [2, 2]
 * ```
 */
export function svd(a: TensorLike, options: { fullMatrices?: boolean } = {}): { u: Tensor; s: Tensor; vh: Tensor } {
  const { fullMatrices = false } = checkOptions("svd", options, ["fullMatrices"]);
  const [u, s, vh] = build.picks(build.make("svd", [matrix("svd", a)], {}));
  if (!fullMatrices) return { u: wrap(u), s: wrap(s), vh: wrap(vh) };
  const right = build.adjoint(qrNodes(build.adjoint(vh), true).q);
  return { u: wrap(qrNodes(u, true).q), s: wrap(s), vh: wrap(right) };
}

/** The node of an operand that must have two axes at least. */
function atLeastMatrix(op: string, a: TensorLike): Node {
  const node = nodeOf(op, a);
  if (node.shape.length < 2)
    throw new ShapeError(`${op}: needs matrices in the last two axes, got ${showShape(node.shape)}`);
  return node;
}

/** Conjugate transpose of the last two axes. */
export const adjoint = (a: TensorLike): Tensor => wrap(build.adjoint(atLeastMatrix("adjoint", a)));

/**
 * 2-norm (the default; Frobenius norm of a matrix), 1-norm or maximum magnitude over the axes. Squares are not scaled, as in NumPy and
 * PyTorch: the 2-norm is infinite where their sum is out of range.
 */
export function norm(x: TensorLike, axes?: Axes, options: { order?: 1 | 2 | "max"; keepDims?: boolean } = {}): Tensor {
  const { order = 2, keepDims } = checkOptions("norm", options, ["order", "keepDims"]);
  const node = nodeOf("norm", x);
  resolveAxes("norm", axes, node.shape.length);
  const given = wrap(build.cast(node, toInexact(node.dtype)));
  if (order === 1) return sum(abs(given), axes, { keepDims });
  if (order === "max") return max(abs(given), axes, { keepDims });
  if (order !== 2) throw new WeftError(`norm: order ${String(order)} is not known; use 1, 2 or "max"`);
  return inFloat32("norm", given, (t) => {
    const squares = isComplex(t.dtype) ? real(mul(t, wrap(build.conj(t.node)))) : mul(t, t);
    const total = sum(squares, axes, { keepDims });
    // The slope of sqrt at 0 is infinite; that of a norm is taken as 0 there, as PyTorch does.
    const isZero = equal(total, 0);
    return where(isZero, 0, sqrt(where(isZero, 1, total)));
  });
}

/** Sum of a diagonal of the last two axes: the main one, or that `offset` columns to its right. */
export function trace(a: TensorLike, options: { offset?: number } = {}): Tensor {
  const { offset = 0 } = checkOptions("trace", options, ["offset"]);
  return sum(diagonal(a, { offset }), -1);
}

/** A diagonal of the last two axes: the main one, or that `offset` columns to its right (to its left if it is negative). */
export function diagonal(a: TensorLike, options: { offset?: number } = {}): Tensor {
  const { offset = 0 } = checkOptions("diagonal", options, ["offset"]);
  const node = atLeastMatrix("diagonal", a);
  if (!Number.isInteger(offset)) throw new WeftError(`diagonal: the offset must be a whole number, got ${offset}`);
  const rank = node.shape.length;
  const [rows, columns] = node.shape.slice(-2);
  const [down, right] = [Math.min(rows, Math.max(0, -offset)), Math.min(columns, Math.max(0, offset))];
  const n = Math.max(0, Math.min(rows - down, columns - right));
  const square = build.slice(
    node,
    [...node.shape.slice(0, -2).map(() => 0), down, right],
    [...node.shape.slice(0, -2), down + n, right + n],
  );
  const same = build.eq(build.iota(square.shape, rank - 2, "int32"), build.iota(square.shape, rank - 1, "int32"));
  return wrap(build.sum(build.where(same, square, build.zerosLike(square)), [rank - 1]));
}

/** Matrix with the vector of the last axis on its diagonal, or `offset` columns to its right (to its left if it is negative). */
export function diag(v: TensorLike, options: { offset?: number } = {}): Tensor {
  const { offset = 0 } = checkOptions("diag", options, ["offset"]);
  if (!Number.isInteger(offset)) throw new WeftError(`diag: the offset must be a whole number, got ${offset}`);
  if (offset !== 0) {
    const inner = diag(v).node;
    const [low, high] = [Math.max(0, offset), Math.max(0, -offset)];
    const lead = inner.shape.slice(0, -2).map(() => 0);
    return wrap(build.pad(inner, [...lead, high, low], [...lead, low, high]));
  }
  const node = nodeOf("diag", v);
  if (node.shape.length === 0) throw new ShapeError("diag: needs a vector in the last axis, got a scalar");
  const n = node.shape[node.shape.length - 1];
  const shape = [...node.shape, n];
  const rows = build.expand(build.reshape(node, [...node.shape.slice(0, -1), 1, n]), shape);
  const rank = shape.length;
  const same = build.eq(build.iota(shape, rank - 2, "int32"), build.iota(shape, rank - 1, "int32"));
  return wrap(build.where(same, rows, build.zerosLike(rows)));
}

/** Lower triangle; the elements above the diagonal are zero. */
export const tril = (a: TensorLike, k = 0): Tensor => triangle("tril", a, k, true);
/** Upper triangle; the elements below the diagonal are zero. */
export const triu = (a: TensorLike, k = 0): Tensor => triangle("triu", a, k, false);

function triangle(op: string, a: TensorLike, k: number, lower: boolean): Tensor {
  const x = atLeastMatrix(op, a);
  if (!Number.isInteger(k)) throw new ShapeError(`${op}: k is the number of a diagonal, a whole number, got ${k}`);
  if (k === 0) return wrap(build.triangle(x, lower, false));
  const rows = build.iota(x.shape, x.shape.length - 2, "int32");
  const columns = build.iota(x.shape, x.shape.length - 1, "int32");
  const shifted = build.shift(rows, k);
  const inside = lower ? build.le(columns, shifted) : build.le(shifted, columns);
  return wrap(build.where(inside, x, build.zerosLike(x)));
}
