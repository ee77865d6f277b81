// Solvers under the names and with the argument order of QuTiP: sesolve, mesolve, steadystate, propagator. Small problems
// are solved on the host, larger ones by compiled programs, with the same method.
import { WeftError } from "@weft/core/internal/graph";
import { concat, type Tensor } from "@weft/core/internal/tensor";
import { Operator, type OperatorEntry } from "../operators/index.js";
import { unknownName } from "../schema/index.js";
import {
  checkArrival,
  checkJumps,
  dopri8,
  type Evolution,
  evolveOnHost,
  type Hamiltonian,
  type HamiltonianTerm,
  type HostRun,
  type Jump,
  lindblad,
  type Method,
  type MethodName,
  propagator as propagatorOf,
  schrodinger,
  steadyState,
  superPropagator,
} from "../solvers/index.js";
import { expectationOf } from "./metrics.js";
import { checkDims, checkQobj, densityMatrix, Qobj } from "./qobj.js";
import { lindbladDissipator, liouvillian } from "./superoperators.js";
import { type Args, type CollapseOperator, collapseList, hamiltonianOf, jumpsOf, type QobjEvo } from "./terms.js";

/** An observable: an operator, or a function of time and state. */
export type EOp = Qobj | ((t: number, state: Qobj) => OperatorEntry);

/** Options of the solvers. */
export interface SolverOptions {
  /** Observables whose values are returned: one, a list, or a record by name. */
  eOps?: EOp | readonly EOp[] | Readonly<Record<string, EOp>>;
  /** Numbers that coefficients get as their second argument. */
  args?: Args;
  /** Default: `dopri8`. */
  method?: MethodName | Method;
  /** Number of steps of a method of fixed steps. */
  steps?: number;
  /** Tolerances of the default method. */
  rtol?: number;
  atol?: number;
  /** Maximum number of steps between two times. */
  nsteps?: number;
  /** Length of the longest step. Pulses shorter than about 1/4000 of the evolution need it. */
  maxStep?: number;
  /** Return the states at all times. Default: if there are no eOps. */
  storeStates?: boolean;
}

/** Result of a solver. */
export interface SolverResult {
  times: number[];
  /** Values by observable and time: numbers, or { re, im } for operators that are not Hermitian. */
  expect: OperatorEntry[][];
  /** The same by name, if eOps is a record. */
  eData: Record<string, OperatorEntry[]>;
  states: Qobj[];
  finalState: Qobj;
  /** How it was solved: on the host or by a compiled program, accepted steps, and the estimated error of the final state. */
  stats: { solver: "host" | "compiled"; method: string; steps: number | null; error: number | null };
}

export const optionNames = ["eOps", "args", "method", "steps", "rtol", "atol", "nsteps", "maxStep", "storeStates"];
/** Names of QuTiP's options and methods, with what they are called here. */
const qutipOptions: Record<string, string> = {
  e_ops: "eOps",
  c_ops: "the argument cOps",
  store_states: "storeStates",
  options: "its entries, beside eOps",
  max_step: "maxStep",
  progress_bar: "nothing: leave it out",
};

/** Throws if there is an option that is not known; a list in place of the options is the eOps of QuTiP's argument order. */
export function checkSolverOptions(options: object, known: readonly string[], name: string): void {
  if (typeof options !== "object" || options === null || Array.isArray(options) || options instanceof Operator)
    throw new WeftError(`${name}: options are an object; write { eOps: [...] } for a list of observables`);
  for (const key of Object.keys(options))
    if (!known.includes(key)) {
      const hint = Object.hasOwn(qutipOptions, key) ? `; QuTiP's ${key} is ${qutipOptions[key]}` : "";
      throw new WeftError(`${name}: ${unknownName("option ", key, known)}${hint}`);
    }
}

function methodOf({ method, rtol, atol, nsteps, maxStep }: SolverOptions): MethodName | Method {
  if (method !== undefined) {
    if ([rtol, atol, nsteps, maxStep].some((x) => x !== undefined))
      throw new WeftError(
        "options: rtol, atol, nsteps and maxStep belong to the default method; give them to the method",
      );
    return method;
  }
  return dopri8({ relative: rtol ?? 1e-8, absolute: atol ?? 1e-10, maxSteps: nsteps ?? 10_000, maxStep });
}

