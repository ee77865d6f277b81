// Lindblad equation: d rho/dt = -i [H(t), rho] + sum of rate (L rho L^H - {L^H L, rho} / 2). The time loop is a scan with small
// static shapes, so that an ensemble under vmap compiles into one lane kernel.
import { WeftError } from "@weft/core/internal/graph";
import { abs, adjoint, full, stopGradient, Tensor, where } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { identityOperator, Operator, type OperatorLike } from "../operators/index.js";
import { adaptive, type Stages } from "./adaptive.js";
import { withBreaks } from "./borders.js";
import {
  explicitStep,
  type Form,
  inputsAt,
  inputTable,
  matrixForm,
  realForm,
  staticParts,
  superoperators,
  termsForm,
} from "./generators.js";
import { implicitLimit, implicitStages } from "./implicit.js";
import { decayInverse, iterativeStages } from "./implicit-terms.js";
import { krylovStep } from "./krylov.js";
import { runBlocks, runSaving, runSteps, storedSteps } from "./loop.js";
import { stepMaps } from "./maps.js";
import { usesTerms } from "./matrix-free.js";
import { type GradientKind, type GradientMethod, type Method, type MethodName, resolveMethod } from "./methods.js";
import { needsPieces, type Piece, runPieces, shiftedTo } from "./pieces.js";
import {
  adaptivePieces,
  checkHamiltonian,
  checkHermitian,
  checkJumps,
  checkKeys,
  dimensionOf,
  type Grid,
  type Hamiltonian,
  type Jump,
  timeGrid,
  wholeJump,
} from "./problem.js";
import { type Evolution, type Observables, observe, summary } from "./result.js";
import {
  durationFor,
  equalPieces,
  type SaveOptions,
  type Snapshot,
  savePlan,
  stateOptionNames,
  takePieces,
} from "./saves.js";

/** Options of `lindblad`. @inline */
export interface LindbladOptions extends SaveOptions {
  /** End time. Default: the last time of `tsave`. */
  duration?: Tensor | number;
  /** Number of fixed steps: a multiple of `saves` and, for piecewise constant amplitudes, of the segments. */
  steps?: number;
  /** The solver; default: rk4. */
  method?: MethodName | Method;
  /** How gradients go through the evolution. */
  gradient?: GradientKind | GradientMethod;
  /** Operators whose expectation values are recorded, by name. */
  observables?: Observables;
  /** Precision of the states; default: complex128. */
  dtype?: "complex64" | "complex128";
  /**
   * "real": d^2 real coordinates in a Hermitian basis, the fastest form for small d with `Operator` matrices; "matrix":
   * complex matrices; "matrix-free": complex matrices as states, operators as sums of local terms. Default: by cost.
   */
  representation?: "real" | "matrix" | "matrix-free";
}

/** Hamiltonian and jump operators of a Lindblad equation. */
export interface OpenSystem {
  /** The Hamiltonian. */
  hamiltonian: Hamiltonian;
  /** Collapse operators with their rates. */
  jumps: readonly Jump[];
}

/** Largest dimension at which `Operator` matrices become constants of the program. */
const literalLimit = 4;

/**
 * Solves the Lindblad equation for an initial density matrix [d, d]. Batches go through `vmap`.
 *
 * @param rho0 - Initial density matrix.
 *
 * @example
 * ```ts
 * import { basisState, densityOf, hamiltonian, lindblad, sigmaMinus, sigmaX, sigmaZ } from "@weft/quantum";
 *
 * const h = hamiltonian({ static: sigmaZ.scale(-0.5), drives: [sigmaX], amplitudes: (t) => t.cos().mul(0.2).unsqueeze(1) });
 * const system = { hamiltonian: h, jumps: [{ operator: sigmaMinus, rate: 0.01 }] };
 * const run = lindblad(system, densityOf(basisState(2, 0)), { duration: 10, steps: 200, observables: { z: sigmaZ } });
 * console.log(run.final.shape, run.expectations.z.arraySync());
 * ```
 */
