// Diagonally implicit stages without a matrix of the whole generator, for density matrices of many levels: the linear system of a stage
// is solved by BiCGStab, preconditioned with the decay and the energies, which is where stiffness comes from.
import { build } from "@weft/core/internal/ops";
import { tracing } from "@weft/core/internal/runtime";
import {
  adjoint,
  complex,
  conj,
  customVjp,
  eigh,
  imag,
  matmul,
  real,
  stopGradient,
  Tensor,
  vjp,
  where,
  whileLoop,
} from "@weft/core/internal/tensor";
import { closeOver, instantiate } from "@weft/core/internal/transform";
import type { Stages } from "./adaptive.js";
import type { Tableau } from "./tableaus.js";

/** Most iterations for one stage; a step that needs more is rejected and shortened. */
const mostIterations = 120;

/** Inner product of Hermitian matrices, which is real: so are all coefficients, and iterates stay Hermitian. */
const inner = (a: Tensor, b: Tensor): Tensor =>
  real(a)
    .mul(real(b))
    .add(imag(a).mul(imag(b)))
    .sum();
const times = (x: Tensor, by: Tensor): Tensor => complex(real(x).mul(by), imag(x).mul(by));
/** a / b, and 0 where b is 0: the iteration has ended there. */
const ratio = (a: Tensor, b: Tensor): Tensor => where(b.equal(0), 0, a.div(where(b.equal(0), 1, b)));

/** A linear map of Hermitian matrices. */
type LinearMap = (x: Tensor) => Tensor;

interface Iteration {
  x: Tensor;
  r: Tensor;
  p: Tensor;
  v: Tensor;
  rho: Tensor;
  alpha: Tensor;
  omega: Tensor;
  left: Tensor;
}

/** Solves map(x) = b from the start 0 until the residual is `room` of b; also says whether it arrived. */
function solveLinear(
  map: LinearMap,
  precondition: LinearMap,
  b: Tensor,
  room: number,
): { x: Tensor; isSolved: Tensor } {
  const zero = b.mul(0);
  const limit = inner(b, b).mul(room ** 2);
  const one = limit.mul(0).add(1);
  const { x, left } = whileLoop(
    (now: Iteration) => now.left.greater(limit),
    ({ x: before, r, p, v, rho, alpha, omega }: Iteration): Iteration => {
      const next = inner(b, r);
      const beta = ratio(next.mul(alpha), rho.mul(omega));
      const direction = r.add(times(p.sub(times(v, omega)), beta));
      const y = precondition(direction);
      const image = map(y);
      const step = ratio(next, inner(b, image));
      const s = r.sub(times(image, step));
      const z = precondition(s);
      const t = map(z);
      const weight = ratio(inner(t, s), inner(t, t));
      const rest = s.sub(times(t, weight));
      return {
        x: before.add(times(y, step)).add(times(z, weight)),
        r: rest,
        p: direction,
        v: image,
        rho: next,
        alpha: step,
        omega: weight,
        left: inner(rest, rest),
      };
    },
    { x: zero, r: b, p: zero, v: zero, rho: one, alpha: one, omega: one, left: inner(b, b) },
    { maxTrips: mostIterations },
  );
  return { x, isSolved: left.lessEqual(limit) };
}

/** Inverse of 1 - h (decay and energies): both are diagonal in the basis in which the decay is, up to couplings. */
export function decayInverse(hamiltonian: Tensor, decay: Tensor): (x: Tensor, h: Tensor) => Tensor {
  const { values, vectors } = eigh(stopGradient(decay));
  const energies = real(
    conj(vectors)
      .mul(matmul(stopGradient(hamiltonian), vectors))
      .sum(0),
  );
  const back = adjoint(vectors);
  const pair = (e: Tensor, sign: 1 | -1): Tensor => e.unsqueeze(1).add(e.unsqueeze(0).mul(sign));
  const [losses, turns] = [pair(values, 1).mul(0.5), pair(energies, -1)];
  return (x, h) => {
    const inside = matmul(back, matmul(x, vectors));
    return matmul(vectors, matmul(inside.div(complex(losses.mul(h).add(1), turns.mul(h))), back));
  };
}

