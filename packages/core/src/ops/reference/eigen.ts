// Eigenvalues and eigenvectors of Hermitian matrices by cyclic Jacobi rotations. The SVD uses the same rotation.
import * as c from "./complex.js";
import { buildMatrix, columnsOf, identityMatrix, isFiniteMatrix, largestSize, type Matrix } from "./matrix.js";

/** The unitary change of columns (p, q) -> (c p - s u q, s p + c u q) that makes a 2x2 Hermitian matrix diagonal. */
interface JacobiRotation {
  cos: number;
  sin: number;
  unit: c.Complex;
}

/** The rotation for [[app, apq], [conj(apq), aqq]], apq not zero. */
export function diagonalizing(app: number, aqq: number, apq: c.Complex): JacobiRotation {
  const size = c.abs(apq);
  const theta = (aqq - app) / (2 * size);
  const tan = (theta < 0 ? -1 : 1) / (Math.abs(theta) + Math.hypot(theta, 1));
  const cos = 1 / Math.hypot(tan, 1);
  return { cos, sin: tan * cos, unit: c.conj(c.sign(apq)) };
}

export function rotateColumns(a: Matrix, p: number, q: number, { cos, sin, unit }: JacobiRotation): void {
  for (const row of a) {
    const left = row[p];
    const right = c.mul(row[q], unit);
    row[p] = c.sub(c.scale(left, cos), c.scale(right, sin));
    row[q] = c.add(c.scale(left, sin), c.scale(right, cos));
  }
}

function rotateRows(a: Matrix, p: number, q: number, { cos, sin, unit }: JacobiRotation): void {
  for (let j = 0; j < columnsOf(a); j++) {
    const upper = a[p][j];
    const lower = c.mul(a[q][j], c.conj(unit));
    a[p][j] = c.sub(c.scale(upper, cos), c.scale(lower, sin));
    a[q][j] = c.add(c.scale(upper, sin), c.scale(lower, cos));
  }
}

const maxSweeps = 100;

/**
 * Rotates the phase of a vector so that its largest component is real and positive. Of components that are equal up to rounding,
 * the first one counts, so that less precise devices choose the same one.
 */
export function turned(vector: readonly c.Complex[]): c.Complex[] {
  const sizes = vector.map(c.abs);
  const nearLargest = 0.999 * largestSize(vector);
  const pivot = vector[sizes.findIndex((size) => size >= nearLargest)];
  const turn = c.conj(c.sign(pivot));
  return vector.map((x) => (x === pivot ? c.complex(c.abs(x)) : c.mul(x, turn)));
}

/** Eigenvalues ascending, eigenvectors in columns. The lower triangle is read. */
export function hermitianEigenpairs(matrix: Matrix): { values: number[]; vectors: Matrix } {
  const n = matrix.length;
  const lower = buildMatrix(n, n, (i, j) => (i >= j ? matrix[i][j] : c.zero));
  if (!isFiniteMatrix(lower)) {
    const nan = c.complex(Number.NaN, Number.NaN);
    return { values: new Array<number>(n).fill(Number.NaN), vectors: buildMatrix(n, n, () => nan) };
  }
  const a = buildMatrix(n, n, (i, j) => {
    if (i === j) return c.complex(matrix[i][i].re);
    return i > j ? matrix[i][j] : c.conj(matrix[j][i]);
  });
  const vectors = identityMatrix(n);
  const negligible = largestSize(a.flat()) * 1e-18;
  for (let sweep = 0, rotated = true; rotated && sweep < maxSweeps; sweep++) {
    rotated = false;
    for (let p = 0; p < n; p++) {
      for (let q = p + 1; q < n; q++) {
        if (c.abs(a[p][q]) <= negligible) continue;
        rotated = true;
        const rotation = diagonalizing(a[p][p].re, a[q][q].re, a[p][q]);
        rotateColumns(a, p, q, rotation);
        rotateRows(a, p, q, rotation);
        a[p][q] = a[q][p] = c.zero;
        rotateColumns(vectors, p, q, rotation);
      }
    }
  }
  const order = a.map((_, i) => i).sort((i, j) => a[i][i].re - a[j][j].re || i - j);
  const columns = order.map((j) => turned(vectors.map((row) => row[j])));
  return { values: order.map((i) => a[i][i].re), vectors: buildMatrix(n, n, (i, j) => columns[j][i]) };
}
