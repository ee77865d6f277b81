// The specification of a gate: device, pulses, decay, evolution and target, as a YAML file has it. It becomes a Device and
// options for the solvers; every key is checked.

import { key as keyOf, randn, splitKey } from "@weft/core/internal/tensor";
import { parse } from "yaml";
import { type Compensation, gate as gateByName } from "../fidelity/index.js";
import { identityOperator, Operator } from "../operators/index.js";
import { Pulse, type PulseShapeName, pulseShapes } from "../pulses/index.js";
import {
  type GradientKind,
  type Method,
  type MethodName,
  methodNames,
  trotter2,
  trotter4,
  tsit5,
} from "../solvers/index.js";
import {
  Chain,
  type Coupling,
  crossResonance,
  type DeviceParameterValues,
  DevicePart,
  type Drive,
  driveOperators,
  jumpOperators,
  type OperatorName,
  type PartKind,
  partRules,
  QuantumDevice,
  rotations,
} from "../systems/index.js";
import {
  checkKeys,
  fail,
  listAt,
  mapAt,
  numberAt,
  numbersAt,
  objectAt,
  type Raw,
  SpecError,
  textAt,
  wholeAt,
} from "./keys.js";

export interface OpenJump {
  /** Among the parameters: q0.lower.rate. */
  key: string;
  on: string;
  operator: OperatorName;
  /** 1/ns */
  rate: number;
}

export interface GateTarget {
  /** A gate on the computational states, or null where a state is wanted. */
  gate: Operator | null;
  name: string;
  /** Product states by their levels, "01": from the first to the second. */
  states: { from: string; to: string } | null;
  compensation: Compensation;
  /** "average" (with leakage) or "process": which infidelity is the loss. */
  measure: "average" | "process";
}

export interface GateSpec {
  name: string;
  device: QuantumDevice;
  parameters: DeviceParameterValues;
  evolution: {
    steps: number;
    duration?: number;
    method: Method | MethodName;
    gradient?: GradientKind;
    basis: "product" | "eigen";
    chunks?: number;
    precision: "complex64" | "complex128";
    /** Fixed steps: the error of the infidelity that is allowed; checked by a run with half the steps. */
    tolerance?: number;
  };
  jumps: OpenJump[];
  target: GateTarget;
  /** Parameters to differentiate and optimize: keys, or prefixes that end in *. Null: all but the rates of decay. */
  learn: string[] | null;
}

/** All parameters with their values: those of the device, and the rates of decay. */
export const specValues = ({ device, jumps }: Pick<GateSpec, "device" | "jumps">): DeviceParameterValues => ({
  ...device.values(),
  ...Object.fromEntries(jumps.map(({ key, rate }) => [key, rate])),
});

/** Keys to learn. Rates are learned only by patterns that name them: a gate is not improved by wishing its decay away. */
export function learnedKeys({ device, jumps, learn }: Pick<GateSpec, "device" | "jumps" | "learn">): Set<string> {
  const own = Object.keys(device.values());
  const rates = jumps.map(({ key }) => key);
  return new Set(
    (learn ?? ["*"]).flatMap((pattern) => [
      ...matching(own, pattern),
      ...(pattern.endsWith("rate") ? matching(rates, pattern) : []),
    ]),
  );
}

const topKeys = ["name", "device", "pulses", "parameters", "evolution", "decay", "target", "learn"];

/** Reads a specification from YAML (or JSON). */
export function parseGateSpec(text: string, name = "gate"): GateSpec {
  let raw: unknown;
  try {
    raw = parse(text);
  } catch (error) {
    throw new SpecError(`${name}: is not YAML: ${(error as Error).message.split("\n")[0]}`);
  }
  return gateSpec(raw, name);
}

