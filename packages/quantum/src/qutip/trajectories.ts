// Stochastic solvers under the names of QuTiP: quantum jumps (mcsolve) and homodyne measurement (smesolve).
import { WeftError } from "@weft/core/internal/graph";
import type { Tensor } from "@weft/core/internal/tensor";
import { Operator } from "../operators/index.js";
import {
  checkJumps,
  coefficientScales,
  diffusive,
  type Hamiltonian,
  type Jump,
  jumpTrajectories,
  squareOf,
  type Trajectories,
} from "../solvers/index.js";
import { expect } from "./metrics.js";
import { checkDims, densityMatrix, Qobj } from "./qobj.js";
import { checkSolverOptions, checkState, timesOf } from "./solve.js";
import { type Args, type CollapseOperator, collapseList, hamiltonianOf, jumpsOf, type QobjEvo } from "./terms.js";

/** Options of `mcsolve` and `smesolve`. */
export interface StochasticOptions {
  /** Hermitian observables whose averages over trajectories are returned. */
  eOps?: Qobj | readonly Qobj[];
  /** Numbers that coefficients get as their second argument. */
  args?: Args;
  /** Number of trajectories. Default: 500. */
  ntraj?: number;
  /** Fixes the noise. Default: 0. */
  seed?: number;
  /**
   * Number of steps between two times. Default: steps that resolve the Hamiltonian and the rates; those of `smesolve` are shorter for
   * more trajectories, so that their bias stays below the standard errors.
   */
  substeps?: number;
}

/** Averages over trajectories. */
export interface StochasticResult {
  times: number[];
  /** Averages by observable and time. */
  expect: number[][];
  /** Standard errors of the averages. */
  errors: number[][];
  /** Measurement records or numbers of jumps, as tensors. */
  trajectories: Trajectories;
}

const optionNames = ["eOps", "args", "ntraj", "seed", "substeps"];

/** Number of equal intervals of tlist. */
function intervalsOf(tlist: readonly number[]): { count: number; duration: number } {
  const count = tlist.length - 1;
  const duration = tlist[count] - tlist[0];
  const isEven = tlist.every((t, k) => Math.abs(t - tlist[0] - (k * duration) / count) <= 1e-9 * Math.abs(duration));
  if (count < 1 || !(duration > 0) || !isEven)
    throw new WeftError("tlist: trajectories need ascending times at equal distances");
  return { count, duration };
}

function simulate(
  name: string,
  H: QobjEvo,
  start: Qobj,
  given: readonly number[],
  cOps: readonly CollapseOperator[],
  options: StochasticOptions,
  run: (system: Parameters<typeof diffusive>[0], settings: Parameters<typeof jumpTrajectories>[2]) => Trajectories,
): StochasticResult {
  checkSolverOptions(options, optionNames, name);
  const eOps = options.eOps === undefined ? [] : options.eOps instanceof Qobj ? [options.eOps] : options.eOps;
  const tlist = timesOf(given);
  const { count, duration } = intervalsOf(tlist);
  const context = { tlist, args: options.args ?? {} };
  const { h, first } = hamiltonianOf(H, context);
  checkDims(start, [first.dims[0], start.dims[1]], `${name}: the initial state`);
  eOps.forEach((op, k) => {
    if (!(op instanceof Qobj)) throw new WeftError(`${name}: eOps[${k}] must be a Qobj`);
    checkDims(op, first.dims, `${name}: eOps[${k}]`);
    if (!op.isherm) throw new WeftError(`${name}: eOps[${k}] is not Hermitian; averages are of measurable quantities`);
  });
  const jumps = jumpsOf(cOps, first.dims, context);
  // One step turns phases by at most 1/40 and loses about 1/20 of the population.
  const perInterval = (20 * fastestRate(h, jumps, duration) * duration) / count;
  const ntraj = options.ntraj ?? 500;
  // The bias of diffusive steps falls with their length, the standard error with the root of the number of trajectories.
  const finer = name === "smesolve" ? Math.sqrt(Math.max(1, ntraj / 500)) : 1;
  const substeps = options.substeps ?? Math.ceil(finer * Math.max(8, perInterval));
  const trajectories = run(
    { hamiltonian: h, jumps },
    {
      duration,
      steps: count * substeps,
      saves: count,
      trajectories: ntraj,
      seed: options.seed ?? 0,
      observables: Object.fromEntries(eOps.map((op, k) => [String(k), op])),
    },
  );
  // The default steps are short enough by construction.
  if (options.substeps !== undefined) trajectories.check();
  const numbers = (x: Tensor): number[] => Array.from(x.real().dataSync() as Float64Array, Number);
  return {
    times: [...tlist],
    expect: eOps.map((op, k) => [Number(expect(op, start)), ...numbers(trajectories.averages[String(k)].mean)]),
    errors: eOps.map((_, k) => [0, ...numbers(trajectories.averages[String(k)].error)]),
    trajectories,
  };
}

