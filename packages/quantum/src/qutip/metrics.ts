// Expectation values, entropies, distances and phase-space functions under the names of QuTiP.
import { WeftError } from "@weft/core/internal/graph";
import { Operator, type OperatorEntry } from "../operators/index.js";
import { checkDims, densityMatrix, Qobj } from "./qobj.js";
import { sigmay, tensor } from "./states.js";

/** tr(op rho) or <psi|op|psi> as a function of the state: a number if op is Hermitian and the state is one, else { re, im }. */
export function expectation(op: Qobj): (state: Qobj) => OperatorEntry {
  const entries = Array.from(op.re.keys()).filter((k) => op.re[k] !== 0 || op.im[k] !== 0);
  const isHermitian = op.isherm;
  return (given) => {
    const state = given.isbra ? given.dag() : given;
    checkDims(op, [state.dims[0], state.dims[0]], "expect: op");
    const { columns } = state;
    let [re, im] = [0, 0];
    for (const k of entries) {
      const [i, j] = [Math.floor(k / op.columns), k % op.columns];
      // Entry (j, i) of the density matrix.
      const x = state.isket ? times(state, j, i) : state.at(j, i);
      re += op.re[k] * x.re - op.im[k] * x.im;
      im += op.re[k] * x.im + op.im[k] * x.re;
    }
    const isReal = isHermitian && (columns === 1 || Math.abs(im) <= 1e-12 * Math.max(1, Math.abs(re)));
    return isReal ? re : { re, im };
  };
}

const times = ({ re, im }: Qobj, i: number, j: number): { re: number; im: number } => ({
  re: re[i] * re[j] + im[i] * im[j],
  im: im[i] * re[j] - re[i] * im[j],
});

/**
 * Expectation value <psi|op|psi> or tr(op rho): a number if op is Hermitian and the state is one, else { re, im }. Lists of operators or states give lists, as in
 * QuTiP.
 */
export function expect(op: Qobj, state: Qobj): OperatorEntry;
export function expect(op: readonly Qobj[], state: Qobj): OperatorEntry[];
export function expect(op: Qobj, state: readonly Qobj[]): OperatorEntry[];
export function expect(op: readonly Qobj[], state: readonly Qobj[]): OperatorEntry[][];
export function expect(op: Qobj | readonly Qobj[], state: Qobj | readonly Qobj[]): unknown {
  if (!(op instanceof Qobj)) return op.map((one) => expect(one, state as Qobj));
  const value = expectation(op);
  return state instanceof Qobj ? value(state) : state.map(value);
}

/** <op^2> - <op>^2 of a Hermitian operator. */
export function variance(op: Qobj, state: Qobj): number {
  if (!op.isherm) throw new WeftError("variance: the operator is not Hermitian");
  return Number(expect(op.mul(op), state)) - Number(expect(op, state)) ** 2;
}

/** Reduced density matrix of the subsystems `sel`. */
export const ptrace = (state: Qobj, sel: number | readonly number[]): Qobj => state.ptrace(sel);

const probabilities = (rho: Qobj): number[] =>
  densityMatrix(rho)
    .eigenenergies()
    .map((x) => Math.max(0, x));

/** Von Neumann entropy -tr(rho log rho), with the natural logarithm or that of `base` (2). */
export const entropyVn = (rho: Qobj, base = Math.E): number =>
  probabilities(rho).reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0) / Math.log(base);
/** Linear entropy 1 - tr(rho^2). */
export const entropyLinear = (rho: Qobj): number => 1 - purity(rho);
/** tr(rho^2). */
export const purity = (rho: Qobj): number => densityMatrix(rho).mul(densityMatrix(rho)).trace().re;

/** Fidelity tr sqrt(sqrt(A) B sqrt(A)) of two states, the square root convention of QuTiP. */
export function fidelity(A: Qobj, B: Qobj): number {
  if (A.isket && B.isket) {
    const { re, im } = A.dag().mul(B).trace();
    return Math.hypot(re, im);
  }
  // A pure state makes the fidelity an expectation value, without the rounding of square roots of zero.
  if (A.isket || B.isket) {
    const [psi, rho] = A.isket ? [A, B] : [B, A];
    return Math.sqrt(Math.max(0, Number(expect(rho, psi))));
  }
  const root = densityMatrix(A).apply((x) => Math.sqrt(Math.max(0, x)));
  const inner = root.mul(densityMatrix(B)).mul(root);
  // Rounding leaves the product slightly off from Hermitian.
  const symmetric = inner.add(inner.dag()).scale(0.5);
  return symmetric.eigenenergies().reduce((sum, x) => sum + Math.sqrt(Math.max(0, x)), 0);
}
/** Trace distance tr|A - B| / 2. */
export const tracedist = (A: Qobj, B: Qobj): number =>
  densityMatrix(A)
    .sub(densityMatrix(B))
    .eigenenergies()
    .reduce((sum, x) => sum + Math.abs(x), 0) / 2;

/** Wootters concurrence of two qubits. */
export function concurrence(rho: Qobj): number {
  if (rho.rows !== 4) throw new WeftError(`concurrence: needs two qubits (4 levels), got ${rho.rows}`);
  const flip = tensor(sigmay(), sigmay());
  const state = new Qobj(densityMatrix(rho), flip.dims);
  const conjugated = state.conj();
  const root = state.apply((x) => Math.sqrt(Math.max(0, x)));
  const inner = root.mul(flip).mul(conjugated).mul(flip).mul(root);
  const [a, b, c, d] = inner
    .add(inner.dag())
    .scale(0.5)
    .eigenenergies()
    .map((x) => Math.sqrt(Math.max(0, x)))
    .reverse();
  return Math.max(0, a - b - c - d);
}

