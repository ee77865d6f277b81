// Solvers under the names and with the argument order of QuTiP: sesolve, mesolve, steadystate, propagator, correlation.
import { WeftError } from "@weft/core/internal/graph";
import { stack, type Tensor, tensor as tensorOf } from "@weft/core/internal/tensor";
import { Operator, type OperatorEntry } from "../operators/index.js";
import {
  dopri8,
  type Evolution,
  type Hamiltonian,
  hamiltonian,
  type Jump,
  lindblad,
  type Method,
  type MethodName,
  propagator as propagatorOf,
  schrodinger,
  steadyState,
  superPropagator,
} from "../solvers/index.js";
import { densityMatrix, Qobj } from "./qobj.js";

/** A coefficient: a function from times [m] to values [m], real or complex, in terms of tensors, such as `(t) => t.cos()`. */
export type Coefficient = (t: Tensor) => Tensor;
/** An operator, or a sum of operators and [operator, coefficient] pairs. */
export type QobjEvo = Qobj | readonly (Qobj | readonly [Qobj, Coefficient])[];

/** Options of the solvers. */
export interface SolverOptions {
  /** Observables whose expectation values are returned. */
  eOps?: readonly Qobj[];
  /** Default: `dopri8`. */
  method?: MethodName | Method;
  /** Number of steps of a method of fixed steps. */
  steps?: number;
  /** Tolerances of the default method. */
  rtol?: number;
  atol?: number;
  /** Maximum number of steps between two times. */
  nsteps?: number;
  /** Return the states at all times. Default: if there are no eOps. */
  storeStates?: boolean;
}

/** Result of a solver. */
export interface Result {
  times: number[];
  /** Expectation values by observable and time: numbers, or { re, im } for operators that are not Hermitian. */
  expect: OperatorEntry[][];
  states: Qobj[];
  finalState: Qobj;
  /** The run with its tensors and its check. */
  evolution: Evolution;
}

const isPair = (term: Qobj | readonly [Qobj, Coefficient]): term is readonly [Qobj, Coefficient] => Array.isArray(term);
const termsOf = (H: QobjEvo): readonly (Qobj | readonly [Qobj, Coefficient])[] =>
  H instanceof Operator ? [H as Qobj] : (H as readonly (Qobj | readonly [Qobj, Coefficient])[]);

/**
 * The Hamiltonian of a list of terms. A term c(t) A enters with its Hermitian part: Re c (A + A^H) / 2 + Im c i (A - A^H) / 2; the
 * sum must be Hermitian, which is checked at some times.
 */
export function hamiltonianOf(H: QobjEvo, times: readonly number[]): { h: Hamiltonian; first: Qobj } {
  const terms = termsOf(H);
  const fixed = terms.filter((term): term is Qobj => !isPair(term));
  const moving = terms.filter(isPair);
  const first = fixed[0] ?? moving[0]?.[0];
  if (first === undefined) throw new WeftError("H: needs at least one operator");
  const zero = new Qobj(Operator.zeros(first.rows), first.dims);
  const still = fixed.reduce((sum, term) => sum.add(term), zero);
  const drives = moving.flatMap(([A, c]) => [
    { matrix: A.add(A.dag()).scale(0.5), value: (t: Tensor) => c(t).real() },
    { matrix: A.sub(A.dag()).scale({ re: 0, im: 0.5 }), value: (t: Tensor) => imaginary(c(t)) },
  ]);
  const used = drives.filter(({ matrix }) => matrix.size() > 0);
  checkSum(still, moving, times);
  const h = hamiltonian({
    static: still,
    ...(used.length > 0 && {
      drives: used.map(({ matrix }) => matrix),
      amplitudes: (t: Tensor) =>
        stack(
          used.map(({ value }) => value(t).cast(t.dtype)),
          1,
        ),
    }),
  });
  return { h, first };
}

const imaginary = (x: Tensor): Tensor => (x.dtype.startsWith("complex") ? x.imag() : x.mul(0));

/** Throws unless the sum of all terms is Hermitian at five times. */
function checkSum(still: Qobj, moving: readonly (readonly [Qobj, Coefficient])[], times: readonly number[]): void {
  const [begin, end] = [times[0], times[times.length - 1]];
  const at = [0.07, 0.31, 0.52, 0.77, 0.96].map((x) => begin + x * (end - begin));
  const values = moving.map(([, c]) => {
    const found = c(tensorOf(at, { dtype: "float64" }));
    if (found.rank !== 1 || found.shape[0] !== at.length)
      throw new WeftError(
        `H: a coefficient must give [m] values for [m] times, got [${found.shape.join(", ")}] for [${at.length}]`,
      );
    const numbers = found.dataSync() as Float64Array;
    return at.map((_, k) =>
      found.dtype.startsWith("complex") ? { re: numbers[2 * k], im: numbers[2 * k + 1] } : Number(numbers[k]),
    );
  });
  at.forEach((t, k) => {
    const sum = moving.reduce((total, [A], j) => total.add(A.scale(values[j][k])), still);
    if (sum.hermitianError() > 1e-9 * Math.max(1, sum.size()))
      throw new WeftError(`H: is not Hermitian at t = ${t}; add the adjoint terms [A.dag(), conjugate coefficient]`);
  });
}

