// Quantum devices: parts, couplings and drives with one flat dictionary of named parameters. A device with bound parameters
// gives a Hamiltonian in the product of the truncated eigenbases of its parts.
import { WeftError } from "@weft/core/internal/graph";
import { diag, full, jit, kron, stack, Tensor, tensor, vmap } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { destroy, Operator, sigmaX, sigmaY, sigmaZ } from "../operators/index.js";
import type { Pulse, PulseValue } from "../pulses/index.js";
import { suggestion } from "../schema/index.js";
import { denseTerms, type Hamiltonian, type HamiltonianTerm } from "../solvers/index.js";
import type { DevicePart, PartLevels } from "./parts.js";

/** Parameters of a device as tensors, by key such as `q0.el`, `q0-q1.jc` and `q0.x.amplitude`. */
export type DeviceParameters = Record<string, Tensor>;
/** Parameters of a device as numbers, by key. */
export type DeviceParameterValues = Record<string, PulseValue>;

/** Coupling of two parts. */
export interface Coupling {
  /** Names of the two parts. */
  between: readonly [string, string];
  /** J n_a n_b, GHz. */
  jc?: number;
  /** J phi_a phi_b, GHz. */
  jl?: number;
  /** J z_a z_b, GHz. */
  zz?: number;
}

const couplingOperators = { jc: "n", jl: "phi", zz: "z" } as const;
const strengths = Object.keys(couplingOperators) as (keyof typeof couplingOperators)[];

/** Operators of a part: charge, phase, Pauli operators of the two lowest levels, and the lowering operator. */
export type OperatorName = "phi" | "n" | "x" | "y" | "z" | "lower";
/** Operators that a drive can use. */
export const driveOperators: readonly OperatorName[] = ["phi", "n", "x", "y", "z"];
/** Operators that decay can use. */
export const jumpOperators: readonly OperatorName[] = [...driveOperators, "lower"];

const twoLevel: Record<"x" | "y" | "z", Operator> = { x: sigmaX, y: sigmaY, z: sigmaZ };

function operatorOf(levels: PartLevels, name: OperatorName): Tensor {
  if (name === "n" || name === "phi") return levels[name];
  const [count] = levels.energies.shape;
  if (name === "lower") return destroy(count).tensor();
  const small = twoLevel[name];
  return Operator.build(count, count, (i, j) => (i < 2 && j < 2 ? small.at(i, j) : 0)).tensor();
}

/** A pulse on an operator of a part. */
export interface Drive {
  /** Unique among the drives of its part. */
  name: string;
  /** The driven part. */
  on: string;
  /** Default: phi. */
  operator?: OperatorName;
  /** Its pulse. */
  pulse: Pulse;
  /** Other parts that the pulse reaches, with the fraction of its amplitude. */
  crosstalk?: Readonly<Record<string, number>>;
}

/** Description of a device. @inline */
export interface QuantumDeviceFields {
  /** The parts by name. */
  parts: Readonly<Record<string, DevicePart>>;
  /** Couplings between parts. */
  couplings?: readonly Coupling[];
  /** Pulses and what they drive. */
  drives?: readonly Drive[];
  /** One parameter that replaces several: { name: [keys] }. */
  shared?: Readonly<Record<string, readonly string[]>>;
  /** Fabrication factors by key: the Hamiltonian uses factor x parameter. */
  spread?: Readonly<Record<string, number>>;
}

const f64 = { dtype: "float64" } as const;
const twoPi = 2 * Math.PI;

/**
 * Coupled parts with drives.
 *
 * @example
 * ```ts
 * import { cosinePulse, QuantumDevice, Transmon } from "@weft/quantum";
 *
 * const device = new QuantumDevice({
 *   parts: {
 *     a: new Transmon({ ec: 0.25, ej: 12, levels: 3 }),
 *     b: new Transmon({ ec: 0.25, ej: 13, levels: 3 }),
 *   },
 *   couplings: [{ between: ["a", "b"], jc: 0.01 }],
 *   drives: [{ name: "x", on: "a", operator: "n", pulse: cosinePulse({ length: 20, amplitude: 0.1, omega: 28 }) }],
 * });
 * console.log(Object.keys(device.values())); // a.ec, a.ej, ..., a-b.jc, a.x.amplitude, ...
 * console.log(device.with({ "a.ej": 12.5 }).parameter("a.ej").itemSync()); // 12.5
 * ```
 */
