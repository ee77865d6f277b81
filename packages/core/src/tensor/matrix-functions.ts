// Functions of matrices that are composed of factorizations: least squares, norms, ranks, determinants as logarithms, exponentials,
// general eigenvalues.
import { checkOptions, kindOf, type Node, ShapeError, showShape, showValue, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, commonDType, inexactNode, inFloat32, nodeOf, type TensorLike, wrap } from "./convert.js";
import { customVjp } from "./custom.js";
import { matmul } from "./einsum.js";
import { adjoint, diagonal, eigh, factorDType, inv, matrix, norm, solve, svd } from "./linalg.js";
import { abs, equal, greater, log, mul, pow, where } from "./math.js";
import { type Axes, max, min, prod, sum } from "./reduce.js";
import { reshape, squeeze, unsqueeze } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Eigenvalues of Hermitian matrices in ascending order. Only the lower triangle is read. */
export const eigvalsh = (a: TensorLike): Tensor => eigh(a).values;

/** Singular values in descending order. */
export const svdvals = (a: TensorLike): Tensor => svd(a).s;

/**
 * Eigenvalues (complex, in no particular order) and eigenvectors (columns of norm 1) of square matrices that need not be symmetric.
 * Gradients assume that the loss does not depend on the phases of the vectors.
 *
 * @example
 * ```ts
 * import { eig, tensor } from "@weft/core";
 *
 * const { values } = eig(tensor([[0, 1], [-1, 0]]));
 * console.log(await values.abs().array()); // [1, 1]
 * ```
 */
export function eig(a: TensorLike): { values: Tensor; vectors: Tensor } {
  const [values, vectors] = build.picks(build.make("eig", [matrix("eig", a, true)], {}));
  return { values: wrap(values), vectors: wrap(vectors) };
}

/** Eigenvalues of square matrices, complex and in no particular order. */
export const eigvals = (a: TensorLike): Tensor => eig(a).values;

/**
 * LU decomposition with row pivots: l is lower triangular with ones on its diagonal, u upper triangular, and `permutation` (int32) gives
 * the row of a for each row of l u: take(a, permutation, -2) = l u.
 */
export function lu(a: TensorLike): { permutation: Tensor; l: Tensor; u: Tensor } {
  const node = matrix("lu", a);
  const rank = node.shape.length;
  const [m, n] = node.shape.slice(-2);
  const k = Math.min(m, n);
  const [both, order] = build.picks(build.make("lu", [node], {}));
  const left = build.triangle(build.sliceAxis(both, rank - 1, 0, k), true, true);
  const rows = build.iota(left.shape, rank - 2, "int32");
  const columns = build.iota(left.shape, rank - 1, "int32");
  const l = build.add(left, build.cast(build.eq(rows, columns), left.dtype));
  const u = build.triangle(build.sliceAxis(both, rank - 2, 0, k), false, false);
  return { permutation: wrap(order), l: wrap(l), u: wrap(u) };
}

/** 1 for even permutations and -1 for odd ones, of the last axis: by the number of pairs in the wrong order. */
function parity(order: Node, dtype: Node["dtype"]): Node {
  const n = order.shape[order.shape.length - 1];
  const shape = [...order.shape, n];
  const rank = shape.length;
  const left = build.expand(build.reshape(order, [...order.shape, 1]), shape);
  const right = build.expand(build.reshape(order, [...order.shape.slice(0, -1), 1, n]), shape);
  const before = build.lt(build.iota(shape, rank - 2, "int32"), build.iota(shape, rank - 1, "int32"));
  const wrong = build.cast(build.binary("and", before, build.lt(right, left)), "int32");
  const count = build.sum(wrong, [rank - 2, rank - 1]);
  const odd = build.eq(build.binary("mod", count, build.fullLike(count, 2)), build.fullLike(count, 1));
  return build.where(odd, build.full(count.shape, -1, dtype), build.full(count.shape, 1, dtype));
}

/**
 * Sign (a phase for complex matrices) and logarithm of the absolute value of the determinant, which may be too large or too small to
 * represent. A singular matrix gives 0 and -Infinity.
 */
