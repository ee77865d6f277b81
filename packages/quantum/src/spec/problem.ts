// Gate problems: the loss of a specification as a function of named parameters, with checks and populations.
import { range, WeftError } from "@weft/core/internal/graph";
import { session } from "@weft/core/internal/runtime";
import { adjoint, conj, full, matmul, real, Tensor, tensor, treeLeaves } from "@weft/core/internal/tensor";
import { BoundedCache, structureKey } from "../cache/index.js";
import { type CostValues, robustLoss, weightedCosts } from "../control/index.js";
import {
  averageGateInfidelity,
  choi,
  choiAverageFidelity,
  choiFidelity,
  choiLeakage,
  compensate,
  compensatedTarget,
  leakage,
  processInfidelity,
  stateInfidelity,
} from "../fidelity/index.js";
import { basisState } from "../operators/index.js";
import {
  adaptiveNames,
  checkDensity,
  computeTogether,
  type Evolution,
  type Hamiltonian,
  lindblad,
  roomFor,
  type SchrodingerOptions,
  schrodinger,
  type Validity,
} from "../solvers/index.js";
import {
  type BoundDevice,
  checkStepLength,
  computationalFrame,
  computationalStates,
  type DeviceEvolution,
  type DeviceParameters,
  durationOf,
  evolve,
  levelsOfState,
  type PartLevels,
  stateFrame,
  stateIndex,
} from "../systems/index.js";
import { checkParameters } from "./check-parameters.js";
import { drivesCosts } from "./costs.js";
import { type GateSpec, learnedKeys } from "./gate-spec.js";
import { ensembleOf, variationsOf, varied } from "./robust.js";

/** Result of the evolution of a specification. */
export interface GateOutcome {
  /** The infidelity. */
  infidelity: Tensor;
  /** Population outside of the computational states; null for targets that are states. */
  leaked: Tensor | null;
  /** Gate [n, n] after compensation, or null for open systems and state transfers. */
  unitary: Tensor | null;
  /** The evolution that it is computed from. */
  evolution: Evolution;
  /** Throws if the result is not valid. */
  check(): Validity;
}

/** Populations of product states over time, with the initial ones. */
export interface Populations {
  /** Initial product state, one digit per part. */
  from: string;
  /** Whether the evolution includes decay. */
  open: boolean;
  /** Product states, one digit per part. */
  labels: string[];
  /** Times in ns. */
  times: number[];
  /** Populations by time, then by state. */
  weights: number[][];
}

/** Levels of devices by structure and parameters: without gradients of energies, programs have them as constants. */
const eigenbases = new BoundedCache<Record<string, PartLevels>>("eigenbases", {
  entries: 32,
  bytes: 2 ** 28,
  sizeOf: (parts) => treeLeaves(parts).reduce((sum, t) => sum + t.size * (t.dtype.startsWith("complex") ? 16 : 8), 0),
});

/** The optimization problem of a gate specification. */
export class GateProblem {
  readonly #levels: Record<string, PartLevels> | null;

  constructor(
    /** The specification. */
    readonly spec: GateSpec,
  ) {
    checkParameters(spec);
    this.#levels = Object.keys(this.learned()).some((key) => this.#affectsLevels(key)) ? null : this.#fixedLevels();
  }

