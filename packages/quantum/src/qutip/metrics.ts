// Expectation values, entropies, distances and phase-space functions under the names of QuTiP.
import { WeftError } from "@weft/core/internal/graph";
import { Operator, type OperatorEntry } from "../operators/index.js";
import { checkDims, checkQobj, densityMatrix, Qobj } from "./qobj.js";
import { sigmay, tensor } from "./states.js";

/** tr(op rho) or <psi|op|psi> as a function of the state: a number if op is Hermitian and the state is one, else { re, im }. */
export function expectationOf(op: Qobj): (state: Qobj) => OperatorEntry {
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
  if (Array.isArray(op)) return op.map((one) => expect(one, state as Qobj));
  checkQobj(op, "expect: op");
  const value = expectationOf(op as Qobj);
  const valueOf = (x: Qobj): OperatorEntry => {
    checkQobj(x, "expect: state");
    return value(x);
  };
  return Array.isArray(state) ? state.map(valueOf) : valueOf(state as Qobj);
}

/** <op^2> - <op>^2 of a Hermitian operator. */
export function variance(op: Qobj, state: Qobj): number {
  if (!op.isherm) throw new WeftError("variance: the operator is not Hermitian");
  checkNormalized(state, "variance");
  return Number(expect(op.mul(op), state)) - Number(expect(op, state)) ** 2;
}

/** Reduced density matrix of the subsystems `sel`. */
export const ptrace = (state: Qobj, sel: number | readonly number[]): Qobj => state.ptrace(sel);

/** Room for rounding in eigenvalues of density matrices. */
const room = 1e-6;

/** Throws unless the norm of a ket or the trace of a density matrix is 1: fidelities above 1 and entropies without meaning follow. */
function checkNormalized(state: Qobj, name: string): void {
  const norm = state.isoper ? state.trace().re : state.norm();
  if (!(Math.abs(norm - 1) <= room))
    throw new WeftError(
      `${name}: the ${state.isoper ? "trace" : "norm"} of a state is 1, got ${norm}; divide it by that (unit())`,
    );
}

/** Eigenvalues of a density matrix. Throws if one is negative: a logarithm or root of it would be left out without a word. */
function probabilities(rho: Qobj, name: string): number[] {
  const values = densityMatrix(rho).eigenenergies();
  if (!(values[0] >= -room * Math.max(1, values[values.length - 1])))
    throw new WeftError(`${name}: needs a ket or a density matrix, got one with the eigenvalue ${values[0]}`);
  checkNormalized(rho, name);
  return values.map((x) => Math.max(0, x));
}

/** Von Neumann entropy -tr(rho log rho), with the natural logarithm or that of `base` (2). */
export function entropyVn(rho: Qobj, base = Math.E): number {
  if (!(base > 1 && Number.isFinite(base)))
    throw new WeftError(`entropyVn: the base of the logarithm must be a number above 1, got ${base}`);
  return probabilities(rho, "entropyVn").reduce((sum, p) => (p > 0 ? sum - p * Math.log(p) : sum), 0) / Math.log(base);
}
/** Linear entropy 1 - tr(rho^2). */
export function entropyLinear(rho: Qobj): number {
  checkNormalized(rho, "entropyLinear");
  return 1 - purity(rho);
}
/** tr(rho^2). */
export const purity = (rho: Qobj): number => rho.purity();