export function slogdet(a: TensorLike): { sign: Tensor; logabsdet: Tensor } {
  const node = matrix("slogdet", a, true);
  const [both, order] = build.picks(build.make("lu", [node], {}));
  const pivots = diagonal(wrap(both));
  const sizes = abs(pivots);
  const isZero = equal(sizes, 0);
  const safe = where(isZero, 1, sizes);
  const phases = where(isZero, 0, mul(pivots, wrap(build.cast(build.unary("reciprocal", safe.node), pivots.dtype))));
  const sign = mul(wrap(parity(order, node.dtype)), prod(phases, -1));
  return { sign, logabsdet: sum(log(sizes), -1) };
}

/** Options of {@link matrixRank}, {@link pinv} and {@link lstsq}. @inline */
interface ToleranceOptions {
  /** Singular values up to this multiple of the largest one count as zero; by default eps max(m, n). */
  rtol?: number;
}

/** Singular values that count, of a spectrum in descending order. */
function counting(op: string, s: Tensor, shape: readonly number[], rtol: number | undefined): Tensor {
  const [m, n] = shape.slice(-2);
  const epsilon = s.dtype === "float64" ? 2 ** -52 : 2 ** -23;
  const factor = rtol ?? epsilon * Math.max(m, n);
  if (!(factor >= 0)) throw new WeftError(`${op}: rtol must be at least 0, got ${factor}`);
  return greater(s, mul(max(s, -1, { keepDims: true }), factor));
}

/** Number of singular values above a tolerance, int32. */
export function matrixRank(a: TensorLike, options: ToleranceOptions = {}): Tensor {
  const { rtol } = checkOptions("matrixRank", options, ["rtol"]);
  const node = matrix("matrixRank", a);
  const batch = node.shape.slice(0, -2);
  if (node.shape.slice(-2).includes(0)) return wrap(build.full(batch, 0, "int32"));
  const counts = build.cast(counting("matrixRank", svdvals(wrap(node)), node.shape, rtol).node, "int32");
  return wrap(build.sum(counts, [batch.length]));
}

/** The pseudoinverse p, and its derivative -p da p + p p^H da^H (1 - a p) + (1 - p a) da^H p^H p, which needs no singular vectors. */
const pinvBy = (rtol: number | undefined) =>
  customVjp(
    function pinv(a: Tensor): Tensor {
      const { u, s, vh } = svd(a);
      const counts = counting("pinv", s, a.shape, rtol);
      const inverse = where(counts, where(counts, s, 1).reciprocal(), 0).cast(u.dtype);
      return matmul(mul(adjoint(vh), unsqueeze(inverse, -2)), adjoint(u));
    },
    ([a]: [Tensor], p, g) => {
      const [ph, gh] = [adjoint(p), adjoint(g)];
      const [left, right] = [matmul(gh, matmul(p, ph)), matmul(matmul(ph, p), gh)];
      const rows = left.sub(matmul(a, matmul(p, left)));
      const columns = right.sub(matmul(matmul(right, p), a));
      return [rows.add(columns).sub(matmul(ph, matmul(g, ph)))];
    },
  );

/** Moore-Penrose pseudoinverse by singular values; those up to the tolerance count as zero. */
export function pinv(a: TensorLike, options: ToleranceOptions = {}): Tensor {
  const { rtol } = checkOptions("pinv", options, ["rtol"]);
  const node = matrix("pinv", a);
  if (node.shape.slice(-2).includes(0)) return wrap(build.zerosLike(build.transpose(node)));
  return pinvBy(rtol)(wrap(node));
}

/** Solves tensordot(a, x, x.rank) = b for x: a has the axes of b and then those of x, as numpy.linalg.tensorsolve. */
export function tensorsolve(a: Tensor, b: Tensor): Tensor {
  checkArguments("tensorsolve", "tensor", { a, b });
  const rest = a.shape.slice(b.rank);
  const [rows, columns] = [b.size, rest.reduce((n, d) => n * d, 1)];
  if (showShape(a.shape.slice(0, b.rank)) !== showShape(b.shape) || rows !== columns)
    throw new ShapeError(
      `tensorsolve: a ${showShape(a.shape)} needs the axes of b ${showShape(b.shape)}, then axes of as many elements`,
    );
  return reshape(solve(reshape(a, [rows, columns]), reshape(b, [rows])), rest);
}