  /** Whether the levels of a part depend on a parameter: energies do, drives and couplings do not. */
  #affectsLevels(key: string): boolean {
    const { device } = this.spec;
    return (device.shared[key] ?? [key]).some((own) => {
      const [part, name, ...more] = own.split(".");
      return more.length === 0 && name in (device.parts[part]?.parameters ?? {});
    });
  }

  #fixedLevels(): Record<string, PartLevels> {
    const { device } = this.spec;
    const parts = Object.fromEntries(device.names.map((name) => [name, device.parts[name].toJSON()]));
    const moved = Object.entries(this.spec.parameters).filter(([key]) => this.#affectsLevels(key));
    const key = structureKey(parts, device.spread, device.shared, moved, session().device.name);
    return eigenbases.get(key, () => {
      const levels = device.with(this.#split(this.parameters()).device).levels();
      for (const leaf of treeLeaves(levels)) leaf.realize();
      return levels;
    });
  }

  /** All parameters with the values of the specification. */
  parameters(): DeviceParameters {
    const all = this.spec.device.parameters();
    for (const { key, rate } of this.spec.jumps) all[key] = full([], rate, { dtype: "float64" });
    for (const [key, x] of Object.entries(this.spec.parameters))
      all[key] = typeof x === "number" ? full([], x, { dtype: "float64" }) : tensor([...x], { dtype: "float64" });
    return all;
  }

  /** The parameters to optimize. */
  learned(): DeviceParameters {
    const wanted = learnedKeys(this.spec);
    return Object.fromEntries(Object.entries(this.parameters()).filter(([key]) => wanted.has(key)));
  }

  /** Splits parameters into those of the device and the decay rates. */
  #split(p: DeviceParameters): { device: DeviceParameters; rates: DeviceParameters } {
    const rates = new Set(this.spec.jumps.map(({ key }) => key));
    const entries = Object.entries(p);
    return {
      device: Object.fromEntries(entries.filter(([key]) => !rates.has(key))),
      rates: Object.fromEntries(entries.filter(([key]) => rates.has(key))),
    };
  }

  /** The device with these parameters; others have the values of the specification. */
  bind(p: Partial<DeviceParameters> = {}): BoundDevice {
    const bound = this.spec.device.with(this.#split({ ...this.parameters(), ...p } as DeviceParameters).device);
    if (this.#levels !== null && !Object.keys(p).some((key) => this.#affectsLevels(key))) bound.useLevels(this.#levels);
    return bound;
  }

  /**
   * Infidelity for these parameters; others have the values of the specification. With `robust`, that of the ensemble; with `costs`,
   * the weighted running costs are added.
   */
  loss = (p: DeviceParameters): Tensor => {
    const { robust } = this.spec;
    const nominal = (q: DeviceParameters): Tensor => this.outcome(this.bind(q), q).infidelity;
    const infidelity =
      robust === null
        ? nominal(p)
        : ensembleOf(robust, { ...this.parameters(), ...p }, (changed) => nominal({ ...p, ...changed }));
    const costs = this.#costs(p);
    const added = costs === null ? null : weightedCosts(costs, this.spec.costs!);
    return added === null ? infidelity : infidelity.add(added);
  };

  /** Running costs of the drives without their weights, or null if the specification has none. */
  #costs(p: Partial<DeviceParameters>): CostValues | null {
    const { costs, evolution } = this.spec;
    return costs === null ? null : drivesCosts(this.bind(p), evolution.duration, costs);
  }

  /** Number of equal segments that the steps must divide into. */
  segments(): number {
    return segmentsOf(this.bind().hamiltonian({ duration: this.spec.evolution.duration }));
  }

  /** Evolves the bound device; `p` may contain other decay rates. */
  outcome(bound: BoundDevice, p: Partial<DeviceParameters> = {}): GateOutcome {
    const { jumps, target } = this.spec;
    const { rates } = this.#split({ ...this.parameters(), ...p } as DeviceParameters);
    if (target.states !== null) return this.#state(bound, rates);
    return jumps.length > 0 ? this.#channel(bound, rates) : this.#gate(bound);
  }

  /**
   * The infidelity of a pulse as it may be reported: valid (see GateOutcome.check), of levels that suffice, with the error that the
   * steps leave at this pulse. Throws if that error is above the tolerance of the specification. Every command reports through
   * this function.
   *
   * @param onPart - Called before each evolution with the parts that are done and their number.
   */
  report(p: Partial<DeviceParameters> = {}, onPart: PartListener = () => {}): GateReport {
    const { robust } = this.spec;
    const costs = Object.fromEntries(Object.entries(this.#costs(p) ?? {}).map(([name, x]) => [name, x.itemSync()]));
    if (robust === null) return { ...this.#reportOne(p, onPart), costs };
    const all = { ...this.parameters(), ...p } as DeviceParameters;
    const variations = variationsOf(robust);
    const each = variations.map((variation, k) =>
      this.#reportOne({ ...p, ...varied(all, variation) }, (what, done, parts) =>
        onPart(`device ${k + 1}: ${what}`, k * parts + done, variations.length * parts),
      ),
    );
    const values = tensor(
      each.map(({ infidelity }) => infidelity),
      { dtype: "float64" },
    );
    const [nominal] = each;
    return {
      ...nominal,
      infidelity: robustLoss(values, robust.objective).itemSync(),
      error: Math.max(...each.map(({ error }) => error)),
      nominal: nominal.infidelity,
      costs,
    };
  }

  /** The report of one device. */
  #reportOne(p: Partial<DeviceParameters>, onPart: PartListener): GateReport {
    onPart("evolution", 0, 3);
    const bound = this.bind(p);
    const outcome = this.outcome(bound, p);
    checkStepLength(bound, durationOf(bound, this.spec.evolution.duration), outcome.evolution);
    // The final states of a channel exist only inside its batch.
    const isChannel = this.spec.target.states === null && this.spec.jumps.length > 0;
    computeTogether([outcome.infidelity, outcome.leaked, isChannel ? null : outcome.evolution.final]);
    const { smallestEigenvalue } = outcome.check();
    onPart("populations of the highest levels", 1, 3);
    this.checkTruncation(p);
    onPart("error of the steps", 2, 3);
    const { error } = this.checkSteps(p);
    const infidelity = outcome.infidelity.itemSync();
    return {
      infidelity: Math.min(1, Math.max(0, infidelity)),
      error,
      leaked: outcome.leaked?.itemSync() ?? null,
      smallestEigenvalue,
      nominal: null,
      costs: {},
    };
  }

  /** The infidelity with other evolution settings. */
  #infidelityWith(evolution: Partial<GateSpec["evolution"]>, p: Partial<DeviceParameters>): number {
    const other = new GateProblem({ ...this.spec, evolution: { ...this.spec.evolution, ...evolution } });
    return other.outcome(other.bind(p), p).infidelity.itemSync();
  }

  /**
   * Estimated integration error of the infidelity for these parameters: from a run with half the steps (or twice as many, where
   * segments do not divide) and the order of the method, where drives jump also from one with 0.7 times the steps, or with ten
   * times the tolerance. In complex64 the difference to complex128 is added.
   */
  stepError(p: Partial<DeviceParameters> = {}): { error: number; order: number; steps: number } {
    const { evolution } = this.spec;
    const { steps, duration, precision } = evolution;
    const bound = this.bind(p);
    const fine = this.outcome(bound, p);
    const value = fine.infidelity.itemSync();
    const { method } = fine.evolution;
    const { tolerance } = method;
    // Where the drives have corners or jumps between steps, the order is not reached, and the whole difference counts.
    const order = bound.isSmooth(duration) ? method.order : 1;
    const rounding =
      precision === "complex64" ? Math.abs(value - this.#infidelityWith({ precision: "complex128" }, p)) : 0;
    if (tolerance !== undefined) {
      const looser = { ...tolerance, relative: 10 * tolerance.relative, absolute: 10 * tolerance.absolute };
      const coarse = this.#infidelityWith({ method: { ...method, tolerance: looser } }, p);
      return { error: Math.abs(value - coarse) + rounding, order, steps };
    }
    const segments = segmentsOf(bound.hamiltonian({ duration }));
    const halves = steps % 2 === 0 && (steps / 2) % segments === 0;
    const difference = (count: number): number => Math.abs(value - this.#infidelityWith({ steps: count }, p));
    const other = difference(halves ? steps / 2 : 2 * steps);
    if (order === 1 && method.order > 1) {
      // The error of a step with a jump depends on where in the step the jump is, which is another place in every run.
      const third = difference(Math.max(1, Math.round((0.7 * steps) / segments)) * segments);
      return { error: 2 * Math.max(other, third) + rounding, order, steps };
    }
    const scale = halves ? 1 / (2 ** order - 1) : 2 ** order / (2 ** order - 1);
    return { error: other * scale + rounding, order, steps };
  }

  /** The estimated error. Throws if the steps are too few for the tolerance, with the number of steps that would be enough. */
  checkSteps(p: Partial<DeviceParameters> = {}): { error: number } {
    const { tolerance } = this.spec.evolution;
    const { error, order, steps } = this.stepError(p);
    if (!Number.isFinite(error))
      throw new WeftError(
        `evolution.steps: the error of ${steps} steps cannot be estimated, because fewer steps give no number; use more`,
      );
    if (tolerance === undefined || error <= tolerance) return { error };
    const needed = Math.ceil(steps * (error / tolerance) ** (1 / order) * 1.1);
    throw new WeftError(
      `evolution.steps: ${steps} steps leave an error of ${error.toExponential(1)} in the infidelity, more than the ` +
        `tolerance ${tolerance}; use about ${needed}`,
    );
  }

  /**
   * Throws if the highest level of a part is populated during an evolution from the highest computational state: levels beyond
   * the truncation would be populated too, even if the final population is small.
   */
  checkTruncation(p: Partial<DeviceParameters> = {}, limit = 0.05): void {
    const { device } = this.spec;
    const kept = device.names.map((name) => device.parts[name].structure);
    if (kept.every(({ levels, computational }) => levels <= computational)) return;
    const dims = kept.map(({ levels }) => levels);
    const { weights } = this.populations(
      200,
      kept.map(({ computational }) => computational - 1),
      p,
    );
    kept.forEach(({ levels, computational }, k) => {
      if (levels <= computational) return;
      const isTop = (s: number): boolean => levelsOfState(s, dims)[k] === levels - 1;
      const most = Math.max(...weights.map((row) => row.reduce((sum, w, s) => sum + (isTop(s) ? w : 0), 0)));
      if (most > limit)
        throw new WeftError(
          `evolve: ${(100 * most).toPrecision(3)} % of the weight passes through the highest level kept of ` +
            `${device.names[k]} (${levels} levels): the truncation is too small; raise levels`,
        );
    });
  }

  #gate(bound: BoundDevice): GateOutcome {
    const { evolution, target } = this.spec;
    const { method, gradient, duration, basis, chunks, precision } = evolution;
    const steps = this.#steps();
    const run: DeviceEvolution = evolve(bound, { method, gradient, duration, basis, chunks, steps, dtype: precision });
    if (target.gate === null) throw new WeftError("target: needs a gate");
    const unitary = compensate(run, target.gate, target.compensation);
    const measure = target.measure === "average" ? averageGateInfidelity : processInfidelity;
    const infidelity = measure(unitary, target.gate);
    return {
      infidelity,
      leaked: leakage(run),
      unitary,
      evolution: run,
      check: () => {
        checkRange(infidelity, run);
        // The report estimates the error of the infidelity itself.
        return run.check({ error: Number.POSITIVE_INFINITY });
      },
    };
  }

  /**
   * Populations of product states at equally spaced times, with decay if the specification has any. The initial state is that of
   * the target, or the ground state.
   */
  populations(count = 200, start?: readonly number[], p: Partial<DeviceParameters> = {}): Populations {
    const { evolution, jumps, target, device } = this.spec;
    const bound = this.bind(p);
    const { dims } = bound;
    const D = dims.reduce((a, b) => a * b, 1);
    const from = start ?? [...(target.states?.from ?? "0".repeat(device.names.length))].map(Number);
    const { duration } = evolution;
    const psi = basisState(D, stateIndex(from, dims));
    // Steps that divide into the saves and the segments of the drives.
    const least = count * segmentsOf(bound.hamiltonian({ duration }));
    const fixed = this.#steps();
    const saves = { steps: fixed === undefined ? undefined : Math.ceil(fixed / least) * least, saves: count };
    let weights: number[][];
    let times: Tensor;
    if (jumps.length > 0) {
      const run = this.#decaying(
        bound,
        this.#split({ ...this.parameters(), ...p } as DeviceParameters).rates,
        saves,
      )(psi.mul(psi.adjoint()).tensor(evolution.precision));
      const numbers = run.states!.real().dataSync();
      weights = range(count).map((k) => range(D).map((s) => Number(numbers[(k * D + s) * D + s])));
      times = run.times;
    } else {
      const options = { ...this.#closedOptions(bound), ...saves };
      const run = schrodinger(bound.hamiltonian({ duration }), psi, options);
      const numbers = run.states!.abs().square().dataSync();
      weights = range(count).map((k) => range(D).map((s) => Number(numbers[k * D + s])));
      times = run.times;
    }
    return {
      from: from.join(""),
      open: jumps.length > 0,
      labels: range(D).map((s) => levelsOfState(s, dims).join("")),
      times: [0, ...Array.from(times.dataSync(), Number)],
      weights: [range(D).map((s) => Number(s === stateIndex(from, dims))), ...weights],
    };
  }

  /** Evolution of a density matrix with decay. */
  #decaying(
    bound: BoundDevice,
    rates: DeviceParameters,
    saving: { steps?: number; saves?: number } = {},
  ): (rho: Tensor) => Evolution {
    const { evolution, jumps } = this.spec;
    const { precision, method, gradient, duration } = evolution;
    const steps = this.#steps();
    const hamiltonian = bound.hamiltonian({ duration });
    const wide = jumps.map(({ on, operator, key }) => ({ operator: bound.onWhole(on, operator), rate: rates[key] }));
    const options = { duration: durationOf(bound, duration), steps, method, gradient, dtype: precision, ...saving };
    return (rho) => lindblad({ hamiltonian, jumps: wide }, rho, options);
  }

  /** Fidelity of a gate with decay, from the Choi matrix of the map of the computational states. */
  #channel(bound: BoundDevice, rates: DeviceParameters): GateOutcome {
    const { evolution, target } = this.spec;
    if (target.gate === null) throw new WeftError("target: needs a gate");
    const run = this.#decaying(bound, rates);
    const states = computationalStates(bound);
    const frame = computationalFrame(bound, evolution.basis, evolution.precision);
    let last: Evolution | null = null;
    const map = (rho: Tensor): Tensor => {
      last = run(matmul(frame, matmul(rho, adjoint(frame))));
      return matmul(adjoint(frame), matmul(last.final, frame));
    };
    const matrix = choi(map, states.length, evolution.precision);
    const goal = compensatedTarget(matrix, target.gate, target.compensation);
    const measure = target.measure === "average" ? choiAverageFidelity : choiFidelity;
    const infidelity = measure(matrix, goal).neg().add(1);
    return {
      infidelity,
      leaked: choiLeakage(matrix),
      unitary: null,
      evolution: last!,
      check: () => checkOutcome(infidelity, last!, matrix, states.length),
    };
  }

  /** State transfer in the whole space, with or without decay: what leaves the computational states counts as missed. */
  #state(bound: BoundDevice, rates: DeviceParameters): GateOutcome {
    const { evolution, target, jumps } = this.spec;
    if (target.states === null) throw new WeftError("target: needs states");
    const { precision, basis } = evolution;
    const ends = [target.states.from, target.states.to].map((label) => stateIndex([...label].map(Number), bound.dims));
    const frame = stateFrame(bound, basis ?? "product", ends, precision);
    const [from, to] = [0, 1].map((k) => frame.index(":", k));
    const computational = computationalFrame(bound, basis ?? "product", precision);
    const run =
      jumps.length > 0
        ? this.#decaying(bound, rates)(from.unsqueeze(1).mul(conj(from).unsqueeze(0)))
        : schrodinger(bound.hamiltonian({ duration: evolution.duration }), from, this.#closedOptions(bound));
    const inside = matmul(adjoint(computational), run.final);
    const kept = jumps.length > 0 ? real(matmul(inside, computational).diagonal().sum()) : weight(inside);
    const infidelity = stateInfidelity(run.final, to);
    return {
      infidelity,
      leaked: kept.neg().add(1),
      unitary: null,
      evolution: run,
      check: () => checkOutcome(infidelity, run, run.final),
    };
  }

  /** Number of fixed steps, or undefined for adaptive methods. */
  #steps(): number | undefined {
    const { method, steps } = this.spec.evolution;
    const isAdaptive = typeof method === "string" ? adaptiveNames.includes(method) : method.tolerance !== undefined;
    return isAdaptive ? undefined : steps;
  }

  #closedOptions(bound: BoundDevice): SchrodingerOptions {
    const { method, gradient, duration, precision } = this.spec.evolution;
    return { method, gradient, steps: this.#steps(), duration: durationOf(bound, duration), dtype: precision };
  }
}