/** The times as a list. Throws unless they ascend. */
export function timesOf(given: readonly number[]): number[] {
  // Results of typed arrays would be typed arrays, which hold no complex numbers.
  const tlist = Array.isArray(given) || ArrayBuffer.isView(given) ? Array.from(given) : null;
  if (tlist === null)
    throw new WeftError(`tlist: needs a list of times, got ${given === null ? "null" : typeof given}`);
  const bad = tlist.findIndex((t, k) => !Number.isFinite(t) || (k > 0 && t <= tlist[k - 1]));
  if (tlist.length === 0 || bad >= 0)
    throw new WeftError(
      `tlist: needs ascending times, got ${tlist.length === 0 ? "none" : `${tlist[bad]} at index ${bad}`}`,
    );
  return tlist;
}

/** Observables as a list, with their names. */
function observablesOf(eOps: SolverOptions["eOps"], dims: Qobj["dims"]): { names: string[] | null; list: EOp[] } {
  const isOne = eOps instanceof Operator || typeof eOps === "function";
  const given = eOps === undefined || eOps === null ? [] : isOne ? [eOps] : eOps;
  const list = Object.values(given) as EOp[];
  list.forEach((op, k) => {
    if (typeof op === "function") return;
    if (!(op instanceof Qobj))
      throw new WeftError(`eOps[${k}]: needs a Qobj or a function of time and state; make one with Qobj.of(matrix)`);
    checkDims(op, dims, `eOps[${k}]`);
  });
  return { names: Array.isArray(given) ? null : Object.keys(given), list };
}

interface Solved {
  /** States at all times of tlist, or null if only values were computed. */
  states: Qobj[] | null;
  final: Qobj;
  values: OperatorEntry[][];
  stats: SolverResult["stats"];
}

interface Problem {
  h: Hamiltonian;
  jumps: readonly Jump[] | null;
  start: Qobj;
  tlist: readonly number[];
  observables: readonly EOp[];
  /** Whether the start is a state, so that the end must be one. */
  isState: boolean;
}

/** Evolves a ket or a matrix, on the host if that is over before a compiler would be. */
export function solveProblem(problem: Problem, options: SolverOptions): Solved {
  const { h, jumps, start, tlist, observables } = problem;
  const times = tlist.map((t) => t - tlist[0]);
  const method = methodOf(options);
  if (problem.isState) checkState(start, jumps !== null, "initial");
  if (times.length === 1) return fromHost(problem, { states: [start], accepted: 0, error: 0, reached: true });
  if (options.method === undefined) {
    const { tableau, tolerance } = method as Method;
    const checked = jumps === null ? null : checkJumps(jumps, h);
    const run = evolveOnHost({ h, jumps: checked, start, times, tableau: tableau!, limits: tolerance! });
    if (run !== null) return fromHost(problem, run);
  }
  if (
    !problem.isState &&
    (method as Method).tolerance === undefined &&
    !["tsit5", "dopri8", "sdirk4"].includes(method as string)
  )
    throw new WeftError(
      "method: correlations need a method that controls its error: leave it out, or give tsit5, dopri8 or sdirk4",
    );
  const operators = observables.filter((op): op is Qobj => typeof op !== "function");
  const needsStates = operators.length < observables.length || (options.storeStates ?? observables.length === 0);
  const solver = {
    method,
    steps: options.steps,
    tsave: times,
    duration: times[times.length - 1],
    saveStates: needsStates,
    observables: Object.fromEntries(operators.map((op, k) => [String(k), op])),
  };
  const run = jumps === null ? schrodinger(h, start, solver) : lindblad({ hamiltonian: h, jumps }, start, solver);
  const error = problem.isState ? run.check().error : null;
  if (!problem.isState) checkArrival(run);
  return fromTensors(problem, run, error);
}

