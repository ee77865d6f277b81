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
import { packed, rateOn, type SparseMatrix, sparseOf, unpack } from "./sparse.js";
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

/** The weights of a sum that are not zero, and whose they are. */
interface Weights {
  weights: Float64Array;
  stages: Int32Array;
}

function weightsOf(row: readonly number[]): Weights {
  const stages = Int32Array.from(row.keys()).filter((j) => row[j] !== 0);
  return { stages, weights: Float64Array.from(stages, (j) => row[j]) };
}

/** target = base + h times the weighted sum of stages, four at a time. */
function combine(
  target: Float64Array,
  base: Float64Array | null,
  { weights, stages }: Weights,
  ks: readonly Float64Array[],
  h: number,
): void {
  if (base === null) target.fill(0);
  else target.set(base);
  const [size, count] = [target.length, weights.length];
  let at = 0;
  for (; at + 4 <= count; at += 4) {
    const w0 = h * weights[at];
    const w1 = h * weights[at + 1];
    const w2 = h * weights[at + 2];
    const w3 = h * weights[at + 3];
    const k0 = ks[stages[at]];
    const k1 = ks[stages[at + 1]];
    const k2 = ks[stages[at + 2]];
    const k3 = ks[stages[at + 3]];
    for (let x = 0; x < size; x++) target[x] += w0 * k0[x] + w1 * k1[x] + (w2 * k2[x] + w3 * k3[x]);
  }
  for (; at < count; at++) {
    const w = h * weights[at];
    const k = ks[stages[at]];
    for (let x = 0; x < size; x++) target[x] += w * k[x];
  }
}

/** How a state is stored as numbers. */
interface StateLayout {
  length: number;
  load(start: Operator): Float64Array;
  operator(y: Float64Array): Operator;
  /** Mean of the squared errors of all entries in units of the tolerance. */
  norm(e: Float64Array, y: Float64Array, next: Float64Array, limits: Tolerance): number;
  /** Square of the 2-norm. */
  squared(x: Float64Array): number;
}

/** Kets and columns: real parts, then imaginary parts. */
function columnStates({ rows, columns }: Operator): StateLayout {
  const size = rows * columns;
  const counts = new Float64Array(size).fill(1);
  return {
    length: 2 * size,
    load({ re, im }) {
      const out = new Float64Array(2 * size);
      out.set(re);
      out.set(im, size);
      return out;
    },
    operator: (y) => new Operator(rows, columns, y.slice(0, size), y.slice(size)),
    norm: (e, y, next, limits) => weighted(e, y, next, counts, limits) / size,
    squared(x) {
      let sum = 0;
      for (let k = 0; k < x.length; k++) sum += x[k] * x[k];
      return sum;
    },
  };
}

/** Density matrices: packed, so that an entry beside the diagonal counts twice. */
function hermitianStates(d: number): StateLayout {
  const n = (d * (d + 1)) / 2;
  // 1 on the diagonal, 2 beside it.
  const counts = new Float64Array(n).fill(2);
  for (let i = 0; i < d; i++) counts[i * d - (i * (i + 1)) / 2 + i] = 1;
  return {
    length: 2 * n,
    load: (start) => packed(start, d),
    operator(y) {
      const whole = new Float64Array(2 * d * d);
      unpack(y, whole, d);
      return new Operator(d, d, whole.slice(0, d * d), whole.slice(d * d));
    },
    norm: (e, y, next, limits) => weighted(e, y, next, counts, limits) / (d * d),
    squared(x) {
      let sum = 0;
      for (let k = 0; k < n; k++) sum += counts[k] * (x[k] * x[k] + x[k + n] * x[k + n]);
      return sum;
    },
  };
}