export function gateSpec(value: unknown, fallbackName = "gate"): GateSpec {
  const raw = objectAt(value, "specification");
  checkKeys(raw, topKeys, "specification");
  if (raw.device === undefined) fail("specification", 'the key "device" is missing');
  const bare = deviceOf(objectAt(raw.device, "device"));
  const drives = [...bare.drives];
  listAt(raw.pulses ?? [], "pulses").forEach((entry, i) => {
    drives.push(...pulsesOf(objectAt(entry, `pulses[${i}]`), `pulses[${i}]`, bare));
  });
  // Sharing may name pulses, which exist only now.
  const device = new QuantumDevice({ ...bare, drives, shared: sharedOf(objectAt(raw.device, "device")) });
  const jumps = named(
    listAt(raw.decay ?? [], "decay").flatMap((x, i) => jumpsOf(objectAt(x, `decay[${i}]`), `decay[${i}]`, device)),
  );
  const known = Object.keys(specValues({ device, jumps }));
  const parameters = mapAt(raw.parameters ?? {}, "parameters", (x, where) =>
    Array.isArray(x) ? numbersAt(x, where) : numberAt(x, where),
  );
  checkKeys(parameters, known, "parameters");
  const learn = raw.learn === undefined ? null : listAt(raw.learn, "learn").map((x, i) => textAt(x, `learn[${i}]`));
  for (const pattern of learn ?? [])
    if (learnedKeys({ device, jumps, learn: [pattern] }).size === 0) checkKeys({ [pattern]: 0 }, known, "learn");
  return {
    name: raw.name === undefined ? fallbackName : textAt(raw.name, "name"),
    device,
    parameters,
    evolution: evolutionOf(objectAt(raw.evolution ?? {}, "evolution"), jumps.length > 0),
    jumps,
    target: targetOf(objectAt(raw.target ?? {}, "target"), device),
    learn,
  };
}

/** Keys that a pattern names: itself, or all with its beginning where it ends in a star (q*.x.amplitude works too). */
export function matching(keys: readonly string[], pattern: string): string[] {
  const text = pattern.split("*").map((part) => part.replaceAll(/[.+?^${}()|[\]\\]/g, "\\$&"));
  const form = new RegExp(`^${text.join(".*")}$`);
  return keys.filter((key) => form.test(key));
}

const chainKeys = ["kind", "qubits", "ec", "ej", "el", "phiExt", "jc", "jl", "levels"];

function sharedOf(raw: Raw): Record<string, string[]> {
  return mapAt(raw.shared ?? {}, "device.shared", (x, where) =>
    listAt(x, where).map((k, i) => textAt(k, `${where}[${i}]`)),
  );
}

function deviceOf(raw: Raw): QuantumDevice {
  checkKeys(raw, ["parts", "couplings", "chain", "spread", "shared"], "device");
  if ((raw.parts === undefined) === (raw.chain === undefined)) fail("device", 'give either "parts" or "chain"');
  const bare = raw.chain !== undefined ? chainOf(objectAt(raw.chain, "device.chain")) : partsOf(raw);
  return new QuantumDevice({ ...bare, spread: spreadOf(raw.spread, bare) });
}

function chainOf(raw: Raw): QuantumDevice {
  checkKeys(raw, chainKeys, "device.chain");
  textAt(raw.kind ?? "fluxonium", "device.chain.kind", ["fluxonium"]);
  const perQubit = (key: string): number | number[] | undefined =>
    raw[key] === undefined
      ? undefined
      : Array.isArray(raw[key])
        ? numbersAt(raw[key], `device.chain.${key}`)
        : numberAt(raw[key], `device.chain.${key}`);
  const given = Object.fromEntries(
    chainKeys
      .slice(2, 8)
      .map((key) => [key, perQubit(key)])
      .filter(([, x]) => x !== undefined),
  );
  const levels = raw.levels === undefined ? {} : { levels: wholeAt(raw.levels, "device.chain.levels") };
  return Chain.fluxonium({ qubits: wholeAt(raw.qubits, "device.chain.qubits"), ...given, ...levels, gate: "none" });
}

