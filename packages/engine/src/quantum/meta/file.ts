// Meta-training from a YAML file: every key known, every number checked, a wrong one named with its place.
import { parse } from "yaml";
import { z } from "zod";
import { WeftError } from "../../graph/index.js";
import { type ControlProblem, controlledZ, qubitFlip, stepMethods } from "../control/index.js";
import { gammaTasks, type Law, psdModels, type TaskDistribution } from "../noise/index.js";
import { type MetaConfig, type MetaSettings, metaConfig, presetNames } from "./config.js";

const number = z.number();
const law = z.discriminatedUnion("law", [
  z.strictObject({ law: z.literal("fixed"), value: number }),
  z.strictObject({ law: z.literal("uniform"), low: number, high: number }),
  z.strictObject({ law: z.literal("logUniform"), low: number, high: number }),
  z.strictObject({ law: z.literal("normal"), mean: number, std: number, low: number.optional() }),
  z.strictObject({ law: z.literal("gamma"), shape: number, scale: number }),
]);
/** A law, or [low, high] for a uniform one, or a number. */
const anyLaw = z.union([law, z.tuple([number, number]), number]);
type AnyLaw = z.infer<typeof anyLaw>;

const sequence = z.union([z.literal("ramsey"), z.literal("echo"), z.strictObject({ cpmg: number })]);
const tasks = z.union([
  z.literal("gamma"),
  z.discriminatedUnion("kind", [
    z.strictObject({ kind: z.literal("rates"), dephasing: anyLaw, relaxation: anyLaw }),
    z.strictObject({
      kind: z.literal("psd"),
      model: z.enum(psdModels),
      alpha: anyLaw,
      amplitude: anyLaw,
      cutoff: anyLaw,
      rates: z.strictObject({
        duration: number,
        sequence: sequence.optional(),
        frequency: number,
        lineWidth: number,
      }),
    }),
  ]),
]);

const problem = z.discriminatedUnion("kind", [
  z.strictObject({
    kind: z.literal("flip"),
    segments: number.optional(),
    duration: number.optional(),
    detuning: number.optional(),
    limit: number.optional(),
  }),
  z.strictObject({
    kind: z.literal("cz"),
    segments: number.optional(),
    coupling: number.optional(),
    limit: number.optional(),
  }),
]);

const method = z.enum(Object.keys(stepMethods) as [keyof typeof stepMethods]).optional();
const precision = z.enum(["float32", "float64"]).optional();
const integration = z.union([
  z.strictObject({ dt: number, method, precision }),
  z.strictObject({ tolerance: number, method, precision }),
]);

const file = z.strictObject({
  preset: z.enum(presetNames).optional(),
  seed: number.optional(),
  problem: problem.optional(),
  tasks: tasks.optional(),
  policy: z
    .strictObject({
      width: number.optional(),
      hidden: number.optional(),
      activation: z.enum(["tanh", "relu", "silu", "gelu"]).optional(),
      outputScale: number.optional(),
      gain: number.optional(),
    })
    .optional(),
  batch: number.optional(),
  inner: z.strictObject({ steps: number.optional(), rate: number.optional() }).optional(),
  order: z.union([z.literal(1), z.literal(2)]).optional(),
  outer: z.strictObject({ rate: number.optional(), clip: number.optional() }).optional(),
  iterations: number.optional(),
  validation: z.strictObject({ tasks: number.optional(), every: number.optional() }).optional(),
  integration: z.strictObject({ training: integration.optional(), evaluation: integration.optional() }).optional(),
});

const lawOf = (given: AnyLaw): Law =>
  typeof given === "number"
    ? { law: "fixed", value: given }
    : Array.isArray(given)
      ? { law: "uniform", low: given[0], high: given[1] }
      : (given as Law);

function tasksOf(given: z.infer<typeof tasks>): TaskDistribution {
  if (given === "gamma") return gammaTasks;
  if (given.kind === "rates")
    return { kind: "rates", dephasing: lawOf(given.dephasing), relaxation: lawOf(given.relaxation) };
  const { alpha, amplitude, cutoff, ...rest } = given;
  return {
    ...rest,
    alpha: lawOf(alpha),
    amplitude: lawOf(amplitude),
    cutoff: lawOf(cutoff),
  } as TaskDistribution;
}

const problems = {
  flip: (options: Parameters<typeof qubitFlip>[0]): ControlProblem => qubitFlip(options),
  cz: (options: Parameters<typeof controlledZ>[0]): ControlProblem => controlledZ(options),
} as const;

/** What was wrong, with the path of the key. */
function complaint(error: z.ZodError): string {
  const [issue] = error.issues;
  const path = issue.path.join(".");
  return `${path === "" ? "" : `${path}: `}${issue.message}`;
}

/** Settings of a file's text; `overrides` (from a command line) win. */
export function parseMetaFile(text: string, name = "meta", overrides: MetaSettings = {}): MetaConfig {
  let raw: unknown;
  try {
    raw = parse(text) ?? {};
  } catch (error) {
    throw new WeftError(`${name}: is not YAML: ${(error as Error).message.split("\\n")[0]}`);
  }
  const read = file.safeParse(raw);
  if (!read.success) throw new WeftError(`${name}: ${complaint(read.error)}`);
  const { problem: wanted, tasks: drawn, ...rest } = read.data;
  const { kind = "flip", ...options } = wanted ?? {};
  try {
    return metaConfig({
      ...(rest as MetaSettings),
      problem: (problems[kind] as (o: object) => ControlProblem)(options),
      ...(drawn !== undefined && { tasks: tasksOf(drawn) }),
      ...overrides,
    });
  } catch (error) {
    if (error instanceof WeftError) throw new WeftError(`${name}: ${error.message}`);
    throw error;
  }
}
