// Gate specifications: device, pulses, decay, evolution and target, read from YAML into a QuantumDevice and solver options.
import { z } from "zod";
import type { RunningCosts } from "../control/index.js";
import type { Compensation } from "../fidelity/index.js";
import type { Operator } from "../operators/index.js";
import {
  jsonSchemaOf,
  listOf,
  numberList,
  parseSpecYaml,
  readValue,
  recordOf,
  SpecError,
  strict,
  suggestion,
  text,
  unknownName,
} from "../schema/index.js";
import type { GradientKind, Method, MethodName } from "../solvers/index.js";
import type { DeviceParameterValues, OperatorName } from "../systems/index.js";
import { DevicePart, keysWithoutGradient, QuantumDevice } from "../systems/index.js";
import { costsSchema } from "./costs.js";
import { type RobustSpec, robustSchema } from "./robust.js";
import { decaySchema, deviceSchema, evolutionSchema, parameterSchema, pulseSchema, targetSchema } from "./schemas.js";

/** Decay of a part. */
export interface OpenJump {
  /** Key of the rate among the parameters, such as q0.lower.rate. */
  key: string;
  /** Name of the part. */
  on: string;
  /** Its operator. */
  operator: OperatorName;
  /** Rate in 1/ns. */
  rate: number;
}

/** Target of a specification: a gate or a state transfer. */
export interface GateTarget {
  /** Gate on the computational states, or null for a state transfer. */
  gate: Operator | null;
  /** Name in reports. */
  name: string;
  /** Product states of a state transfer by their levels, such as "01", or null. */
  states: { from: string; to: string } | null;
  /** Single-qubit gates that may be added before and after. */
  compensation: Compensation;
  /** The infidelity that is the loss: "average" (with leakage) or "process". */
  measure: "average" | "process";
}

/** Content of a gate specification. */
export interface GateSpec {
  /** Name of the gate in reports. */
  name: string;
  /** The device with its pulses. */
  device: QuantumDevice;
  /** Values that replace those of the device. */
  parameters: DeviceParameterValues;
  /** Settings of the solver. */
  evolution: {
    steps: number;
    duration?: number;
    method: Method | MethodName;
    gradient?: GradientKind;
    basis: "product" | "eigen";
    chunks?: number;
    precision: "complex64" | "complex128";
    /** Largest error of the infidelity with fixed steps; checked by a run with other steps. */
    tolerance?: number;
  };
  /** Decay of parts. */
  jumps: OpenJump[];
  /** What the gate should do. */
  target: GateTarget;
  /** Keys of the parameters to optimize; * matches any text. Null: all but the decay rates. */
  learn: string[] | null;
  /** Lowest and highest values of optimized parameters, by key. */
  bounds: Record<string, [number, number]>;
  /** Variations over which the infidelity is combined, or null. */
  robust: RobustSpec | null;
  /** Running costs that are added to the infidelity while optimizing, or null. */
  costs: RunningCosts | null;
}

/** Values of all parameters: those of the device, and the decay rates. */
const specValues = ({ device, jumps }: Pick<GateSpec, "device" | "jumps">): DeviceParameterValues => ({
  ...device.values(),
  ...Object.fromEntries(jumps.map(({ key, rate }) => [key, rate])),
});

/**
 * Keys of the parameters to optimize. Decay rates must be named, because their optimum is always zero. Lengths and delays of
 * constant and piecewise constant pulses have no gradient where they move a jump of a drive; patterns leave them out.
 */
export function learnedKeys({ device, jumps, learn }: Pick<GateSpec, "device" | "jumps" | "learn">): Set<string> {
  const abrupt = keysWithoutGradient(device);
  const own = Object.keys(device.values()).filter((key) => !abrupt.has(key));
  const rates = jumps.map(({ key }) => key);
  return new Set(
    (learn ?? ["*"]).flatMap((pattern) => [
      ...matching(own, pattern),
      ...(pattern.endsWith("rate") ? matching(rates, pattern) : []),
    ]),
  );
}