/** Partial transpose of the subsystems with mask 1. */
export function partialTranspose(rho: Qobj, mask: readonly number[]): Qobj {
  const state = densityMatrix(rho);
  const [dims] = state.dims;
  if (mask.length !== dims.length)
    throw new WeftError(`partialTranspose: needs one entry per subsystem (${dims.length}), got ${mask.length}`);
  const digits = (index: number): number[] => {
    const out: number[] = [];
    for (let k = dims.length - 1, left = index; k >= 0; k--) {
      out[k] = left % dims[k];
      left = Math.floor(left / dims[k]);
    }
    return out;
  };
  const index = (list: readonly number[]): number => list.reduce((sum, x, k) => sum * dims[k] + x, 0);
  const n = state.rows;
  const out = Operator.build(n, n, entry);
  function entry(i: number, j: number): { re: number; im: number } {
    const [row, column] = [digits(i), digits(j)];
    const from = row.map((x, k) => (mask[k] ? column[k] : x));
    const to = column.map((x, k) => (mask[k] ? row[k] : x));
    return state.at(index(from), index(to));
  }
  return new Qobj(out, state.dims);
}

/** Negativity (|rho^T| - 1) / 2 with respect to one subsystem. */
export function negativity(rho: Qobj, subsystem: number): number {
  const [dims] = rho.dims;
  const mask = dims.map((_, k) => Number(k === subsystem));
  return (
    (partialTranspose(rho, mask)
      .eigenenergies()
      .reduce((sum, x) => sum + Math.abs(x), 0) -
      1) /
    2
  );
}

/** Values by row (y) and column (x). */
export type PhaseSpace = number[][];

/** A function of the complex amplitude (x + i y) g / 2 on a grid; `re` and `im` are space for M numbers. */
function onGrid(
  state: Qobj,
  [xvec, yvec, g]: readonly [readonly number[], readonly number[], number],
  value: (rho: Qobj, alpha: { ar: number; ai: number }, re: Float64Array, im: Float64Array) => number,
): PhaseSpace {
  const rho = densityMatrix(state);
  const [re, im] = [new Float64Array(rho.rows), new Float64Array(rho.rows)];
  return yvec.map((y) => xvec.map((x) => value(rho, { ar: (g * x) / 2, ai: (g * y) / 2 }, re, im)));
}

/** Powers re[0] (scale alpha)^n / sqrt(n!), as complex numbers. */
function fillPowers(scale: number, { ar, ai }: { ar: number; ai: number }, re: Float64Array, im: Float64Array): void {
  im[0] = 0;
  for (let n = 1; n < re.length; n++) {
    const s = scale / Math.sqrt(n);
    re[n] = s * (ar * re[n - 1] - ai * im[n - 1]);
    im[n] = s * (ar * im[n - 1] + ai * re[n - 1]);
  }
}

/**
 * Wigner function on the grid xvec x yvec, with position and momentum (a +- a^H) g / 2 of QuTiP's convention (g = sqrt(2)): rows are
 * yvec. Recurrence over Fock elements, as stable as the number of levels allows.
 */
export function wigner(state: Qobj, xvec: readonly number[], yvec: readonly number[], g = Math.SQRT2): PhaseSpace {
  return onGrid(state, [xvec, yvec, g], (rho, alpha, re, im) => {
    const M = rho.rows;
    const { ar, ai } = alpha;
    const add = (row: number, column: number): number =>
      rho.re[row * M + column] * re[column] - rho.im[row * M + column] * im[column];
    // Entries hold the function of |0><n|, and after round m that of |m><n|.
    re[0] = Math.exp(-2 * (ar * ar + ai * ai)) / Math.PI;
    fillPowers(2, alpha, re, im);
    let total = rho.re[0] * re[0];
    for (let n = 1; n < M; n++) total += 2 * add(0, n);
    for (let m = 1; m < M; m++) {
      let [oldRe, oldIm] = [re[m], im[m]];
      const s = 1 / Math.sqrt(m);
      re[m] = (2 * (ar * oldRe + ai * oldIm) - Math.sqrt(m) * re[m - 1]) * s;
      im[m] = (2 * (ar * oldIm - ai * oldRe) - Math.sqrt(m) * im[m - 1]) * s;
      total += add(m, m);
      for (let n = m + 1; n < M; n++) {
        const t = 1 / Math.sqrt(n);
        const [nextRe, nextIm] = [
          (2 * (ar * re[n - 1] - ai * im[n - 1]) - Math.sqrt(m) * oldRe) * t,
          (2 * (ar * im[n - 1] + ai * re[n - 1]) - Math.sqrt(m) * oldIm) * t,
        ];
        [oldRe, oldIm] = [re[n], im[n]];
        [re[n], im[n]] = [nextRe, nextIm];
        total += 2 * add(m, n);
      }
    }
    return (total * g * g) / 2;
  });
}

/** Husimi Q function at alpha = (x + i y) g / 2, scaled so that its integral over x and y is 1. Rows are yvec. */
export function qfunc(state: Qobj, xvec: readonly number[], yvec: readonly number[], g = Math.SQRT2): PhaseSpace {
  return onGrid(state, [xvec, yvec, g], (rho, alpha, re, im) => {
    const M = rho.rows;
    re[0] = Math.exp(-(alpha.ar ** 2 + alpha.ai ** 2) / 2);
    fillPowers(1, alpha, re, im);
    let total = 0;
    for (let i = 0; i < M; i++)
      for (let j = 0; j < M; j++) {
        // conj(alpha_i) rho_ij alpha_j
        const [a, b] = [re[i] * re[j] + im[i] * im[j], re[i] * im[j] - im[i] * re[j]];
        total += rho.re[i * M + j] * a - rho.im[i * M + j] * b;
      }
    return (total * g * g) / (4 * Math.PI);
  });
}