function fromHost({ start, tlist, observables, isState, jumps }: Problem, run: HostRun): Solved {
  if (!run.reached)
    throw new WeftError(
      "evolve: dopri8 did not reach the end within nsteps for its tolerance; raise nsteps or loosen rtol",
    );
  const states = run.states.map((x) => new Qobj(x, start.dims));
  const final = states[states.length - 1];
  if (isState) checkState(final, jumps !== null, "final");
  const values = observables.map((op) => {
    const value = typeof op === "function" ? null : expectationOf(op);
    return tlist.map((t, k) =>
      value === null ? (op as (t: number, x: Qobj) => OperatorEntry)(t, states[k]) : value(states[k]),
    );
  });
  return { states, final, values, stats: { solver: "host", method: "dopri8", steps: run.accepted, error: run.error } };
}

/** Room for rounding in numbers that are probabilities. */
const room = 1e-6;

/** Throws unless the norm of a ket is 1, or a density matrix is Hermitian, of trace 1 and without negative eigenvalues. */
export function checkState(state: Qobj, isDensity: boolean, which: "initial" | "final"): void {
  const remedy =
    which === "initial"
      ? isDensity
        ? "start from a density matrix"
        : "divide it by its norm (unit())"
      : "tighten rtol and atol";
  const fail = (what: string): never => {
    throw new WeftError(`evolve: the ${which} state ${what}; ${remedy}`);
  };
  const norm = isDensity ? state.trace().re : state.norm();
  // The host evolves one half of a density matrix: the other one would be replaced by its mirror image.
  if (isDensity && !(state.hermitianError() <= room * Math.max(1, state.size()))) fail("is not Hermitian");
  if (!(Math.abs(norm - 1) <= room)) fail(`has the ${isDensity ? "trace" : "norm"} ${norm} instead of 1`);
  if (isDensity && !isPositive(state, room)) fail("has a negative eigenvalue");
}

/** Whether a Hermitian matrix plus `shift` on its diagonal is positive definite, by its Cholesky factors. */
function isPositive({ rows: n, re, im }: Operator, shift: number): boolean {
  const [a, b] = [Float64Array.from(re), Float64Array.from(im)];
  for (let j = 0; j < n; j++) {
    let pivot = a[j * n + j] + shift;
    for (let k = 0; k < j; k++) pivot -= a[j * n + k] ** 2 + b[j * n + k] ** 2;
    if (!(pivot > 0)) return false;
    const root = Math.sqrt(pivot);
    for (let i = j + 1; i < n; i++) {
      let [x, y] = [a[i * n + j], b[i * n + j]];
      for (let k = 0; k < j; k++) {
        const [p, q] = [i * n + k, j * n + k];
        x -= a[p] * a[q] + b[p] * b[q];
        y -= b[p] * a[q] - a[p] * b[q];
      }
      a[i * n + j] = x / root;
      b[i * n + j] = y / root;
    }
  }
  return true;
}

function fromTensors({ start, tlist, observables }: Problem, run: Evolution, error: number | null): Solved {
  const stateOf = (numbers: ArrayLike<number>, at: number): Qobj =>
    new Qobj(Operator.fromPairs(start.rows, start.columns, numbers, 2 * at * start.re.length), start.dims);
  const all = run.states === null ? null : (run.states.dataSync() as Float64Array);
  const states = all === null ? null : tlist.map((_, k) => stateOf(all, k));
  let index = 0;
  const values = observables.map((op) =>
    typeof op === "function" ? tlist.map((t, k) => op(t, states![k])) : numbersOf(run.expectations[String(index++)]),
  );
  const item = (x: Tensor | null): number | null => x?.itemSync() ?? null;
  const stats = {
    solver: "compiled",
    method: run.method.name,
    steps: item(run.accepted),
    error: error ?? item(run.error),
  } as const;
  return { states, final: stateOf(run.final.dataSync() as Float64Array, 0), values, stats };
}

/** Values of a tensor; complex ones as { re, im }. */
function numbersOf(x: Tensor): OperatorEntry[] {
  const numbers = x.dataSync() as Float64Array;
  if (!x.dtype.startsWith("complex")) return Array.from(numbers, Number);
  return Array.from({ length: numbers.length / 2 }, (_, k) => ({ re: numbers[2 * k], im: numbers[2 * k + 1] }));
}

