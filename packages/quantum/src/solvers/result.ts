// Results of solvers: final state, saved states, expectation values and integration statistics, as lazy tensors, and the check
// that they are physical.
import { isComplex, WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import { adjoint, conj, eigh, matmul, real, Tensor } from "@weft/core/internal/tensor";
import { concreteOperator } from "../concrete.js";
import { Operator, type OperatorLike } from "../operators/index.js";
import type { GradientMethod, Method } from "./methods.js";
import { type Grid, matrixOf } from "./problem.js";
import type { Saved, SavePlan } from "./saves.js";

/** Observables by name. */
export type Observables = Record<string, Tensor | OperatorLike>;

/** What `Evolution.check` measures. */
export interface Validity {
  /** Norm of the final state, trace of the density matrix, or largest norm of the columns of a propagator. */
  norm: number;
  /** Smallest eigenvalue of the final density matrix, else null. */
  smallestEigenvalue: number | null;
  /** Estimated error of the final state, as the 2-norm of its entries; null if it was not asked for. */
  error: number | null;
}

/** What `Evolution.check` accepts. */
export interface CheckLimits {
  /**
   * Largest estimated error of the final state after steps of fixed length. The estimate takes a second run with twice as many
   * steps; `Infinity` leaves it out. Default: 1e-3.
   */
  error?: number;
}

/** Result of a solver. */
export interface Evolution {
  /** Final state [D], density matrix [D, D], or propagator [D, D]. */
  final: Tensor;
  /** States [saves, ...] at `times`, or null without `saves` and `tsave`. */
  states: Tensor | null;
  /** Times of the saved states. */
  times: Tensor;
  /** Expectation values by name, [saves]: real for Hermitian observables, else complex. */
  expectations: Record<string, Tensor>;
  /** The solver. */
  method: Method;
  /** How gradients go through the evolution. */
  gradient: GradientMethod;
  /** Number of fixed steps; for adaptive methods the maximum. */
  steps: number;
  /** Accepted steps of an adaptive method, else null. */
  accepted: Tensor | null;
  /** Whether an adaptive method reached the end within `steps`, else null. */
  reached: Tensor | null;
  /**
   * Estimated error of the final state, as the 2-norm of its entries: the sum of the estimates of all steps of an adaptive method or
   * of `krylov`, without what comes from drives that change within its steps. Null for other methods.
   */
  error: Tensor | null;
  /**
   * Throws if the result cannot be trusted: not arrived, not a number, a norm that changed, a negative eigenvalue, or steps of fixed
   * length that are too long.
   */
  check(limits?: CheckLimits): Validity;
}

type Kind = "state" | "density" | "propagator";

/** Room for rounding in numbers that are probabilities. Long evolutions in complex64 lose about 1e-4 of the norm. */
export const roomFor = (x: Tensor): number => (["complex64", "float32"].includes(x.dtype) ? 1e-3 : 1e-6);

/** Expectation values of an observable for states [..., D] or density matrices [..., D, D]: real if it is Hermitian. */
export function expectation(observable: Tensor | OperatorLike, states: Tensor, kind: "state" | "density"): Tensor {
  return measure(observable, "observable", states.dtype, kind)(states);
}

/** The expectation value as a function of the state. An observable that is a tracer may be anything, so its values are complex. */
function measure(
  observable: Tensor | OperatorLike,
  name: string,
  dtype: Tensor["dtype"],
  kind: "state" | "density",
): (states: Tensor) => Tensor {
  const operator = observable instanceof Tensor ? observable : Operator.from(observable, name);
  const values = operator instanceof Operator ? operator : concreteOperator(operator);
  const isHermitian = values !== null && values.hermitianError() <= 1e-12 * values.size();
  const matrix = matrixOf(operator, isComplex(dtype) ? dtype : "complex128");
  const [rows, columns] = matrix.shape;
  return (states) => {
    const d = states.shape[states.rank - 1];
    if (matrix.rank !== 2 || rows !== d || columns !== d)
      throw new WeftError(`${name}: needs a ${d}x${d} matrix, got [${matrix.shape.join(", ")}]`);
    const column = states.unsqueeze(-1);
    const value =
      kind === "density" ? matrix.T.mul(states).sum([-2, -1]) : conj(column).mul(matmul(matrix, column)).sum([-2, -1]);
    return isHermitian ? real(value) : value;
  };
}

/** The observables as one function of the state. */
export function observe(
  observables: Observables | undefined,
  kind: Kind,
  dtype: Grid["complex"],
): (state: Tensor) => Record<string, Tensor> {
  const entries = Object.entries(observables ?? {});
  if (kind === "propagator" && entries.length > 0)
    throw new WeftError("observables: a propagator has none; evolve a state");
  const each = entries.map(
    ([name, observable]) =>
      [name, measure(observable, `observable ${name}`, dtype, kind as "state" | "density")] as const,
  );
  return (state) => Object.fromEntries(each.map(([name, value]) => [name, value(state)]));
}

interface SummaryParts {
  final: Tensor;
  saved: Saved;
  plan: SavePlan;
  grid: Grid;
  method: Method;
  gradient: GradientMethod;
  kind: Kind;
  accepted?: Tensor | null;
  reached?: Tensor | null;
  error?: Tensor | null;
  /** The final state after twice as many steps of a method of fixed steps. */
  refined: () => Tensor;
}

export function summary(parts: SummaryParts): Evolution {
  const { final, saved, plan, grid, method, gradient, kind } = parts;
  const run = {
    final,
    states: saved.states,
    times: plan.times(grid),
    expectations: saved.expectations,
    method,
    gradient,
    steps: method.tolerance?.maxSteps ?? grid.steps,
    accepted: parts.accepted ?? null,
    reached: parts.reached ?? null,
    error: parts.error ?? null,
  };
  return { ...run, check: (limits) => checkPhysical(run, kind, limits, parts.refined) };
}

/** Throws if an adaptive method ended before the end of the evolution. */
export function checkArrival({ reached, method, steps }: Pick<Evolution, "reached" | "method" | "steps">): void {
  if (reached === null || Array.from(reached.dataSync(), Number).every((x) => x !== 0)) return;
  throw new WeftError(
    `evolve: ${method.name} did not reach the end within ${steps} steps for its tolerance; ` +
      "raise maxSteps or loosen the tolerance",
  );
}

/** Default of `CheckLimits.error`. */
const largestError = 1e-3;

/** Throws if the steps of a method of fixed steps are too long; else the estimated error of its result. */
export function checkSteps(
  { final, error, method, steps }: Pick<Evolution, "final" | "error" | "method" | "steps">,
  refined: () => Tensor,
  { error: limit = largestError }: CheckLimits = {},
): number | null {
  if (!(typeof limit === "number" && limit > 0))
    throw new WeftError(`check: error must be a positive number, or Infinity for no estimate, got ${String(limit)}`);
  const own = error === null ? null : Math.max(...Array.from(error.dataSync(), Number));
  if (method.tolerance !== undefined || limit === Number.POSITIVE_INFINITY) return own;
  const change = final.sub(refined());
  const columns = real(change).square().add(change.imag().square());
  // Of a matrix the column that is wrong most, so that a propagator is as good as the states that it gives.
  const norms = Array.from((columns.rank < 2 ? columns.sum() : columns.sum(-2)).dataSync(), Number).map(Math.sqrt);
  const most = Math.max(own ?? 0, (Math.max(...norms) * 2 ** method.order) / (2 ** method.order - 1));
  if (most <= limit) return most;
  throw new WeftError(
    `evolve: ${steps} steps of ${method.name} leave an estimated error of ${most.toExponential(1)} in the final state, ` +
      `more than ${limit}; use more steps${method.dimension === undefined ? ", or an adaptive method (dopri8)" : " or a larger dimension"}`,
  );
}

/** Throws unless a density matrix (or the Choi matrix of a map, of trace up to `total`) has no negative eigenvalue. */
export function checkDensity(rho: Tensor, run: Pick<Evolution, "method" | "steps">, total: number): Validity {
  const remedy = `after ${run.steps} steps of ${run.method.name}; use more steps, or a method that preserves states (cptp2)`;
  const norm = real(rho.diagonal().sum()).itemSync();
  const room = roomFor(rho);
  const isTotal = norm < total * (1 + room) && (total > 1 || norm > 1 - room);
  if (!Number.isFinite(norm) || !isTotal)
    throw new WeftError(`evolve: the trace of the final state is ${norm} instead of ${total} ${remedy}`);
  const smallest = eigh(rho.add(adjoint(rho)).mul(0.5))
    .values.index(0)
    .itemSync();
  if (smallest < -room * Math.max(1, norm))
    throw new WeftError(`evolve: the final state has an eigenvalue of ${smallest.toExponential(1)} ${remedy}`);
  return { norm, smallestEigenvalue: smallest, error: null };
}

/** Computes tensors in one program, so that the evolution that they share is compiled and run once. */
export const computeTogether = (tensors: readonly (Tensor | null)[]): void =>
  session().realize(tensors.flatMap((x) => (x === null ? [] : [x.node])));

function checkPhysical(
  run: Omit<Evolution, "check">,
  kind: Kind,
  limits: CheckLimits | undefined,
  refined: () => Tensor,
): Validity {
  computeTogether([run.final, run.states, run.accepted, run.reached, run.error, ...Object.values(run.expectations)]);
  checkArrival(run);
  // What is not physical is said first: it needs no second run.
  const validity = kind === "density" ? checkDensity(run.final, run, 1) : checkNorm(run, kind);
  return { ...validity, error: checkSteps(run, refined, limits) };
}

function checkNorm(run: Omit<Evolution, "check">, kind: Kind): Validity {
  const squares = real(run.final).square().add(run.final.imag().square());
  const norms = Array.from((kind === "state" ? squares.sum() : squares.sum(0)).dataSync(), Number).map(Math.sqrt);
  const norm = Math.max(...norms);
  const off = Math.max(...norms.map((x) => Math.abs(x - 1)));
  if (!(off <= roomFor(run.final)))
    throw new WeftError(
      `evolve: the norm of the final state is ${norm} instead of 1 after ${run.steps} steps of ${run.method.name}; use more steps`,
    );
  return { norm, smallestEigenvalue: null, error: null };
}
