// Meta-training settings from a YAML file: the settings of metaConfig, with problem and tasks in their YAML form. Key names
// of other meta-learning programs are translated.
import { WeftError } from "@weft/core/internal/graph";
import { type ForeignKey, suggestKey, translateKeys, valueOf, withSettings } from "@weft/formats/internal";
import { problemSchema, tasksSchema } from "../control/internal.js";
import { jsonSchemaOf, parseSpecYaml, readValue, SpecError, strict } from "../schema/index.js";
import { type MetaConfig, type MetaSettings, metaConfig, settingsShape } from "./config.js";

const fileSchema = strict({ ...settingsShape, problem: problemSchema.optional(), tasks: tasksSchema.optional() });

/** A count, or the smaller end of a range such as 16-32. */
const countOrRange = (given: unknown): unknown => {
  const range = typeof given === "string" ? /^\s*(\d+)\s*-\s*(\d+)\s*$/.exec(given) : null;
  return range === null ? given : Math.min(Number(range[1]), Number(range[2]));
};
const methodOf = (given: unknown): unknown => (given === true ? "rk4" : given === false ? "euler" : given);

/** Settings of the steps in training or in evaluation, which other programs give by two keys. */
const stepKeys = (part: "training" | "evaluation", suffixes: readonly string[]): ForeignKey[] => [
  { names: suffixes.map((suffix) => `dt_${suffix}`), key: `integration.${part}.dt` },
  {
    names: suffixes.map((suffix) => `use_rk4_${suffix}`),
    key: `integration.${part}.method`,
    value: methodOf,
    why: "true: rk4, false: euler",
  },
];

/** Keys of other meta-learning programs. */
const foreignKeys: readonly ForeignKey[] = [
  { names: ["tasks_per_batch", "meta_batch_size", "n_tasks", "batch_size"], key: "batch", value: countOrRange },
  { names: ["val_tasks", "n_val_tasks"], key: "validation.tasks", value: countOrRange },
  { names: ["val_interval", "val_every", "eval_interval"], key: "validation.every" },
  { names: ["inner_steps", "num_inner_steps", "adaptation_steps"], key: "inner.steps", value: countOrRange },
  { names: ["inner_lr", "inner_rate"], key: "inner.rate" },
  { names: ["meta_lr", "outer_lr"], key: "outer.rate" },
  { names: ["max_grad_norm", "grad_clip"], key: "outer.clip" },
  { names: ["n_iterations", "num_iterations", "meta_iterations"], key: "iterations", value: countOrRange },
  {
    names: ["first_order"],
    key: "order",
    value: (given) => (given === true ? 1 : given === false ? 2 : given),
    why: "2 differentiates through the adaptation",
  },
  { names: ["hidden_dim"], key: "policy.width" },
  { names: ["n_hidden_layers"], key: "policy.hidden" },
  { names: ["output_scale"], key: "policy.outputScale" },
  ...stepKeys("training", ["training", "train"]),
  ...stepKeys("evaluation", ["evaluation", "eval", "validation"]),
];

/** Keys of the file and of its sections. */
const known: readonly string[] = [
  ...Object.keys(settingsShape).flatMap((key) => {
    const inner = (settingsShape as Record<string, { unwrap?: () => { shape?: object } }>)[key].unwrap?.().shape;
    return inner === undefined ? [key] : [key, ...Object.keys(inner).map((name) => `${key}.${name}`)];
  }),
  "problem",
  "tasks",
];

/** The JSON Schema of meta-training settings. */
export const metaJsonSchema = (): Record<string, unknown> => jsonSchemaOf(fileSchema);

/** Options of `parseMetaFile`. @inline */
interface MetaFileOptions {
  /** Values of keys, as `section.key=value`. */
  set?: readonly string[];
  /** Called with what was translated, if the file uses the names of another program. */
  onTranslated?: (lines: readonly string[]) => void;
}

/** The content of a file in our keys. */
function translated(raw: unknown, name: string, onTranslated?: (lines: readonly string[]) => void): unknown {
  const { file, lines } = translateKeys(raw, foreignKeys, (key) => known.includes(key) || key.includes("."));
  if (typeof file === "object" && file !== null && !Array.isArray(file))
    for (const key of Object.keys(file))
      if (!known.includes(key))
        throw new SpecError(`${name}: there is no key "${key}"${suggestKey(key, known, foreignKeys)}`);
  for (const part of ["training", "evaluation"]) {
    // A method without a tolerance uses the tolerance of the preset.
    const steps = valueOf(file, `integration.${part}`) as Record<string, unknown> | undefined;
    if (lines.length > 0 && steps !== undefined && steps.dt === undefined && steps.tolerance === undefined) {
      steps.tolerance = part === "training" ? 1e-5 : 1e-9;
      lines.push(`not given -> integration.${part}.tolerance: ${steps.tolerance} (assumed)`);
    }
  }
  if (lines.length > 0) onTranslated?.(lines);
  return file;
}

/** Reads the settings of a meta-training run from YAML; `overrides` (from a command line) win. */
export function parseMetaFile(
  source: string,
  name = "meta",
  overrides: MetaSettings = {},
  { set = [], onTranslated }: MetaFileOptions = {},
): MetaConfig {
  const { file, wrong } = withSettings(parseSpecYaml(source, name), set);
  if (wrong !== undefined) throw new SpecError(`--set ${wrong}: write section.key=value`);
  const settings = readValue(fileSchema, translated(file, name, onTranslated), name);
  try {
    return metaConfig({ ...settings, ...overrides });
  } catch (error) {
    if (error instanceof WeftError) throw new WeftError(`${name}: ${error.message}`);
    throw error;
  }
}
