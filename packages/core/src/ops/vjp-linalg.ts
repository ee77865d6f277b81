// Reverse-mode rules of the matrix factorizations, real and complex. Where a factor is only defined up to a phase, the
// rules follow the phase that the op fixes (eigh) or assume that the loss does not depend on it (svd); see docs/gradients.md.
import { type DType, isComplex, type Node, realOf, type Shape } from "../graph/index.js";
import {
  add,
  adjoint,
  cast,
  concat,
  conj,
  div,
  eq,
  expand,
  full,
  fullLike,
  identityLike,
  imag,
  iota,
  le,
  matmul,
  mul,
  neg,
  real,
  reduce,
  reshape,
  scale,
  sliceAxis,
  sub,
  sum,
  toComplex,
  transpose,
  triangle,
  unary,
  where,
  zerosLike,
} from "./build.js";
import { make } from "./make.js";

const hermitian = (x: Node): Node => scale(add(x, adjoint(x)), 0.5);
const skew = (x: Node): Node => sub(x, adjoint(x));

/** Broadcasts the vector of the last axis to the rows of a matrix. */
function asRows(v: Node, rows: number): Node {
  const [n] = v.shape.slice(-1);
  const batch = v.shape.slice(0, -1);
  return expand(reshape(v, [...batch, 1, n]), [...batch, rows, n]);
}

const asColumns = (v: Node, columns: number): Node => transpose(asRows(v, columns));

/** The mask of the diagonal of the last two axes. */
function onDiagonal(like: Node): Node {
  const rank = like.shape.length;
  return eq(iota(like.shape, rank - 2, "int32"), iota(like.shape, rank - 1, "int32"));
}

/** A matrix with the given vector on its diagonal. */
function diagonal(v: Node): Node {
  const n = v.shape[v.shape.length - 1];
  const rows = asRows(v, n);
  return where(onDiagonal(rows), rows, zerosLike(rows));
}

function diagonalOf(x: Node): Node {
  return sum(where(onDiagonal(x), x, zerosLike(x)), [x.shape.length - 1]);
}

const halfDiagonal = (x: Node): Node => where(onDiagonal(x), scale(x, 0.5), x);

const triangularSolve = (a: Node, b: Node, lower: boolean, adjointFirst: boolean, unit = false): Node =>
  make("triangularSolve", [a, b], { lower, adjoint: adjointFirst, unit });

/** x r^-H for an upper triangular r. */
const timesInverseAdjoint = (x: Node, r: Node): Node => adjoint(triangularSolve(r, adjoint(x), false, false));

export function choleskyVjp(l: Node, g: Node): Node {
  const middle = halfDiagonal(triangle(matmul(adjoint(l), g), true, false));
  // l^-H middle l^-1: first from the left, then from the right through the adjoint.
  const left = triangularSolve(l, middle, true, true);
  return hermitian(adjoint(triangularSolve(l, adjoint(left), true, true)));
}

export function triangularSolveVjp(
  a: Node,
  x: Node,
  g: Node,
  attrs: { lower: boolean; adjoint: boolean; unit: boolean },
): [Node, Node] {
  const gb = triangularSolve(a, g, attrs.lower, !attrs.adjoint, attrs.unit);
  const outer = attrs.adjoint ? matmul(x, adjoint(gb)) : matmul(gb, adjoint(x));
  return [neg(triangle(outer, attrs.lower, attrs.unit)), gb];
}

export function solveVjp(a: Node, x: Node, g: Node): [Node, Node] {
  const gb = make("solve", [adjoint(a), g], {});
  return [neg(matmul(gb, adjoint(x))), gb];
}

/** Largest matrices whose cofactors are computed without a division; beyond, rounding errors of the recurrence grow too large. */
const largestAdjugate = 8;

/**
 * The transposed cofactors by the recurrence of Faddeev and LeVerrier: polynomials of the elements, which hold for singular matrices
 * and have derivatives of every order.
 */
function adjugate(a: Node): Node {
  const n = a.shape[a.shape.length - 1];
  const one = identityLike(n, a.dtype, a.shape.slice(0, -2));
  const multiple = (factor: Node): Node => mul(expand(reshape(factor, [...factor.shape, 1, 1]), a.shape), one);
  const zero = zerosLike(a);
  let result = one;
  for (let k = 1; k < n; k++) {
    const product = matmul(a, result);
    const rank = a.shape.length;
    const trace = sum(where(onDiagonal(product), product, zero), [rank - 2, rank - 1]);
    result = sub(product, multiple(scale(trace, 1 / k)));
  }
  return n % 2 === 0 ? neg(result) : result;
}