/** The whole file; sections that depend on the device are read after it. */
const fileSchema = strict({
  name: text.optional(),
  device: deviceSchema,
  pulses: listOf(z.unknown()).optional(),
  parameters: z.unknown().optional(),
  evolution: z.unknown().optional(),
  decay: listOf(z.unknown()).optional(),
  target: z.unknown().optional(),
  learn: listOf(text).optional(),
  bounds: recordOf(numberList).optional(),
  robust: z.unknown().optional(),
  costs: z.unknown().optional(),
});

/** Sections of a gate specification. */
export const gateSections: readonly string[] = Object.keys(fileSchema.shape);

/** The JSON Schema of gate specifications. Names of parts are not checked: they are those of the file's own device. */
export function gateJsonSchema(): Record<string, unknown> {
  const anyDevice = new QuantumDevice({ parts: { q: new DevicePart("qubit", { frequency: 1 }) } });
  return jsonSchemaOf(
    fileSchema.extend({
      pulses: listOf(pulseSchema(anyDevice, text)).optional(),
      decay: listOf(decaySchema(anyDevice, text)).optional(),
      evolution: evolutionSchema(false).optional(),
      costs: costsSchema.optional(),
      target: targetSchema(anyDevice).optional(),
      parameters: recordOf(z.union([z.number(), z.array(z.number())])).optional(),
    }),
  );
}

/**
 * Reads a gate specification from YAML or JSON.
 *
 * @param name - Name of the specification in messages, and its default name.
 *
 * @example
 * ```ts
 * import { GateProblem, parseGateSpec } from "@weft/quantum";
 *
 * const spec = parseGateSpec(`
 * device: {parts: {q: {kind: qubit, frequency: 0.5}}}
 * pulses: [{on: q, name: x, operator: x, shape: cosine, length: 20, amplitude: pi/10, frequency: 0.5}]
 * evolution: {steps: 400}
 * target: {gate: X, compensation: virtual-z}
 * `);
 * const problem = new GateProblem(spec);
 * console.log(problem.loss(problem.learned()).itemSync()); // the average gate infidelity
 * ```
 */
export const parseGateSpec = (source: string, name = "gate"): GateSpec => gateSpec(parseSpecYaml(source, name), name);

/** Largest number of pulses: each is an argument of the compiled program, and compiling takes minutes beyond. */
const mostPulses = 256;

/** Reads a gate specification from parsed YAML. */
function gateSpec(value: unknown, name = "gate"): GateSpec {
  const file = readValue(fileSchema, value, name);
  const section = <S extends z.ZodType>(schema: S, key: keyof typeof file, fallback: unknown): z.output<S> =>
    readValue(schema, file[key] ?? fallback, name, [key]);
  const { device: bare, shared } = file.device;
  const count = file.pulses?.length ?? 0;
  if (count > mostPulses) throw new SpecError(`${name}: pulses: expected at most ${mostPulses}, got ${count}`);
  const drives = section(listOf(pulseSchema(bare)), "pulses", []).flat();
  // Shared parameters may be those of pulses, so they are added last.
  const device = new QuantumDevice({ ...bare, drives: [...bare.drives, ...drives], shared });
  const jumps = keyed(section(listOf(decaySchema(device)), "decay", []).flat());
  const known = Object.keys(specValues({ device, jumps }));
  const parameters = section(parameterSchema(known), "parameters", {}) as DeviceParameterValues;
  checkShared(new QuantumDevice({ ...device, shared: {} }).values(), shared, parameters, name);
  const { learn = null } = file;
  const abrupt = keysWithoutGradient(device);
  for (const pattern of learn ?? [])
    if (abrupt.has(pattern))
      throw new SpecError(
        `${name}: learn: "${pattern}" has no gradient, because it moves a jump of a drive; use a shape that vanishes at its ends, ` +
          "or one length that all pulses share",
      );
    else if (learnedKeys({ device, jumps, learn: [pattern] }).size === 0)
      throw new SpecError(`${name}: learn: ${unknownName("key ", pattern, known)}`);
  return {
    name: file.name ?? name,
    device,
    parameters,
    evolution: section(evolutionSchema(jumps.length > 0), "evolution", {}),
    jumps,
    target: section(targetSchema(device), "target", {}),
    learn,
    bounds: boundsOf(file.bounds ?? {}, [...learnedKeys({ device, jumps, learn })], name),
    robust: file.robust === undefined ? null : section(robustSchema(device, known), "robust", {}),
    costs: file.costs === undefined ? null : section(costsSchema, "costs", {}),
  };
}

