// Steady states, propagators of open systems and Floquet modes: linear algebra on generators and propagators.
import { WeftError } from "@weft/core/internal/graph";
import {
  adjoint,
  angle,
  concat,
  conj,
  eigh,
  full,
  matmul,
  solve,
  stack,
  stopGradient,
  type Tensor,
  tensor,
  vmap,
  where,
  zeros,
} from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { identityOperator, Operator } from "../operators/index.js";
import { superoperators } from "./generators.js";
import { hermitianBasis } from "./hermitian.js";
import { type LindbladOptions, lindblad, type OpenSystem } from "./lindblad.js";
import { resolveMethod } from "./methods.js";
import {
  checkHamiltonian,
  checkJumps,
  checkKeys,
  dimensionOf,
  type Hamiltonian,
  timeGrid,
  wholeJump,
} from "./problem.js";
import { checkArrival, checkSteps } from "./result.js";
import { type PropagatorOptions, propagator } from "./schrodinger.js";

/** Largest dimension of a system whose generator is stored as a d^2 x d^2 matrix. */
const denseLimit = 64;

/** Inputs of a generator without drives. */
function staticGenerator({ hamiltonian: h, jumps: given }: OpenSystem, dtype: "complex64" | "complex128"): Tensor {
  const d = dimensionOf(checkHamiltonian(h));
  if (h.drives.length > 0 || given.some(({ rate }) => typeof rate === "function"))
    throw new WeftError("steadyState: needs a system without time dependence; use floquetModes or a long evolution");
  if (d > denseLimit)
    throw new WeftError(`steadyState: ${d} levels are more than ${denseLimit}; use a long evolution with lindblad`);
  const grid = timeGrid({ duration: 1, steps: 1, dtype });
  const jumps = checkJumps(given, h).map((jump) => wholeJump(h, jump, grid.complex));
  return superoperators(h, jumps, grid)
    .whole(zeros([1, 0], { dtype: grid.real }))
    .index(0);
}

/**
 * Steady state [d, d] of a Lindblad equation without time dependence. Gradients follow from the implicit function theorem, because
 * the state is the solution of a linear system. Throws if it is not unique.
 *
 * @example
 * ```ts
 * import { hamiltonian, sigmaMinus, sigmaX, steadyState } from "@weft/quantum";
 *
 * const system = { hamiltonian: hamiltonian({ static: sigmaX.scale(0.5) }), jumps: [{ operator: sigmaMinus, rate: 1 }] };
 * console.log(steadyState(system).index(1, 1).real().itemSync()); // 1/3: a resonantly driven qubit
 * ```
 */
export function steadyState(system: OpenSystem, options: { dtype?: "complex64" | "complex128" } = {}): Tensor {
  checkKeys(options, ["dtype"], "steadyState");
  const { dtype = "complex128" } = options;
  const d = dimensionOf(system.hamiltonian);
  const generator = staticGenerator(system, dtype);
  // The rows of a generator are dependent (the trace is constant), so the first one is replaced by the trace.
  const trace = identityOperator(d)
    .tensor(dtype)
    .reshape([1, d * d]);
  const one = concat([full([1], 1, { dtype }), full([d * d - 1], 0, { dtype })], 0);
  // In units of its largest entry, so that the units of time do not matter.
  const size = stopGradient(generator.abs().max());
  const scaled = generator.div(where(size.greater(0), size, 1).cast(dtype));
  const matrix = concat([trace, scaled.index("1:")], 0);
  const rho = solve(matrix, one).reshape([d, d]);
  const isUnique = concreteValues(stopGradient(uniqueness(matrix, rho)));
  if (isUnique !== null && !isUnique.every((x) => x <= 1))
    throw new WeftError("steadyState: the steady state is not unique (or does not exist); add the missing decay");
  return rho.add(adjoint(rho)).mul(0.5);
}

/**
 * Two numbers that are at most 1 if a steady state is unique. With several of them the matrix is singular: rounding decides which one
 * a solver returns, and the solution for another right-hand side is as large as rounding allows.
 */