/** The conjugated cofactors times g. Larger singular matrices give NaN. */
export function detVjp(a: Node, det: Node, g: Node): Node {
  const n = a.shape[a.shape.length - 1];
  const batch = a.shape.slice(0, -2);
  const wide = (x: Node): Node => expand(reshape(x, [...batch, 1, 1]), a.shape);
  if (n <= 3) return mul(wide(g), adjoint(adjugate(a)));
  const one = identityLike(n, a.dtype, batch);
  const inverse = (of: Node): Node => mul(wide(mul(g, conj(det))), make("solve", [adjoint(of), one], {}));
  if (n > largestAdjugate) return inverse(a);
  const isSingular = wide(eq(det, zerosLike(det)));
  return where(isSingular, mul(wide(g), adjoint(adjugate(a))), inverse(where(isSingular, one, a)));
}

/** Bound below which a difference of eigenvalues or singular values is rounding: a few units in the last place of the largest one. */
function roundingOf(x: Node, shape: Shape): Node {
  const n = x.shape[x.shape.length - 1];
  const largest = reduce("max", unary("abs", x), [x.shape.length - 1]);
  const noise = scale(largest, 4 * n * (x.dtype === "float64" ? 2 ** -52 : 2 ** -23));
  return expand(reshape(noise, [...noise.shape, 1, 1]), shape);
}

/** Whether a rule is built to be transposed, for forward mode: then its cotangents are symbolic, and their values cannot be tested. */
let isTransposed = false;
export function transposing<T>(body: () => T): T {
  const before = isTransposed;
  isTransposed = true;
  try {
    return body();
  } finally {
    isTransposed = before;
  }
}

/**
 * 1 / gaps, and `atZero` where `isZero`: 0 for losses that depend on the vectors alone, where a subspace counts as one. A loss that also
 * depends on the values may be a function of the matrix, whose derivative at equal values the cotangents do not tell: see
 * {@link undetermined} for the reverse mode; tangents of such vectors are NaN.
 */
function inverseOf(gaps: Node, isZero: Node, atZero: number): Node {
  return where(isZero, fullLike(gaps, atZero), unary("reciprocal", where(isZero, fullLike(gaps, 1), gaps)));
}

const atEqual = (values: Node | null): number => (values !== null && isTransposed ? Number.NaN : 0);

/** x_j - x_i for a vector in the last axis, and where it is zero up to rounding. */
function gapsOf(x: Node): { gaps: Node; isZero: Node } {
  const n = x.shape[x.shape.length - 1];
  const gaps = sub(asRows(x, n), asColumns(x, n));
  return { gaps, isZero: le(unary("abs", gaps), roundingOf(x, gaps.shape)) };
}

/**
 * NaN beside the diagonal where values are equal and a cotangent of one of them, or of their vectors in the basis of the vectors, is not
 * 0. A constant for derivatives of the derivative.
 */
function undetermined(isZero: Node, values: Node, vectors: readonly Node[], dtype: DType): Node {
  const n = values.shape[values.shape.length - 1];
  const zero = full(isZero.shape, 0, realOf(dtype));
  const bad = fullLike(zero, Number.NaN);
  const unused = eq(values, zerosLike(values));
  const none = vectors.map((x) => eq(x, zerosLike(x)));
  const conditions = [asRows(unused, n), asColumns(unused, n), ...none, ...none.map(transpose)];
  const pairs = conditions.reduce((rest, isUnused) => where(isUnused, rest, bad), zero);
  return cast(where(onDiagonal(zero), zero, where(isZero, pairs, zero)), dtype);
}

/**
 * dV = V (F o V^H dA V) with F_ij = 1/(w_j - w_i), and for complex matrices a turn of each column that keeps its
 * largest component real. See {@link inverseOf} for equal eigenvalues.
 */