/** Throws if shared parameters have different values, and no value is given for all of them. */
function checkShared(
  values: DeviceParameterValues,
  shared: Readonly<Record<string, readonly string[]>>,
  parameters: DeviceParameterValues,
  name: string,
): void {
  for (const [group, keys] of Object.entries(shared)) {
    const other = keys.find((key) => String(values[key]) !== String(values[keys[0]]));
    if (other !== undefined && !(group in parameters))
      throw new SpecError(
        `${name}: device.shared.${group}: ${keys[0]} is ${values[keys[0]]} and ${other} is ${values[other]}; give one value as ` +
          `parameters.${group}`,
      );
  }
}

/** Bounds by key; * matches any text, and the first entry that matches a key counts. */
function boundsOf(
  given: Readonly<Record<string, readonly number[]>>,
  learned: readonly string[],
  name: string,
): GateSpec["bounds"] {
  const out: GateSpec["bounds"] = {};
  for (const [pattern, interval] of Object.entries(given)) {
    const keys = matching(learned, pattern);
    if (keys.length === 0) throw new SpecError(`${name}: bounds: ${unknownName("learned key ", pattern, learned)}`);
    const [low, high] = interval;
    if (interval.length !== 2 || !(low < high))
      throw new SpecError(`${name}: bounds.${pattern}: expected [low, high], got [${interval.join(", ")}]`);
    for (const key of keys) out[key] ??= [low, high];
  }
  return out;
}

/** Sets a parameter of the specification; an unknown key is an error with the nearest known one. */
export function setParameter(spec: GateSpec, key: string, value: number): void {
  const known = Object.keys(specValues(spec));
  if (!known.includes(key)) throw new SpecError(`there is no parameter "${key}"${suggestion(key, known)}`);
  spec.parameters[key] = value;
}

/** Parameters of pulses that are times. */
const timeNames: readonly string[] = ["length", "ramp", "plateau", "sigma", "delay"];

/** The specification with all times of its pulses, and its duration, multiplied by a factor. */
export function scaleTimes(spec: GateSpec, factor: number): GateSpec {
  const { device, evolution } = spec;
  const values = { ...device.values(), ...spec.parameters };
  const keys = device.drives.flatMap(({ on, name }) => timeNames.map((time) => `${on}.${name}.${time}`));
  const shared = Object.entries(device.shared)
    .filter(([, members]) => members.some((key) => keys.includes(key)))
    .map(([name]) => name);
  const scaled = [...keys, ...shared]
    .filter((key) => typeof values[key] === "number")
    .map((key) => [key, (values[key] as number) * factor]);
  return {
    ...spec,
    parameters: { ...spec.parameters, ...Object.fromEntries(scaled) },
    evolution: { ...evolution, ...(evolution.duration !== undefined && { duration: evolution.duration * factor }) },
  };
}

/** Adds the parameter keys of jumps; a second jump with the same operator on a part is numbered. */
function keyed(jumps: readonly Omit<OpenJump, "key">[]): OpenJump[] {
  const seen = new Map<string, number>();
  return jumps.map((jump) => {
    const name = `${jump.on}.${jump.operator}`;
    const count = (seen.get(name) ?? 0) + 1;
    seen.set(name, count);
    return { ...jump, key: `${name}${count === 1 ? "" : count}.rate` };
  });
}

/** Keys that match a pattern, in which * stands for any text: q*.x.amplitude. In linear time, because patterns come from files. */
export function matching(keys: readonly string[], pattern: string): string[] {
  const [first, ...rest] = pattern.split("*");
  const last = rest.pop();
  return keys.filter((key) => {
    if (last === undefined) return key === first;
    if (!key.startsWith(first)) return false;
    let at = first.length;
    for (const part of rest) {
      const found = key.indexOf(part, at);
      if (found < 0) return false;
      at = found + part.length;
    }
    return key.length - last.length >= at && key.endsWith(last);
  });
}