/** Solution of a least squares problem. */
export interface LeastSquares {
  /** The solution of smallest norm, [..., n] or [..., n, k]. */
  solution: Tensor;
  /** Sums of squared residuals, [...] or [..., k]. */
  residuals: Tensor;
  /** Rank of a, int32. */
  rank: Tensor;
  /** Singular values of a. */
  singularValues: Tensor;
}

/**
 * Least squares: the x of smallest norm that minimizes |a x - b|, for a vector b [m] or right-hand sides in the columns of b [..., m, k].
 */
export function lstsq(a: TensorLike, b: TensorLike, options: ToleranceOptions = {}): LeastSquares {
  const { rtol } = checkOptions("lstsq", options, ["rtol"]);
  const given = [matrix("lstsq", a), matrixOrVector("lstsq", b)];
  const dtype = commonDType("lstsq", given.map(wrap));
  const [left, right] = [build.cast(given[0], dtype), wrap(build.cast(given[1], dtype))];
  const m = left.shape[left.shape.length - 2];
  const isVector = right.shape.length === 1;
  const sides = isVector ? unsqueeze(right, -1) : right;
  if (sides.shape[sides.shape.length - 2] !== m)
    throw new ShapeError(
      `lstsq: ${showShape(left.shape)} and right-hand side ${showShape(right.shape)} do not fit; it needs ${m} rows`,
    );
  const matrixA = wrap(left);
  const x = matmul(pinv(matrixA, rtol === undefined ? {} : { rtol }), sides);
  const rest = matmul(matrixA, x).sub(sides);
  const residuals = sum(mul(abs(rest), abs(rest)), -2);
  return {
    solution: isVector ? squeeze(x, -1) : x,
    residuals: isVector ? squeeze(residuals, -1) : residuals,
    rank: matrixRank(matrixA, rtol === undefined ? {} : { rtol }),
    singularValues: svdvals(matrixA),
  };
}

function matrixOrVector(op: string, x: TensorLike): Node {
  const given = inexactNode(op, x);
  const node = build.cast(given, factorDType(given.dtype));
  if (node.shape.length === 0) throw new ShapeError(`${op}: the right-hand side needs at least one axis, got a scalar`);
  return node;
}

/** Orders of {@link matrixNorm}. @inline */
type MatrixNormOrder = "fro" | "nuc" | 1 | -1 | 2 | -2 | typeof Infinity;

/**
 * Norm of matrices in the last two axes: "fro" (the default) and "nuc" by their singular values, 2 and -2 the largest and smallest of
 * them, 1 and -1 the largest and smallest sum of a column, Infinity and -Infinity of a row.
 */
export function matrixNorm(
  a: TensorLike,
  options: { order?: MatrixNormOrder | number; keepDims?: boolean } = {},
): Tensor {
  const { order = "fro", keepDims = false } = checkOptions("matrixNorm", options, ["order", "keepDims"]);
  const t = wrap(matrix("matrixNorm", a));
  const rank = t.shape.length;
  const keep = (x: Tensor): Tensor => (keepDims ? reshape(x, [...t.shape.slice(0, -2), 1, 1]) : x);
  if (order === "fro") return norm(t, [rank - 2, rank - 1], { keepDims });
  if (order === "nuc") return keep(sum(svdvals(t), -1));
  // The norm of nothing is 0, of which there is no largest element.
  const largest = t.size === 0 ? sum : max;
  if (order === 2) return keep(largest(svdvals(t), -1));
  if (order === -2) return keep(min(svdvals(t), -1));
  const axis = Math.abs(order as number) === 1 ? -2 : -1;
  if (Math.abs(order as number) !== 1 && Math.abs(order as number) !== Infinity)
    throw new WeftError(
      `matrixNorm: order ${String(order)} is not known; use "fro", "nuc", 1, -1, 2, -2 or infinities`,
    );
  const sums = sum(abs(t), axis);
  return keep((order as number) > 0 ? largest(sums, -1) : min(sums, -1));
}

/**
 * Norm of vectors along axes, all by default: (sum of |x|^order)^(1/order); 0 counts elements that are not zero, Infinity and -Infinity
 * are the largest and smallest absolute value.
 */
