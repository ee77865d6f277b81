// Adaptive Runge-Kutta steps in TypeScript, for single problems of numbers that are over before a compiler has started. Operators
// are sparse rows, on the basis states that the initial state can reach. Where diagonal energies are the fastest frequencies,
// states are those of the interaction picture.
import { WeftError } from "@weft/core/internal/graph";
import { Operator } from "../operators/index.js";
import { borderTimes } from "./borders.js";
import { type HostInputs, hostInputs } from "./host-inputs.js";
import type { Tolerance } from "./methods.js";
import { type CheckedJump, type Hamiltonian, onWholeSpace, wholeJump } from "./problem.js";
import { embedded, reachable, restricted, squareOf } from "./reachable.js";
import { rateOn, type SparseMatrix, sparseOf } from "./sparse.js";
import type { Tableau } from "./tableaus.js";

/** A problem of numbers: a Hamiltonian, jumps (null: the Schrödinger equation), and times from 0 on. */
interface HostProblem {
  h: Hamiltonian;
  jumps: readonly CheckedJump[] | null;
  /** A ket [D, 1], columns [D, n], or with jumps a Hermitian matrix [D, D]. */
  start: Operator;
  /** Ascending; the evolution ends at the last one. */
  times: readonly number[];
  /** An explicit method. */
  tableau: Tableau;
  limits: Tolerance;
}

/** States at all times, and statistics. */
export interface HostRun {
  states: Operator[];
  accepted: number;
  /** Sum of the estimated errors of all steps. */
  error: number;
  /** Whether every time was reached within the limit of steps. */
  reached: boolean;
}

/** Everything that a run needs, and an estimate of its work. */
interface HostPlan {
  /** Estimated number of complex multiplications of the whole run. */
  work: number;
  run(): HostRun;
}

/** Estimated complex multiplications up to which a run is over before a compiler would be: about a second. */
const largestWork = 5e8;

/** Runs a problem on the host; null if it is too large or contains tensors. */
export function evolveOnHost(problem: HostProblem): HostRun | null {
  const plan = hostPlan(problem);
  if (plan === null || plan.work > largestWork) return null;
  return plan.run();
}

const add = (a: Operator, b: Operator): Operator => a.add(b);
const lossOf = (l: Operator): Operator => squareOf(l).scale(-0.5);

/** Plans a run, or null if an operator or a rate is not a number, or amplitudes are a table. */
function hostPlan(problem: HostProblem): HostPlan | null {
  const { h, jumps: given, times, tableau, limits } = problem;
  const onAll = (term: { sites: readonly number[]; matrix: unknown }): Operator | null =>
    term.matrix instanceof Operator ? (onWholeSpace(h, term as never, "complex128") as Operator) : null;
  const [fixed, drives] = [h.static.map(onAll), h.drives.map(onAll)];
  const jumps = (given ?? []).map((jump) =>
    jump.operator instanceof Operator ? wholeJump(h, jump, "complex128") : null,
  );
  const isNumber = jumps.every((jump) => jump !== null && typeof jump.rate !== "object");
  if (
    [...fixed, ...drives].includes(null) ||
    !isNumber ||
    (h.amplitudes !== null && typeof h.amplitudes !== "function")
  )
    return null;
  const isDensity = given !== null;
  const whole = problem.start.rows;
  const sum = (fixed as Operator[]).reduce(add, Operator.zeros(whole));
  const found = jumps as (CheckedJump & { operator: Operator })[];
  const states = reachable(
    problem.start,
    [sum, ...(drives as Operator[])],
    found.map(({ operator }) => operator),
  );
  const d = states.length;
  const onStates = (m: Operator): Operator => (d === whole ? m : restricted(m, states, states));
  const start = d === whole ? problem.start : restricted(problem.start, states, isDensity ? states : null);
  const known = found.map((jump) => ({ ...jump, operator: onStates(jump.operator) }));
  const [still, driven] = [onStates(sum), (drives as Operator[]).map(onStates)];
  const moving = known.filter(({ rate }) => typeof rate === "function");
  const constant = known.filter(({ rate }) => typeof rate === "number");
  const minusI = { re: 0, im: -1 };
  const generator = constant.reduce(
    (total, { operator, rate }) => total.add(lossOf(operator).scale(rate as number)),
    still.scale(minusI),
  );
  const leaps = [
    ...constant.map(({ operator, rate }) => sparseOf([operator.scale(Math.sqrt(rate as number))])),
    ...moving.map(({ operator }) => sparseOf([operator])),
  ];
  const parts = [
    generator,
    ...driven.map((drive) => drive.scale(minusI)),
    ...moving.map(({ operator }) => lossOf(operator)),
  ];
  const energies = Float64Array.from({ length: d }, (_, i) => still.at(i, i).re);
  const all = sparseOf(parts);
  // A common energy turns kets, but not density matrices.
  const frequency = isDensity ? spread(energies) : largest(energies);
  const inFrame = Math.max(...[all, ...leaps].map((m) => transitions(m, energies)), 0);
  const usesFrame = inFrame < 0.5 * frequency;
  const frame = usesFrame ? energies : null;
  // The frame takes the energies out of the generator.
  const operator = usesFrame ? sparseOf([withoutEnergies(generator, energies), ...parts.slice(1)]) : all;
  const rate = rateOn({
    generator: operator,
    leaps,
    movingFrom: constant.length,
    drives: drives.length,
    frame,
    columns: start.columns,
    isDensity,
  });
  const inputs = hostInputs(h, moving);
  const duration = times[times.length - 1];
  const bound = (usesFrame ? inFrame : frequency) + operator.rowSum;
  const steps = times.length + Math.ceil((bound * duration) / 3);
  return {
    work: steps * tableau.c.length * rate.work,
    run: () => {
      const done = integrate({ rate, inputs, frame, start, times, tableau, limits, isDensity });
      if (d === whole) return done;
      return { ...done, states: done.states.map((x) => embedded(x, states, whole, isDensity)) };
    },
  };
}

