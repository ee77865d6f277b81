// Eigenvalues and eigenvectors of general matrices: Hessenberg form, then shifted QR steps by complex Givens rotations to an upper
// triangle, whose eigenvectors follow by substitution.
import * as c from "./complex.js";
import { turned } from "./eigen.js";
import {
  buildMatrix,
  euclideanNorm,
  identityMatrix,
  isFiniteMatrix,
  largestSize,
  type Matrix,
  multiply,
} from "./matrix.js";

/** A rotation of rows (p, q) that makes (x, y) into (r, 0); cos is real. */
function givens(x: c.Complex, y: c.Complex): { cos: number; sin: c.Complex } {
  const [a, b] = [c.abs(x), c.abs(y)];
  const r = Math.hypot(a, b);
  if (r === 0 || b === 0) return { cos: 1, sin: c.zero };
  return { cos: a / r, sin: c.scale(c.mul(a === 0 ? c.one : c.sign(x), c.conj(y)), 1 / r) };
}

function rotateRows(h: Matrix, p: number, q: number, { cos, sin }: ReturnType<typeof givens>): void {
  for (let j = 0; j < h.length; j++) {
    const [x, y] = [h[p][j], h[q][j]];
    h[p][j] = c.add(c.scale(x, cos), c.mul(sin, y));
    h[q][j] = c.sub(c.scale(y, cos), c.mul(c.conj(sin), x));
  }
}

function rotateColumns(h: Matrix, p: number, q: number, { cos, sin }: ReturnType<typeof givens>): void {
  for (const row of h) {
    const [x, y] = [row[p], row[q]];
    row[p] = c.add(c.scale(x, cos), c.mul(c.conj(sin), y));
    row[q] = c.sub(c.scale(y, cos), c.mul(sin, x));
  }
}

/** Of the trailing 2 x 2 block, the eigenvalue next to its last element. */
function shiftOf(h: Matrix, hi: number): c.Complex {
  const [a, b, d, e] = [h[hi - 1][hi - 1], h[hi - 1][hi], h[hi][hi - 1], h[hi][hi]];
  const half = c.scale(c.sub(a, e), 0.5);
  const root = c.sqrt(c.add(c.mul(half, half), c.mul(b, d)));
  const [plus, minus] = [c.add(half, root), c.sub(half, root)];
  return c.add(e, c.abs(plus) < c.abs(minus) ? plus : minus);
}

/** a = q t q^H with t upper triangular. */
function schur(a: Matrix): { t: Matrix; q: Matrix } {
  const n = a.length;
  const t = a.map((row) => [...row]);
  const q = identityMatrix(n);
  const rotate = (p: number, r: number, g: ReturnType<typeof givens>): void => {
    rotateRows(t, p, r, g);
    rotateColumns(t, p, r, g);
    rotateColumns(q, p, r, g);
  };
  for (let j = 0; j < n - 2; j++)
    for (let i = n - 1; i > j + 1; i--) {
      rotate(i - 1, i, givens(t[i - 1][j], t[i][j]));
      t[i][j] = c.zero;
    }
  let steps = 0;
  for (let hi = n - 1; hi > 0; ) {
    let lo = hi;
    const isSmall = (i: number): boolean =>
      c.abs(t[i][i - 1]) <= 2 ** -53 * (c.abs(t[i][i]) + c.abs(t[i - 1][i - 1])) || c.abs(t[i][i - 1]) === 0;
    while (lo > 0 && !isSmall(lo)) lo--;
    if (lo > 0) t[lo][lo - 1] = c.zero;
    if (lo === hi) {
      hi--;
      steps = 0;
      continue;
    }
    if (++steps > 60 * n) break;
    // Now and then another shift, against cycles.
    const shift = steps % 11 === 10 ? c.complex(c.abs(t[hi][hi - 1])) : shiftOf(t, hi);
    let bulge = givens(c.sub(t[lo][lo], shift), t[lo + 1][lo]);
    for (let k = lo; k < hi; k++) {
      if (k > lo) bulge = givens(t[k][k - 1], t[k + 1][k - 1]);
      rotate(k, k + 1, bulge);
      if (k > lo) t[k + 1][k - 1] = c.zero;
    }
  }
  return { t, q };
}

export function generalEigenpairs(a: Matrix): { values: c.Complex[]; vectors: Matrix } {
  const n = a.length;
  const nan = c.complex(Number.NaN, Number.NaN);
  if (!isFiniteMatrix(a)) return { values: a.map(() => nan), vectors: buildMatrix(n, n, () => nan) };
  // In units of the largest entry: products of entries, which shifts need, neither over- nor underflow.
  const unit = largestSize(a.flat()) || 1;
  const { t, q } = schur(a.map((row) => row.map((x) => c.complex(x.re / unit, x.im / unit))));
  const scale = Math.max(...t.map((row) => euclideanNorm(row))) || 1;
  const triangle = buildMatrix(n, n, (i, j) => (i === j ? c.one : c.zero));
  for (let j = 0; j < n; j++)
    for (let i = j - 1; i >= 0; i--) {
      let sum = t[i][j];
      for (let l = i + 1; l < j; l++) sum = c.add(sum, c.mul(t[i][l], triangle[l][j]));
      const gap = c.sub(t[j][j], t[i][i]);
      triangle[i][j] = c.div(sum, c.abs(gap) < 2 ** -52 * scale ? c.complex(2 ** -52 * scale) : gap);
    }
  const whole = multiply(q, triangle);
  const columns = triangle.map((_, j) => {
    const column = whole.map((row) => row[j]);
    return turned(column.map((x) => c.scale(x, 1 / euclideanNorm(column))));
  });
  return { values: t.map((row, i) => c.scale(row[i], unit)), vectors: buildMatrix(n, n, (i, j) => columns[j][i]) };
}