export class QuantumDevice {
  /** Names of the parts, in the order of product states. */
  readonly names: readonly string[];
  /** The parts by name. */
  readonly parts: Readonly<Record<string, DevicePart>>;
  /** Couplings between parts. */
  readonly couplings: readonly Coupling[];
  /** Pulses and what they drive. */
  readonly drives: readonly Drive[];
  /** One parameter that replaces several: { name: [keys] }. */
  readonly shared: Readonly<Record<string, readonly string[]>>;
  /** Fabrication factors by key. */
  readonly spread: Readonly<Record<string, number>>;

  constructor(fields: QuantumDeviceFields) {
    this.parts = fields.parts;
    this.names = Object.keys(fields.parts);
    this.couplings = fields.couplings ?? [];
    this.drives = fields.drives ?? [];
    this.shared = fields.shared ?? {};
    this.spread = fields.spread ?? {};
    if (this.names.length === 0) throw new WeftError("device: needs at least one part");
    const states = this.names.reduce((size, name) => size * fields.parts[name].structure.levels, 1);
    if (!(states <= largestSpace))
      throw new WeftError(
        `device: its parts have ${states} states together, more than ${largestSpace}; keep fewer levels, or fewer parts`,
      );
    const part = (name: string, where: string): void => {
      if (!this.names.includes(name))
        throw new WeftError(
          `device: ${where} names the part "${name}", which does not exist${suggestion(name, this.names)}`,
        );
    };
    for (const name of this.names)
      if (!/^[A-Za-z]\w*$/.test(name)) throw new WeftError(`device: a part's name is a word, got "${name}"`);
    const pairs = new Set<string>();
    for (const coupling of this.couplings) {
      const [a, b] = coupling.between;
      part(a, "a coupling");
      part(b, "a coupling");
      if (a === b) throw new WeftError(`device: a coupling joins "${a}" with itself`);
      if (strengths.every((key) => coupling[key] === undefined))
        throw new WeftError(`device: the coupling ${a}-${b} has neither jc nor jl nor zz`);
      const key = [a, b].sort().join("-");
      if (pairs.has(key))
        throw new WeftError(`device: the coupling ${a}-${b} is given twice; add jc and jl to one entry`);
      pairs.add(key);
    }
    const seen = new Set<string>();
    for (const drive of this.drives) {
      part(drive.on, `drive ${drive.name}`);
      for (const other of Object.keys(drive.crosstalk ?? {})) {
        part(other, `the crosstalk of drive ${drive.name}`);
        if (other === drive.on)
          throw new WeftError(
            `device: the crosstalk of drive ${drive.name} reaches ${other}, which it drives; set its amplitude`,
          );
      }
      const key = `${drive.on}.${drive.name}`;
      if (seen.has(key) || drive.name in this.parts[drive.on].parameters)
        throw new WeftError(`device: the name of drive ${key} is taken; give each drive of a part its own`);
      seen.add(key);
    }
    const known = Object.keys(this.#ownValues());
    const members = new Set<string>();
    for (const [name, keys] of Object.entries(this.shared))
      for (const key of keys) {
        if (!known.includes(key))
          throw new WeftError(
            `device: shared ${name} names "${key}", which is not a parameter${suggestion(key, known)}`,
          );
        if (members.has(key))
          throw new WeftError(
            `device: "${key}" is in two lists of shared, or twice in one; a parameter belongs to one`,
          );
        members.add(key);
      }
    for (const key of Object.keys(this.spread))
      if (!known.includes(key))
        throw new WeftError(`device: spread names "${key}", which is not a parameter${suggestion(key, known)}`);
  }

  /** Values by key, before parameters are shared. */
  #ownValues(): DeviceParameterValues {
    const values: DeviceParameterValues = {};
    for (const name of this.names)
      for (const [key, x] of Object.entries(this.parts[name].parameters)) values[`${name}.${key}`] = x;
    for (const coupling of this.couplings)
      for (const key of strengths)
        if (coupling[key] !== undefined) values[`${coupling.between.join("-")}.${key}`] = coupling[key];
    for (const { name, on, pulse, crosstalk = {} } of this.drives) {
      for (const [key, x] of Object.entries(pulse.parameters)) values[`${on}.${name}.${key}`] = x;
      for (const [other, x] of Object.entries(crosstalk)) values[`${on}.${name}.crosstalk.${other}`] = x;
    }
    return values;
  }

