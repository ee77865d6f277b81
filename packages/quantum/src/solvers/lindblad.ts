// Lindblad equation: d rho/dt = -i [H(t), rho] + sum of rate (L rho L^H - {L^H L, rho} / 2). The time loop is a scan with small
// static shapes, so that an ensemble under vmap compiles into one lane kernel.
import { WeftError } from "@weft/core/internal/graph";
import { abs, adjoint, expm, matmul, stopGradient, Tensor, where } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { Operator, type OperatorLike } from "../operators/index.js";
import { adaptive } from "./adaptive.js";
import { hermitianExponential } from "./exponential.js";
import {
  denseTerms,
  explicitStep,
  type Form,
  generatorTable,
  inputsAt,
  inputTable,
  matrixForm,
  realForm,
  superoperators,
  termsForm,
} from "./generators.js";
import { runBlocks, runSaving, runSteps } from "./loop.js";
import { usesTerms } from "./matrix-free.js";
import { type GradientKind, type GradientMethod, type Method, type MethodName, resolveMethod } from "./methods.js";
import {
  adaptivePieces,
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

/** Options of `lindblad`. */
export interface LindbladOptions extends SaveOptions {
  /** End time. Default: the last time of `tsave`. */
  duration?: Tensor | number;
  /** Number of fixed steps: a multiple of `saves` and, for piecewise constant amplitudes, of the segments. */
  steps?: number;
  method?: MethodName | Method;
  gradient?: GradientKind | GradientMethod;
  observables?: Observables;
  dtype?: "complex64" | "complex128";
  /**
   * "real": d^2 real coordinates in a Hermitian basis, the fastest form for small d with `Operator` matrices; "matrix":
   * complex matrices; "matrix-free": complex matrices as states, operators as sums of local terms. Default: by cost.
   */
  representation?: "real" | "matrix" | "matrix-free";
}

/** Hamiltonian and jump operators of a Lindblad equation. */
export interface OpenSystem {
  hamiltonian: Hamiltonian;
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
  const h = system.hamiltonian;
  const d = dimensionOf(h);
  const given = checkJumps(system.jumps, h);
  const duration = durationFor(options);
  const plan = savePlan(options, duration);
  const grid = timeGrid({ dtype: options.dtype, duration, steps: stepsFor(method, options.steps) });
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
  const isExplicit = method.tolerance !== undefined || method.name === "rk4" || method.name === "euler";
  const isLocal = representation === "matrix-free" && isExplicit;
  const jumps = isLocal ? given : given.map((jump) => wholeJump(h, jump, grid.complex));
  const formOf = (): Form => (isLocal ? termsForm : representation === "real" ? realForm : matrixForm)(h, jumps, grid);
  const values = observe(options.observables, "density", grid.complex);
  const snapshot = (rho: Tensor): Snapshot => ({ state: plan.keepStates ? [rho] : [], values: values(rho) });
  const finish = (final: Tensor, all: Snapshot | null, more: Partial<Evolution> = {}): Evolution => {
    const saved = all === null ? single(snapshot(final)) : plan.pick(all, () => snapshot(start));
    return summary({ final, saved, plan, grid, method, gradient, kind: "density", ...more });
  };

  if (method.tolerance !== undefined) {
    const form = formOf();
    const { pieces, drives } = adaptivePieces(h, grid, plan.ends);
    const inputs = inputsAt(jumps, grid, drives);
    const rate = (y: Tensor, time: Tensor, u: Tensor): Tensor => form.rate(y, inputs(time, u));
    const run = adaptive(rate, form.start(start), grid.duration, pieces, {
      tableau: method.tableau!,
      limits: method.tolerance,
      emit: (y) => snapshot(form.matrix(y)),
    });
    return finish(form.matrix(run.final), plan.isFinalOnly ? null : run.saved, run.report);
  }
  const { pieces, picked } = equalPieces(plan, grid.steps);
  const u = inputTable(h, jumps, grid, method.stages);
  const { enter, advance, leave } = isExplicit ? explicit() : byMaps();
  if (plan.isFinalOnly) return finish(leave(advance(enter(start), u)), null);
  const [last, all] = runSaving(advance, enter(start), u, pieces, (y) => snapshot(leave(y)));
  return finish(leave(last), takePieces(all, pieces, picked));

  function explicit() {
    const form = formOf();
    const step = explicitStep(form.rate, method, grid.h);
    return {
      enter: form.start,
      advance: (y: Tensor, xs: Tensor) => runSteps(step, y, xs, gradient),
      leave: form.matrix,
    };
  }

  /** Methods that compute a map per step. Maps are computed for one block of steps at a time, in bounded memory. */
  function byMaps() {
    const { whole, decay, hasConstantDecay } = superoperators(h, jumps, grid);
    const applied = (map: Tensor, y: Tensor): Tensor => matmul(map, y.reshape([d * d, 1])).reshape([d, d]);
    const middle = (xs: Tensor): Tensor => xs.index(":", 0);
    const bytes = 16 * d ** 4;
    const same = (y: Tensor): Tensor => y;
    if (method.name === "pwcExpm") {
      const tables = (xs: Tensor): Tensor[] => [expm(whole(middle(xs)).mul(grid.h))];
      const step = (y: Tensor, [map]: Tensor[]): Tensor => applied(map, y);
      return {
        enter: same,
        advance: (y: Tensor, xs: Tensor) => runBlocks(step, y, xs, { tables, bytes, gradient }),
        leave: same,
      };
    }
    // Strang splitting: half the unitary map, the whole decay, half the unitary map. Each factor is completely positive.
    const dense = denseTerms(h, grid);
    const unitaries = (xs: Tensor): Tensor =>
      hermitianExponential(
        generatorTable(dense.fixed, middle(xs).index(":", `0:${dense.drives.length}`), dense.drives),
        grid.h.mul(0.5),
      );
    const decayed = (xs: Tensor): Tensor => expm(decay(middle(xs)).mul(grid.h));
    const constant = hasConstantDecay && jumps.length > 0 ? decayed(u.index("0:1")).index(0) : null;
    const tables = (xs: Tensor): Tensor[] => (hasConstantDecay ? [unitaries(xs)] : [unitaries(xs), decayed(xs)]);
    const step = (y: Tensor, [unitary, own]: Tensor[]): Tensor => {
      const turned = (x: Tensor): Tensor => matmul(matmul(unitary, x), adjoint(unitary));
      const map = own ?? constant;
      return turned(map === null ? turned(y) : applied(map, turned(y)));
    };
    const each = hasConstantDecay ? 16 * d ** 2 : bytes;
    return {
      enter: same,
      advance: (y: Tensor, xs: Tensor) => runBlocks(step, y, xs, { tables, bytes: each, gradient }),
      leave: same,
    };
  }
}

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
export const single = ({ values }: Snapshot): { states: null; expectations: Record<string, Tensor> } => ({
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