/** Fidelity tr sqrt(sqrt(A) B sqrt(A)) of two states, the square root convention of QuTiP. */
export function fidelity(A: Qobj, B: Qobj): number {
  for (const state of [A, B])
    if (state.isoper) probabilities(state, "fidelity");
    else checkNormalized(state, "fidelity");
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

/** Hilbert-Schmidt distance tr((A - B)^2) of two states. */
export const hilbertDist = (A: Qobj, B: Qobj): number => densityMatrix(A).sub(densityMatrix(B)).purity();
/** Bures distance sqrt(2 (1 - F)) of two states, with the fidelity F (not squared). */
export const buresDist = (A: Qobj, B: Qobj): number => Math.sqrt(2 * (1 - Math.min(1, fidelity(A, B))));
/** Bures angle arccos(F) of two states, with the fidelity F (not squared). */
export const buresAngle = (A: Qobj, B: Qobj): number => Math.acos(Math.min(1, fidelity(A, B)));

/** Mutual information S(A) + S(B) - S(AB) of the subsystems selA and selB, with the natural logarithm or that of `base` (2). */
export function entropyMutual(
  rho: Qobj,
  selA: number | readonly number[],
  selB: number | readonly number[],
  base = Math.E,
): number {
  const [a, b] = [selA, selB].map((sel) => [sel].flat() as number[]);
  const both = [...a, ...b].sort((x, y) => x - y);
  if (new Set(both).size < both.length)
    throw new WeftError(
      `entropyMutual: selA [${a.join(", ")}] and selB [${b.join(", ")}] must have no subsystem in common`,
    );
  return entropyVn(ptrace(rho, a), base) + entropyVn(ptrace(rho, b), base) - entropyVn(ptrace(rho, both), base);
}

/** Conditional entropy S(AB) - S(B), where B is the subsystems selB. */
export const entropyConditional = (rho: Qobj, selB: number | readonly number[], base = Math.E): number =>
  entropyVn(rho, base) - entropyVn(ptrace(rho, selB), base);

/** Relative entropy tr(rho (log rho - log sigma)); infinite if rho has weight where sigma has none. */
export function entropyRelative(rho: Qobj, sigma: Qobj, base = Math.E): number {
  const [values, states] = densityMatrix(sigma).eigenstates();
  const cross = values.reduce((sum, p, k) => {
    const weight = Number(expect(densityMatrix(rho), states[k]));
    if (weight <= 1e-12) return sum;
    return sum + (p <= 1e-12 ? Number.POSITIVE_INFINITY : -weight * Math.log(p));
  }, 0);
  return cross / Math.log(base) - entropyVn(rho, base);
}

/** Wootters concurrence of two qubits. */
export function concurrence(rho: Qobj): number {
  if (rho.rows !== 4) throw new WeftError(`concurrence: needs two qubits (4 levels), got ${rho.rows}`);
  probabilities(rho, "concurrence");
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
  if (!mask.every((x) => [0, 1, true, false].includes(x as number)))
    throw new WeftError(`partialTranspose: entries of the mask are 0 or 1, got [${mask.join(", ")}]`);
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
  checkNormalized(rho, "negativity");
  const [dims] = rho.isbra ? [rho.dims[1]] : rho.dims;
  if (!(subsystem in dims))
    throw new WeftError(`negativity: there is no subsystem ${subsystem} in 0..${dims.length - 1}`);
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

/** Throws unless a state is one of a single mode, and the grid and its scale g are numbers. */
function checkMode(state: Qobj, [xvec, yvec, g]: readonly [unknown, unknown, unknown], name: string): void {
  const dims = state.dims[state.isbra ? 1 : 0];
  if (dims.filter((d) => d > 1).length > 1)
    throw new WeftError(
      `${name}: needs a state of one mode, got [${dims.join(", ")}]; take ptrace(state, k) of mode k`,
    );
  if (state.isoper && !state.isherm)
    throw new WeftError(`${name}: needs a ket or a density matrix, got an operator that is not Hermitian`);
  for (const [key, list] of Object.entries({ xvec, yvec }))
    if (!Array.isArray(list) || !list.every(Number.isFinite))
      throw new WeftError(`${name}: ${key} must be a list of finite numbers`);
  if (!(typeof g === "number" && g > 0 && Number.isFinite(g)))
    throw new WeftError(`${name}: g must be a positive number, got ${typeof g === "object" ? "an object" : String(g)}`);
}

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
 * yvec. Any number of levels: the Laguerre functions of every diagonal of the density matrix come from a recurrence that is stable.
 */
export function wigner(state: Qobj, xvec: readonly number[], yvec: readonly number[], g = Math.SQRT2): PhaseSpace {
  checkMode(state, [xvec, yvec, g], "wigner");
  const rho = densityMatrix(state);
  const diagonals = Array.from({ length: rho.rows }, (_, k) => diagonalOf(rho, k)).filter(({ isZero }) => !isZero);
  return yvec.map((y) =>
    xvec.map((x) => {
      const [ar, ai] = [(g * x) / 2, (g * y) / 2];
      const angle = Math.atan2(ai, ar);
      const sum = diagonals.reduce((total, diagonal) => {
        const { re, im } = laguerreSum(diagonal, 4 * (ar * ar + ai * ai));
        const turn = diagonal.offset * angle;
        return total + (diagonal.offset === 0 ? 1 : 2) * (re * Math.cos(turn) - im * Math.sin(turn));
      }, 0);
      return (sum * g * g) / (2 * Math.PI);
    }),
  );
}

interface MatrixDiagonal {
  offset: number;
  /** Entries (n, n + offset) times (-1)^n. */
  re: Float64Array;
  im: Float64Array;
  isZero: boolean;
  /** log(offset!) / 2 */
  logRoot: number;
}

function diagonalOf(rho: Qobj, offset: number): MatrixDiagonal {
  const size = rho.rows - offset;
  const entries = (of: Float64Array): Float64Array =>
    Float64Array.from({ length: size }, (_, n) => (n % 2 === 0 ? 1 : -1) * of[n * rho.rows + n + offset]);
  const [re, im] = [entries(rho.re), entries(rho.im)];
  let logRoot = 0;
  for (let k = 2; k <= offset; k++) logRoot += Math.log(k) / 2;
  return { offset, re, im, isZero: [re, im].every((values) => values.every((x) => x === 0)), logRoot };
}

/** Values grow by this factor at most before they are scaled down; they start far below the smallest number. */
const growth = 1e100;

/** Sum of entries times sqrt(n! / (n + k)!) b^(k/2) exp(-b/2) L_n^k(b), where k is the offset of the diagonal. */
function laguerreSum({ offset: k, re, im, logRoot }: MatrixDiagonal, b: number): { re: number; im: number } {
  let scale = (k === 0 ? 0 : (k / 2) * Math.log(b)) - b / 2 - logRoot;
  let factor = Math.exp(scale);
  let [before, now] = [0, 1];
  let [sumRe, sumIm] = [0, 0];
  for (let n = 0; n < re.length; n++) {
    sumRe += re[n] * now * factor;
    sumIm += im[n] * now * factor;
    const next = ((2 * n + 1 + k - b) * now - Math.sqrt(n * (n + k)) * before) / Math.sqrt((n + 1) * (n + 1 + k));
    [before, now] = [now, next];
    if (Math.abs(now) > growth) {
      [before, now] = [before / growth, now / growth];
      scale += Math.log(growth);
      factor = Math.exp(scale);
    }
  }
  return { re: sumRe, im: sumIm };
}

/** Husimi Q function at alpha = (x + i y) g / 2, scaled so that its integral over x and y is 1. Rows are yvec. */
export function qfunc(state: Qobj, xvec: readonly number[], yvec: readonly number[], g = Math.SQRT2): PhaseSpace {
  checkMode(state, [xvec, yvec, g], "qfunc");
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