/** Called before a part of a report: what it is, the parts that are done, and their number. */
export type PartListener = (what: string, done: number, parts: number) => void;

/** The infidelity of a pulse with its estimated integration error. */
export interface GateReport {
  /** The infidelity. */
  infidelity: number;
  /** Estimated error of the infidelity from the size of the steps. */
  error: number;
  /** Population outside the computational states at the end, or null. */
  leaked: number | null;
  /** Smallest eigenvalue of the final state or map with decay, else null. It is checked not to be negative. */
  smallestEigenvalue: number | null;
  /** Infidelity of the nominal device if `infidelity` is that of a robust ensemble, else null. */
  nominal: number | null;
  /** Running costs of the drives by name, without their weights. */
  costs: Record<string, number>;
}

/** Number of equal segments that the steps must divide into. */
const segmentsOf = ({ amplitudes }: Hamiltonian): number => (amplitudes instanceof Tensor ? amplitudes.shape[0] : 1);

const weight = (x: Tensor): Tensor => real(x).square().add(x.imag().square()).sum();

/** Throws unless an infidelity is a number in [0, 1]. */
function checkRange(infidelity: Tensor, { method, steps }: Evolution): void {
  const value = infidelity.itemSync();
  const room = roomFor(infidelity);
  if (value > -room && value < 1 + room) return;
  throw new WeftError(
    Number.isNaN(value)
      ? `evolve: the infidelity is not a number; ${method.name} did not reach the end within ${steps} steps, or a parameter is NaN`
      : `evolve: the infidelity ${value} is not between 0 and 1 after ${steps} steps of ${method.name}; use more steps or rk4`,
  );
}

/** Throws unless the evolution arrived, the infidelity is in [0, 1], and the final state or Choi matrix is one. */
function checkOutcome(infidelity: Tensor, run: Evolution, state: Tensor, total = 1): Validity {
  checkRange(infidelity, run);
  return state.rank === 1 ? run.check({ error: Number.POSITIVE_INFINITY }) : checkDensity(state, run, total);
}
