// Orthonormal bases of Hermitian matrices, on the host. In such a basis a density matrix is d^2 real numbers and a Lindblad
// generator a real matrix; for one qubit these are the Bloch equations.
import { identityOperator, Operator, pauli, pauliLabels } from "../operators/index.js";

const bases = new Map<number, Operator[]>();

/** Pauli products if d is a power of two, else generalized Gell-Mann matrices. The identity is first. */
export function hermitianBasis(d: number): Operator[] {
  const cached = bases.get(d);
  if (cached !== undefined) return cached;
  const n = Math.log2(d);
  const basis =
    Number.isInteger(n) && d > 1 ? pauliLabels(n).map((l) => pauli(l).scale(1 / Math.sqrt(d))) : gellMann(d);
  bases.set(d, basis);
  return basis;
}

function gellMann(d: number): Operator[] {
  const unit = (i: number, j: number): Operator => Operator.build(d, d, (a, b) => (a === i && b === j ? 1 : 0));
  const basis = [identityOperator(d).scale(1 / Math.sqrt(d))];
  for (let i = 0; i < d; i++)
    for (let j = i + 1; j < d; j++) {
      basis.push(unit(i, j).add(unit(j, i)).scale(Math.SQRT1_2));
      basis.push(
        unit(i, j)
          .scale({ re: 0, im: -1 })
          .add(unit(j, i).scale({ re: 0, im: 1 }))
          .scale(Math.SQRT1_2),
      );
    }
  for (let k = 1; k < d; k++) {
    const scale = 1 / Math.sqrt(k * (k + 1));
    basis.push(Operator.build(d, d, (a, b) => (a !== b ? 0 : a < k ? scale : a === k ? -k * scale : 0)));
  }
  return basis;
}

/** Re tr(a b) */
function overlap(a: Operator, b: Operator): number {
  let sum = 0;
  for (let i = 0; i < a.rows; i++)
    for (let j = 0; j < a.columns; j++) {
      const [x, y] = [i * a.columns + j, j * b.columns + i];
      sum += a.re[x] * b.re[y] - a.im[x] * b.im[y];
    }
  return sum;
}

/** Real matrix of a map of Hermitian matrices. Entries at the level of rounding become zero, so that they cost nothing. */
export function realMatrix(d: number, map: (rho: Operator) => Operator): Operator {
  const basis = hermitianBasis(d);
  const images = basis.map(map);
  const size = Math.max(...images.map((image) => image.size()));
  return Operator.build(d * d, d * d, (a, b) => {
    const value = overlap(basis[a], images[b]);
    return Math.abs(value) < 1e-15 * size * d ? 0 : value;
  });
}

/** rho -> -i [h, rho] */
export const commutatorOf =
  (h: Operator) =>
  (rho: Operator): Operator =>
    h.mul(rho).sub(rho.mul(h)).scale({ re: 0, im: -1 });

/** rho -> l rho l^H - (l^H l rho + rho l^H l) / 2 */
export function dissipator(l: Operator): (rho: Operator) => Operator {
  const square = l.adjoint().mul(l).scale(0.5);
  return (rho) => l.mul(rho).mul(l.adjoint()).sub(square.mul(rho)).sub(rho.mul(square));
}

/** Basis matrices as rows: coordinates = Re(rows . vec(rho^T)), rho = sum of coordinate x matrix. */
export function basisRows(d: number): Operator {
  const basis = hermitianBasis(d);
  return Operator.build(d * d, d * d, (a, k) => basis[a].at(Math.floor(k / d), k % d));
}
