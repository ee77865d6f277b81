// Schemas of the sections of a gate specification. Pulses, decay and target name parts of the device, so their schemas are
// functions of the device that was read before.
import { key as keyOf, randn, splitKey } from "@weft/core/internal/tensor";
import { z } from "zod";
import { gate as gateByName } from "../fidelity/index.js";
import { Operator } from "../operators/index.js";
import { carrierParameters, Pulse, type PulseShapeName, pulseShapes } from "../pulses/index.js";
import {
  above,
  choiceOf,
  construct,
  exclusive,
  flag,
  isObject,
  listOf,
  number,
  numberList,
  positiveTime,
  recordOf,
  SpecError,
  selectSchema,
  strict,
  text,
  unknownName,
  variants,
  wholeNumber,
} from "../schema/index.js";
import {
  adaptiveNames,
  dopri8,
  type Method,
  type MethodName,
  methodNames,
  sdirk4,
  trotter2,
  trotter4,
  tsit5,
} from "../solvers/index.js";
import {
  Chain,
  type Coupling,
  crossResonance,
  DevicePart,
  type Drive,
  driveOperators,
  jumpOperators,
  type PartKind,
  partRules,
  QuantumDevice,
  rotations,
} from "../systems/index.js";
import type { GateSpec, GateTarget, OpenJump } from "./gate-spec.js";

const numberOrList = selectSchema<typeof number | typeof numberList>(
  (raw) => (Array.isArray(raw) ? numberList : number),
  [number, numberList],
);
const perQubit = numberOrList.optional();

const chain = strict({
  kind: choiceOf(["fluxonium"]).optional(),
  qubits: wholeNumber(1, 20),
  ec: perQubit,
  ej: perQubit,
  el: perQubit,
  phiExt: perQubit,
  jc: perQubit,
  jl: perQubit,
  levels: wholeNumber(1, 400).optional(),
}).transform(({ kind: _, ...fields }): QuantumDevice => Chain.fluxonium({ ...fields, gate: "none" }));

const part = (kind: PartKind) => {
  const parameters = Object.entries(partRules[kind].parameters).map(([name, fallback]) => [
    name,
    fallback === null ? number : number.optional(),
  ]);
  const schema = strict({
    ...(Object.fromEntries(parameters) as Record<string, typeof number>),
    kind: text,
    levels: number.optional(),
    computational: number.optional(),
    fluxOn: text.optional(),
    points: number.optional(),
    range: number.optional(),
    zeroPoint: flag.optional(),
  });
  return construct(schema, ({ kind: _, ...fields }) => new DevicePart(kind, fields as never));
};
const partKinds = Object.keys(partRules) as PartKind[];

const coupling = strict({
  between: listOf(text).refine((names) => names.length === 2, {
    error: (issue) => `expected two parts, got ${(issue.input as string[]).length}`,
  }),
  jc: number.optional(),
  jl: number.optional(),
  zz: number.optional(),
});

const drawnSpread = strict({ sigma: above("zero"), seed: number.optional(), parameters: listOf(text).optional() });
type DrawnSpread = z.output<typeof drawnSpread>;

/** The device without its pulses, and the parameters to share, which may be those of pulses. */
export const deviceSchema = construct(
  strict({
    parts: recordOf(variants("kind", Object.fromEntries(partKinds.map((kind) => [kind, part(kind)])))).optional(),
    couplings: listOf(coupling).optional(),
    chain: chain.optional(),
    spread: selectSchema(
      (raw) => (isObject(raw) && "sigma" in raw ? drawnSpread : recordOf(number)),
      [drawnSpread, recordOf(number)],
    ).optional(),
    shared: recordOf(listOf(text)).optional(),
  }),
  (given) => {
    const { parts, couplings = [], chain: whole, spread, shared = {} } = given;
    if ((parts === undefined) === (whole === undefined)) throw new SpecError('give either "parts" or "chain"');
    exclusive(given, ["chain"], ["couplings"]);
    const bare = whole ?? new QuantumDevice({ parts: parts!, couplings: couplings as unknown as Coupling[] });
    return { device: new QuantumDevice({ ...bare, spread: spreadOf(spread ?? {}, bare) }), shared };
  },
);

/** Fabrication factors by key, or factors drawn from a normal distribution: { sigma: 0.01, seed: 42, parameters: [ec, ej, el] }. */
function spreadOf(given: DrawnSpread | Record<string, number>, device: QuantumDevice): Record<string, number> {
  if (!("sigma" in given)) return given;
  const { sigma, seed = 0, parameters = ["ec", "ej", "el"] } = given as DrawnSpread;
  const known = [...new Set(device.names.flatMap((name) => Object.keys(device.parts[name].parameters)))];
  const wrong = parameters.find((key) => !known.includes(key));
  if (wrong !== undefined && (given as DrawnSpread).parameters !== undefined)
    throw new SpecError(`spread: ${unknownName("parameter ", wrong, known)}`);
  const keys = device.names.flatMap((name) =>
    Object.keys(device.parts[name].parameters)
      .filter((key) => parameters.includes(key))
      .map((key) => `${name}.${key}`),
  );
  if (keys.length === 0)
    throw new SpecError(`spread: no part has ${parameters.join(", ")}; name parameters (known: ${known.join(", ")})`);
  const draws = randn([keys.length], {
    key: splitKey(keyOf(seed), 1).index(0),
    dtype: "float64",
  }).dataSync() as Float64Array;
  return Object.fromEntries(keys.map((key, i) => [key, 1 + sigma * draws[i]]));
}

