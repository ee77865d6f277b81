// Lindblad equation: d rho/dt = -i [H(t), rho] + sum of rate (L rho L^H - {L^H L, rho} / 2). The time loop is a scan with small
// static shapes, so that an ensemble under vmap compiles into one lane kernel.
import { isComplex, WeftError } from "@weft/core/internal/graph";
import { adjoint, complex, expm, imag, matmul, real, Tensor, vmap, zerosLike } from "@weft/core/internal/tensor";
import { identityOperator, Operator, type OperatorLike } from "../operators/index.js";
import { adaptive } from "./adaptive.js";
import { hermitianExponential } from "./exponential.js";
import { basisRows, commutator, dissipator, realMatrix } from "./hermitian.js";
import { runSaving, runSteps } from "./loop.js";
import { lindbladTerms, usesTerms } from "./matrix-free.js";
import { type GradientKind, type GradientMethod, type Method, type MethodName, resolveMethod } from "./methods.js";
import {
  adaptivePieces,
  type CheckedJump,
  checkJumps,
  dimensionOf,
  driveTable,
  type Grid,
  type Hamiltonian,
  type Jump,
  matrixOf,
  onWholeSpace,
  timeGrid,
  wholeJump,
} from "./problem.js";
import { type Evolution, type Observables, summary } from "./result.js";