export function eighVjp(w: Node, v: Node, gw: Node | null, gv: Node | null): Node {
  let inner: Node | null = gw === null ? null : diagonal(cast(gw, v.dtype));
  if (gv !== null) {
    const turned = isComplex(v.dtype) ? addPhaseTurn(v, gv) : gv;
    const { gaps, isZero } = gapsOf(w);
    const apart = where(onDiagonal(gaps), zerosLike(gaps), inverseOf(gaps, isZero, atEqual(gw)));
    const inBasis = matmul(adjoint(v), turned);
    const mixed = mul(cast(apart, v.dtype), inBasis);
    inner =
      inner === null || gw === null ? mixed : add(add(inner, mixed), undetermined(isZero, gw, [inBasis], v.dtype));
  }
  if (inner === null) return zerosLike(v);
  return hermitian(matmul(matmul(v, inner), adjoint(v)));
}

/** The op makes the first component of (nearly) largest size real and positive in every column. */
function addPhaseTurn(v: Node, gv: Node): Node {
  const rank = v.shape.length;
  const magnitude = unary("abs", v);
  const n = v.shape[rank - 2];
  const largest = asRows(reduce("max", magnitude, [rank - 2]), n);
  const candidates = cast(le(scale(largest, 0.999), magnitude), "uint8");
  const pivot = make("argreduce", [candidates], { fn: "argmax", axis: rank - 2 });
  const isPivot = eq(iota(v.shape, rank - 2, "int32"), asRows(pivot, n));
  const turn = sum(imag(mul(gv, conj(v))), [rank - 2]);
  const correction = neg(div(asRows(turn, n), magnitude));
  const zero = zerosLike(magnitude);
  return add(gv, toComplex(zero, where(isPivot, correction, zero)));
}

/**
 * Unit vectors: the part of their cotangent along themselves does not count. Pairs of equal eigenvalues contribute zero. The loss must
 * not depend on the phases of the vectors.
 */
export function eigVjp(a: Node, w: Node, v: Node, gw: Node | null, gv: Node | null): Node {
  let inner: Node | null = gw === null ? null : diagonal(gw);
  if (gv !== null) {
    const n = w.shape[w.shape.length - 1];
    const projected = matmul(adjoint(v), gv);
    const along = cast(asRows(real(diagonalOf(projected)), n), v.dtype);
    const rest = sub(projected, mul(matmul(adjoint(v), v), along));
    const gaps = conj(sub(asRows(w, n), asColumns(w, n)));
    const equal = eq(gaps, zerosLike(gaps));
    const mixed = where(equal, zerosLike(gaps), div(rest, where(equal, fullLike(gaps, 1), gaps)));
    inner = inner === null ? mixed : add(inner, mixed);
  }
  if (inner === null) return zerosLike(a);
  const result = make("solve", [adjoint(v), matmul(inner, adjoint(v))], {});
  return isComplex(a.dtype) ? result : cast(real(result), a.dtype);
}

/** The factors of the leading square, and what is beside or below it. */
export function luVjp(lu: Node, order: Node, g: Node): Node {
  const rank = lu.shape.length;
  const [m, n] = lu.shape.slice(-2);
  const k = Math.min(m, n);
  const [rows, columns] = [rank - 2, rank - 1];
  const square = (x: Node): Node => sliceAxis(sliceAxis(x, rows, 0, k), columns, 0, k);
  const right = (x: Node): Node => sliceAxis(x, columns, k, n);
  const below = (x: Node): Node => sliceAxis(x, rows, k, m);
  const [both, gBoth] = [square(lu), square(g)];
  const l = add(triangle(both, true, true), identityLike(k, lu.dtype, lu.shape.slice(0, -2)));
  const u = triangle(both, false, false);
  let lower = matmul(adjoint(l), triangle(gBoth, true, true));
  let upper = matmul(triangle(gBoth, false, false), adjoint(u));
  if (n > k) lower = sub(lower, matmul(right(g), adjoint(right(lu))));
  if (m > k) upper = sub(upper, matmul(adjoint(below(lu)), below(g)));
  const middle = add(triangle(lower, true, true), triangle(upper, false, false));
  const left = (x: Node): Node => triangularSolve(l, x, true, true, true);
  const over = (x: Node): Node => adjoint(triangularSolve(u, adjoint(x), false, false));
  let result = over(left(middle));
  if (n > k) result = concat([result, left(right(g))], columns);
  if (m > k) result = concat([result, over(below(g))], rows);
  // Row i of the result belongs to row order[i] of a.
  const batch = rank - 2;
  return make("scatterAdd", [zerosLike(result), order, result], { axis: batch, batch });
}