const largest = (energies: Float64Array): number => energies.reduce((most, e) => Math.max(most, Math.abs(e)), 0);
const spread = (energies: Float64Array): number => Math.max(...energies) - Math.min(...energies);

/** Largest frequency of an element of an operator in the interaction picture. */
function transitions({ rows, columns }: SparseMatrix, energies: Float64Array): number {
  let most = 0;
  for (let i = 0; i < energies.length; i++)
    for (let e = rows[i]; e < rows[i + 1]; e++) most = Math.max(most, Math.abs(energies[i] - energies[columns[e]]));
  return most;
}

const withoutEnergies = (generator: Operator, energies: Float64Array): Operator =>
  generator.map((re, im, k) => [re, k % (energies.length + 1) === 0 ? im + energies[k / (energies.length + 1)] : im]);

interface Integration {
  rate: ReturnType<typeof rateOn>;
  inputs: HostInputs | null;
  frame: Float64Array | null;
  start: Operator;
  times: readonly number[];
  tableau: Tableau;
  limits: Tolerance;
  isDensity: boolean;
}

/** target = base + sum of the rows of `ks` with these weights times h, four rows at a time. */
function combine(
  target: Float64Array,
  base: Float64Array | null,
  weights: readonly number[],
  ks: readonly Float64Array[],
  h: number,
): void {
  if (base === null) target.fill(0);
  else target.set(base);
  const used = weights.flatMap((weight, j) => (weight === 0 ? [] : [{ w: weight * h, k: ks[j] }]));
  const size = target.length;
  let at = 0;
  for (; at + 4 <= used.length; at += 4) {
    const { w: w0, k: k0 } = used[at];
    const { w: w1, k: k1 } = used[at + 1];
    const { w: w2, k: k2 } = used[at + 2];
    const { w: w3, k: k3 } = used[at + 3];
    for (let x = 0; x < size; x++) target[x] += w0 * k0[x] + w1 * k1[x] + (w2 * k2[x] + w3 * k3[x]);
  }
  for (; at < used.length; at++) {
    const { w, k } = used[at];
    for (let x = 0; x < size; x++) target[x] += w * k[x];
  }
}

/** Square of the 2-norm. */
function squared(x: Float64Array): number {
  let sum = 0;
  for (let k = 0; k < x.length; k++) sum += x[k] * x[k];
  return sum;
}

