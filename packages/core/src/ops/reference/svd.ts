// Thin singular value decomposition by one-sided Jacobi rotations (Hestenes): the columns are made orthogonal in pairs.
import * as c from "./complex.js";
import { diagonalizing, rotateColumns } from "./eigen.js";
import {
  adjointMatrix,
  buildMatrix,
  column,
  columnsOf,
  euclideanNorm,
  identityMatrix,
  inner,
  isFiniteMatrix,
  largestSize,
  type Matrix,
} from "./matrix.js";

interface Svd {
  u: Matrix;
  s: number[];
  vh: Matrix;
}

const maxSweeps = 100;
const epsilon = 2 ** -52;

/** A unit vector orthogonal to those given: the coordinate vector that they reach least, made orthogonal twice. */
function orthogonalTo(others: readonly (readonly c.Complex[])[], length: number): c.Complex[] {
  const reached = Array.from({ length }, (_, i) => others.reduce((sum, x) => sum + c.abs2(x[i]), 0));
  const least = reached.reduce((best, x, i) => (x < reached[best] ? i : best), 0);
  let vector = Array.from({ length }, (_, i) => (i === least ? c.one : c.zero));
  for (let pass = 0; pass < 2; pass++) {
    for (const other of others) {
      const along = inner(other, vector);
      vector = vector.map((x, i) => c.sub(x, c.mul(along, other[i])));
    }
    const size = euclideanNorm(vector);
    vector = vector.map((x) => c.scale(x, 1 / size));
  }
  return vector;
}

/** a: m x n with m >= n, finite. */
function tallSvd(a: Matrix): Svd {
  const [m, n] = [a.length, columnsOf(a)];
  // Squares of the entries are formed below; this keeps them from over- and underflowing.
  const largest = largestSize(a.flat());
  const factor = largest === 0 ? 1 : largest;
  const work = a.map((row) => row.map((x) => c.complex(x.re / factor, x.im / factor)));
  const v = identityMatrix(n);
  for (let sweep = 0, rotated = true; rotated && sweep < maxSweeps; sweep++) {
    rotated = false;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        const [left, right] = [column(work, p), column(work, q)];
        const overlap = inner(left, right);
        const size = c.abs(overlap);
        // A column of length below epsilon is noise that no rotation makes orthogonal; it is replaced further down.
        if (size === 0 || size <= epsilon * Math.max(euclideanNorm(left) * euclideanNorm(right), epsilon)) continue;
        rotated = true;
        const rotation = diagonalizing(inner(left, left).re, inner(right, right).re, overlap);
        rotateColumns(work, p, q, rotation);
        rotateColumns(v, p, q, rotation);
      }
    }
  }
  const columns = Array.from({ length: n }, (_, j) => column(work, j));
  const lengths = columns.map(euclideanNorm);
  const order = lengths.map((_, j) => j).sort((i, j) => lengths[j] - lengths[i] || i - j);
  const noise = Math.max(m, n) * epsilon * (lengths[order[0]] ?? 0);
  const u: c.Complex[][] = [];
  for (const j of order) {
    if (lengths[j] > noise) u.push(columns[j].map((x) => c.scale(x, 1 / lengths[j])));
    else u.push(orthogonalTo(u, m));
  }
  return {
    u: buildMatrix(m, n, (i, j) => u[j][i]),
    s: order.map((j) => lengths[j] * factor),
    vh: buildMatrix(n, n, (i, j) => c.conj(v[j][order[i]])),
  };
}

/** Thin: u m x k, s descending, vh k x n. Everything is NaN where the matrix is not finite. */
export function singularTriplets(a: Matrix): Svd {
  const [m, n] = [a.length, columnsOf(a)];
  const k = Math.min(m, n);
  if (!isFiniteMatrix(a)) {
    const nan = () => c.complex(Number.NaN, Number.NaN);
    return { u: buildMatrix(m, k, nan), s: new Array<number>(k).fill(Number.NaN), vh: buildMatrix(k, n, nan) };
  }
  if (m >= n) return tallSvd(a);
  const { u, s, vh } = tallSvd(adjointMatrix(a));
  return { u: adjointMatrix(vh), s, vh: adjointMatrix(u) };
}
