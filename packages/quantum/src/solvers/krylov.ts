// Exponentials of large generators by Krylov subspaces (Arnoldi): a step needs products of the generator with states only. The
// component along the last basis vector estimates what the subspace leaves out.
import { isComplex, range } from "@weft/core/internal/graph";
import {
  abs,
  complex,
  conj,
  expm,
  full,
  imag,
  matmul,
  real,
  scan,
  stopGradient,
  type Tensor,
  tensor,
  where,
  zerosLike,
} from "@weft/core/internal/tensor";

/** Nodes of the Gauss-Legendre rule of two points. */
export const gaussNodes: readonly number[] = [0.5 - Math.sqrt(3) / 6, 0.5 + Math.sqrt(3) / 6];
/** Weights of the inputs at these nodes in the two exponentials of the commutator-free method of order 4. */
const weights = [
  [0.5 + Math.sqrt(3) / 3, 0.5 - Math.sqrt(3) / 3],
  [0.5 - Math.sqrt(3) / 3, 0.5 + Math.sqrt(3) / 3],
];
/** Squarings of the small exponential: enough for steps that a subspace of 40 dimensions can represent. */
const squarings = 5;

type Rate = (state: Tensor, u: Tensor) => Tensor;

const squares = (x: Tensor): Tensor => (isComplex(x.dtype) ? real(x).square().add(imag(x).square()) : x.square());
const scaled = (x: Tensor, by: Tensor): Tensor =>
  isComplex(x.dtype) ? complex(real(x).mul(by), imag(x).mul(by)) : x.mul(by);

/** The norm of x, and x of norm 1; zeros for a vector of rounding errors, where the subspace is complete. */
function unit(x: Tensor, scale: Tensor): { norm: Tensor; direction: Tensor } {
  const size = squares(x).sum();
  const isVector = size.greater(stopGradient(scale).square().mul(1e-26).add(1e-200));
  const norm = where(isVector, size, 1).sqrt();
  return { norm: where(isVector, norm, 0), direction: where(isVector, scaled(x, norm.reciprocal()), 0) };
}

/**
 * exp(length A) y for the linear map A, and the estimated error. `hermitian` states are density matrices: their inner products are
 * real, and so is the matrix of the map in the subspace.
 */
function exponential(
  map: (x: Tensor) => Tensor,
  y: Tensor,
  length: Tensor,
  { dimension, hermitian }: { dimension: number; hermitian: boolean },
): { next: Tensor; error: Tensor } {
  const m = Math.min(dimension, y.size);
  const shape = y.shape;
  const n = y.size;
  const isRealProduct = hermitian || !isComplex(y.dtype);
  const own = tensor(
    range(m + 1).map((j) => range(m + 1).map((k) => Number(k === j))),
    { dtype: length.dtype },
  );
  const flat = y.reshape([n]);
  const start = unit(flat, full([], 0, { dtype: length.dtype }));
  const at = (row: Tensor): Tensor => row.reshape([m + 1, 1]);
  /** Coefficients of x in the basis, as a column [m + 1, 1]. */
  const coefficients = (basis: Tensor, x: Tensor): Tensor => {
    if (!isComplex(x.dtype)) return matmul(basis, x.reshape([n, 1]));
    if (!isRealProduct) return matmul(conj(basis), x.reshape([n, 1]));
    return matmul(real(basis), real(x).reshape([n, 1])).add(matmul(imag(basis), imag(x).reshape([n, 1])));
  };
  const combined = (basis: Tensor, c: Tensor): Tensor => {
    if (!isRealProduct || !isComplex(basis.dtype)) return matmul(c.reshape([1, m + 1]), basis).reshape([n]);
    const row = c.reshape([1, m + 1]);
    return complex(matmul(row, real(basis)), matmul(row, imag(basis))).reshape([n]);
  };
  const first = start.direction.reshape([1, n]).expand([m + 1, n]);
  const [basis, columns] = scan(
    (found: Tensor, x: { now: Tensor; next: Tensor }): [Tensor, Tensor] => {
      const now = combined(found, isRealProduct ? x.now : complex(x.now, zerosLike(x.now)));
      const image = map(now.reshape(shape)).reshape([n]);
      const size = squares(image).sum().sqrt();
      // Orthogonalized twice, because one pass loses orthogonality to rounding.
      const c1 = coefficients(found, image);
      const once = image.sub(combined(found, c1));
      const c2 = coefficients(found, once);
      const rest = unit(once.sub(combined(found, c2)), size);
      const below = x.next.mul(rest.norm);
      const column = c1.add(c2).reshape([m + 1]);
      return [
        found.add(scaled(rest.direction.reshape([1, n]).expand([m + 1, n]), at(x.next))),
        isRealProduct ? column.add(below) : column.add(complex(below, zerosLike(below))),
      ];
    },
    scaled(first, at(own.index(0))),
    { now: own.index(`0:${m}`), next: own.index("1:") },
  );
  // Rows of `columns` are columns of the map in the subspace; the last column of its extension is zero.
  const small = columns.T.pad([
    [0, 0],
    [0, 1],
  ]);
  const turned = expm(small.mul(isRealProduct ? length : complex(length, zerosLike(length))), { squarings }).index(
    ":",
    0,
  );
  const next = scaled(combined(basis, turned), start.norm).reshape(shape);
  return { next, error: stopGradient(abs(turned.index(m)).mul(start.norm)) };
}

/**
 * One step of d state / dt = rate(state, u), where the rate is linear in the state and affine in u. Inputs [2, K] at the Gauss
 * nodes take the commutator-free product of two exponentials (order 4), constant inputs [1, K] one exponential.
 */
export function krylovStep(
  rate: Rate,
  h: Tensor,
  options: { dimension: number; hermitian: boolean },
): (state: readonly Tensor[], u: Tensor) => Tensor[] {
  return ([y, error], u) => {
    if (u.shape[0] === 1) {
      const one = exponential((x) => rate(x, u.index(0)), y, h, options);
      return [one.next, error.add(one.error)];
    }
    let [state, sum] = [y, error];
    for (const [a, b] of weights) {
      const mixed = u.index(0).mul(a).add(u.index(1).mul(b));
      const part = exponential((x) => rate(x, mixed), state, h.mul(0.5), options);
      state = part.next;
      sum = sum.add(part.error);
    }
    return [state, sum];
  };
}