function uniqueness(matrix: Tensor, rho: Tensor): Tensor {
  const [n] = matrix.shape;
  const probe = tensor(
    Array.from({ length: n }, (_, k) => Math.cos(1 + k * k)),
    { dtype: "float64" },
  ).cast(matrix.dtype);
  const room = matrix.dtype === "complex64" ? 1e5 : 1e12;
  const growth = solve(matrix, probe).abs().max().mul(matrix.abs().max()).div(room);
  return stack([rho.abs().max().sub(1e-6), growth]);
}

/**
 * Propagator of an open system [d^2, d^2]: maps vectorized density matrices (rows one after the other) at time 0 to those at the
 * end. It solves the equation for d^2 Hermitian matrices in one batch. Steps that are too long are refused, as by `Evolution.check`.
 */
export function superPropagator(
  system: OpenSystem,
  options: Omit<LindbladOptions, "saves" | "tsave" | "saveStates" | "observables">,
): Tensor {
  const d = dimensionOf(system.hamiltonian);
  const basis = hermitianBasis(d);
  const rows = Operator.build(d * d, d * d, (k, at) => basis[k].at(Math.floor(at / d), at % d)).tensor(options.dtype);
  const map = (steps: number | undefined): { final: Tensor; reached: Tensor[] } => {
    const image = (rho: Tensor): { state: Tensor; reached: Tensor[] } => {
      const run = lindblad(system, rho, { ...options, steps });
      return { state: run.final, reached: run.reached === null ? [] : [run.reached] };
    };
    const images = vmap(image)(rows.reshape([d * d, d, d])) as { state: Tensor; reached: Tensor[] };
    // |i><j| = sum of conj(B_k)_ij B_k; rows of the product are images of the matrix units.
    return { final: matmul(conj(rows).T, images.state.reshape([d * d, d * d])).T, reached: images.reached };
  };
  const { final, reached } = map(options.steps);
  if (!hasValues(final)) return final;
  const { method } = resolveMethod(options.method, "lindblad", options.gradient);
  const steps = method.tolerance?.maxSteps ?? options.steps!;
  checkArrival({ reached: reached[0] ?? null, method, steps });
  checkSteps({ final, error: null, method, steps }, () => map(2 * steps).final);
  return final;
}

/** Inside `jit`, `grad` and `vmap` there are no values to check; a wrong map or mode looks like any other. */
const hasValues = (x: Tensor): boolean => concreteValues(stopGradient(x).real()) !== null;

/** Floquet modes at time 0 as columns [D, D], and their quasi-energies [D] in (-pi / period, pi / period], ascending in no order. */
export interface FloquetModes {
  /** Quasi-energies. */
  energies: Tensor;
  /** Modes at time 0, one per column. */
  modes: Tensor;
}

/**
 * Mixing of real and imaginary part that separates the eigenvalues of a unitary matrix. Phases whose sum is 2 atan(mixing) are not
 * separated, so that this angle is no fraction of pi, which resonant systems have.
 */
const mixing = 0.3719;

/**
 * Floquet modes and quasi-energies of a periodic Hamiltonian, from the propagator over one period. Steps that are too long for it are
 * refused with an estimate of its error; inside `jit`, `grad` and `vmap`, where there are no values, prefer an adaptive method.
 *
 * @param options - As for `propagator`; `duration` is the period.
 */
export function floquetModes(h: Hamiltonian, options: PropagatorOptions): FloquetModes {
  const run = propagator(h, options);
  const { final } = run;
  if (hasValues(final)) run.check();
  const plus = final.add(adjoint(final)).mul(0.5);
  const minus = final.sub(adjoint(final)).mul({ re: 0, im: -0.5 });
  // Both parts are Hermitian and commute, so that a combination has the eigenvectors of the propagator.
  const { vectors } = eigh(plus.add(minus.mul(mixing)));
  const values = conj(vectors).mul(matmul(final, vectors)).sum(0);
  const period = options.duration!;
  return { energies: angle(values).neg().div(period), modes: vectors };
}