function partsOf(raw: Raw): QuantumDevice {
  const parts = mapAt(raw.parts, "device.parts", (value, where) => {
    const { kind, ...rest } = objectAt(value, where);
    const name = textAt(kind, `${where}.kind`, Object.keys(partRules)) as PartKind;
    const fields = Object.fromEntries(
      Object.entries(rest).map(([key, x]) => [
        key,
        key === "fluxOn" ? textAt(x, `${where}.${key}`) : typeof x === "boolean" ? x : numberAt(x, `${where}.${key}`),
      ]),
    );
    try {
      return new DevicePart(name, fields);
    } catch (error) {
      return fail(where, (error as Error).message);
    }
  });
  const couplings = listAt(raw.couplings ?? [], "device.couplings").map((value, i): Coupling => {
    const where = `device.couplings[${i}]`;
    const entry = objectAt(value, where);
    checkKeys(entry, ["between", "jc", "jl", "zz"], where);
    const between = listAt(entry.between, `${where}.between`).map((x, k) => textAt(x, `${where}.between[${k}]`));
    if (between.length !== 2) fail(`${where}.between`, `expected two parts, got ${between.length}`);
    const strengths = Object.fromEntries(
      (["jc", "jl", "zz"] as const)
        .filter((k) => entry[k] !== undefined)
        .map((k) => [k, numberAt(entry[k], `${where}.${k}`)]),
    );
    return { between: between as [string, string], ...strengths };
  });
  return new QuantumDevice({ parts, couplings });
}

/** Factors by key, or normal ones from a seed: { sigma: 0.01, seed: 42, parameters: [ec, ej, el] }. */
function spreadOf(value: unknown, device: QuantumDevice): Record<string, number> {
  if (value === undefined) return {};
  const raw = objectAt(value, "device.spread");
  if (!("sigma" in raw)) return mapAt(raw, "device.spread", numberAt);
  checkKeys(raw, ["sigma", "seed", "parameters"], "device.spread");
  const sigma = numberAt(raw.sigma, "device.spread.sigma");
  const wanted = raw.parameters === undefined ? ["ec", "ej", "el"] : listAt(raw.parameters, "device.spread.parameters");
  const keys = device.names.flatMap((name) =>
    Object.keys(device.parts[name].parameters)
      .filter((key) => wanted.includes(key))
      .map((key) => `${name}.${key}`),
  );
  const seed = raw.seed === undefined ? 0 : numberAt(raw.seed, "device.spread.seed");
  const draws = randn([keys.length], {
    key: splitKey(keyOf(seed), 1).index(0),
    dtype: "float64",
  }).dataSync() as Float64Array;
  return Object.fromEntries(keys.map((key, i) => [key, 1 + sigma * draws[i]]));
}

const recipes = ["X", "SX", "cross-resonance"];

function pulsesOf(raw: Raw, where: string, device: QuantumDevice): Drive[] {
  if (raw.recipe !== undefined) {
    const recipe = textAt(raw.recipe, `${where}.recipe`, recipes);
    if (recipe === "cross-resonance") {
      checkKeys(raw, ["recipe", "control", "target", "length", "effective"], where);
      const [control, target] = ["control", "target"].map((key) => textAt(raw[key], `${where}.${key}`, device.names));
      const given = (key: "length" | "effective"): number | undefined =>
        raw[key] === undefined ? undefined : numberAt(raw[key], `${where}.${key}`);
      return [crossResonance(device, control, target, { length: given("length"), effective: given("effective") })];
    }
    checkKeys(raw, ["recipe", "on", "length"], where);
    const length = raw.length === undefined ? 50 : numberAt(raw.length, `${where}.length`);
    const made = rotations(device, recipe as "X" | "SX", length);
    if (raw.on === undefined || raw.on === "all") return made;
    const names = Array.isArray(raw.on) ? raw.on : [raw.on];
    checkKeys(Object.fromEntries(names.map((n) => [n, 0])), device.names, `${where}.on`);
    return made.filter((drive) => names.includes(drive.on));
  }
  const { on, name, operator, crosstalk, shape, frequency, ...rest } = raw;
  const kind = textAt(shape, `${where}.shape`, Object.keys(pulseShapes)) as PulseShapeName;
  const values: Record<string, number | number[]> = Object.fromEntries(
    Object.entries(rest).map(([key, x]) => [
      key,
      Array.isArray(x) ? numbersAt(x, `${where}.${key}`) : numberAt(x, `${where}.${key}`),
    ]),
  );
  if (frequency !== undefined) values.omega = 2 * Math.PI * numberAt(frequency, `${where}.frequency`);
  let pulse: Pulse;
  try {
    pulse = new Pulse(kind, values);
  } catch (error) {
    return fail(where, (error as Error).message);
  }
  return [
    {
      on: textAt(on, `${where}.on`, device.names),
      name: name === undefined ? "pulse" : textAt(name, `${where}.name`),
      operator:
        operator === undefined ? "phi" : (textAt(operator, `${where}.operator`, driveOperators) as OperatorName),
      pulse,
      ...(crosstalk === undefined ? {} : { crosstalk: mapAt(crosstalk, `${where}.crosstalk`, numberAt) }),
    },
  ];
}

