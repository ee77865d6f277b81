// Linear algebra on the last two axes, batched over the others, real and complex, with gradients.
import {
  type DType,
  isComplex,
  isHalf,
  type Node,
  ShapeError,
  showShape,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { broadcastAll, commonDType, nodeAs, nodeOf, type TensorLike, wrap } from "./convert.js";
import { matmul } from "./einsum.js";
import { abs, equal, mul, real, sqrt, where } from "./math.js";
import { type Axes, max, sum } from "./reduce.js";
import type { Tensor } from "./tensor.js";

function matrix(op: string, a: TensorLike, square = false): Node {
  const node = nodeOf(op, a);
  const [m, n] = node.shape.slice(-2);
  if (node.shape.length < 2 || (square && m !== n))
    throw new ShapeError(
      `${op}: needs ${square ? "square matrices" : "matrices"} in the last two axes, got ${showShape(node.shape)}`,
    );
  return build.cast(node, factorDType(node.dtype));
}

/** The factorizations run in single and double precision. */
const factorDType = (dtype: DType): DType => (isHalf(dtype) ? "float32" : toInexact(dtype));

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
 * Lower Cholesky factor l of a Hermitian positive definite matrix, a = l l^H. NaN if the matrix is not positive definite.
 */
export const cholesky = (a: TensorLike): Tensor => wrap(build.make("cholesky", [matrix("cholesky", a, true)], {}));

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
  return {
    a: build.expandTo(x, [...batch, n, n]),
    b: build.expandTo(y, [...batch, ...y.shape.slice(-2)]),
    vector,
  };
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

/** Options of {@link triangularSolve}. */
export interface TriangularOptions {
  /** Whether the lower triangle of a is used, or the upper one. */
  lower?: boolean;
  /** Solve with the conjugate transpose of a. */
  adjoint?: boolean;
  /** The diagonal is taken as ones. */
  unit?: boolean;
}

/** Solves a x = b with a triangular matrix a, lower by default. */
export function triangularSolve(a: TensorLike, b: TensorLike, options: TriangularOptions = {}): Tensor {
  const s = system("triangularSolve", a, b);
  const { lower = true, adjoint = false, unit = false } = options;
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

/** Thin QR decomposition: q has orthonormal columns, and the diagonal of r is real and non-negative. */
export function qr(a: TensorLike): { q: Tensor; r: Tensor } {
  const [q, r] = build.picks(build.make("qr", [matrix("qr", a)], {}));
  return { q: wrap(q), r: wrap(r) };
}

/**
 * Thin singular value decomposition a = u diag(s) vh, with s in descending order.
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
export function svd(a: TensorLike): { u: Tensor; s: Tensor; vh: Tensor } {
  const [u, s, vh] = build.picks(build.make("svd", [matrix("svd", a)], {}));
  return { u: wrap(u), s: wrap(s), vh: wrap(vh) };
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

/** 2-norm (the default; Frobenius norm of a matrix), 1-norm or maximum magnitude over the axes. */
export function norm(x: TensorLike, axes?: Axes, options: { order?: 1 | 2 | "max"; keepDims?: boolean } = {}): Tensor {
  const { order = 2, keepDims } = options;
  const node = nodeOf("norm", x);
  const t = wrap(build.cast(node, toInexact(node.dtype)));
  if (order === 1) return sum(abs(t), axes, { keepDims });
  if (order === "max") return max(abs(t), axes, { keepDims });
  if (order !== 2) throw new WeftError(`norm: order ${String(order)} is not known; use 1, 2 or "max"`);
  const squares = isComplex(t.dtype) ? real(mul(t, wrap(build.conj(t.node)))) : mul(t, t);
  const total = sum(squares, axes, { keepDims });
  // The slope of sqrt at 0 is infinite; that of a norm is taken as 0 there, as PyTorch does.
  const isZero = equal(total, 0);
  return where(isZero, 0, sqrt(where(isZero, 1, total)));
}

/** Sum of the main diagonal of the last two axes. */
export function trace(a: TensorLike): Tensor {
  return sum(diagonal(a), -1);
}

/** Main diagonal of the last two axes. */
export function diagonal(a: TensorLike): Tensor {
  const node = atLeastMatrix("diagonal", a);
  const rank = node.shape.length;
  const n = Math.min(...node.shape.slice(-2));
  const square = build.slice(
    node,
    node.shape.map(() => 0),
    [...node.shape.slice(0, -2), n, n],
  );
  const same = build.eq(build.iota(square.shape, rank - 2, "int32"), build.iota(square.shape, rank - 1, "int32"));
  return wrap(build.sum(build.where(same, square, build.zerosLike(square)), [rank - 1]));
}

/** Diagonal matrix with the vector of the last axis on its diagonal. */
export function diag(v: TensorLike): Tensor {
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

// Pade coefficients of degree 13 and the norm up to which it is exact to double precision (Higham 2005).
const pade13 = [
  64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
  670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
];
const theta13 = 5.371920351148152;

/** Options of {@link expm}. */
export interface ExpmOptions {
  /** Halvings before the Pade step. The default, 8, is exact for 1-norms up to 1375; fewer are faster for small matrices. */
  squarings?: number;
}

/**
 * Matrix exponential by scaling and squaring with a Pade approximant of degree 13. The number of squarings is fixed when the
 * graph is built, because it cannot depend on values: choose it by the largest 1-norm, see {@link expmSquarings}.
 */
export function expm(a: TensorLike, { squarings = 8 }: ExpmOptions = {}): Tensor {
  const node = matrix("expm", a, true);
  if (!Number.isInteger(squarings) || squarings < 0 || squarings > 64)
    throw new WeftError(`expm: squarings must be a whole number from 0 to 64, got ${squarings}`);
  const n = node.shape[node.shape.length - 1];
  const identity = build.identityLike(n, node.dtype, node.shape.slice(0, -2));
  const x = build.scale(node, 2 ** -squarings);
  const product = build.matmul;
  const combine = (terms: readonly (readonly [Node, number])[]): Node =>
    terms.map(([t, c]) => build.scale(t, c / pade13[0])).reduce(build.add);
  const x2 = product(x, x);
  const x4 = product(x2, x2);
  const x6 = product(x4, x2);
  const b = pade13;
  const odd = build.add(
    product(
      x6,
      combine([
        [x6, b[13]],
        [x4, b[11]],
        [x2, b[9]],
      ]),
    ),
    combine([
      [x6, b[7]],
      [x4, b[5]],
      [x2, b[3]],
      [identity, b[1]],
    ]),
  );
  const u = product(x, odd);
  const v = build.add(
    product(
      x6,
      combine([
        [x6, b[12]],
        [x4, b[10]],
        [x2, b[8]],
      ]),
    ),
    combine([
      [x6, b[6]],
      [x4, b[4]],
      [x2, b[2]],
      [identity, b[0]],
    ]),
  );
  let result: Node = build.make("solve", [build.sub(v, u), build.add(v, u)], {});
  for (let i = 0; i < squarings; i++) result = product(result, result);
  return wrap(result);
}

/** Number of squarings that {@link expm} needs for matrices up to this 1-norm. */
export const expmSquarings = (norm1: number): number =>
  Math.max(0, Math.ceil(Math.log2(Math.max(norm1, 1e-300) / theta13)));

/** Integer power of a square matrix, by repeated squaring. */
export function matrixPower(a: Tensor, exponent: number): Tensor {
  if (!Number.isInteger(exponent))
    throw new WeftError(`matrixPower: the exponent must be a whole number, got ${exponent}`);
  const node = matrix("matrixPower", a, true);
  const n = node.shape[node.shape.length - 1];
  let base = exponent < 0 ? inv(a) : wrap(node);
  let result = wrap(build.identityLike(n, node.dtype, node.shape.slice(0, -2)));
  for (let e = Math.abs(exponent); e > 0; e = Math.floor(e / 2)) {
    if (e % 2 === 1) result = matmul(result, base);
    if (e > 1) base = matmul(base, base);
  }
  return result;
}