/** Largest sum of the magnitudes of a row, which bounds the eigenvalues; operators of this module are numbers. */
function boundOf(m: unknown): number {
  if (!(m instanceof Operator)) return 1;
  const sums = Array.from({ length: m.rows }, (_, i) =>
    Array.from({ length: m.columns }, (_, j) => Math.hypot(m.re[i * m.columns + j], m.im[i * m.columns + j])),
  );
  return Math.max(0, ...sums.map((row) => row.reduce((a, b) => a + b, 0)));
}

/** Bound of the phases, decays and changes of coefficients per unit of time. */
function fastestRate(h: Hamiltonian, jumps: readonly Jump[], duration: number): number {
  const checked = checkJumps(jumps, h);
  const { sizes, fastest } = coefficientScales(h, checked, duration);
  const phases =
    h.static.reduce((sum, { matrix }) => sum + boundOf(matrix), 0) +
    h.drives.reduce((sum, { matrix }, k) => sum + sizes[k] * boundOf(matrix), 0);
  let next = h.drives.length;
  const decays = checked.reduce((sum, { operator, rate }) => {
    const square = operator instanceof Operator ? boundOf(squareOf(operator)) : 1;
    return sum + square * (typeof rate === "function" ? sizes[next++] : Number(rate));
  }, 0);
  return 2 * phases + decays + fastest;
}

/** Quantum jumps (Monte Carlo wave functions) from the ket psi0: averages and their standard errors at the times of tlist. */
export function mcsolve(
  H: QobjEvo,
  psi0: Qobj,
  tlist: readonly number[],
  cOps: CollapseOperator | readonly CollapseOperator[],
  options: StochasticOptions = {},
): StochasticResult {
  if (!psi0.isket) throw new WeftError("mcsolve: psi0 must be a ket; mixed states go through mesolve");
  return simulate("mcsolve", H, psi0, tlist, collapseList(cOps), options, (system, settings) =>
    jumpTrajectories(system, psi0, settings),
  );
}

/**
 * Stochastic master equation of homodyne measurement: cOps are not measured, scOps are measured with efficiency 1. Averages and
 * their standard errors; `trajectories.records` holds the measurement records.
 */
export function smesolve(
  H: QobjEvo,
  rho0: Qobj,
  tlist: readonly number[],
  cOps: CollapseOperator | readonly CollapseOperator[],
  scOps: CollapseOperator | readonly CollapseOperator[],
  options: StochasticOptions = {},
): StochasticResult {
  const [hidden, measured] = [collapseList(cOps), collapseList(scOps)];
  checkState(rho0, !rho0.isket, "initial");
  if (measured.length === 0) throw new WeftError("smesolve: needs at least one measured operator; use mesolve");
  const efficiencies = [...hidden.map(() => 0), ...measured.map(() => 1)];
  return simulate("smesolve", H, rho0, tlist, [...hidden, ...measured], options, (system, settings) =>
    diffusive(system, hidden.length === 0 && rho0.isket ? rho0 : densityMatrix(rho0), { ...settings, efficiencies }),
  );
}