/** Jumps with their keys; a second one of a kind on the same part is numbered. */
function named(jumps: readonly Omit<OpenJump, "key">[]): OpenJump[] {
  const seen = new Map<string, number>();
  return jumps.map((jump) => {
    const name = `${jump.on}.${jump.operator}`;
    const count = (seen.get(name) ?? 0) + 1;
    seen.set(name, count);
    return { ...jump, key: `${name}${count === 1 ? "" : count}.rate` };
  });
}

function jumpsOf(raw: Raw, where: string, device: QuantumDevice): Omit<OpenJump, "key">[] {
  checkKeys(raw, ["on", "operator", "rate", "t1", "t2"], where);
  const on = textAt(raw.on, `${where}.on`, device.names);
  const rate = (value: unknown, key: string): number => {
    const number = numberAt(value, `${where}.${key}`);
    if (number < 0) fail(`${where}.${key}`, `must not be negative, got ${number}`);
    return number;
  };
  if (raw.operator !== undefined)
    return [
      {
        on,
        operator: textAt(raw.operator, `${where}.operator`, jumpOperators) as OperatorName,
        rate: rate(raw.rate, "rate"),
      },
    ];
  if (raw.t1 === undefined && raw.t2 === undefined) fail(where, "give operator and rate, or t1 and t2 (ns)");
  for (const key of ["t1", "t2"] as const)
    if (raw[key] !== undefined && !(numberAt(raw[key], `${where}.${key}`) > 0))
      fail(`${where}.${key}`, `must be a positive time in ns, got ${raw[key]}`);
  const [g1, g2] = [
    raw.t1 === undefined ? 0 : 1 / rate(raw.t1, "t1"),
    raw.t2 === undefined ? null : 1 / rate(raw.t2, "t2"),
  ];
  const pure = g2 === null ? 0 : g2 - g1 / 2;
  if (pure < -1e-12) fail(where, `t2 is longer than 2 t1, which is not possible`);
  const jumps: Omit<OpenJump, "key">[] = [];
  if (g1 > 0) jumps.push({ on, operator: "lower", rate: g1 });
  // sqrt(rate) z turns coherences down by exp(-2 rate t).
  if (pure > 0) jumps.push({ on, operator: "z", rate: pure / 2 });
  return jumps;
}

function lengthAt(value: unknown, where: string): number {
  const length = numberAt(value, where);
  if (!(length > 0)) fail(where, `must be a positive time in ns, got ${length}`);
  return length;
}