  /** Values of all parameters by key, for files. */
  values(): DeviceParameterValues {
    const own = this.#ownValues();
    const members = new Set(Object.values(this.shared).flat());
    const shared = Object.entries(this.shared).map(([name, keys]) => [name, own[keys[0]]] as const);
    return Object.fromEntries([...Object.entries(own).filter(([key]) => !members.has(key)), ...shared]);
  }

  /** All parameters as float64 tensors, for differentiation. */
  parameters(): DeviceParameters {
    return Object.fromEntries(
      Object.entries(this.values()).map(([key, x]) => [
        key,
        typeof x === "number" ? full([], x, f64) : tensor([...x], f64),
      ]),
    );
  }

  /** Binds parameters; those not given keep their values. */
  with(parameters: Partial<DeviceParameters> | DeviceParameterValues = {}): BoundDevice {
    const known = this.parameters();
    for (const [key, value] of Object.entries(parameters)) {
      if (!(key in known))
        throw new WeftError(`device: there is no parameter "${key}"${suggestion(key, Object.keys(known))}`);
      if (value === undefined) continue;
      known[key] =
        value instanceof Tensor ? value : typeof value === "number" ? full([], value, f64) : tensor([...value], f64);
    }
    return new BoundDevice(this, known);
  }
}

/** Largest number of product states of a device. */
const largestSpace = 2 ** 20;

/** Shapes that do not vanish at their ends: moving an end of such a pulse is not smooth. */
const abruptShapes: ReadonlySet<string> = new Set(["constant", "piecewise", "filtered"]);

/** Shapes without a corner between their ends. */
const smoothShapes: ReadonlySet<string> = new Set(["cosine", "gaussian", "constant", "fourier", "filtered"]);

/**
 * Keys of lengths and delays without a gradient: those of constant and piecewise constant pulses, unless all pulses start at 0
 * and share one length, which is then the duration of the evolution.
 */
export function keysWithoutGradient(device: QuantumDevice): Set<string> {
  const nameOf = (key: string): string =>
    Object.entries(device.shared).find(([, keys]) => keys.includes(key))?.[0] ?? key;
  const lengths = new Set(device.drives.map(({ on, name }) => nameOf(`${on}.${name}.length`)));
  const isWhole = lengths.size === 1 && device.drives.every(({ pulse: { parameters: p } }) => !("delay" in p));
  const abrupt = isWhole ? [] : device.drives.filter(({ pulse }) => abruptShapes.has(pulse.shape));
  return new Set(
    abrupt.flatMap(({ on, name, pulse: { parameters: p } }) =>
      ["length", "delay"].filter((key) => key in p).map((key) => nameOf(`${on}.${name}.${key}`)),
    ),
  );
}

/** Whether two scalars are known to be equal: the same tensor, or equal values outside of traces. */
function areEqual(a: Tensor, b: Tensor): boolean {
  if (a === b) return true;
  const [x, y] = [concreteValues(a), concreteValues(b)];
  return x !== null && y !== null && Math.abs(x[0] - y[0]) <= 1e-12 * Math.abs(y[0]);
}

/** Compiled eigensolvers by part structure. */
const solvers = new Map<string, (p: DeviceParameters) => PartLevels>();

function solver(part: DevicePart): (p: DeviceParameters) => PartLevels {
  const key = part.structureKey;
  let found = solvers.get(key);
  if (found === undefined) {
    found = jit((p: DeviceParameters) => vmap((one: DeviceParameters) => part.solve(one))(p));
    solvers.set(key, found);
  }
  return found;
}

/** A device with parameters bound to tensors. */
export class BoundDevice {
  readonly #own: DeviceParameters;
  #levels: Record<string, PartLevels> | null = null;

  constructor(
    /** The device without values. */
    readonly device: QuantumDevice,
    /** Values of all parameters. */
    readonly parameters: DeviceParameters,
  ) {
    this.#own = { ...parameters };
    for (const [name, keys] of Object.entries(device.shared)) for (const key of keys) this.#own[key] = parameters[name];
    for (const [key, factor] of Object.entries(device.spread)) this.#own[key] = this.#own[key].mul(factor);
  }