function solve(
  name: string,
  H: QobjEvo,
  start: Qobj,
  given: readonly number[],
  cOps: CollapseOperator | readonly CollapseOperator[] | null,
  options: SolverOptions,
): SolverResult {
  checkSolverOptions(options, optionNames, name);
  const tlist = timesOf(given);
  const context = { tlist, args: options.args ?? {} };
  const { h, first } = hamiltonianOf(H, context);
  checkDims(start, [first.dims[0], start.dims[1]], `${name}: the initial state`);
  const { names, list } = observablesOf(options.eOps, first.dims);
  const jumps = cOps === null ? null : jumpsOf(cOps, first.dims, context);
  const { states, final, values, stats } = solveProblem(
    { h, jumps, start, tlist, observables: list, isState: true },
    options,
  );
  const keeps = options.storeStates ?? list.length === 0;
  return {
    times: [...tlist],
    expect: values,
    eData: Object.fromEntries((names ?? []).map((key, k) => [key, values[k]])),
    states: keeps ? states! : [],
    finalState: final,
    stats,
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
export function sesolve(H: QobjEvo, psi0: Qobj, tlist: readonly number[], options: SolverOptions = {}): SolverResult {
  checkQobj(psi0, "sesolve: psi0");
  if (!psi0.isket) throw new WeftError("sesolve: psi0 must be a ket; density matrices go through mesolve");
  return solve("sesolve", H, psi0, tlist, null, options);
}

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
  cOps: CollapseOperator | readonly CollapseOperator[] = [],
  options: SolverOptions = {},
): SolverResult {
  checkQobj(rho0, "mesolve: rho0");
  if (collapseList(cOps).length === 0 && rho0.isket) return sesolve(H, rho0, tlist, options);
  return solve("mesolve", H, densityMatrix(rho0), tlist, cOps, options);
}

const operatorOf = (x: Tensor, dims: Qobj["dims"]): Qobj =>
  new Qobj(Operator.fromPairs(x.shape[0], x.shape[1], x.dataSync() as Float64Array), dims);

/** Steady state of a Hamiltonian without time dependence and collapse operators. Throws if it is not unique. */
export function steadystate(H: Qobj, cOps: Qobj | readonly Qobj[]): Qobj {
  const { h, first } = hamiltonianOf(H, { tlist: [0, 1], args: {} });
  const jumps = jumpsOf(cOps, first.dims, { tlist: [0, 1], args: {} });
  return operatorOf(steadyState({ hamiltonian: h, jumps }), first.dims);
}

/**
 * Propagator from 0 to t: unitary, or with collapse operators the map of density matrices whose columns are stacked, [d^2, d^2]. A list
 * of times gives a list of propagators from its first time, as in QuTiP.
 */
export function propagator(H: QobjEvo, t: number, cOps?: PropagatorJumps, options?: SolverOptions): Qobj;
export function propagator(H: QobjEvo, t: readonly number[], cOps?: PropagatorJumps, options?: SolverOptions): Qobj[];
export function propagator(
  H: QobjEvo,
  t: number | readonly number[],
  cOps: PropagatorJumps = [],
  options: SolverOptions = {},
): Qobj | Qobj[] {
  checkSolverOptions(
    options,
    optionNames.filter((name) => name !== "eOps" && name !== "storeStates"),
    "propagator",
  );
  const jumps = collapseList(cOps);
  const args = options.args ?? {};
  if (typeof t === "number") {
    const [first] = t === 0 ? [hamiltonianOf(H, { tlist: [0, 1], args }).first] : [null];
    return first === null ? propagators(H, [0, t], jumps, options)[1] : identityMap(first, jumps.length > 0);
  }
  if (t.length > 1) return propagators(H, t, jumps, options);
  return t.map(() => identityMap(hamiltonianOf(H, { tlist: [0, 1], args }).first, jumps.length > 0));
}

type PropagatorJumps = CollapseOperator | readonly CollapseOperator[];

/** Propagators from the first time to every time. */
function propagators(
  H: QobjEvo,
  given: readonly number[],
  cOps: readonly CollapseOperator[],
  options: SolverOptions,
): Qobj[] {
  const tlist = timesOf(given);
  const context = { tlist, args: options.args ?? {} };
  const { h, first } = hamiltonianOf(H, context);
  const times = tlist.map((t) => t - tlist[0]);
  const method = methodOf(options);
  if (cOps.length > 0) {
    const system = { hamiltonian: h, jumps: jumpsOf(cOps, first.dims, context) };
    const maps = options.method === undefined ? mapsOnHost(system, times, method as Method) : null;
    if (maps !== null) return maps.map((x) => new Qobj(x, identityMap(first, true).dims));
    return times.map((duration) =>
      duration === 0
        ? identityMap(first, true)
        : stackedColumns(superPropagator(system, { duration, method, steps: options.steps }), first),
    );
  }
  if (options.method === undefined) {
    const { tableau, tolerance } = method as Method;
    const start = identityMap(first, false);
    const run = evolveOnHost({ h, jumps: null, start, times, tableau: tableau!, limits: tolerance! });
    if (run?.reached) return run.states.map((x) => new Qobj(x, first.dims));
  }
  return times.map((duration) => {
    if (duration === 0) return identityMap(first, false);
    const run = propagatorOf(h, { duration, method, steps: options.steps });
    run.check();
    return operatorOf(run.final, first.dims);
  });
}

/** Generators of maps with more rows than this are not written out as matrices. */
const largestMap = 256;

/** Maps of density matrices, with stacked columns, as propagators of the generator; null if that is too large for the host. */
function mapsOnHost(
  { hamiltonian: h, jumps }: { hamiltonian: Hamiltonian; jumps: readonly Jump[] },
  times: readonly number[],
  { tableau, tolerance }: Method,
): Operator[] | null {
  const size = h.dims.reduce((a, b) => a * b, 1) ** 2;
  if (size > largestMap) return null;
  // The generator L as the "Hamiltonian" i L.
  const term = (L: Qobj) => ({ sites: [0], matrix: L.scale({ re: 0, im: 1 }) });
  const unitary = ({ matrix }: HamiltonianTerm) => term(liouvillian(new Qobj(matrix as Operator)));
  const decay = ({ operator }: Jump) => term(lindbladDissipator(new Qobj(operator as Operator)));
  const moving = jumps.filter(({ rate }) => typeof rate === "function");
  const { amplitudes } = h;
  const values = [
    ...(typeof amplitudes === "function" ? [amplitudes] : []),
    ...moving.map(
      ({ rate }) =>
        (t: Tensor) =>
          (rate as (t: Tensor) => Tensor)(t).unsqueeze(1),
    ),
  ];
  const generator: Hamiltonian = {
    dims: [size],
    static: [...h.static.map(unitary), ...jumps.filter((jump) => !moving.includes(jump)).map(decay)],
    drives: [...h.drives.map(unitary), ...moving.map(decay)],
    amplitudes:
      values.length === 0
        ? null
        : (t) =>
            concat(
              values.map((value) => value(t)),
              1,
            ),
  };
  const start = Operator.build(size, size, (i, j) => Number(i === j));
  const run = evolveOnHost({ h: generator, jumps: null, start, times, tableau: tableau!, limits: tolerance! });
  return run?.reached ? run.states : null;
}

/** A map of density matrices whose rows are stacked, as one of stacked columns. */
function stackedColumns(rows: Tensor, first: Qobj): Qobj {
  const d = first.rows;
  const index = (k: number): number => (k % d) * d + Math.floor(k / d);
  const map = operatorOf(rows, [[d * d], [d * d]]);
  return new Qobj(
    Operator.build(d * d, d * d, (i, j) => map.at(index(i), index(j))),
    identityMap(first, true).dims,
  );
}

/** The propagator over no time. */
function identityMap(first: Qobj, isOpen: boolean): Qobj {
  const n = isOpen ? first.rows ** 2 : first.rows;
  const dims = isOpen ? [...first.dims[0], ...first.dims[0]] : first.dims[0];
  return new Qobj(
    Operator.build(n, n, (i, j) => Number(i === j)),
    [dims, dims],
  );
}
