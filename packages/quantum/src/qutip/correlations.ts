// Correlation functions of two times and spectra under the names of QuTiP, by the quantum regression theorem.
import { WeftError } from "@weft/core/internal/graph";
import { solve } from "@weft/core/internal/tensor";
import { Operator, type OperatorEntry } from "../operators/index.js";
import { expect } from "./metrics.js";
import { checkDims, densityMatrix, Qobj } from "./qobj.js";
import {
  checkSolverOptions,
  checkState,
  mesolve,
  optionNames,
  type SolverOptions,
  solveProblem,
  steadystate,
  timesOf,
} from "./solve.js";
import { liouvillian, operatorToVector, vectorToOperator } from "./superoperators.js";
import { collapseList, hamiltonianOf, jumpsOf } from "./terms.js";

type CollapseOperators = Qobj | readonly Qobj[];
const partsOf = (x: OperatorEntry): { re: number; im: number } => (typeof x === "number" ? { re: x, im: 0 } : x);

type Problem = readonly [H: Qobj, rho0: Qobj | null, taulist: readonly number[], cOps: CollapseOperators];

/** tr(A V(tau)(start)) at all times, for a start that need not be a state. */
function regression(
  name: string,
  [H, rho0, given, cOps]: Problem,
  A: Qobj,
  startFrom: (rho: Qobj) => Qobj,
  options: SolverOptions,
): OperatorEntry[] {
  checkSolverOptions(options, optionNames, name);
  const taulist = timesOf(given);
  if (rho0 !== null) checkState(rho0, !rho0.isket, "initial");
  const start = startFrom(rho0 === null ? steadystate(H, cOps) : densityMatrix(rho0));
  const context = { tlist: taulist, args: options.args ?? {} };
  const { h, first } = hamiltonianOf(H, context);
  const jumps = jumpsOf(cOps, first.dims, context);
  checkDims(A, first.dims, `${name}: the operator at the later time`);
  // The Hermitian and anti-Hermitian parts of the start evolve separately: the map is linear.
  const plus = start.add(start.dag()).scale(0.5);
  const minus = start.sub(start.dag()).scale({ re: 0, im: -0.5 });
  const [p, m] = [plus, minus].map((part) => {
    const problem = { h, jumps, start: part, tlist: taulist, observables: [A], isState: false };
    return solveProblem(problem, options).values[0].map(partsOf);
  });
  return taulist.map((_, k) => ({ re: p[k].re - m[k].im, im: p[k].im + m[k].re }));
}

/**
 * Two-time correlation <A(tau) B(0)> in the state rho0 (null: the steady state), by the quantum regression theorem.
 */
export function correlation2op1t(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: CollapseOperators,
  A: Qobj,
  B: Qobj,
  options: SolverOptions = {},
): OperatorEntry[] {
  return regression("correlation2op1t", [H, rho0, taulist, cOps], A, (rho) => B.mul(rho), options);
}

/** Correlation <A(0) B(tau) C(0)> in the state rho0 (null: the steady state). */
export function correlation3op1t(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: CollapseOperators,
  A: Qobj,
  B: Qobj,
  C: Qobj,
  options: SolverOptions = {},
): OperatorEntry[] {
  return regression("correlation3op1t", [H, rho0, taulist, cOps], B, (rho) => C.mul(rho).mul(A), options);
}

/** <A^H A> at the times of taulist. */
function numbers(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: CollapseOperators,
  A: Qobj,
  options: SolverOptions,
): number[] {
  const n = A.dag().mul(A);
  if (rho0 !== null) return mesolve(H, rho0, taulist, cOps, { ...options, eOps: [n] }).expect[0].map(Number);
  const value = Number(expect(n, steadystate(H, cOps)));
  return taulist.map(() => value);
}

/** First-order coherence [g1, G1] of the mode A: G1 = <A^H(tau) A(0)>, g1 = G1 / sqrt(n(0) n(tau)) with n = <A^H A>. */
export function coherenceFunctionG1(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: CollapseOperators,
  A: Qobj,
  options: SolverOptions = {},
): [OperatorEntry[], OperatorEntry[]] {
  const n = numbers(H, rho0, taulist, cOps, A, options);
  const G1 = correlation2op1t(H, rho0, taulist, cOps, A.dag(), A, options);
  const g1 = G1.map((x, k) => {
    const { re, im } = partsOf(x);
    const by = Math.sqrt(n[0] * n[k]);
    return { re: re / by, im: im / by };
  });
  return [g1, G1];
}

/** Second-order coherence [g2, G2] of the mode A: G2 = <A^H(0) A^H(tau) A(tau) A(0)>, g2 = G2 / (n(0) n(tau)) with n = <A^H A>. */
export function coherenceFunctionG2(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: CollapseOperators,
  A: Qobj,
  options: SolverOptions = {},
): [number[], number[]] {
  const n = numbers(H, rho0, taulist, cOps, A, options);
  const G2 = correlation3op1t(H, rho0, taulist, cOps, A.dag(), A.dag().mul(A), A, options).map((x) => partsOf(x).re);
  return [G2.map((x, k) => x / (n[0] * n[k])), G2];
}

/**
 * Spectrum at the angular frequencies wlist: the Fourier transform of <A(tau) B(0)> in the steady state, without the part that does not
 * decay (which is a peak of no width at 0).
 */
export function spectrum(H: Qobj, wlist: readonly number[], cOps: CollapseOperators, A: Qobj, B: Qobj): number[] {
  if (collapseList(cOps).length === 0)
    throw new WeftError("spectrum: needs collapse operators, which give lines a width");
  checkDims(A, H.dims, "spectrum: A");
  checkDims(B, H.dims, "spectrum: B");
  const L = liouvillian(H, cOps);
  const rho = steadystate(H, cOps);
  const mean = expect(B, rho);
  const start = operatorToVector(B.mul(rho).sub(rho.scale(mean)));
  // The steady state is taken out of L by adding |rho><1|: the start has no trace, so that this changes nothing else.
  const trace = operatorToVector(
    new Qobj(
      Operator.build(H.rows, H.rows, (i, j) => Number(i === j)),
      H.dims,
    ),
  ).dag();
  const decaying = L.sub(operatorToVector(rho).mul(trace));
  return wlist.map((w) => {
    if (!Number.isFinite(w)) throw new WeftError(`spectrum: wlist must hold finite frequencies, got ${w}`);
    const shifted = new Qobj(
      Operator.build(L.rows, L.rows, (i, j) => {
        const { re, im } = decaying.at(i, j);
        return { re: -re, im: (i === j ? w : 0) - im };
      }),
      L.dims,
    );
    const numbersOf = solve(shifted.tensor(), start.tensor()).dataSync() as Float64Array;
    const image = vectorToOperator(new Qobj(Operator.fromPairs(L.rows, 1, numbersOf), start.dims));
    return 2 * A.mul(image).trace().re;
  });
}