  /** A parameter after sharing and multiplication by its fabrication factor. */
  parameter(key: string): Tensor {
    const found = this.#own[key];
    if (found === undefined) throw new WeftError(`device: there is no parameter "${key}"`);
    return found;
  }

  /** Number of levels of each part. */
  get dims(): number[] {
    return this.device.names.map((name) => this.device.parts[name].structure.levels);
  }

  /** Sets levels that were computed before, so that a traced program has them as constants. */
  useLevels(levels: Record<string, PartLevels>): void {
    this.#levels = levels;
  }

  /** Levels of every part. Parts of equal structure are solved as one batch. */
  levels(): Record<string, PartLevels> {
    if (this.#levels !== null) return this.#levels;
    const { device } = this;
    const solved: Record<string, PartLevels> = {};
    const groups = new Map<string, string[]>();
    for (const name of device.names) {
      const key = device.parts[name].structureKey;
      groups.set(key, [...(groups.get(key) ?? []), name]);
    }
    for (const names of groups.values()) {
      const part = device.parts[names[0]];
      const keys = Object.keys(part.parameters);
      const of = (name: string): Record<string, Tensor> =>
        Object.fromEntries(keys.map((key) => [key, this.parameter(`${name}.${key}`)]));
      const stacked = Object.fromEntries(keys.map((key) => [key, stack(names.map((name) => of(name)[key]))]));
      const all = solver(part)(stacked);
      const energies = concreteValues(all.energies);
      const bad = energies?.findIndex(Number.isNaN) ?? -1;
      const given = concreteValues(stack(Object.values(stacked)));
      if (bad >= 0 && given?.every(Number.isFinite))
        throw new WeftError(
          `device: the levels of ${names[Math.floor(bad / part.structure.levels)]} reach the ends of the grid on which they are ` +
            `computed; raise points${part.kind === "fluxonium" ? " and range" : ""} (now ${part.structure.points}${part.kind === "fluxonium" ? ` and ${part.structure.range}` : ""})`,
        );
      names.forEach((name, i) => {
        solved[name] = { energies: all.energies.index(i), n: all.n.index(i), phi: all.phi.index(i) };
      });
    }
    this.#levels = solved;
    return solved;
  }

  /**
   * The Hamiltonian: energies above the ground state of each part, couplings, and drives, in rad/ns and ns.
   *
   * @param options - `duration` of the evolution, if it is not the end of the last pulse.
   */
  hamiltonian(options: { duration?: Tensor | number } = {}): Hamiltonian {
    const { device } = this;
    const levels = this.levels();
    const site = (name: string): number => device.names.indexOf(name);
    const fixed: HamiltonianTerm[] = device.names.map((name) => ({
      sites: [site(name)],
      matrix: diag(levels[name].energies.sub(levels[name].energies.index(0)).cast("complex128")),
    }));
    for (const coupling of device.couplings) {
      const [a, b] = [...coupling.between].sort((x, y) => site(x) - site(y));
      for (const key of strengths) {
        if (coupling[key] === undefined) continue;
        const operator = couplingOperators[key];
        const strength = this.parameter(`${coupling.between.join("-")}.${key}`).mul(twoPi);
        const matrix = kron(operatorOf(levels[a], operator), operatorOf(levels[b], operator)).mul(strength);
        fixed.push({ sites: [site(a), site(b)], matrix });
      }
    }
    const { terms, amplitudes } = this.#drives(options.duration);
    return {
      dims: this.dims,
      static: fixed,
      drives: terms.map(({ on, operator }) => ({ sites: [site(on)], matrix: operatorOf(levels[on], operator) })),
      amplitudes,
      ...(typeof amplitudes === "function" && { breaks: this.#breaks() }),
    };
  }

  /** Times at which pulses begin and end. */
  #breaks(): Tensor {
    const pulses = this.device.drives.map((drive) => ({ pulse: drive.pulse, p: this.pulseParameters(drive) }));
    return stack([
      ...pulses.flatMap(({ p }) => ("delay" in p ? [p.delay] : [])),
      ...pulses.map(({ pulse, p }) => pulse.end(p)),
    ]);
  }

  /** One drive per part and operator: the sum of all pulses that reach it. */
  #drives(duration: Tensor | number | undefined) {
    const { device } = this;
    const terms: { on: string; operator: OperatorName; sources: { drive: Drive; scale: Tensor | null }[] }[] = [];
    const add = (on: string, operator: OperatorName, drive: Drive, scale: Tensor | null): void => {
      let term = terms.find((t) => t.on === on && t.operator === operator);
      if (term === undefined) terms.push((term = { on, operator, sources: [] }));
      term.sources.push({ drive, scale });
    };
    for (const drive of device.drives) {
      const operator = drive.operator ?? "phi";
      add(drive.on, operator, drive, null);
      for (const other of Object.keys(drive.crosstalk ?? {}))
        add(other, operator, drive, this.parameter(`${drive.on}.${drive.name}.crosstalk.${other}`));
    }
    const sum = (values: ReadonlyMap<Drive, Tensor>): Tensor =>
      stack(
        terms.map(({ sources }) =>
          sources
            .map(({ drive, scale }) => (scale === null ? values.get(drive)! : values.get(drive)!.mul(scale)))
            .reduce((a, b) => a.add(b)),
        ),
        1,
      );
    const each = (value: (drive: Drive) => Tensor): Tensor =>
      sum(new Map(device.drives.map((drive) => [drive, value(drive)])));
    const inSegments = this.#sharesSegments(duration);
    const amplitudes = inSegments
      ? each((drive) => {
          const { values, amplitude } = this.pulseParameters(drive);
          return values.mul(amplitude);
        })
      : (times: Tensor): Tensor => each((drive) => drive.pulse.at(times, this.pulseParameters(drive)));
    return { terms, amplitudes: terms.length === 0 ? null : amplitudes };
  }

  /** Whether all pulses are piecewise constant on the same segments, which fill the whole evolution. */
  #sharesSegments(duration: Tensor | number | undefined): boolean {
    const { drives } = this.device;
    const pulses = drives.map((drive) => this.pulseParameters(drive));
    const isPlain = drives.every(
      ({ pulse }, k) => pulse.shape === "piecewise" && !("omega" in pulses[k]) && !("delay" in pulses[k]),
    );
    if (!isPlain || pulses.length === 0) return false;
    const [{ length, values }] = pulses;
    const whole = typeof duration === "number" ? full([], duration, f64) : (duration ?? length);
    return areEqual(whole, length) && pulses.every((p) => p.values.size === values.size && areEqual(p.length, length));
  }