/** One entry of `pulses`: a recipe for several parts, or one pulse. */
export function pulseSchema(device: QuantumDevice, name: z.ZodType<string> = choiceOf(device.names)) {
  const rotation = strict({
    recipe: choiceOf(["X", "SX"]),
    on: selectSchema<z.ZodType<string | string[]>>(
      (raw) => (raw === "all" ? z.literal("all") : Array.isArray(raw) ? listOf(name) : name),
      [name, listOf(name)],
    ).optional(),
    length: number.optional(),
  }).transform(({ recipe, on = "all", length = 50 }): Drive[] =>
    rotations(device, recipe, length).filter((drive) => on === "all" || [on].flat().includes(drive.on)),
  );
  const crossed = strict({
    recipe: text,
    control: name,
    target: name,
    length: number.optional(),
    effective: number.optional(),
  }).transform(({ control, target, length, effective }): Drive[] => [
    crossResonance(device, control, target, { length, effective }),
  ]);
  const recipes = variants("recipe", { X: rotation, SX: rotation, "cross-resonance": crossed });
  const shaped = variants(
    "shape",
    Object.fromEntries((Object.keys(pulseShapes) as PulseShapeName[]).map((shape) => [shape, oneShape(shape, name)])),
  );
  return selectSchema((raw) => (isObject(raw) && raw.recipe !== undefined ? recipes : shaped), [recipes, shaped]);
}

function oneShape(shape: PulseShapeName, name: z.ZodType<string>) {
  const { parameters, defaults } = pulseShapes[shape];
  const values = [
    ...carrierParameters.map((key) => [key, number.optional()]),
    ...parameters.map((key) => [key, key === "values" ? numberList : key in defaults ? number.optional() : number]),
  ];
  const schema = strict({
    ...(Object.fromEntries(values) as Record<string, z.ZodType<number>>),
    shape: text,
    on: name,
    name: text.optional(),
    operator: choiceOf(driveOperators).optional(),
    crosstalk: recordOf(number).optional(),
    frequency: number.optional(),
  });
  return construct(schema, (entry): Drive[] => {
    exclusive(entry, ["frequency"], ["omega"]);
    const { shape: _, on, name: own = "pulse", operator = "phi", crosstalk, frequency, ...rest } = entry;
    const carrier = frequency === undefined ? {} : { omega: 2 * Math.PI * frequency };
    const pulse = new Pulse(shape, { ...(rest as Record<string, number>), ...carrier });
    return [{ on, name: own, operator, pulse, ...(crosstalk === undefined ? {} : { crosstalk }) }];
  });
}

/** One entry of `decay`: an operator and its rate, or T1 and T2. */
export const decaySchema = (device: QuantumDevice, name: z.ZodType<string> = choiceOf(device.names)) =>
  construct(
    strict({
      on: name,
      operator: choiceOf(jumpOperators).optional(),
      rate: above("zero").optional(),
      t1: positiveTime.optional(),
      t2: positiveTime.optional(),
    }),
    (given): Omit<OpenJump, "key">[] => {
      const { on, operator, rate, t1, t2 } = given;
      exclusive(given, ["operator", "rate"], ["t1", "t2"]);
      if (operator === undefined && rate !== undefined) throw new SpecError('the key "operator" is missing');
      if (operator !== undefined) {
        if (rate === undefined) throw new SpecError('the key "rate" is missing');
        return [{ on, operator, rate }];
      }
      if (t1 === undefined && t2 === undefined) throw new SpecError("give operator and rate, or t1 and t2 (ns)");
      const relaxation = t1 === undefined ? 0 : 1 / t1;
      const dephasing = t2 === undefined ? 0 : 1 / t2 - relaxation / 2;
      if (dephasing < -1e-12) throw new SpecError("t2 is longer than 2 t1, which is not possible");
      return [
        ...(relaxation > 0 ? [{ on, operator: "lower" as const, rate: relaxation }] : []),
        // The jump sqrt(rate) z reduces coherences by exp(-2 rate t).
        ...(dephasing > 0 ? [{ on, operator: "z" as const, rate: dephasing / 2 }] : []),
      ];
    },
  );