function integrate({ rate, inputs, frame, start, times, tableau, limits, isDensity }: Integration): HostRun {
  const { a, c, errors, order } = tableau;
  const stages = c.length;
  const size = start.re.length;
  const make = (): Float64Array => new Float64Array(2 * size);
  let y = make();
  y.set(start.re);
  y.set(start.im, size);
  let [next, stage] = [make(), make()];
  const ks = c.map(make);
  const estimates = errors.map(make);
  const nothing = new Float64Array(0);
  const u = (at: readonly number[]): Float64Array[] => inputs?.(at) ?? at.map(() => nothing);
  // A last stage that no estimate uses is the first one of the next step, and needed for that alone.
  const isLastUnused = errors.every((e) => (e[stages - 1] ?? 0) === 0);
  let [time, isFirstKnown, accepted, total] = [times[0], false, 0, 0];
  let h = 0;
  const states = [schrodingerPicture(y, frame, time, start, isDensity)];
  const last = times[times.length - 1];
  const borders = inputs === null ? [] : borderTimes(inputs, times[0], last);
  const stops = [...new Set([...times.slice(1), ...borders])].sort((x, z) => x - z);
  for (const end of stops) {
    let trials = 0;
    while (time < end) {
      if (++trials > limits.maxSteps) return { states, accepted, error: total, reached: false };
      if (!isFirstKnown) rate.apply(y, time, u([time])[0], ks[0]);
      isFirstKnown = true;
      if (h === 0) h = firstStep(y, ks[0], size, limits, end - time);
      const left = end - time;
      const trial = Math.min(h, left, limits.maxStep);
      const at = c.map((x) => time + x * trial);
      const values = u(at);
      for (let s = 1; s < stages; s++) {
        const target = s === stages - 1 ? next : stage;
        combine(target, y, a[s], ks, trial);
        if (s < stages - 1 || !isLastUnused) rate.apply(target, at[s], values[s], ks[s]);
      }
      errors.forEach((e, k) => void combine(estimates[k], null, e, ks, trial));
      const [high, low] = estimates.map((e) => norm(e, y, next, size, limits));
      const both = low === undefined ? high : high ** 2 / Math.max(high + 0.01 * low, 1e-40);
      const error = Math.max(Math.sqrt(both), 1e-10);
      if (Number.isNaN(error))
        throw new WeftError(`evolve: the state at time ${time} is not a number; check the coefficients`);
      const factor = Math.min(5, Math.max(0.2, 0.9 * error ** (-1 / order)));
      if (error <= 1) {
        accepted++;
        total += Math.sqrt(squared(estimates[0]));
        if (isLastUnused) rate.apply(next, at[stages - 1], values[stages - 1], ks[stages - 1]);
        [ks[0], ks[stages - 1]] = [ks[stages - 1], ks[0]];
        [y, next] = [next, y];
        time = trial < left ? time + trial : end;
        // A step truncated at the end does not limit the next one.
        h = Math.max(trial * factor, trial < h ? h : 0);
      } else h = trial * factor;
    }
    if (end === times[states.length]) states.push(schrodingerPicture(y, frame, time, start, isDensity));
  }
  return { states, accepted, error: total, reached: true };
}

/** Mean of the squared errors in units of the tolerance. */
function norm(e: Float64Array, y: Float64Array, next: Float64Array, size: number, limits: Tolerance): number {
  // Products, because powers are calls of a function in this loop.
  let sum = 0;
  for (let k = 0; k < size; k++) {
    const i = k + size;
    const before = y[k] * y[k] + y[i] * y[i];
    const after = next[k] * next[k] + next[i] * next[i];
    const scale = Math.sqrt(before > after ? before : after) * limits.relative + limits.absolute;
    sum += (e[k] * e[k] + e[i] * e[i]) / (scale * scale);
  }
  return sum / size;
}

/** A first step in which the state changes by a hundredth of its size. */
function firstStep(y: Float64Array, k: Float64Array, size: number, limits: Tolerance, left: number): number {
  const [state, slope] = [y, k].map((x) => Math.sqrt(norm(x, y, y, size, limits)));
  return Math.min(left, slope > 1e-5 && state > 1e-5 ? (0.01 * state) / slope : 1e-2 * left);
}

/** The state in the Schrödinger picture, as a copy. */
function schrodingerPicture(
  y: Float64Array,
  frame: Float64Array | null,
  time: number,
  { rows, columns }: Operator,
  isDensity: boolean,
): Operator {
  const size = rows * columns;
  const state = new Operator(rows, columns, y.slice(0, size), y.slice(size));
  if (frame === null) return state;
  return state.map((re, im, k) => {
    const angle = (frame[Math.floor(k / columns)] - (isDensity ? frame[k % columns] : 0)) * time;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return [cos * re + sin * im, cos * im - sin * re];
  });
}
