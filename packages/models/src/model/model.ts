// A model: an architecture with a configuration and a task, as plain functions over a parameter tree.

import { type DType, full, type Key, randn, splitKey, type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import {
  type ApplyOptions,
  type Architecture,
  architectureOf,
  type Batch,
  type CommonConfig,
  checkTask,
  type ModelTask,
  type Outputs,
  type ParameterSpec,
  type ParameterTable,
  type Params,
  savedTask,
  tasks,
  treeOf,
} from "../architectures/index.js";
import {
  Fields,
  type GenerationDefaults,
  type JsonObject,
  ModelError,
  refuseForeignModels,
  unknownKeys,
} from "../config/index.js";
import { type ProblemType, problemTypes, taskLoss } from "./losses.js";

/** Options of {@link defineModel}. @inline */
export interface ModelOptions {
  /** What the model predicts; the task that the configuration names by default. */
  task?: ModelTask;
  /** Classes of a classification head: their number, or their names. */
  labels?: number | readonly string[];
  /** Kind of the classification; that of the configuration by default. */
  problem?: ProblemType;
}

/** Options of {@link Model.loss}. @inline */
interface ModelLossOptions extends Omit<ApplyOptions, "cached" | "lastOnly"> {}

/** An architecture with a configuration and a task. It holds no parameters. */
export interface Model {
  /** The architecture, such as `bert`. */
  readonly type: string;
  /** What the model predicts. */
  readonly task: ModelTask;
  /** The configuration, checked. */
  readonly config: CommonConfig;
  /** The configuration in the format of config.json. */
  readonly json: JsonObject;
  /** Names of the classes. */
  readonly labels: readonly string[];
  /** The kind of classification that the configuration names; null if the labels of a batch decide. */
  readonly problem: ProblemType | null;
  /** Shapes of the parameters by name. */
  readonly parameters: ParameterTable;
  /** The architecture. */
  readonly architecture: Architecture;
  /** Keys of the configuration that nothing here reads and that are not known to have no effect. */
  readonly unknownKeys: readonly string[];
  /** What generation_config.json says; absent without the file. */
  readonly generation?: GenerationDefaults;
  /** Draws new parameters. */
  init(key: Key, options?: { dtype?: DType }): Params;
  /** Computes hidden states and scores. */
  apply(params: Params, batch: Batch, options?: ApplyOptions): Outputs;
  /** Computes the loss of the task: a scalar. */
  loss(params: Params, batch: Batch, options?: ModelLossOptions): Tensor;
}

/** Sines and cosines of positions [rows, width], in turns. */
function sinusoids([rows, width]: readonly number[]): Tensor {
  const angle = (row: number, at: number): number => row / 10000 ** ((2 * Math.floor(at / 2)) / width);
  const values = Float32Array.from({ length: rows * width }, (_, i) => {
    const [row, at] = [Math.floor(i / width), i % width];
    return at % 2 === 0 ? Math.sin(angle(row, at)) : Math.cos(angle(row, at));
  });
  return tensor(values, { shape: [rows, width] });
}

/** A new parameter. */
export function drawParameter(
  { shape, init, gain = 1 }: ParameterSpec,
  key: Key,
  deviation: number,
  dtype: DType,
): Tensor {
  if (init === "normal") return randn([...shape], { key, std: deviation * gain, dtype: "float32" }).cast(dtype);
  if (init === "sinusoids") return sinusoids(shape).cast(dtype);
  return full([...shape], init === "ones" ? 1 : 0, { dtype });
}

/** The configuration with the labels of the options. */
function withLabels(json: JsonObject, labels: ModelOptions["labels"]): JsonObject {
  if (labels === undefined) return json;
  const names = typeof labels === "number" ? Array.from({ length: labels }, (_, i) => `LABEL_${i}`) : [...labels];
  if (names.length < 1 || !names.every((name) => typeof name === "string"))
    throw new ModelError(`labels is the number of classes or a list of their names, got ${JSON.stringify(labels)}`);
  if (new Set(names).size !== names.length) throw new ModelError(`labels has a name twice: ${names.join(", ")}`);
  const { num_labels: _, ...rest } = json;
  return {
    ...rest,
    id2label: Object.fromEntries(names.map((name, i) => [i, name])),
    label2id: Object.fromEntries(names.map((name, i) => [name, i])),
  };
}

function labelNames(fields: Fields, count: number): string[] {
  const given = fields.has("id2label") ? fields.object("id2label").raw : {};
  return Array.from({ length: count }, (_, i) => {
    const name = Object.hasOwn(given, String(i)) ? given[i] : undefined;
    return typeof name === "string" ? name : `LABEL_${i}`;
  });
}

/**
 * Defines a model by a configuration in the format of `config.json`.
 *
 * @example
 * ```ts
 * import { key, tensor } from "@weft/core";
 * import { defineModel } from "@weft/models";
 *
 * const model = defineModel(
 *   { model_type: "gpt2", n_embd: 32, n_head: 2, n_layer: 2, n_positions: 64, vocab_size: 100 },
 *   { task: "causal-lm" },
 * );
 * const params = model.init(key(0));
 * const inputIds = tensor([[1, 2, 3]], { dtype: "int32" });
 * console.log(model.apply(params, { inputIds }).logits?.shape); // [1, 3, 100]
 * ```
 */
export function defineModel(config: JsonObject, options: ModelOptions = {}): Model {
  checkOptions("defineModel", options, ["task", "labels", "problem"]);
  const { problem: kind } = options;
  const json = withLabels(kind === undefined ? config : { ...config, problem_type: kind }, options.labels);
  const given = new Fields(json);
  const { type, architecture } = architectureOf(given);
  const fields = given.withAliases(architecture.aliases ?? {});
  if (options.task !== undefined && !tasks.includes(options.task))
    throw new ModelError(`task is ${JSON.stringify(options.task)}; it is one of ${tasks.join(", ")}`);
  const task = options.task ?? savedTask(architecture, fields);
  checkTask(architecture, type, task);
  refuseForeignModels(fields);
  const checked = architecture.config(fields);
  const problem = fields.has("problem_type") ? fields.choice("problem_type", problemTypes, problemTypes[0]) : null;
  if (problem === "single_label_classification" && checked.labels === 1)
    throw fields.error("problem_type", `is ${problem}, which needs at least 2 labels; a single output is a regression`);
  const parameters = architecture.parameters(checked, task);
  const apply = (params: Params, batch: Batch, how: ApplyOptions = {}): Outputs =>
    architecture.apply(params, batch, checked, task, how);
  return {
    type,
    task,
    config: checked,
    json: { ...json, architectures: [architecture.classes[task]] },
    labels: labelNames(fields, checked.labels),
    problem,
    parameters,
    architecture,
    unknownKeys: unknownKeys(fields),
    init(key, { dtype = "float32" } = {}) {
      const names = Object.keys(parameters);
      const keys = splitKey(key, names.length);
      return treeOf(
        names.map((name, i) => [name, drawParameter(parameters[name], keys.index(i), checked.initializerRange, dtype)]),
      );
    },
    apply,
    loss: (params, batch, how = {}) => taskLoss(apply(params, batch, how), batch, task, problem),
  };
}
