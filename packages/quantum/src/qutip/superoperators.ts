// Superoperators under the names of QuTiP: matrices on operators whose columns are stacked. Their dimensions are those of the operator,
// twice, as those of `propagator` of an open system.
import { WeftError } from "@weft/core/internal/graph";
import { Operator } from "../operators/index.js";
import { checkDims, Qobj } from "./qobj.js";
import { qeye } from "./states.js";

const one = (A: Qobj): Qobj => qeye(A.dims[0]);

function checkSquare(A: Qobj, name: string): void {
  if (A.rows !== A.columns) throw new WeftError(`${name}: needs a square operator, got ${A.rows}x${A.columns}`);
}

/** The operator as one column: its columns one below the other. */
export function operatorToVector(A: Qobj): Qobj {
  const dims = [...A.dims[1], ...A.dims[0]];
  return new Qobj(
    Operator.build(A.rows * A.columns, 1, (k) => A.at(k % A.rows, Math.floor(k / A.rows))),
    [dims, dims.map(() => 1)],
  );
}

/** The operator whose columns are stacked in a column, the inverse of `operatorToVector`. */
export function vectorToOperator(vector: Qobj): Qobj {
  const [dims] = vector.dims;
  const half = dims.slice(dims.length / 2);
  const n = half.reduce((a, b) => a * b, 1);
  if (vector.columns !== 1 || dims.length % 2 !== 0 || n * n !== vector.rows)
    throw new WeftError(
      `vectorToOperator: needs the column of a square operator, got ${vector.rows}x${vector.columns} of [${dims.join(", ")}]`,
    );
  return new Qobj(
    Operator.build(n, n, (i, j) => vector.at(j * n + i, 0)),
    [half, half],
  );
}

/** X -> A X B. */
export function sprepost(A: Qobj, B: Qobj): Qobj {
  checkSquare(A, "sprepost");
  checkDims(B, A.dims, "sprepost: B");
  return B.transpose().kron(A);
}
/** X -> A X. */
export const spre = (A: Qobj): Qobj => sprepost(A, one(A));
/** X -> X A. */
export const spost = (A: Qobj): Qobj => sprepost(one(A), A);

/** X -> A X B^H - (A^H B X + X A^H B) / 2, where B is A unless given. */
export function lindbladDissipator(A: Qobj, B: Qobj = A): Qobj {
  const product = A.dag().mul(B);
  return sprepost(A, B.dag()).sub(spre(product).add(spost(product)).scale(0.5));
}

/** The right-hand side of the Lindblad equation as a matrix: -i [H, X] and the dissipators of all collapse operators. H may be null. */
export function liouvillian(H: Qobj | null, cOps: Qobj | readonly Qobj[] = []): Qobj {
  const jumps = cOps instanceof Qobj ? [cOps] : cOps;
  const terms = [
    ...(H === null ? [] : [spre(H).sub(spost(H)).scale({ re: 0, im: -1 })]),
    ...jumps.map((c) => lindbladDissipator(c)),
  ];
  if (terms.length === 0) throw new WeftError("liouvillian: needs a Hamiltonian or collapse operators");
  return terms.reduce((sum, term) => sum.add(term));
}
