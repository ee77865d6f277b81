// What YAML files say of control problems, tasks and integration: schemas that know every key, and what becomes of them.

import { WeftError } from "@weft/core/internal/graph";
import { key, type Tensor, tensor } from "@weft/core/internal/tensor";
import { parse } from "yaml";
import { z } from "zod";
import { checkRates, drawTasks, gammaTasks, type Law, psdModels, type TaskDistribution } from "../noise/index.js";
import { ensembleLoss, randomPulse } from "./grape.js";
import { type ChosenSteps, chooseSteps, defaultProbes, type Integration } from "./integration.js";
import type { NamedParameters, ParameterLoss } from "./minimize.js";
import {
  type ControlProblem,
  controlledZ,
  type PreparedProblem,
  prepareProblem,
  qubitFlip,
  stepMethods,
} from "./open.js";
import type { RobustObjective } from "./robust.js";

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
export const tasksSchema = z.union([
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

export const problemSchema = z.discriminatedUnion("kind", [
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
export const integrationSchema = z.union([
  z.strictObject({ dt: number, method, precision }),
  z.strictObject({ tolerance: number, method, precision }),
]);

const lawOf = (given: AnyLaw): Law =>
  typeof given === "number"
    ? { law: "fixed", value: given }
    : Array.isArray(given)
      ? { law: "uniform", low: given[0], high: given[1] }
      : (given as Law);

export function tasksOf(given: z.infer<typeof tasksSchema>): TaskDistribution {
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

/** The problem that a file asks for; a qubit's pi pulse by default. */
export function problemOf(given: z.infer<typeof problemSchema> | undefined): ControlProblem {
  const { kind = "flip", ...options } = given ?? {};
  return (problems[kind] as (o: object) => ControlProblem)(options);
}

/** A file's text as data of a schema; what is wrong is named with its place. */
export function readYaml<S extends z.ZodType>(schema: S, text: string, name: string): z.infer<S> {
  let raw: unknown;
  try {
    raw = parse(text) ?? {};
  } catch (error) {
    throw new WeftError(`${name}: is not YAML: ${(error as Error).message.split("\n")[0]}`);
  }
  const read = schema.safeParse(raw);
  if (read.success) return read.data;
  const [issue] = read.error.issues;
  const path = issue.path.join(".");
  throw new WeftError(`${name}: ${path === "" ? "" : `${path}: `}${issue.message}`);
}

const controlSchema = z.strictObject({
  problem: problemSchema,
  /** Rates of one environment, or environments to draw. */
  rates: z.array(number).optional(),
  tasks: tasksSchema.optional(),
  ensemble: number.optional(),
  seed: number.optional(),
  objective: z
    .union([
      z.literal("mean"),
      z.literal("worst"),
      z.strictObject({ softWorst: number }),
      z.strictObject({ cvar: number }),
    ])
    .optional(),
  integration: integrationSchema.optional(),
});

export interface ControlFile {
  prepared: PreparedProblem;
  /** [n, channels] */
  rates: Tensor;
  objective: RobustObjective;
  steps: ChosenSteps;
  loss: ParameterLoss;
  start: NamedParameters;
}

/** A pulse to be found, as a file describes it: { problem, rates or tasks, objective, integration }. */
export function parseControlFile(text: string, name = "control"): ControlFile {
  const given = readYaml(controlSchema, text, name);
  if ((given.rates === undefined) === (given.tasks === undefined))
    throw new WeftError(`${name}: give either rates (one environment) or tasks (an ensemble)`);
  const prepared = prepareProblem(problemOf(given.problem));
  const seed = given.seed ?? 0;
  const rates =
    given.rates !== undefined
      ? tensor([given.rates], { dtype: "float64" })
      : drawTasks(tasksOf(given.tasks!), key(seed), given.ensemble ?? 16).rates;
  checkRates(rates, `${name}: rates`);
  const objective = given.objective ?? "mean";
  const steps = chooseSteps(
    prepared,
    (given.integration ?? { tolerance: 1e-7 }) as Integration,
    defaultProbes(prepared, rates),
  );
  return {
    prepared,
    rates,
    objective,
    steps,
    loss: ensembleLoss(prepared, rates, steps, objective),
    start: { pulse: randomPulse(prepared, key(seed + 1), null) },
  };
}
