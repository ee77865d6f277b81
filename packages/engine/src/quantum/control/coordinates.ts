// Density matrices as real vectors: coordinates in an orthonormal basis of Hermitian matrices whose first element is the
// identity. A Lindblad equation becomes a real, sparse, affine system with d^2 - 1 unknowns, a third to a twentieth of
// the arithmetic of complex matrices, and trace and hermiticity cannot be lost. Knows numbers, no tensors.
import { identity, Operator, pauli, pauliLabels } from "../operators/index.js";

/** Orthonormal Hermitian matrices, the normalised identity first: Pauli products where d is a power of two. */
export function hermitianBasis(d: number): Operator[] {
  const qubits = Math.log2(d);
  if (Number.isInteger(qubits) && qubits > 0) return pauliLabels(qubits).map((p) => pauli(p).scale(1 / Math.sqrt(d)));
  const basis = [identity(d).scale(1 / Math.sqrt(d))];
  for (let j = 0; j < d; j++)
    for (let k = j + 1; k < d; k++) {
      const pair = (a: number, b: number): boolean => (a === j && b === k) || (a === k && b === j);
      basis.push(Operator.build(d, d, (a, b) => (pair(a, b) ? Math.SQRT1_2 : 0)));
      basis.push(
        Operator.build(d, d, (a, b) => ({ re: 0, im: pair(a, b) ? (a === j ? -Math.SQRT1_2 : Math.SQRT1_2) : 0 })),
      );
    }
  for (let m = 1; m < d; m++) {
    const norm = 1 / Math.sqrt(m * (m + 1));
    basis.push(Operator.build(d, d, (a, b) => (a !== b || a > m ? 0 : a === m ? -m * norm : norm)));
  }
  return basis;
}

/** Re tr(a b). */
function overlap(a: Operator, b: Operator): number {
  let sum = 0;
  for (let i = 0; i < a.rows; i++)
    for (let j = 0; j < a.columns; j++) {
      const [p, q] = [i * a.columns + j, j * b.columns + i];
      sum += a.re[p] * b.re[q] - a.im[p] * b.im[q];
    }
  return sum;
}

/** One number of a sparse real matrix. */
export interface SparseEntry {
  row: number;
  column: number;
  value: number;
}

export class Coordinates {
  readonly basis: Operator[];

  constructor(readonly dimension: number) {
    this.basis = hermitianBasis(dimension);
  }

  /** The coordinates of a Hermitian matrix. */
  of(matrix: Operator): number[] {
    return this.basis.map((b) => overlap(b, matrix));
  }

  /** The real matrix of a linear map on Hermitian matrices, without its zeros. */
  #sparse(map: (rho: Operator) => Operator): SparseEntry[] {
    return this.basis.flatMap((b, column) => {
      const image = map(b);
      return this.basis
        .map((a, row) => ({ row, column, value: overlap(a, image) }))
        .filter((entry) => Math.abs(entry.value) > 1e-14);
    });
  }

  /** rho -> -i [h, rho] */
  commutator(h: Operator): SparseEntry[] {
    return this.#sparse((rho) => h.mul(rho).sub(rho.mul(h)).scale({ re: 0, im: -1 }));
  }

  /** rho -> c rho c^H - (c^H c rho + rho c^H c) / 2 */
  dissipator(c: Operator): SparseEntry[] {
    const dagger = c.adjoint();
    const square = dagger.mul(c);
    return this.#sparse((rho) =>
      c
        .mul(rho)
        .mul(dagger)
        .sub(square.mul(rho).add(rho.mul(square)).scale(0.5)),
    );
  }
}
