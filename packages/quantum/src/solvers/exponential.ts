// exp(-i s A) of Hermitian matrices by eigendecomposition: unitary up to rounding. The gradient is also valid for degenerate
// eigenvalues, because the divided differences are written with sinc.
import {
  adjoint,
  complex,
  cos,
  customVjp,
  eigh,
  matmul,
  real,
  sin,
  type Tensor,
  where,
} from "@weft/core/internal/tensor";

/** exp(-i x) of real x. */
export const phase = (x: Tensor): Tensor => complex(cos(x), sin(x).neg());

/** sin(x) / x with value 1 at 0. */
function sinc(x: Tensor): Tensor {
  const small = x.abs().less(1e-4);
  const safe = where(small, 1, x);
  return where(small, x.mul(x).div(-6).add(1), sin(safe).div(safe));
}

const asColumns = (values: Tensor): Tensor => values.unsqueeze(-2);

const compute = customVjp(
  function hermitianExponential(a: Tensor, s: Tensor): Tensor {
    const { values, vectors } = eigh(a);
    return matmul(vectors.mul(asColumns(phase(values.mul(s.unsqueeze(-1))))), adjoint(vectors));
  },
  ([a, s], y, g) => {
    const { values, vectors } = eigh(a);
    const si = s.unsqueeze(-1).unsqueeze(-1);
    const [row, column] = [values.unsqueeze(-1), values.unsqueeze(-2)];
    // (f(x) - f(y)) / (x - y) for f(x) = exp(-i s x)
    const mean = phase(row.add(column).mul(si).mul(0.5));
    const slope = mean.mul(sinc(row.sub(column).mul(si).mul(0.5)).mul(si)).mul({ re: 0, im: -1 });
    const inner = matmul(adjoint(vectors), matmul(g, vectors)).mul(slope.conj());
    const outer = matmul(vectors, matmul(inner, adjoint(vectors)));
    // The tangent space of Hermitian matrices is Hermitian.
    const ga = outer.add(adjoint(outer)).mul(0.5);
    const dy = matmul(a, y).mul({ re: 0, im: -1 });
    return [ga, real(g.conj().mul(dy)).sum([-2, -1])];
  },
);

/** exp(-i s a) of Hermitian matrices a [..., n, n], with real s that broadcasts to [...]. Differentiable in both. */
export function hermitianExponential(a: Tensor, s: Tensor): Tensor {
  const batch = a.shape.length - 2 >= s.rank ? a.shape.slice(0, -2) : s.shape;
  const n = a.shape[a.rank - 1];
  return compute(a.expand([...batch, n, n]), s.expand(batch));
}