export function lindblad(system: OpenSystem, rho0: Tensor | OperatorLike, options: LindbladOptions): Evolution {
  checkKeys(options, [...stateOptionNames, "representation"], "lindblad");
  checkKeys(system, ["hamiltonian", "jumps"], "lindblad: system");
  const { method, gradient } = resolveMethod(options.method, "lindblad", options.gradient);
  const d = dimensionOf(checkHamiltonian(system.hamiltonian));
  const given = checkJumps(system.jumps, system.hamiltonian);
  const duration = durationFor(options);
  const plan = savePlan(options, duration);
  const grid = timeGrid({ dtype: options.dtype, duration, steps: stepsFor(method, options.steps) });
  const h = method.tolerance === undefined ? system.hamiltonian : withBreaks(system.hamiltonian, given, grid);
  const start = startOf(rho0, d, grid);
  const numbers =
    [...h.static, ...h.drives].every((t) => t.matrix instanceof Operator) &&
    given.every((j) => j.operator instanceof Operator);
  const representation =
    options.representation ?? (numbers && d <= literalLimit ? "real" : usesTerms(h, given) ? "matrix-free" : "matrix");
  if (!["real", "matrix", "matrix-free"].includes(representation))
    throw new WeftError(
      `lindblad: representation must be "real", "matrix" or "matrix-free", got ${String(representation)}`,
    );
  if (representation === "real" && !numbers)
    throw new WeftError(
      'lindblad: representation "real" needs operators of numbers; an operator is a tensor: use "matrix"',
    );
  const usesRate =
    method.tableau?.isImplicit !== true && (method.tolerance !== undefined || rateMethods.has(method.name));
  const isLocal = representation === "matrix-free" && usesRate;
  const jumps = isLocal ? given : given.map((jump) => wholeJump(h, jump, grid.complex));
  const formOf = (): Form => (isLocal ? termsForm : representation === "real" ? realForm : matrixForm)(h, jumps, grid);
  const values = observe(options.observables, "density", grid.complex);
  const snapshot = (rho: Tensor): Snapshot => ({ state: plan.keepStates ? [rho] : [], values: values(rho) });
  const finish = (final: Tensor, all: Snapshot | null, more: Partial<Evolution> = {}): Evolution => {
    const saved = all === null ? singleSnapshot(snapshot(final)) : plan.pick(all, () => snapshot(start));
    const refined = (): Tensor =>
      lindblad(system, rho0, { ...options, steps: 2 * grid.steps, progress: undefined }).final;
    return summary({ final, saved, plan, grid, method, gradient, kind: "density", refined, ...more });
  };

  if (needsPieces(options, plan, method, grid.steps)) {
    const solve = (rho: Tensor, piece: Piece, steps: number): Evolution =>
      lindblad(shiftedTo(piece, h, system.jumps, grid.duration), rho, {
        duration: grid.duration.mul(piece.length),
        steps: method.tolerance === undefined ? steps : undefined,
        method,
        gradient,
        dtype: grid.complex,
        representation,
      });
    const { steps } = grid;
    const run = runPieces(start, { plan, grid, h, steps, progress: options.progress }, solve, snapshot);
    return finish(run.final, plan.isFinalOnly ? null : run.saved, run.report);
  }
  if (method.tolerance !== undefined) {
    const { tableau, tolerance } = method;
    const { pieces, drives } = adaptivePieces(h, grid, plan.ends);
    const inputs = inputsAt(jumps, grid, drives);
    const run = (form: Form, stages?: (total: Tensor) => Stages): Evolution => {
      const rate = (y: Tensor, time: Tensor, u: Tensor): Tensor => form.rate(y, inputs(time, u));
      const emit = (y: Tensor): Snapshot => snapshot(form.matrix(y));
      const limits = { tableau: tableau!, limits: tolerance, emit, stages };
      const { final, saved, report } = adaptive(rate, form.start(start), grid.duration, pieces, limits);
      return finish(form.matrix(final), plan.isFinalOnly ? null : saved, report);
    };
    if (tableau!.isImplicit !== true) return run(formOf());
    if (d * d > implicitLimit) {
      const form = (usesTerms(h, given) ? termsForm : matrixForm)(h, usesTerms(h, given) ? given : jumps, grid);
      const { hamiltonian, decay } = staticParts(h, jumps, grid);
      return run(form, (total) => {
        const inverse = decayInverse(hamiltonian.mul(total), decay.mul(total));
        const rate = (y: Tensor, time: Tensor, u: Tensor): Tensor =>
          form.rate(y, inputs(time.mul(total), u)).mul(total);
        return iterativeStages(tableau!, rate, inverse, tolerance.relative);
      });
    }
    const { whole } = superoperators(h, jumps, grid);
    const isConstant = typeof h.amplitudes !== "function" && jumps.every(({ rate }) => typeof rate !== "function");
    return run(vectorForm(d), (total) =>
      implicitStages(
        tableau!,
        (time, u) =>
          whole(inputs(time.mul(total), u).unsqueeze(0))
            .index(0)
            .mul(total),
        isConstant,
        identityOperator(d * d).tensor(grid.complex),
      ),
    );
  }
  const { pieces, picked } = equalPieces(plan, grid.steps);
  const u = inputTable(h, jumps, grid, method.stages);
  const { enter, advance, leave } = usesRate ? byRate(formOf(), method, gradient, grid) : byMaps();
  const errorOf = ([, error]: readonly Tensor[]): Partial<Evolution> => (error === undefined ? {} : { error });
  if (plan.isFinalOnly) {
    const last = advance(enter(start), u);
    return finish(leave(last), null, errorOf(last));
  }
  const [last, all] = runSaving(advance, enter(start), u, pieces, (y) => snapshot(leave(y)));
  return finish(leave(last), takePieces(all, pieces, picked), errorOf(last));

  function byMaps(): Integrator {
    const { tables, step, bytes } = stepMaps(h, jumps, grid, method);
    return {
      enter: (rho) => [rho],
      advance: ([y], xs) => [runBlocks(step, y, xs, { tables, bytes, gradient })],
      leave: ([y]) => y,
    };
  }
}

