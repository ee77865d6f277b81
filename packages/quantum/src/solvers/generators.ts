// Right-hand sides of the Schrödinger and Lindblad equations: density matrices as matrices or as real coordinates, and generators as
// matrices on vectorized density matrices. Inputs of a step are its drives, then the rates that depend on time.
import { bytesOf, isComplex, numel, WeftError } from "@weft/core/internal/graph";
import {
  adjoint,
  arange,
  complex,
  concat,
  imag,
  matmul,
  real,
  residual,
  stack,
  type Tensor,
  tensor,
  zerosLike,
} from "@weft/core/internal/tensor";
import { identityOperator, Operator } from "../operators/index.js";
import { basisRows, commutatorOf, dissipator, realMatrix } from "./hermitian.js";
import { lindbladTerms } from "./matrix-free.js";
import type { Method } from "./methods.js";
import {
  type CheckedJump,
  dimensionOf,
  driveTable,
  type Grid,
  type Hamiltonian,
  matrixOf,
  onWholeSpace,
} from "./problem.js";

/** Representation of the state: conversion from and to density matrices, and its time derivative. */
export interface Form {
  start(rho: Tensor): Tensor;
  /** d state / dt for the inputs u of a step: drives, then rates that depend on time. */
  rate(state: Tensor, u: Tensor): Tensor;
  matrix(state: Tensor): Tensor;
}

/** Rates that are functions of time, in the order of their inputs. */
export const ratesInTime = (jumps: readonly CheckedJump[]): ((times: Tensor) => Tensor)[] =>
  jumps.flatMap(({ rate }) => (typeof rate === "function" ? [rate] : []));

/** The rate of a jump as a factor: a number, a tensor, or an input of the step. */
export function rateOf(
  jumps: readonly CheckedJump[],
  j: number,
  drives: number,
  u: Tensor,
  grid: Grid,
): Tensor | number {
  const { rate } = jumps[j];
  if (typeof rate === "number") return rate;
  if (typeof rate !== "function") return rate.reshape([]).cast(grid.real);
  return u.index(drives + ratesInTime(jumps.slice(0, j)).length);
}

const scaled = (x: Tensor, rate: Tensor | number): Tensor => (rate === 1 ? x : x.mul(rate));

/** Inputs of every step, [steps, stages or 1, drives + rates that depend on time]. */
export function inputTable(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  grid: Grid,
  stages: readonly number[],
): Tensor {
  const drives = driveTable(h, grid, stages);
  const rates = ratesInTime(jumps);
  if (rates.length === 0) return drives;
  const { steps } = grid;
  const s = stages.length;
  const at = arange(0, steps, 1, { dtype: "float64" })
    .unsqueeze(1)
    .add(tensor([...stages], { dtype: "float64" }))
    .reshape([steps * s]);
  const wide = drives.shape[1] === s ? drives : drives.expand([steps, s, drives.shape[2]]);
  const values = ratesAt(rates, at.mul(grid.h.cast("float64")), grid).reshape([steps, s, rates.length]);
  return drives.shape[2] === 0 ? values : concat([wide, values], 2);
}

/** Values of the rates at times [m]: [m, rates]. */
function ratesAt(rates: readonly ((times: Tensor) => Tensor)[], times: Tensor, grid: Grid): Tensor {
  return stack(
    rates.map((rate) => {
      const values = rate(times.cast(grid.real));
      if (values.rank !== 1 || values.shape[0] !== times.shape[0])
        throw new WeftError(
          `jump: the function of a rate must give [${times.shape[0]}] for [${times.shape[0]}] times, got [${values.shape.join(", ")}]`,
        );
      return values.cast(grid.real);
    }),
    1,
  );
}

/** Adds the rates at a time to the drives of an adaptive method. */
export function inputsAt(
  jumps: readonly CheckedJump[],
  grid: Grid,
  drives: (time: Tensor, u: Tensor) => Tensor,
): (time: Tensor, u: Tensor) => Tensor {
  const rates = ratesInTime(jumps);
  if (rates.length === 0) return drives;
  return (time, u) => {
    const values = ratesAt(rates, time.reshape([1]), grid).reshape([rates.length]);
    const own = drives(time, u);
    return own.shape[0] === 0 ? values : concat([own, values], 0);
  };
}

/** fixed + sum of u_k parts_k, built inside the loop. */
const driven = (fixed: Tensor, u: Tensor, parts: readonly Tensor[]): Tensor =>
  parts.reduce((sum, part, k) => sum.add(part.mul(u.index(k))), fixed);