export function vectorNorm(x: TensorLike, options: { axes?: Axes; order?: number; keepDims?: boolean } = {}): Tensor {
  const { axes, order = 2, keepDims = false } = checkOptions("vectorNorm", options, ["axes", "order", "keepDims"]);
  if (typeof order !== "number" || Number.isNaN(order))
    throw new WeftError(`vectorNorm: order must be a number, got ${String(order)}`);
  const t = wrap(inexactNode("vectorNorm", x));
  if (order === 2) return norm(t, axes, { keepDims });
  const sizes = abs(t);
  if (order === 1) return sum(sizes, axes, { keepDims });
  if (order === Infinity) return (t.size === 0 ? sum : max)(sizes, axes, { keepDims });
  if (order === -Infinity) return min(sizes, axes, { keepDims });
  if (order === 0) return sum(where(equal(sizes, 0), wrap(build.zerosLike(sizes.node)), 1), axes, { keepDims });
  return inFloat32("vectorNorm", sizes, (wide) => {
    if (order < 0) return pow(sum(pow(wide, order), axes, { keepDims }), 1 / order);
    // As for order 2, the slope at 0 is taken as 0.
    const power = (x: Tensor, exponent: number): Tensor => {
      const isZero = equal(x, 0);
      return where(isZero, 0, pow(where(isZero, 1, x), exponent));
    };
    return power(sum(order < 1 ? power(wide, order) : pow(wide, order), axes, { keepDims }), 1 / order);
  });
}

// Pade coefficients of degree 13 and the norm up to which it is exact to double precision (Higham 2005).
const pade13 = [
  64764752532480000, 32382376266240000, 7771770303897600, 1187353796428800, 129060195264000, 10559470521600,
  670442572800, 33522128640, 1323241920, 40840800, 960960, 16380, 182, 1,
];
const theta13 = 5.371920351148152;

/** Options of {@link expm}. @inline */
interface ExpmOptions {
  /** Halvings before the Pade step. The default, 8, is exact for 1-norms up to 1375; fewer are faster for small matrices. */
  squarings?: number;
}

/**
 * Matrix exponential by scaling and squaring with a Pade approximant of degree 13. The number of squarings is fixed when the
 * graph is built, because it cannot depend on values: choose it by the largest 1-norm, see {@link expmSquarings}.
 */
export function expm(a: TensorLike, options: ExpmOptions = {}): Tensor {
  const { squarings = 8 } = checkOptions("expm", options, ["squarings"]);
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
export function expmSquarings(norm1: number): number {
  if (!(Number.isFinite(norm1) && norm1 >= 0))
    throw new WeftError(`expmSquarings: norm1 is a finite number of at least 0, got ${showValue(norm1)}`);
  return Math.max(0, Math.ceil(Math.log2(Math.max(norm1, 1e-300) / theta13)));
}

/** Integer power of a square matrix, by repeated squaring. Powers of integers are integers, unless the exponent is negative. */
export function matrixPower(a: Tensor, exponent: number): Tensor {
  if (!Number.isInteger(exponent))
    throw new WeftError(`matrixPower: the exponent must be a whole number, got ${exponent}`);
  const node = matrix("matrixPower", a, true);
  const n = node.shape[node.shape.length - 1];
  // Products of integers are integers; an inverse needs floats.
  const isWhole = exponent >= 0 && kindOf(a.dtype) === "int";
  let base = exponent < 0 ? inv(a) : isWhole ? a : wrap(node);
  let result = wrap(build.identityLike(n, base.dtype, node.shape.slice(0, -2)));
  for (let e = Math.abs(exponent); e > 0; e = Math.floor(e / 2)) {
    if (e % 2 === 1) result = matmul(result, base);
    if (e > 1) base = matmul(base, base);
  }
  return result;
}

/** Distances of all pairs of rows of two matrices or batches of them, as torch.cdist: [..., P, M] and [..., R, M] to [..., P, R]. */
export function cdist(a: TensorLike, b: TensorLike, options: { order?: number } = {}): Tensor {
  const { order = 2 } = checkOptions("cdist", options, ["order"]);
  const [x, y] = [wrap(nodeOf("cdist", a)), wrap(nodeOf("cdist", b))];
  if (x.rank < 2 || y.rank < 2 || x.shape[x.rank - 1] !== y.shape[y.rank - 1])
    throw new ShapeError(`cdist: needs rows of one length, got shapes ${showShape(x.shape)} and ${showShape(y.shape)}`);
  return vectorNorm(unsqueeze(x, -2).sub(unsqueeze(y, -3)), { axes: -1, order });
}