function evolutionOf(raw: Raw, open: boolean): GateSpec["evolution"] {
  const keys = [
    "steps",
    "duration",
    "method",
    "splitting",
    "tolerance",
    "maxSteps",
    "gradient",
    "basis",
    "chunks",
    "precision",
  ];
  checkKeys(raw, keys, "evolution");
  const at = (key: string): string => `evolution.${key}`;
  const name = textAt(raw.method ?? (open ? "rk4" : "trotter2"), at("method"), methodNames) as MethodName;
  const splitting =
    raw.splitting === undefined
      ? undefined
      : (textAt(raw.splitting, at("splitting"), ["merged", "terms"]) as "merged" | "terms");
  if (splitting !== undefined && !name.startsWith("trotter")) fail(at("splitting"), `method ${name} does not split`);
  let method: Method | MethodName = name;
  if (name === "trotter2") method = trotter2({ splitting });
  if (name === "trotter4") method = trotter4({ splitting });
  if (name === "tsit5") {
    const tolerance = raw.tolerance === undefined ? 1e-8 : numberAt(raw.tolerance, at("tolerance"));
    const maxSteps = raw.maxSteps === undefined ? 5000 : wholeAt(raw.maxSteps, at("maxSteps"));
    method = tsit5({ relative: tolerance, absolute: tolerance, maxSteps });
  } else if (raw.maxSteps !== undefined) fail("evolution", `method ${name} has fixed steps; maxSteps belongs to tsit5`);
  const tolerance = raw.tolerance === undefined ? undefined : numberAt(raw.tolerance, at("tolerance"));
  if (tolerance !== undefined && tolerance <= 0) fail(at("tolerance"), `must be positive, got ${tolerance}`);
  return {
    steps: raw.steps === undefined ? 5000 : wholeAt(raw.steps, at("steps")),
    duration: raw.duration === undefined ? undefined : lengthAt(raw.duration, at("duration")),
    method,
    gradient:
      raw.gradient === undefined
        ? undefined
        : (textAt(raw.gradient, at("gradient"), ["stored", "checkpointed", "reversal"]) as GradientKind),
    basis: textAt(raw.basis ?? "product", at("basis"), ["product", "eigen"]) as "product" | "eigen",
    chunks: raw.chunks === undefined ? undefined : wholeAt(raw.chunks, at("chunks")),
    tolerance: name === "tsit5" ? undefined : tolerance,
    precision: textAt(raw.precision ?? "complex128", at("precision"), ["complex64", "complex128"]) as "complex128",
  };
}

/** The largest entry of M^H M - 1. */
function distanceFromUnitary(gate: Operator): number {
  const { re, im } = gate.adjoint().mul(gate).sub(identityOperator(gate.rows));
  return re.reduce((most, x, i) => Math.max(most, Math.hypot(x, im[i])), 0);
}

function targetOf(raw: Raw, device: QuantumDevice): GateTarget {
  checkKeys(raw, ["gate", "matrix", "from", "to", "compensation", "measure"], "target");
  const compensation = textAt(raw.compensation ?? "none", "target.compensation", [
    "none",
    "virtual-z",
    "single-qubit",
  ]) as Compensation;
  const measure = textAt(raw.measure ?? "average", "target.measure", ["average", "process"]) as GateTarget["measure"];
  const sizes = device.names.map((name) => device.parts[name].structure.computational);
  const qubits = Math.log2(sizes.reduce((a, b) => a * b, 1));
  if (raw.to !== undefined) {
    const label = (value: unknown, where: string): string => {
      const text = String(value);
      const fits =
        text.length === sizes.length &&
        [...text].every((c, k) => Number(c) < device.parts[device.names[k]].structure.levels);
      if (!fits) fail(where, `expected one level a part (${sizes.length} digits), got "${text}"`);
      return text;
    };
    const from = raw.from === undefined ? "0".repeat(sizes.length) : label(raw.from, "target.from");
    return {
      gate: null,
      name: `${from} -> ${raw.to}`,
      states: { from, to: label(raw.to, "target.to") },
      compensation,
      measure,
    };
  }
  if (raw.matrix !== undefined) {
    const rows = listAt(raw.matrix, "target.matrix").map((row, i) =>
      listAt(row, `target.matrix[${i}]`).map((x, j) => {
        if (!Array.isArray(x)) return numberAt(x, `target.matrix[${i}][${j}]`);
        const [re, im] = numbersAt(x, `target.matrix[${i}][${j}]`);
        return { re, im: im ?? 0 };
      }),
    );
    const gate = Operator.from(rows, "target.matrix");
    const off = gate.rows === gate.columns ? distanceFromUnitary(gate) : Number.POSITIVE_INFINITY;
    if (off > 1e-6)
      fail(
        "target.matrix",
        Number.isFinite(off)
          ? `is not unitary: M^H M differs from the identity by ${off.toExponential(1)}`
          : `is not square: ${gate.rows} x ${gate.columns}`,
      );
    return { gate, name: "matrix", states: null, compensation, measure };
  }
  const name = raw.gate === undefined ? "X" : textAt(raw.gate, "target.gate");
  try {
    return {
      gate: gateByName(name, Number.isInteger(qubits) ? qubits : undefined),
      name,
      states: null,
      compensation,
      measure,
    };
  } catch (error) {
    return fail("target.gate", (error as Error).message);
  }
}