export function realForm(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form {
  const d = dimensionOf(h);
  const operators = (terms: Hamiltonian["static"]): Operator[] =>
    terms.map((term) => onWholeSpace(h, term, grid.complex) as Operator);
  const fixed = operators(h.static).reduce((a, b) => a.add(b), Operator.zeros(d));
  const still = realMatrix(d, commutatorOf(fixed));
  const turns = operators(h.drives).map((drive) => realMatrix(d, commutatorOf(drive)));
  const decays = jumps.map((jump) => realMatrix(d, dissipator(jump.operator as Operator)));
  const rows = basisRows(d);
  const generator = (u: Tensor): Tensor =>
    decays.reduce(
      (sum, decay, j) => sum.add(scaled(decay.literal(grid.real), rateOf(jumps, j, turns.length, u, grid))),
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

export function matrixForm(h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form {
  const minusI = { re: 0, im: -1 };
  const matrices = denseTerms(h, grid);
  const count = matrices.drives.length;
  const leaps = jumps.map(({ operator }) => {
    const left = matrixOf(operator, grid.complex);
    return { left, right: adjoint(left), loss: matmul(adjoint(left), left).mul(-0.5) };
  });
  const isConstant = jumps.every(({ rate }) => typeof rate !== "function");
  const lossOf = (u: Tensor, start: Tensor): Tensor =>
    leaps.reduce((sum, { loss }, j) => sum.add(scaled(loss, rateOf(jumps, j, count, u, grid))), start);
  const free = matrices.fixed.mul(minusI);
  // Constant rates are added once, outside the loop.
  const still = isConstant ? lossOf(free, free) : free;
  const turns = matrices.drives.map((drive) => drive.mul(minusI));
  return {
    start: (rho) => rho,
    // G rho + (G rho)^H with G = -i H - sum L^H L / 2: rho is Hermitian, so one product gives both terms.
    rate: (rho, u) => {
      const moving = driven(still, u, turns);
      const half = matmul(isConstant ? moving : lossOf(u, moving), rho);
      return leaps.reduce(
        (sum, { left, right }, j) =>
          sum.add(matmul(matmul(scaled(left, rateOf(jumps, j, count, u, grid)), rho), right)),
        half.add(adjoint(half)),
      );
    },
    matrix: (rho) => rho,
  };
}

export const termsForm = (h: Hamiltonian, jumps: readonly CheckedJump[], grid: Grid): Form => ({
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

/** The static Hamiltonian, and the sum of rate L^H L over jumps with constant rates, as matrices on the whole space. */
export function staticParts(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  grid: Grid,
): { hamiltonian: Tensor; decay: Tensor } {
  const { fixed } = denseTerms(h, grid);
  const decay = jumps.reduce((sum, { operator, rate }, j) => {
    if (typeof rate === "function") return sum;
    const l = matrixOf(operator, grid.complex);
    return sum.add(scaled(matmul(adjoint(l), l), rateOf(jumps, j, 0, sum, grid)));
  }, fixed.mul(0));
  return { hamiltonian: fixed, decay };
}

/** Elements from which the states of the stages of a step are stored: smaller states live in registers. */
const minStored = 512;
/** Largest size in bytes of these states in a loop whose gradient is taken. */
const maxStored = 256 << 20;

/** The state of a stage. The reverse pass of a loop of `steps` stores it rather than take the stages of each step again. */
function stageState(y: Tensor, steps: number): Tensor {
  const count = numel(y.shape);
  const stages = 3;
  return count >= minStored && stages * count * bytesOf(y.dtype) * steps <= maxStored ? residual(y) : y;
}

/**
 * One Runge-Kutta or Euler step of d state / dt = rate(state, u). `u` holds the drives at the stages, `steps` is the length of the
 * loop.
 */
export function explicitStep(
  rate: (state: Tensor, u: Tensor) => Tensor,
  method: Method,
  h: Tensor,
  steps: number,
): (state: Tensor, u: Tensor) => Tensor {
  const at = (u: Tensor, stage: number): Tensor => u.index(u.shape[0] === 1 ? 0 : stage);
  const stage = (y: Tensor, k: Tensor, factor: Tensor): Tensor => stageState(plusScaled(y, k, factor), steps);
  if (method.name === "euler") return (y, u) => plusScaled(y, rate(y, at(u, 0)), h);
  const [half, third, sixth] = [h.mul(0.5), h.div(3), h.div(6)];
  return (y, u) => {
    // Each stage adds to the result at once, so that no earlier derivative stays in memory.
    const k1 = rate(y, at(u, 0));
    const k2 = rate(stage(y, k1, half), at(u, 1));
    const k3 = rate(stage(y, k2, half), at(u, 1));
    const k4 = rate(stage(y, k3, h), at(u, 2));
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

/** Generators on vectorized density matrices, as functions of the inputs [steps, drives + rates] of some steps: [steps, d^2, d^2]. */
export function superoperators(
  h: Hamiltonian,
  jumps: readonly CheckedJump[],
  grid: Grid,
): { whole(u: Tensor): Tensor; decay(u: Tensor): Tensor; hasConstantDecay: boolean } {
  const d = dimensionOf(h);
  const eye = identityOperator(d).tensor(grid.complex);
  const { fixed, drives } = denseTerms(h, grid);
  const turn = (m: Tensor): Tensor => sandwich(m, eye).sub(sandwich(eye, m)).mul({ re: 0, im: -1 });
  const maps = jumps.map(({ operator }) => {
    const l = matrixOf(operator, grid.complex);
    const square = matmul(adjoint(l), l);
    return sandwich(l, adjoint(l)).sub(sandwich(square, eye).add(sandwich(eye, square)).mul(0.5));
  });
  const nothing = Operator.zeros(d * d).tensor(grid.complex);
  const constant = jumps.reduce(
    (sum, { rate }, j) => (typeof rate === "function" ? sum : sum.add(scaled(maps[j], rateOf(jumps, j, 0, sum, grid)))),
    nothing,
  );
  const moving = maps.filter((_, j) => typeof jumps[j].rate === "function");
  const turns = drives.map(turn);
  const still = turn(fixed).add(constant);
  return {
    whole: (u) => generatorTable(still, u, [...turns, ...moving]),
    decay: (u) => generatorTable(constant, u.index(":", `${drives.length}:`), moving),
    hasConstantDecay: moving.length === 0,
  };
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
