// YAML files of control problems: schemas of problems, tasks and integration settings.

import { WeftError } from "@weft/core/internal/graph";
import { key, type Tensor, tensor } from "@weft/core/internal/tensor";
import { z } from "zod";
import { checkRates, drawTasks, gammaTasks, psdModels, type RandomLaw, type TaskDistribution } from "../noise/index.js";
import {
  choiceOf,
  isObject,
  jsonSchemaOf,
  listOf,
  number,
  numberList,
  parseSpecYaml,
  readValue,
  selectSchema,
  strict,
  text,
  variants,
} from "../schema/index.js";
import { ensembleLoss, randomPulse } from "./grape.js";
import { type ChosenSteps, chooseSteps, defaultProbes, halvingError, type Integration } from "./integration.js";
import type { NamedParameters, ParameterLoss } from "./minimize.js";
import {
  type ControlProblem,
  controlledZ,
  type PreparedProblem,
  prepareProblem,
  qubitFlip,
  type StepMethod,
  stepMethods,
} from "./open.js";
import { type PulseReport, playedPulse, reportPulse } from "./report.js";
import type { RobustObjective } from "./robust.js";

const laws = {
  fixed: strict({ law: text, value: number }),
  uniform: strict({ law: text, low: number, high: number }),
  logUniform: strict({ law: text, low: number, high: number }),
  normal: strict({ law: text, mean: number, std: number, low: number.optional() }),
  gamma: strict({ law: text, shape: number, scale: number }),
};
/** A law, or [low, high] for a uniform one, or a number. */
const interval = listOf(number).length(2, { error: "expected [low, high]" });
const namedLaw = variants<z.ZodType>("law", laws);
const law = selectSchema<z.ZodType>(
  (raw) => (Array.isArray(raw) ? interval : isObject(raw) ? namedLaw : number),
  [number, interval, namedLaw],
).transform((given): RandomLaw => {
  if (typeof given === "number") return { law: "fixed", value: given };
  return Array.isArray(given) ? { law: "uniform", low: given[0], high: given[1] } : (given as RandomLaw);
});

const sequence = selectSchema((raw) => (isObject(raw) ? strict({ cpmg: number }) : choiceOf(["ramsey", "echo"])));
const taskKinds = {
  rates: strict({ kind: z.literal("rates"), dephasing: law, relaxation: law }),
  psd: strict({
    kind: z.literal("psd"),
    model: choiceOf(psdModels),
    alpha: law,
    amplitude: law,
    cutoff: law,
    rates: strict({ duration: number, sequence: sequence.optional(), frequency: number, lineWidth: number }),
  }),
};
const taskVariants = variants<z.ZodType<TaskDistribution>>("kind", taskKinds);
const gammaName = choiceOf(["gamma"]).transform((): TaskDistribution => gammaTasks);
/** A distribution of environments: "gamma", or rates or spectra with a law per parameter. */
export const tasksSchema = selectSchema((raw) => (isObject(raw) ? taskVariants : gammaName), [gammaName, taskVariants]);

const optional = number.optional();
/** A control problem; a qubit's pi pulse by default. */
export const problemSchema = variants("kind", {
  flip: strict({ kind: text, segments: optional, duration: optional, detuning: optional, limit: optional }).transform(
    ({ kind: _, ...options }): ControlProblem => qubitFlip(options),
  ),
  cz: strict({ kind: text, segments: optional, coupling: optional, limit: optional }).transform(
    ({ kind: _, ...options }): ControlProblem => controlledZ(options),
  ),
});

/** Either dt or a tolerance. */
export const integrationSchema = strict({
  dt: optional,
  tolerance: optional,
  method: choiceOf(Object.keys(stepMethods) as StepMethod[]).optional(),
  precision: choiceOf(["float32", "float64"]).optional(),
})
  .refine(({ dt, tolerance }) => (dt === undefined) !== (tolerance === undefined), {
    error: "give either dt or tolerance",
  })
  .transform((given) => given as Integration);

const plainObjective = choiceOf(["mean", "worst"]);
const softWorst = strict({ softWorst: number });
const cvar = strict({ cvar: number });
const controlSchema = strict({
  problem: problemSchema,
  /** Either the rates of one environment, or a distribution of environments. */
  rates: numberList.optional(),
  tasks: tasksSchema.optional(),
  ensemble: number.optional(),
  seed: number.optional(),
  objective: selectSchema<z.ZodType<RobustObjective>>(
    (raw) => (!isObject(raw) ? plainObjective : "softWorst" in raw ? softWorst : cvar),
    [plainObjective, softWorst, cvar],
  ).optional(),
  integration: integrationSchema.optional(),
});

/** Sections of a control file. */
export const controlSections: readonly string[] = Object.keys(controlSchema.shape);

/** The JSON Schema of control files. */
export const controlJsonSchema = (): Record<string, unknown> => jsonSchemaOf(controlSchema);

/** Content of a control file. */
export interface ControlFile {
  /** The control problem. */
  prepared: PreparedProblem;
  /** [n, channels] */
  rates: Tensor;
  /** How tasks are combined. */
  objective: RobustObjective;
  /** Integration steps, with their estimated error. */
  steps: ChosenSteps;
  /** The loss to minimize. */
  loss: ParameterLoss;
  /** Initial pulse. */
  start: NamedParameters;
  /** The result as it may be reported; throws if it is not valid or its error is above the tolerance. */
  report(params: NamedParameters): PulseReport;
  /** The same problem with shorter steps if these are too long at a pulse; null if they are not. */
  refine(params: NamedParameters): ControlFile | null;
}

/** Reads a pulse optimization problem from YAML: { problem, rates or tasks, objective, integration }. */
export function parseControlFile(source: string, name = "control"): ControlFile {
  const given = readValue(controlSchema, parseSpecYaml(source, name), name);
  if ((given.rates === undefined) === (given.tasks === undefined))
    throw new WeftError(`${name}: give either rates (one environment) or tasks (an ensemble)`);
  const prepared = prepareProblem(given.problem);
  const seed = given.seed ?? 0;
  const rates =
    given.rates !== undefined
      ? tensor([given.rates], { dtype: "float64" })
      : drawTasks(given.tasks!, key(seed), given.ensemble ?? 16).rates;
  checkRates(rates, `${name}: rates`);
  const objective = given.objective ?? "mean";
  const integration = given.integration ?? { tolerance: 1e-7 };
  const tolerance = "tolerance" in integration ? integration.tolerance : Number.POSITIVE_INFINITY;
  const start = { pulse: randomPulse(prepared, key(seed + 1), null) };
  const withSteps = (steps: ChosenSteps): ControlFile => ({
    prepared,
    rates,
    objective,
    steps,
    loss: ensembleLoss(prepared, rates, steps, objective),
    start,
    report: ({ pulse }) => {
      const found = reportPulse(prepared, rates, pulse, steps, objective);
      if (found.error > tolerance)
        throw new WeftError(
          `${name}: the steps leave an error of ${found.error.toExponential(1)} in the infidelity of the final pulse, more ` +
            `than the tolerance ${tolerance}; give a smaller dt or another method`,
        );
      return found;
    },
    refine: ({ pulse }) => {
      const played = playedPulse(prepared, pulse).unsqueeze(0);
      const probes = { controls: played.expand([rates.shape[0], ...played.shape.slice(1)]), rates };
      if (tolerance === Number.POSITIVE_INFINITY || halvingError(prepared, steps, probes) <= tolerance) return null;
      return withSteps(chooseSteps(prepared, integration, probes));
    },
  });
  return withSteps(chooseSteps(prepared, integration, defaultProbes(prepared, rates)));
}