/** A map as a function of a matrix and of the tensors that it closes over. */
function closed(map: LinearMap, like: Tensor): { captured: Tensor[]; apply(x: Tensor, captured: Tensor[]): Tensor } {
  const x = build.input(like.shape, like.dtype);
  const output = tracing(() => map(new Tensor(x)).node);
  const { fn, captured } = closeOver([output], [x]);
  return {
    captured: captured.map((node) => new Tensor(node)),
    apply: (at, values) =>
      new Tensor(
        instantiate(
          fn,
          [...values, at].map(({ node }) => node),
        )[0],
      ),
  };
}

/**
 * Solves map(x) = b, with gradients: the cotangent of b solves the transposed system, and everything that the map closes over gets
 * minus the gradient of map(x) at the solution. A transposed system that cannot be solved gives NaN.
 */
function solveImplicit(
  map: LinearMap,
  precondition: LinearMap,
  b: Tensor,
  room: number,
): { x: Tensor; isSolved: Tensor } {
  const [system, near] = [closed(map, b), closed(precondition, b)];
  type Solved = ReturnType<typeof solveLinear>;
  const solve = customVjp(
    (right: Tensor, own: Tensor[], nearby: Tensor[]): Solved =>
      solveLinear(
        (x) => system.apply(x, own),
        (x) => near.apply(x, nearby),
        right,
        room,
      ),
    ([, own, nearby], { x }, cotangent): [Tensor, Tensor[], null] => {
      const [, transposed] = vjp((at: Tensor) => system.apply(at, own), x);
      const [, transposedNear] = vjp((at: Tensor) => near.apply(at, nearby), x);
      const found = solveLinear(
        (y) => transposed(y)[0],
        (y) => transposedNear(y)[0],
        cotangent.x,
        room,
      );
      const slope = where(found.isSolved, found.x, Number.NaN);
      const [, pull] = vjp((values: Tensor[]) => system.apply(x, values), own);
      return [slope, pull(slope.neg())[0], null];
    },
  );
  return solve(b, system.captured, near.captured);
}

/**
 * Stages of a method whose stages share one diagonal coefficient.
 *
 * @param rate - The time derivative of a Hermitian matrix, which is linear in it.
 * @param inverse - An approximate inverse of 1 - h A.
 * @param relative - Tolerance of the method.
 */
export function iterativeStages(
  { a, c, errors }: Tableau,
  rate: (y: Tensor, time: Tensor, u: Tensor) => Tensor,
  inverse: (x: Tensor, h: Tensor) => Tensor,
  relative: number,
): Stages {
  const [[gamma]] = a;
  const room = Math.max(1e-13, 0.01 * relative);
  return (y, time, h, u) => {
    const length = h.mul(gamma);
    const ks: Tensor[] = [];
    let isSolved: Tensor | null = null;
    const solved = (b: Tensor, at: Tensor): Tensor => {
      const found = solveImplicit(
        (x) => x.sub(times(rate(x, at, u), length)),
        (x) => inverse(x, length),
        b,
        room,
      );
      isSolved = isSolved === null ? found.isSolved : isSolved.logicalAnd(found.isSolved);
      return found.x;
    };
    const combined = (row: readonly number[]): Tensor | null =>
      ks.reduce<Tensor | null>((sum, k, j) => {
        if (row[j] === undefined || row[j] === 0) return sum;
        const part = times(k, h.mul(row[j]));
        return sum === null ? part : sum.add(part);
      }, null);
    let at = time;
    for (let stage = 0; stage < c.length; stage++) {
      at = time.add(h.mul(c[stage]));
      const offset = combined(a[stage].slice(0, stage));
      ks.push(solved(rate(offset === null ? y : y.add(offset), at, u), at));
    }
    const next = y.add(combined(a[a.length - 1])!);
    // The error estimate passes through the same system, which removes the part of it that decays at once.
    const estimates = errors.map((row) => solved(combined(row)!, at));
    // A system that was not solved counts as a large error, so that the step is shortened.
    return { next, estimates: estimates.map((e) => where(isSolved!, e, next.mul(1e9))) };
  };
}
