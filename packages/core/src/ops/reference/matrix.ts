// Small dense complex matrices: textbook factorizations and solves, without optimization.
import * as c from "./complex.js";

export type Matrix = c.Complex[][];

/** Number of columns; 0 for a matrix without rows. */
export const columnsOf = (a: Matrix): number => a[0]?.length ?? 0;

export const buildMatrix = (rows: number, columns: number, at: (i: number, j: number) => c.Complex): Matrix =>
  Array.from({ length: rows }, (_, i) => Array.from({ length: columns }, (_, j) => at(i, j)));

export const identityMatrix = (n: number): Matrix => buildMatrix(n, n, (i, j) => (i === j ? c.one : c.zero));
export const adjointMatrix = (a: Matrix): Matrix => buildMatrix(columnsOf(a), a.length, (i, j) => c.conj(a[j][i]));
export const column = (a: Matrix, j: number): c.Complex[] => a.map((row) => row[j]);
export const isFiniteMatrix = (a: Matrix): boolean => a.every((row) => row.every(c.isFiniteComplex));

export function multiply(a: Matrix, b: Matrix): Matrix {
  return buildMatrix(a.length, columnsOf(b), (i, j) =>
    a[i].reduce((sum, x, k) => c.add(sum, c.mul(x, b[k][j])), c.zero),
  );
}

/** <x, y>, conjugate-linear in x. */
export const inner = (x: readonly c.Complex[], y: readonly c.Complex[]): c.Complex =>
  x.reduce((sum, xi, i) => c.add(sum, c.mul(c.conj(xi), y[i])), c.zero);

export const largestSize = (x: readonly c.Complex[]): number => x.reduce((max, z) => Math.max(max, c.abs(z)), 0);

/** Euclidean length; scaled, so that no square over- or underflows. */
export function euclideanNorm(x: readonly c.Complex[]): number {
  const unit = largestSize(x);
  if (unit === 0) return 0;
  return unit * Math.sqrt(x.reduce((sum, z) => sum + c.abs2(c.complex(z.re / unit, z.im / unit)), 0));
}

/** The unit number in the direction of z; 1 at zero. */
const phaseOf = (z: c.Complex): c.Complex => (z.re === 0 && z.im === 0 ? c.one : c.sign(z));

/** Lower factor of a Hermitian matrix, of which the lower triangle is read; null where it is not positive definite. */
export function choleskyFactor(a: Matrix): Matrix | null {
  const n = a.length;
  const l = buildMatrix(n, n, () => c.zero);
  for (let j = 0; j < n; j++) {
    const pivot = l[j].slice(0, j).reduce((rest, x) => rest - c.abs2(x), a[j][j].re);
    if (!(pivot > 0 && Number.isFinite(pivot))) return null;
    l[j][j] = c.complex(Math.sqrt(pivot));
    for (let i = j + 1; i < n; i++) {
      let rest = a[i][j];
      for (let k = 0; k < j; k++) rest = c.sub(rest, c.mul(l[i][k], c.conj(l[j][k])));
      l[i][j] = c.scale(rest, 1 / l[j][j].re);
    }
  }
  return l;
}

interface Triangle {
  lower: boolean;
  adjoint: boolean;
  unit: boolean;
}

/** a x = b, or a^H x = b, by substitution; the other triangle of a (and the diagonal, if `unit`) is not read. */
export function solveTriangle(a: Matrix, b: Matrix, form: Triangle): Matrix {
  const n = a.length;
  const at = (i: number, j: number): c.Complex => (form.adjoint ? c.conj(a[j][i]) : a[i][j]);
  const forward = form.lower !== form.adjoint;
  const x = b.map((row) => [...row]);
  for (let step = 0; step < n; step++) {
    const i = forward ? step : n - 1 - step;
    for (let j = 0; j < columnsOf(b); j++) {
      let rest = x[i][j];
      for (let k = forward ? 0 : i + 1; k < (forward ? i : n); k++) rest = c.sub(rest, c.mul(at(i, k), x[k][j]));
      x[i][j] = form.unit ? rest : c.div(rest, at(i, i));
    }
  }
  return x;
}

interface Lu {
  /** Row i of the factored matrix is row rows[i] of the original. */
  rows: number[];
  /** The multipliers below the diagonal, the upper factor on and above it. */
  factors: Matrix;
  /** 1 or -1: the sign of the row permutation. */
  sign: number;
}