function timesOf(tlist: readonly number[]): { shifted: number[]; begin: number } {
  if (tlist.length < 2 || tlist.some((t, k) => !Number.isFinite(t) || (k > 0 && t <= tlist[k - 1])))
    throw new WeftError("tlist: needs at least two ascending times");
  return { shifted: tlist.map((t) => t - tlist[0]), begin: tlist[0] };
}

/** Terms whose coefficients start at another time. */
export const shiftedBy = (H: QobjEvo, begin: number): QobjEvo =>
  begin === 0
    ? H
    : termsOf(H).map((term) => (isPair(term) ? ([term[0], (t: Tensor) => term[1](t.add(begin))] as const) : term));

const methodOf = ({ method, rtol, atol, nsteps }: SolverOptions): MethodName | Method => {
  if (method !== undefined) {
    if (rtol !== undefined || atol !== undefined || nsteps !== undefined)
      throw new WeftError("options: rtol, atol and nsteps belong to the default method; give them to the method");
    return method;
  }
  return dopri8({ relative: rtol ?? 1e-8, absolute: atol ?? 1e-10, maxSteps: nsteps ?? 10_000 });
};

const optionNames = ["eOps", "method", "steps", "rtol", "atol", "nsteps", "storeStates"];

function settings(options: SolverOptions, tlist: readonly number[]) {
  for (const key of Object.keys(options))
    if (!optionNames.includes(key))
      throw new WeftError(`options: there is no "${key}"; known: ${optionNames.join(", ")}`);
  const { shifted, begin } = timesOf(tlist);
  const eOps = options.eOps ?? [];
  return {
    begin,
    eOps,
    solver: {
      method: methodOf(options),
      steps: options.steps,
      tsave: shifted,
      duration: shifted[shifted.length - 1],
      saveStates: options.storeStates ?? eOps.length === 0,
      observables: Object.fromEntries(eOps.map((op, k) => [String(k), op])),
    },
  };
}

function resultOf(run: Evolution, tlist: readonly number[], count: number, dims: Qobj["dims"]): Result {
  run.check();
  const complexRows = (x: Tensor): OperatorEntry[] => {
    const numbers = x.dataSync() as Float64Array;
    return x.dtype.startsWith("complex")
      ? tlist.map((_, k) => ({ re: numbers[2 * k], im: numbers[2 * k + 1] }))
      : Array.from(numbers, Number);
  };
  const [rows] = dims;
  const d = rows.reduce((a, b) => a * b, 1);
  const isKet = run.final.rank === 1;
  const [height, width] = [d, isKet ? 1 : d];
  const shape: Qobj["dims"] = [rows, isKet ? rows.map(() => 1) : rows];
  const stateOf = (numbers: ArrayLike<number>, at: number): Qobj =>
    new Qobj(Operator.fromPairs(height, width, numbers, 2 * at * height * width), shape);
  const all = run.states === null ? null : (run.states.dataSync() as Float64Array);
  return {
    times: [...tlist],
    expect: Array.from({ length: count }, (_, k) => complexRows(run.expectations[String(k)])),
    states: all === null ? [] : tlist.map((_, k) => stateOf(all, k)),
    finalState: stateOf(run.final.dataSync() as Float64Array, 0),
    evolution: run,
  };
}

/**
 * Schrödinger equation: the states (or expectation values) at the times of tlist, starting from psi0 at tlist[0].
 *
 * @example
 * ```ts
 * import { basis, sesolve, sigmax, sigmaz } from "@weft/quantum/qutip";
 *
 * const tlist = [0, 0.5, 1];
 * const { expect } = sesolve(sigmax().scale(Math.PI), basis(2, 0), tlist, { eOps: [sigmaz()] });
 * console.log(expect[0]); // cos(2 pi t): 1, -1, 1
 * ```
 */
export function sesolve(H: QobjEvo, psi0: Qobj, tlist: readonly number[], options: SolverOptions = {}): Result {
  const { begin, eOps, solver } = settings(options, tlist);
  const { h, first } = hamiltonianOf(shiftedBy(H, begin), solver.tsave);
  if (!psi0.isket) throw new WeftError("sesolve: psi0 must be a ket; density matrices go through mesolve");
  return resultOf(schrodinger(h, psi0, solver), tlist, eOps.length, first.dims);
}

/** A collapse operator, constant or multiplied by a coefficient (its rate is the squared magnitude). */
export type CollapseOperator = Qobj | readonly [Qobj, Coefficient];