  /**
   * Whether the drives are smooth inside the evolution, as the order of a method presumes: pulses begin and end with it, and
   * have no corner in between, or share their segments.
   */
  isSmooth(duration?: Tensor | number): boolean {
    const { drives } = this.device;
    if (this.#sharesSegments(duration)) return true;
    const whole = typeof duration === "number" ? full([], duration, f64) : (duration ?? null);
    const ends = drives.map((drive) => drive.pulse.end(this.pulseParameters(drive)));
    return drives.every(
      ({ pulse: { shape, parameters } }, k) =>
        smoothShapes.has(shape) && !("delay" in parameters) && areEqual(ends[k], whole ?? ends[0]),
    );
  }

  /** Parameters of the pulse of a drive, by name. */
  pulseParameters(drive: Drive): Record<string, Tensor> {
    return Object.fromEntries(
      Object.keys(drive.pulse.parameters).map((key) => [key, this.parameter(`${drive.on}.${drive.name}.${key}`)]),
    );
  }

  /** End of the last pulse. Pulses that end at the same time share its gradient. */
  duration(): Tensor {
    const ends = this.device.drives.map((drive) => drive.pulse.end(this.pulseParameters(drive)));
    if (ends.length === 0) throw new WeftError("device: no pulse says how long the evolution is; give duration");
    return ends.length === 1 ? ends[0] : stack(ends).max();
  }

  /** An operator of one part on the whole product space. */
  onWhole(part: string, operator: OperatorName): Tensor {
    const term = { sites: [this.device.names.indexOf(part)], matrix: operatorOf(this.levels()[part], operator) };
    return denseTerms({ dims: this.dims, static: [term], drives: [], amplitudes: null }, { complex: "complex128" })
      .fixed;
  }

  /** The static Hamiltonian on the whole product space, rad/ns. */
  staticMatrix(): Tensor {
    return denseTerms(this.hamiltonian(), { complex: "complex128" }).fixed;
  }
}