/** Sum of an upper triangle and its adjoint with the diagonal counted once and real. */
function symmetrize(upper: Node): Node {
  return halfDiagonal(add(upper, adjoint(upper)));
}

function tallQrVjp(q: Node, r: Node, gq: Node, gr: Node): Node {
  const m = sub(matmul(gr, adjoint(r)), matmul(adjoint(q), gq));
  return timesInverseAdjoint(add(gq, matmul(q, symmetrize(triangle(m, false, false)))), r);
}

export function qrVjp(a: Node, q: Node, r: Node, gq: Node | null, gr: Node | null): Node {
  const cq = gq ?? zerosLike(q);
  const cr = gr ?? zerosLike(r);
  const rank = a.shape.length;
  const [m, n] = a.shape.slice(-2);
  if (m >= n) return tallQrVjp(q, r, cq, cr);
  // Wide: a = [x | y], r = [u | v] with v = q^H y.
  const split = (t: Node): [Node, Node] => [sliceAxis(t, rank - 1, 0, m), sliceAxis(t, rank - 1, m, n)];
  const [, y] = split(a);
  const [u] = split(r);
  const [gu, gvRight] = split(cr);
  const gx = tallQrVjp(q, u, add(cq, matmul(y, adjoint(gvRight))), gu);
  return concat([gx, matmul(q, gvRight)], rank - 1);
}

/**
 * With k1 and k2 the skew parts of u^H gu and v^H gv, each pair of singular values mixes (k1 + k2) / 2 by 1 / (s_j - s_i) and
 * (k1 - k2) / 2 by 1 / (s_j + s_i): only the first needs them to differ.
 */
export function svdVjp(u: Node, s: Node, vh: Node, gu: Node | null, gs: Node | null, gvh: Node | null): Node {
  const k = s.shape[s.shape.length - 1];
  const lift = (x: Node): Node => cast(x, u.dtype);
  const inverseS = inverseOf(s, eq(s, zerosLike(s)), atEqual(gs));
  const [m, n] = [u.shape[u.shape.length - 2], vh.shape[vh.shape.length - 1]];
  let inner: Node | null = gs === null ? null : diagonal(lift(gs));
  const plus = (term: Node): void => {
    inner = inner === null ? term : add(inner, term);
  };
  const outside: Node[] = [];
  const inBasis: Node[] = [];
  if (gu !== null || gvh !== null) {
    const { gaps, isZero } = gapsOf(s);
    const sums = add(asRows(s, k), asColumns(s, k));
    const areSmall = le(sums, roundingOf(s, sums.shape));
    const half = (x: Node): Node => lift(where(onDiagonal(x), zerosLike(x), scale(x, 0.5)));
    const ofGaps = half(inverseOf(gaps, isZero, atEqual(gs)));
    const ofSums = half(inverseOf(sums, areSmall, atEqual(gs)));
    if (gu !== null) {
      const ofU = matmul(adjoint(u), gu);
      inBasis.push(ofU);
      const k1 = skew(ofU);
      plus(mul(k1, add(ofGaps, ofSums)));
      if (isComplex(u.dtype)) plus(diagonal(mul(diagonalOf(k1), lift(scale(inverseS, 0.5)))));
      // What leaves the span of u; for a square u nothing can.
      const rest = (): Node => sub(gu, matmul(u, matmul(adjoint(u), gu)));
      if (m > k) outside.push(matmul(mul(rest(), lift(asRows(inverseS, m))), vh));
    }
    if (gvh !== null) {
      const gv = adjoint(gvh);
      const v = adjoint(vh);
      const ofV = matmul(vh, gv);
      inBasis.push(ofV);
      plus(mul(skew(ofV), sub(ofGaps, ofSums)));
      const rest = (): Node => sub(gvh, matmul(matmul(gvh, v), vh));
      if (n > k) outside.push(matmul(u, mul(rest(), lift(asColumns(inverseS, n)))));
    }
    if (gs !== null) plus(undetermined(isZero, gs, inBasis, u.dtype));
  }
  const middle = inner ?? full([...s.shape, k], 0, u.dtype);
  return outside.reduce((total, term) => add(total, term), matmul(matmul(u, middle), vh));
}