const jumpsOf = (cOps: readonly CollapseOperator[], begin: number): Jump[] =>
  cOps.map((c) =>
    isPair(c)
      ? {
          operator: c[0],
          rate: (t: Tensor) => {
            const value = c[1](begin === 0 ? t : t.add(begin));
            return value.real().square().add(imaginary(value).square()).cast(t.dtype);
          },
        }
      : { operator: c as Qobj },
  );

/**
 * Lindblad master equation with collapse operators cOps (rates included, as in QuTiP). Without cOps and from a ket it is `sesolve`.
 *
 * @example
 * ```ts
 * import { basis, destroy, mesolve, num } from "@weft/quantum/qutip";
 *
 * const a = destroy(5);
 * const result = mesolve(num(5), basis(5, 3), [0, 1, 2], [a.scale(Math.sqrt(0.2))], { eOps: [num(5)] });
 * console.log(result.expect[0]); // 3 exp(-0.2 t)
 * ```
 */
export function mesolve(
  H: QobjEvo,
  rho0: Qobj,
  tlist: readonly number[],
  cOps: readonly CollapseOperator[] = [],
  options: SolverOptions = {},
): Result {
  if (cOps.length === 0 && rho0.isket) return sesolve(H, rho0, tlist, options);
  const { begin, eOps, solver } = settings(options, tlist);
  const { h, first } = hamiltonianOf(shiftedBy(H, begin), solver.tsave);
  const run = lindblad({ hamiltonian: h, jumps: jumpsOf(cOps, begin) }, densityMatrix(rho0), solver);
  return resultOf(run, tlist, eOps.length, first.dims);
}

const operatorOf = (x: Tensor, dims: Qobj["dims"]): Qobj =>
  new Qobj(Operator.fromPairs(x.shape[0], x.shape[1], x.dataSync() as Float64Array), dims);

/** Steady state of a Hamiltonian without time dependence and collapse operators. */
export function steadystate(H: Qobj, cOps: readonly Qobj[]): Qobj {
  const jumps = cOps.map((operator) => ({ operator }));
  return operatorOf(steadyState({ hamiltonian: hamiltonian({ static: H }), jumps }), H.dims);
}

/**
 * Propagator from 0 to t: unitary, or with collapse operators the map of density matrices whose columns are stacked, [d^2, d^2].
 */
export function propagator(H: QobjEvo, t: number, cOps: readonly Qobj[] = [], options: SolverOptions = {}): Qobj {
  const { h, first } = hamiltonianOf(H, [0, t]);
  const solver = { duration: t, method: methodOf(options), steps: options.steps };
  if (cOps.length === 0) {
    const run = propagatorOf(h, solver);
    run.check();
    return operatorOf(run.final, first.dims);
  }
  const rows = superPropagator({ hamiltonian: h, jumps: cOps.map((operator) => ({ operator })) }, solver);
  const d = first.rows;
  const dims = [...first.dims[0], ...first.dims[0]];
  // From stacked rows to stacked columns.
  const index = (k: number): number => (k % d) * d + Math.floor(k / d);
  const map = operatorOf(rows, [[d * d], [d * d]]);
  return new Qobj(
    Operator.build(d * d, d * d, (i, j) => map.at(index(i), index(j))),
    [dims, dims],
  );
}

/**
 * Two-time correlation <A(tau) B(0)> in the state rho0 (null: the steady state), by the quantum regression theorem.
 */
export function correlation2op1t(
  H: Qobj,
  rho0: Qobj | null,
  taulist: readonly number[],
  cOps: readonly Qobj[],
  A: Qobj,
  B: Qobj,
  options: SolverOptions = {},
): OperatorEntry[] {
  const rho = rho0 === null ? steadystate(H, cOps) : densityMatrix(rho0);
  // B rho is not Hermitian: its Hermitian and anti-Hermitian parts evolve separately, and the map is linear.
  const start = B.mul(rho);
  const plus = start.add(start.dag()).scale(0.5);
  const minus = start.sub(start.dag()).scale({ re: 0, im: -0.5 });
  const evolved = [plus, minus].map((part) => {
    const { begin: _, solver } = settings({ ...options, eOps: [A] }, taulist);
    const { h } = hamiltonianOf(H, solver.tsave);
    const values = lindblad({ hamiltonian: h, jumps: jumpsOf(cOps, 0) }, part, solver).expectations["0"];
    const numbers = values.dataSync() as Float64Array;
    return taulist.map((_, k) =>
      values.dtype.startsWith("complex") ? { re: numbers[2 * k], im: numbers[2 * k + 1] } : { re: numbers[k], im: 0 },
    );
  });
  return taulist.map((_, k) => ({
    re: evolved[0][k].re - evolved[1][k].im,
    im: evolved[0][k].im + evolved[1][k].re,
  }));
}