/** Gaussian elimination with partial pivoting; null where a column has no pivot. */
function lu(a: Matrix): Lu | null {
  const n = a.length;
  const factors = a.map((row) => [...row]);
  const rows = a.map((_, i) => i);
  let sign = 1;
  for (let k = 0; k < n; k++) {
    let best = k;
    for (let i = k + 1; i < n; i++) if (c.abs(factors[i][k]) > c.abs(factors[best][k])) best = i;
    if (factors[best][k].re === 0 && factors[best][k].im === 0) return null;
    if (best !== k) {
      [factors[k], factors[best]] = [factors[best], factors[k]];
      [rows[k], rows[best]] = [rows[best], rows[k]];
      sign = -sign;
    }
    for (let i = k + 1; i < n; i++) {
      const multiplier = c.div(factors[i][k], factors[k][k]);
      factors[i][k] = multiplier;
      for (let j = k + 1; j < n; j++) factors[i][j] = c.sub(factors[i][j], c.mul(multiplier, factors[k][j]));
    }
  }
  return { rows, factors, sign };
}

/** a x = b; null where a is singular. */
export function solveMatrix(a: Matrix, b: Matrix): Matrix | null {
  const factored = lu(a);
  if (factored === null) return null;
  const permuted = factored.rows.map((row) => b[row]);
  const y = solveTriangle(factored.factors, permuted, { lower: true, adjoint: false, unit: true });
  return solveTriangle(factored.factors, y, { lower: false, adjoint: false, unit: false });
}

export function determinant(a: Matrix): c.Complex {
  const factored = lu(a);
  if (factored === null) return c.zero;
  return factored.factors.reduce((product, row, i) => c.mul(product, row[i]), c.complex(factored.sign));
}

/** x - 2 v <v, x> / <v, v> on rows from `start` of every column of a, in place. */
function reflect(a: Matrix, v: readonly c.Complex[], start: number): void {
  const length2 = inner(v, v).re;
  for (let j = 0; j < columnsOf(a); j++) {
    const part = column(a.slice(start), j);
    const along = c.scale(inner(v, part), 2 / length2);
    part.forEach((x, i) => {
      a[start + i][j] = c.sub(x, c.mul(along, v[i]));
    });
  }
}

/** Householder's thin q r, with the diagonal of r made real and >= 0. */
export function householderQr(a: Matrix): { q: Matrix; r: Matrix } {
  const [m, n] = [a.length, columnsOf(a)];
  const k = Math.min(m, n);
  const work = a.map((row) => [...row]);
  const reflectors: (c.Complex[] | null)[] = [];
  for (let j = 0; j < k; j++) {
    const x = column(work.slice(j), j);
    const length = euclideanNorm(x);
    if (length === 0) {
      reflectors.push(null);
      continue;
    }
    // In units of the length: squares of the entries, which the reflection needs, neither over- nor underflow.
    const v = x.map((z) => c.complex(z.re / length, z.im / length));
    v[0] = c.add(v[0], phaseOf(x[0]));
    reflect(work, v, j);
    for (let i = j + 1; i < m; i++) work[i][j] = c.zero;
    reflectors.push(v);
  }
  const q = buildMatrix(m, k, (i, j) => (i === j ? c.one : c.zero));
  for (let j = k - 1; j >= 0; j--) {
    const v = reflectors[j];
    if (v !== null) reflect(q, v, j);
  }
  const phases = Array.from({ length: k }, (_, j) => phaseOf(work[j][j]));
  return {
    q: q.map((row) => row.map((x, j) => c.mul(x, phases[j]))),
    r: work
      .slice(0, k)
      .map((row, i) => row.map((x, j) => (i === j ? c.complex(c.abs(x)) : c.mul(x, c.conj(phases[i]))))),
  };
}

/** Gaussian elimination with row pivots: both factors in one matrix, and the rows of a in their new order. */
export function luWithOrder(a: Matrix): { factors: Matrix; order: number[] } {
  const factors = a.map((row) => [...row]);
  const order = a.map((_, i) => i);
  const [m, n] = [a.length, columnsOf(a)];
  for (let j = 0; j < Math.min(m, n); j++) {
    let pivot = j;
    for (let i = j + 1; i < m; i++) if (c.abs(factors[i][j]) > c.abs(factors[pivot][j])) pivot = i;
    [factors[j], factors[pivot]] = [factors[pivot], factors[j]];
    [order[j], order[pivot]] = [order[pivot], order[j]];
    if (c.abs(factors[j][j]) === 0) continue;
    for (let i = j + 1; i < m; i++) {
      const factor = c.div(factors[i][j], factors[j][j]);
      factors[i][j] = factor;
      for (let l = j + 1; l < n; l++) factors[i][l] = c.sub(factors[i][l], c.mul(factor, factors[j][l]));
    }
  }
  return { factors, order };
}
