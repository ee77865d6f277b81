// Reverse-mode rules of the matrix factorizations, real and complex. Where a factor is only defined up to a phase, the
// rules follow the phase that the op fixes (eigh) or assume that the loss does not depend on it (svd); see docs/gradients.md.
import { isComplex, type Node } from "../graph/index.js";
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
  make,
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

/**
 * 1 / (x_j - x_i) for a vector in the last axis, 0 for pairs that are equal up to rounding: a gap of a few units in
 * the last place is noise, and its inverse would drown every true number.
 */
function inverseGaps(x: Node): Node {
  const n = x.shape[x.shape.length - 1];
  const gaps = sub(asRows(x, n), asColumns(x, n));
  const largest = reduce("max", unary("abs", x), [x.shape.length - 1]);
  const noise = scale(largest, 4 * n * (x.dtype === "float64" ? 2 ** -52 : 2 ** -23));
  const limit = expand(reshape(noise, [...noise.shape, 1, 1]), gaps.shape);
  const equal = le(unary("abs", gaps), limit);
  return where(equal, zerosLike(gaps), unary("reciprocal", where(equal, fullLike(gaps, 1), gaps)));
}

/**
 * dV = V (F o V^H dA V) with F_ij = 1/(w_j - w_i), and for complex matrices a turn of each column that keeps its
 * largest component real. Pairs of equal eigenvalues contribute zero: there the gradient of V does not exist.
 */
export function eighVjp(w: Node, v: Node, gw: Node | null, gv: Node | null): Node {
  let inner: Node | null = gw === null ? null : diagonal(cast(gw, v.dtype));
  if (gv !== null) {
    const turned = isComplex(v.dtype) ? addPhaseTurn(v, gv) : gv;
    const mixed = mul(cast(inverseGaps(w), v.dtype), matmul(adjoint(v), turned));
    inner = inner === null ? mixed : add(inner, mixed);
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

export function svdVjp(u: Node, s: Node, vh: Node, gu: Node | null, gs: Node | null, gvh: Node | null): Node {
  const k = s.shape[s.shape.length - 1];
  const lift = (x: Node): Node => cast(x, u.dtype);
  const sRows = lift(asRows(s, k));
  const sColumns = lift(asColumns(s, k));
  const f = lift(inverseGaps(mul(s, s)));
  const isZero = eq(s, zerosLike(s));
  const inverseS = where(isZero, zerosLike(s), unary("reciprocal", where(isZero, fullLike(s, 1), s)));
  const [m, n] = [u.shape[u.shape.length - 2], vh.shape[vh.shape.length - 1]];
  let inner: Node = gs === null ? full(f.shape, 0, u.dtype) : diagonal(lift(gs));
  const outside: Node[] = [];
  if (gu !== null) {
    const k1 = skew(matmul(adjoint(u), gu));
    inner = add(inner, mul(mul(k1, f), sRows));
    if (isComplex(u.dtype)) inner = add(inner, diagonal(mul(diagonalOf(k1), lift(scale(inverseS, 0.5)))));
    // What leaves the span of u; for a square u nothing can.
    const rest = (): Node => sub(gu, matmul(u, matmul(adjoint(u), gu)));
    if (m > k) outside.push(matmul(mul(rest(), lift(asRows(inverseS, m))), vh));
  }
  if (gvh !== null) {
    const gv = adjoint(gvh);
    const v = adjoint(vh);
    inner = add(inner, mul(sColumns, mul(skew(matmul(vh, gv)), f)));
    const rest = (): Node => sub(gvh, matmul(matmul(gvh, v), vh));
    if (n > k) outside.push(matmul(u, mul(rest(), lift(asColumns(inverseS, n)))));
  }
  return outside.reduce((total, term) => add(total, term), matmul(matmul(u, inner), vh));
}