/** Fixed-step methods that need only the right-hand side. */
const rateMethods: ReadonlySet<MethodName> = new Set<MethodName>(["rk4", "euler", "krylov"]);

/** A method of fixed steps: its state, with the sum of the estimated errors if it has one. */
interface Integrator {
  enter(rho: Tensor): Tensor[];
  advance(state: readonly Tensor[], inputs: Tensor): Tensor[];
  leave(state: readonly Tensor[]): Tensor;
}

function byRate(form: Form, method: Method, gradient: GradientMethod, grid: Grid): Integrator {
  const { enter, step } = stepper(form.rate, method, grid, { gradient, hermitian: true });
  return {
    enter: (rho) => enter(form.start(rho)),
    advance: (state, xs) => runSteps(step, [...state], xs, gradient),
    leave: ([y]) => form.matrix(y),
  };
}

/** Fixed steps that evaluate only the right-hand side; the state is followed by the sum of its estimated errors if the method has one. */
export function stepper(
  rate: (state: Tensor, u: Tensor) => Tensor,
  method: Method,
  grid: Grid,
  { gradient, hermitian = false }: { gradient: GradientMethod; hermitian?: boolean },
): { enter(state: Tensor): Tensor[]; step(state: Tensor[], u: Tensor): Tensor[] } {
  const { dimension } = method;
  if (dimension !== undefined)
    return {
      enter: (y) => [y, full([], 0, { dtype: grid.real })],
      step: krylovStep(rate, grid.h, { dimension, hermitian }),
    };
  const explicit = explicitStep(rate, method, grid.h, storedSteps(grid.steps, gradient));
  return { enter: (y) => [y], step: ([y], u) => [explicit(y, u)] };
}

/** Density matrices as vectors, rows one after the other. */
const vectorForm = (d: number): Form => ({
  start: (rho) => rho.reshape([d * d]),
  rate: (y) => y,
  matrix: (y) => y.reshape([d, d]),
});

/** The number of fixed steps: required, and meaningless for an adaptive method. */
export function stepsFor(method: Method, steps: number | undefined): number {
  if (method.tolerance !== undefined) {
    if (steps !== undefined)
      throw new WeftError(
        `evolve: ${method.name} chooses its own steps; leave steps out, or use maxSteps of ${method.name}({...})`,
      );
    return 1;
  }
  if (steps === undefined) throw new WeftError("evolve: this method needs the number of steps; tsit5 chooses its own");
  return steps;
}

/** The values at the end, with a leading axis of one. */
export const singleSnapshot = ({ values }: Snapshot): { states: null; expectations: Record<string, Tensor> } => ({
  states: null,
  expectations: Object.fromEntries(Object.entries(values).map(([name, x]) => [name, x.unsqueeze(0)])),
});

/** The initial state. It must be Hermitian, because the right-hand sides rely on that. */
function startOf(rho0: Tensor | OperatorLike, d: number, grid: Grid): Tensor {
  const numbers = rho0 instanceof Tensor ? null : Operator.from(rho0, "rho0");
  const rho = numbers === null ? (rho0 as Tensor).cast(grid.complex) : numbers.tensor(grid.complex);
  if (rho.rank !== 2 || rho.shape[0] !== d || rho.shape[1] !== d)
    throw new WeftError(`lindblad: rho0 must be [${d}, ${d}], got [${rho.shape.join(", ")}]; batches go through vmap`);
  const remedy = "a density matrix equals its conjugate transpose";
  if (numbers !== null) {
    checkHermitian(numbers, "lindblad: rho0", remedy);
    return rho;
  }
  const room = grid.complex === "complex64" ? 1e-4 : 1e-8;
  const error = stopGradient(abs(rho.sub(adjoint(rho))).max());
  const isHermitian = error.lessEqual(stopGradient(abs(rho).max()).mul(room));
  const known = concreteValues(isHermitian);
  if (known === null) return where(isHermitian, rho, Number.NaN);
  if (known[0] === 0)
    throw new WeftError(
      `lindblad: rho0 is not Hermitian, an entry differs from its mirror's conjugate by ${error.itemSync().toExponential(2)}; ${remedy}`,
    );
  return rho;
}