/** The section `evolution`; systems with decay have another default method. */
export const evolutionSchema = (open: boolean) =>
  construct(
    strict({
      steps: wholeNumber(1).optional(),
      duration: positiveTime.optional(),
      method: choiceOf(methodNames).optional(),
      splitting: choiceOf(["merged", "terms"]).optional(),
      tolerance: above("positive").optional(),
      maxSteps: wholeNumber(1, 1e9).optional(),
      gradient: choiceOf(["stored", "checkpointed", "reversal"]).optional(),
      basis: choiceOf(["product", "eigen"]).optional(),
      chunks: wholeNumber(1).optional(),
      precision: choiceOf(["complex64", "complex128"]).optional(),
    }),
    (given): GateSpec["evolution"] => {
      const { method: name = open ? "rk4" : "trotter2", splitting, tolerance, maxSteps, steps = 5000 } = given;
      if (splitting !== undefined && !name.startsWith("trotter"))
        throw new SpecError(`splitting: method ${name} does not split`);
      const isAdaptive = adaptiveNames.includes(name);
      if (maxSteps !== undefined && !isAdaptive)
        throw new SpecError(`method ${name} has fixed steps; maxSteps belongs to ${adaptiveNames.join(", ")}`);
      if (given.steps !== undefined && isAdaptive)
        throw new SpecError(`method ${name} chooses its own steps; give tolerance and maxSteps instead of steps`);
      if (given.chunks !== undefined && open)
        throw new SpecError("chunks: pieces of time are for evolutions without decay; leave it out");
      const limits = { relative: tolerance ?? 1e-8, absolute: tolerance ?? 1e-8, maxSteps: maxSteps ?? 5000 };
      const methods: Partial<Record<MethodName, () => Method>> = {
        trotter2: () => trotter2({ splitting }),
        trotter4: () => trotter4({ splitting }),
        tsit5: () => tsit5(limits),
        dopri8: () => dopri8(limits),
        sdirk4: () => sdirk4(limits),
      };
      return {
        steps,
        duration: given.duration,
        method: methods[name]?.() ?? name,
        gradient: given.gradient,
        basis: given.basis ?? "product",
        chunks: given.chunks,
        tolerance: isAdaptive ? undefined : tolerance,
        precision: given.precision ?? "complex128",
      };
    },
  );

const unitary = construct(listOf(listOf(numberOrList)), (rows) => {
  const gate = Operator.from(
    rows.map((row) => row.map((x) => (typeof x === "number" ? x : { re: x[0], im: x[1] ?? 0 }))),
    "matrix",
  );
  if (gate.rows !== gate.columns) throw new SpecError(`is not square: ${gate.rows} x ${gate.columns}`);
  const distance = gate.unitaryError();
  if (!(distance <= 1e-6))
    throw new SpecError(`is not unitary: M^H M differs from the identity by ${distance.toExponential(1)}`);
  return gate;
});

/** The section `target`: a gate by name or matrix, or a state transfer. */
export function targetSchema(device: QuantumDevice) {
  const structures = device.names.map((name) => device.parts[name].structure);
  const qubits = Math.log2(structures.reduce((size, { computational }) => size * computational, 1));
  const state = construct(z.unknown(), (value): string => {
    const label = String(value);
    const fits =
      label.length === structures.length &&
      [...label].every((digit, k) => /[0-9]/.test(digit) && Number(digit) < structures[k].levels);
    const quoted =
      typeof value === "string" ? "" : "; write it in quotes, because YAML drops zeros in front of numbers";
    if (!fits)
      throw new SpecError(`expected one level per part (${structures.length} digits), got "${label}"${quoted}`);
    return label;
  });
  const named = construct(text, (name) => ({
    name,
    gate: gateByName(name, Number.isInteger(qubits) ? qubits : undefined),
  }));
  const schema = strict({
    gate: named.optional(),
    matrix: unitary.optional(),
    from: state.optional(),
    to: state.optional(),
    compensation: choiceOf(["none", "virtual-z", "single-qubit"]).optional(),
    measure: choiceOf(["average", "process"]).optional(),
  });
  return construct(schema, (given): GateTarget => {
    const { gate, matrix, from, to, compensation = "none", measure = "average" } = given;
    exclusive(given, ["gate"], ["matrix"], ["to", "from"]);
    exclusive(given, ["to", "from"], ["compensation", "measure"]);
    if (from !== undefined && to === undefined) throw new SpecError('the key "to" is missing');
    const common = { compensation, measure };
    if (to !== undefined) {
      const states = { from: from ?? "0".repeat(structures.length), to };
      return { ...common, gate: null, name: `${states.from} -> ${to}`, states };
    }
    if (matrix !== undefined) return { ...common, gate: matrix, name: "matrix", states: null };
    return { ...common, ...(gate ?? { name: "X", gate: gateByName("X", qubits) }), states: null };
  });
}

/** Values by key: numbers, or lists for piecewise constant pulses. */
export const parameterSchema = (known: readonly string[]) =>
  strict(Object.fromEntries(known.map((key) => [key, numberOrList.optional()])));