/** Sum of the squared errors of complex entries in units of the tolerance, each as often as it counts. */
function weighted(
  e: Float64Array,
  y: Float64Array,
  next: Float64Array,
  counts: Float64Array,
  { relative, absolute }: Tolerance,
): number {
  // Products, because powers are calls of a function in this loop.
  const n = counts.length;
  let sum = 0;
  for (let k = 0; k < n; k++) {
    const i = k + n;
    const before = y[k] * y[k] + y[i] * y[i];
    const after = next[k] * next[k] + next[i] * next[i];
    const scale = Math.sqrt(before > after ? before : after) * relative + absolute;
    sum += (counts[k] * (e[k] * e[k] + e[i] * e[i])) / (scale * scale);
  }
  return sum;
}

function integrate({ rate, inputs, frame, start, times, tableau, limits, isDensity }: Integration): HostRun {
  const { a, c, errors, order } = tableau;
  const stages = c.length;
  const { length, load, norm, squared, operator } = isDensity ? hermitianStates(start.rows) : columnStates(start);
  const make = (): Float64Array => new Float64Array(length);
  let y = load(start);
  let [next, stage] = [make(), make()];
  const ks = c.map(make);
  const estimates = errors.map(make);
  const [sums, differences] = [a.map(weightsOf), errors.map(weightsOf)];
  const one = new Float64Array(1);
  const at = new Float64Array(stages);
  // Inputs of every stage, copied from one array per input.
  const u = (times: Float64Array): Float64Array[] => {
    const columns = inputs?.(times) ?? [];
    return Array.from(times, (_, k) => Float64Array.from(columns, (column) => column[k]));
  };
  // A last stage that no estimate uses is the first one of the next step, and needed only for that.
  const isLastUnused = errors.every((e) => (e[stages - 1] ?? 0) === 0);
  let [time, isFirstKnown, accepted, total] = [times[0], false, 0, 0];
  let h = 0;
  const picture = (): Operator => schrodingerPicture(operator(y), frame, time, isDensity);
  const states = [picture()];
  const last = times[times.length - 1];
  const borders = inputs === null ? [] : borderTimes(inputs, times[0], last);
  const stops = [...new Set([...times.slice(1), ...borders])].sort((x, z) => x - z);
  for (const end of stops) {
    let trials = 0;
    while (time < end) {
      if (++trials > limits.maxSteps) return { states, accepted, error: total, reached: false };
      one[0] = time;
      if (!isFirstKnown) rate.apply(y, time, u(one)[0], ks[0]);
      isFirstKnown = true;
      if (h === 0) h = firstStep(norm(y, y, y, limits), norm(ks[0], y, y, limits), end - time);
      const left = end - time;
      const trial = Math.min(h, left, limits.maxStep);
      for (let s = 0; s < stages; s++) at[s] = time + c[s] * trial;
      const values = u(at);
      for (let s = 1; s < stages; s++) {
        const target = s === stages - 1 ? next : stage;
        combine(target, y, sums[s], ks, trial);
        if (s < stages - 1 || !isLastUnused) rate.apply(target, at[s], values[s], ks[s]);
      }
      differences.forEach((e, k) => void combine(estimates[k], null, e, ks, trial));
      const [high, low] = estimates.map((e) => norm(e, y, next, limits));
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
    if (end === times[states.length]) states.push(picture());
  }
  return { states, accepted, error: total, reached: true };
}

/** A first step in which the state changes by a hundredth of its size; both are given as squares. */
function firstStep(state: number, slope: number, left: number): number {
  return Math.min(left, slope > 1e-10 && state > 1e-10 ? 0.01 * Math.sqrt(state / slope) : 1e-2 * left);
}

/** The state in the Schrödinger picture. */
function schrodingerPicture(state: Operator, frame: Float64Array | null, time: number, isDensity: boolean): Operator {
  if (frame === null) return state;
  return state.map((re, im, k) => {
    const angle = (frame[Math.floor(k / state.columns)] - (isDensity ? frame[k % state.columns] : 0)) * time;
    const [cos, sin] = [Math.cos(angle), Math.sin(angle)];
    return [cos * re + sin * im, cos * im - sin * re];
  });
}