/** Options of `lindblad`. */
export interface LindbladOptions {
  duration: Tensor | number;
  /** Number of fixed steps: a multiple of `saves` and, for piecewise constant amplitudes, of the segments. */
  steps?: number;
  method?: MethodName | Method;
  gradient?: GradientKind | GradientMethod;
  /** Number of equally spaced times at which states are returned. Default: 1, the end. */
  saves?: number;
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

/** Representation of the state: conversion from and to density matrices, and its time derivative. */
interface Form {
  start(rho: Tensor): Tensor;
  /** d state / dt for drives u: [K] */
  rate(state: Tensor, u: Tensor): Tensor;
  matrix(state: Tensor): Tensor;
}

const timesRate = (x: Tensor, rate: Tensor | number, grid: Grid): Tensor =>
  typeof rate === "number" ? (rate === 1 ? x : x.mul(rate)) : x.mul(rate.cast(grid.real));

/** fixed + sum of u_k parts_k, built inside the loop. */
const driven = (fixed: Tensor, u: Tensor, parts: readonly Tensor[]): Tensor =>
  parts.reduce((sum, part, k) => sum.add(part.mul(u.index(k))), fixed);

function realForm(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form {
  const d = dimensionOf(h);
  const operators = (terms: Hamiltonian["static"]): Operator[] =>
    terms.map((term) => onWholeSpace(h, term, grid.complex) as Operator);
  const fixed = operators(h.static).reduce((a, b) => a.add(b), Operator.zeros(d));
  const still = realMatrix(d, commutator(fixed));
  const turns = operators(h.drives).map((drive) => realMatrix(d, commutator(drive)));
  const decays = jumps.map((jump) => realMatrix(d, dissipator(jump.operator as Operator)));
  const rows = basisRows(d);
  const generator = (u: Tensor): Tensor =>
    decays.reduce(
      (sum, decay, j) => sum.add(timesRate(decay.literal(grid.real), jumps[j].rate, grid)),
      driven(
        still.literal(grid.real),
        u,
        turns.map((turn) => turn.literal(grid.real)),
      ),
    );
  return {
    start: (rho) => real(matmul(rows.tensor(grid.complex), rho.T.reshape([d * d, 1]))).reshape([d * d]),
    rate: (state, u) => matmul(generator(u), state.reshape([d * d, 1])).reshape([d * d]),
    matrix: (state) => {
      const pair = complex(state, zerosLike(state)).reshape([1, d * d]);
      return matmul(pair, rows.tensor(grid.complex)).reshape([d, d]);
    },
  };
}

function matrixForm(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form {
  const d = dimensionOf(h);
  const minusI = { re: 0, im: -1 };
  const matrices = denseTerms(h, grid);
  const loss = jumps
    .map(({ operator, rate }) => {
      const l = matrixOf(operator, grid.complex);
      return timesRate(matmul(adjoint(l), l), rate, grid).mul(0.5);
    })
    .reduce((a, b) => a.add(b), identityOperator(d).scale(0).tensor(grid.complex));
  const leaps = jumps.map(({ operator, rate }) => {
    const l = matrixOf(operator, grid.complex);
    return { left: timesRate(l, rate, grid), right: adjoint(l) };
  });
  const still = matrices.fixed.mul(minusI).sub(loss);
  const turns = matrices.drives.map((drive) => drive.mul(minusI));
  return {
    start: (rho) => rho,
    // G rho + (G rho)^H with G = -i H - sum L^H L / 2: rho is Hermitian, so one product gives both terms.
    rate: (rho, u) => {
      const half = matmul(driven(still, u, turns), rho);
      return leaps.reduce((sum, { left, right }) => sum.add(matmul(matmul(left, rho), right)), half.add(adjoint(half)));
    },
    matrix: (rho) => rho,
  };
}

const termsForm = (h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form => ({
  start: (rho) => rho,
  rate: lindbladTerms(h, jumps, grid),
  matrix: (rho) => rho,
});

/** The static part and each drive as matrices on the whole space. */
export function denseTerms(h: Hamiltonian, grid: Pick<Grid, "complex">): { fixed: Tensor; drives: Tensor[] } {
  const wide = (terms: Hamiltonian["static"]): Tensor[] =>
    terms.map((term) => matrixOf(onWholeSpace(h, term, grid.complex), grid.complex));
  const fixed = wide(h.static).reduce<Tensor | null>((a, b) => (a === null ? b : a.add(b)), null);
  return { fixed: fixed ?? Operator.zeros(dimensionOf(h)).tensor(grid.complex), drives: wide(h.drives) };
}

/** One Runge-Kutta or Euler step of d state / dt = rate(state, u). `u` holds the drives at the stages. */
export function explicitStep(
  rate: (state: Tensor, u: Tensor) => Tensor,
  method: Method,
  h: Tensor,
): (state: Tensor, u: Tensor) => Tensor {
  const at = (u: Tensor, stage: number): Tensor => u.index(u.shape[0] === 1 ? 0 : stage);
  if (method.name === "euler") return (y, u) => plusScaled(y, rate(y, at(u, 0)), h);
  const [half, third, sixth] = [h.mul(0.5), h.div(3), h.div(6)];
  return (y, u) => {
    // Each stage adds to the result at once, so that no earlier derivative stays in memory.
    const k1 = rate(y, at(u, 0));
    const k2 = rate(plusScaled(y, k1, half), at(u, 1));
    const k3 = rate(plusScaled(y, k2, half), at(u, 1));
    const k4 = rate(plusScaled(y, k3, h), at(u, 2));
    return plusScaled(plusScaled(plusScaled(plusScaled(y, k1, sixth), k2, third), k3, third), k4, sixth);
  };
}

/** y + factor k with a real factor, which multiplies both parts of complex numbers. */
const plusScaled = (y: Tensor, k: Tensor, factor: Tensor): Tensor =>
  isComplex(y.dtype)
    ? complex(real(y).add(real(k).mul(factor)), imag(y).add(imag(k).mul(factor)))
    : y.add(k.mul(factor));

/** Matrix of rho -> left rho right on row-major vectorized rho. */
const sandwich = (left: Tensor, right: Tensor): Tensor => {
  const d = left.shape[left.rank - 1];
  const batch = left.shape.slice(0, -2);
  const a = left.reshape([...batch, d, 1, d, 1]);
  const b = right.transpose().reshape([...right.shape.slice(0, -2), 1, d, 1, d]);
  return a.mul(b).reshape([...batch, d * d, d * d]);
};

function superoperators(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  grid: Grid,
): { still: Tensor; decay: Tensor | null; turns: Tensor[] } {
  const d = dimensionOf(h);
  const eye = identityOperator(d).tensor(grid.complex);
  const { fixed, drives } = denseTerms(h, grid);
  const turn = (m: Tensor): Tensor => sandwich(m, eye).sub(sandwich(eye, m)).mul({ re: 0, im: -1 });
  const decays = jumps.map(({ operator, rate }) => {
    const l = matrixOf(operator, grid.complex);
    const square = matmul(adjoint(l), l);
    const map = sandwich(l, adjoint(l)).sub(sandwich(square, eye).add(sandwich(eye, square)).mul(0.5));
    return timesRate(map, rate, grid);
  });
  const decay = decays.length === 0 ? null : decays.reduce((a, b) => a.add(b));
  return { still: turn(fixed), decay, turns: drives.map(turn) };
}

/** fixed + sum of u_k part_k for every step: [steps, n, n] from drives [steps, K]. */
export const generatorTable = (fixed: Tensor, u: Tensor, parts: readonly Tensor[]): Tensor => {
  const [steps] = u.shape;
  const [n] = fixed.shape;
  return parts.reduce(
    (sum, part, k) => sum.add(part.mul(u.index(":", k).reshape([steps, 1, 1]))),
    fixed.expand([steps, n, n]),
  );
};

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
  const { method, gradient } = resolveMethod(options.method, "lindblad", options.gradient);
  const h = system.hamiltonian;
  const d = dimensionOf(h);
  const given = checkJumps(system.jumps, h);
  const grid = timeGrid({ steps: method.tolerance === undefined ? required(options.steps) : 1, ...options });
  const start = startOf(rho0, d, grid);
  const saves = options.saves ?? 1;
  const numbers =
    [...h.static, ...h.drives].every((t) => t.matrix instanceof Operator) &&
    given.every((j) => j.operator instanceof Operator);
  const representation =
    options.representation ?? (numbers && d <= literalLimit ? "real" : usesTerms(h, given) ? "matrix-free" : "matrix");
  if (representation === "real" && !numbers)
    throw new WeftError(
      'lindblad: representation "real" needs operators of numbers; an operator is a tensor: use "matrix"',
    );
  const isExplicit = method.tolerance !== undefined || method.name === "rk4" || method.name === "euler";
  const isLocal = representation === "matrix-free" && isExplicit;
  const jumps = isLocal ? given : given.map((jump) => wholeJump(h, jump, grid.complex));
  const form = isLocal
    ? termsForm(h, jumps, grid)
    : representation === "real"
      ? realForm(h, jumps, grid)
      : matrixForm(h, jumps, grid);
  const finish = (last: Tensor, states: Tensor | null, more: Partial<Evolution> = {}): Evolution =>
    summary({
      final: last,
      states,
      grid,
      saves,
      method,
      gradient,
      observables: options.observables,
      kind: "density",
      ...more,
    });

  if (method.tolerance !== undefined) {
    const { table, every, drives } = adaptivePieces(h, grid, saves);
    const rate = (y: Tensor, time: Tensor, u: Tensor): Tensor => form.rate(y, drives(time, u));
    const run = adaptive(rate, form.start(start), grid.duration, table, method.tolerance);
    const kept = saves === 1 ? null : mapStates(run.states.index(`${every - 1}::${every}`), form.matrix);
    return finish(form.matrix(run.final), kept, run.report);
  }
  if (grid.steps % saves !== 0) throw new WeftError(`evolve: ${grid.steps} steps do not divide into ${saves} saves`);
  const u = driveTable(h, grid, method.stages);
  if (method.name === "rk4" || method.name === "euler") {
    const step = explicitStep(form.rate, method, grid.h);
    const advance = (y: Tensor, xs: Tensor): Tensor => runSteps(step, y, xs, gradient);
    if (saves === 1) return finish(form.matrix(advance(form.start(start), u)), null);
    const [last, all] = runSaving(advance, form.start(start), u, saves);
    return finish(form.matrix(last), mapStates(all, form.matrix));
  }
  const column = start.reshape([d * d, 1]);
  const { still, decay, turns } = superoperators(h, jumps, grid);
  const middle = u.index(":", 0);
  const apply = (y: Tensor, map: Tensor): Tensor => matmul(map, y);
  let maps: Tensor;
  if (method.name === "pwcExpm") {
    maps = expm(generatorTable(decay === null ? still : still.add(decay), middle, turns).mul(grid.h));
  } else {
    // Strang splitting: half the unitary map, the whole decay, half the unitary map. Each factor is completely positive.
    const dense = denseTerms(h, grid);
    const unitary = hermitianExponential(generatorTable(dense.fixed, middle, dense.drives), grid.h.mul(0.5));
    const half = sandwich(unitary, adjoint(unitary));
    maps = decay === null ? matmul(half, half) : matmul(half, matmul(expm(decay.mul(grid.h)), half));
  }
  const advance = (y: Tensor, xs: Tensor): Tensor => runSteps(apply, y, xs, gradient);
  if (saves === 1) return finish(advance(column, maps).reshape([d, d]), null);
  const [last, all] = runSaving(advance, column, maps, saves);
  return finish(last.reshape([d, d]), all.reshape([saves, d, d]));
}

export const required = (steps: number | undefined): number => {
  if (steps === undefined) throw new WeftError("evolve: this method needs the number of steps; tsit5 chooses its own");
  return steps;
};

const mapStates = (states: Tensor, matrix: (state: Tensor) => Tensor): Tensor => vmap(matrix)(states);

function startOf(rho0: Tensor | OperatorLike, d: number, grid: Grid): Tensor {
  const rho = rho0 instanceof Tensor ? rho0.cast(grid.complex) : Operator.from(rho0, "rho0").tensor(grid.complex);
  if (rho.rank !== 2 || rho.shape[0] !== d || rho.shape[1] !== d)
    throw new WeftError(`lindblad: rho0 must be [${d}, ${d}], got [${rho.shape.join(", ")}]; batches go through vmap`);
  return rho;
}
