// Folders of LoRA adapters in the layout of PEFT: adapter_config.json and adapter_model.safetensors. The file says which layers have
// updates; the configuration says how they are scaled. What would change the model and is not implemented is refused by name.
import { type DType, io, type Tensor } from "@weft/core";
import { fromStorage } from "@weft/core/internal/tensor";
import type { ModelTask } from "../architectures/index.js";
import { Fields, fileOf, isJsonObject, type JsonObject, ModelError, readJson } from "../config/index.js";
import { type Model, type ProblemType, problemTypes } from "../model/index.js";

type SafetensorsFile = Awaited<ReturnType<typeof io.openSafetensors>>;

/** Names of the files. */
export const adapterConfigName = "adapter_config.json";
export const adapterFileName = "adapter_model.safetensors";
/** What PEFT puts before the names of the model. */
export const peftPrefix = "base_model.model.";

/** A low-rank update of one layer. */
interface StoredAdapter {
  A: Tensor;
  B: Tensor;
  scale: number;
  /** The update is one of rows that are looked up, and its product is transposed. */
  isTable: boolean;
  /** Lengths of the rows of the updated weight (DoRA). */
  magnitude?: Tensor;
  /** Bias of the update. */
  bias?: Tensor;
}

/** The contents of a folder of adapters. */
interface StoredAdapters {
  /** By the name of the layer in the model. */
  adapters: Map<string, StoredAdapter>;
  /** Whole parameters that the training changed: heads, biases, embeddings. */
  replaced: Map<string, Tensor>;
}

/** Keys that say where adapters are or how they were trained; the tensors of the file already say what follows from it. */
const harmless: readonly string[] = [
  ...[
    "peft_type",
    "peft_version",
    "task_type",
    "auto_mapping",
    "base_model_name_or_path",
    "revision",
    "inference_mode",
  ],
  ...["r", "lora_alpha", "lora_dropout", "fan_in_fan_out", "rank_pattern", "alpha_pattern", "use_rslora", "use_dora"],
  ...[
    "target_modules",
    "exclude_modules",
    "layers_to_transform",
    "layers_pattern",
    "modules_to_save",
    "bias",
    "lora_bias",
  ],
  ...["megatron_core", "qalora_group_size", "eva_config", "runtime_config", "ensure_weight_tying", "init_lora_weights"],
];
/** Initial values that leave the weights of the model as they are. */
const harmlessStarts: readonly unknown[] = [true, false, "gaussian", "eva", "orthogonal"];

const isNeutral = (value: unknown): boolean =>
  value === undefined ||
  value === null ||
  value === false ||
  (typeof value === "object" && Object.keys(value).length === 0);

function checkOptions(config: JsonObject, label: string): void {
  const { peft_type: kind = "LORA", init_lora_weights: start = true } = config;
  if (kind !== "LORA") throw new ModelError(`${label}: peft_type is ${JSON.stringify(kind)}; LORA is supported`);
  const odd = Object.entries(config).find(([name, value]) => !harmless.includes(name) && !isNeutral(value));
  if (odd !== undefined)
    throw new ModelError(`${label}: ${odd[0]} is ${JSON.stringify(odd[1]).slice(0, 80)}, which is not supported`);
  if (!harmlessStarts.includes(start))
    throw new ModelError(
      `${label}: init_lora_weights is ${JSON.stringify(start).slice(0, 80)}, which changes the weights of the model itself; save the adapters as plain LoRA first`,
    );
}

/** A pattern of layer names. Patterns come from outside: only those whose search takes bounded time are accepted. */
function patternOf(pattern: string, label: string): RegExp {
  const isSimple = pattern.length <= 200 && /^\^?(?:[\w.|()-]|\\[.d])*(?:[*+](?:[\w.|-]|\\[.d])*)?\$?$/.test(pattern);
  try {
    if (isSimple && !/\)[*+]/.test(pattern)) return new RegExp(`^(?:.*\\.)?(?:${pattern})$`);
  } catch {
    // Parentheses that do not match: reported below.
  }
  throw new ModelError(
    `${label}: the pattern ${JSON.stringify(pattern).slice(0, 100)} is not supported; use names of layers, such as "layers.0.self_attn.q_proj"`,
  );
}

/** The number of a layer by `rank_pattern` or `alpha_pattern`: that of the first pattern that its name ends with. */
function byPattern(config: JsonObject, key: string, otherwise: number, label: string): (layer: string) => number {
  const given = config[key] ?? {};
  if (!isJsonObject(given)) throw new ModelError(`${label}: ${key} is not an object of numbers by name of layer`);
  if (Object.keys(given).length > 4096) throw new ModelError(`${label}: ${key} has more than 4096 patterns`);
  const rules = Object.entries(given).map(([pattern, value]) => {
    if (typeof value !== "number" || !(value > 0))
      throw new ModelError(`${label}: ${key} of ${pattern.slice(0, 100)} is ${JSON.stringify(value)}; it is positive`);
    return { rule: patternOf(pattern, `${label}: ${key}`), value };
  });
  return (layer) => rules.find(({ rule }) => rule.test(layer))?.value ?? otherwise;
}

const parts: readonly (readonly [ending: RegExp, part: string])[] = [
  [/\.lora_A\.weight$/, "A"],
  [/\.lora_B\.weight$/, "B"],
  [/\.lora_B\.bias$/, "bias"],
  [/\.lora_embedding_A$/, "tableA"],
  [/\.lora_embedding_B$/, "tableB"],
  [/\.lora_magnitude_vector(?:\.weight)?$/, "magnitude"],
];

/** GPT-2 stores the weights of its layers as [in, out], but not those of its heads. */
export const isTransposed = (model: Model, layer: string): boolean => model.type === "gpt2" && layer.includes(".h.");

/** Reads the tensors of one file of adapters. */
class AdapterReader {
  readonly #rank: (layer: string) => number;
  readonly #alpha: (layer: string) => number;

  constructor(
    private readonly model: Model,
    private readonly config: JsonObject,
    private readonly file: SafetensorsFile,
    private readonly path: string,
    label: string,
  ) {
    const fields = new Fields(config, label);
    const rank = fields.count("r", { otherwise: 8, least: 1, most: 65536 });
    const alpha = fields.number("lora_alpha", { otherwise: 8, least: 1e-9, most: 1e9 });
    this.#rank = byPattern(config, "rank_pattern", rank, label);
    this.#alpha = byPattern(config, "alpha_pattern", alpha, label);
  }

  async read(): Promise<StoredAdapters> {
    const found = new Map<string, Record<string, string>>();
    const replaced = new Map<string, Tensor>();
    for (const name of this.file.names) {
      const own = name.startsWith(peftPrefix) ? name.slice(peftPrefix.length) : name;
      const match = parts.find(([ending]) => ending.test(own));
      if (match !== undefined) {
        const layer = own.replace(match[0], "");
        found.set(layer, { ...found.get(layer), [match[1]]: name });
      } else if (!/\.original_module\./.test(own)) {
        // Of a head that was trained as a whole, newer files name the copy too.
        const plain = own.replace(".modules_to_save.", ".");
        if (plain !== own && this.file.names.includes(peftPrefix + plain)) continue;
        const parameter = this.#parameter(plain.replace(".base_layer.", "."), name);
        replaced.set(parameter, await this.#tensor(name, this.model.parameters[parameter].shape));
      }
    }
    const adapters = new Map<string, StoredAdapter>();
    for (const [layer, names] of found) {
      const parameter = this.#parameter(`${layer}.weight`, Object.values(names)[0]);
      adapters.set(parameter.slice(0, -".weight".length), await this.#adapter(layer, parameter, names));
    }
    if (adapters.size === 0 && replaced.size === 0) throw new ModelError(`${this.path}: holds no adapters`);
    return { adapters, replaced };
  }

  /** The parameter that a tensor belongs to. */
  #parameter(name: string, stored: string): string {
    const { parameters, architecture, type, task, config } = this.model;
    const found = [name, `${architecture.prefix}.${name}`].find((candidate) => Object.hasOwn(parameters, candidate));
    if (found !== undefined) return found;
    const isHead = /^(lm_head|classifier|pre_classifier|score)\./.test(name);
    throw new ModelError(
      `${this.path}: the tensor ${stored} belongs to no parameter of ${type} with the task ${task}` +
        (isHead && config.tied && name.startsWith("lm_head")
          ? "; its head shares its weights with the embedding, which an adapter of the head alone would separate"
          : isHead
            ? "; load the model with the task that the adapters were trained for"
            : "; the adapters belong to another model"),
    );
  }

  async #tensor(name: string, shape: readonly number[]): Promise<Tensor> {
    const found = this.file.info(name);
    if (found.shape.join() !== shape.join())
      throw new ModelError(
        `${this.path}: ${name} has shape [${found.shape.join(", ")}], expected [${shape.join(", ")}]`,
      );
    if (found.dtype === null || !/^b?float/.test(found.dtype))
      throw new ModelError(`${this.path}: ${name} is ${found.dtype ?? "of an unsupported dtype"}; adapters are floats`);
    const host = await this.file.read(name);
    return fromStorage(host.shape, host.dtype, host.data);
  }

  async #adapter(layer: string, parameter: string, names: Record<string, string>): Promise<StoredAdapter> {
    const isTable = names["tableA"] !== undefined;
    const [A, B] = isTable ? [names["tableA"], names["tableB"]] : [names["A"], names["B"]];
    if (A === undefined || B === undefined)
      throw new ModelError(`${this.path}: the adapter of ${layer} lacks ${A === undefined ? "lora_A" : "lora_B"}`);
    if (isTable && this.model.config.tied)
      throw new ModelError(
        `${this.path}: adapts ${layer}, which is also the output embedding of this model (tie_word_embeddings); adapters of tied embeddings are not supported`,
      );
    if (isTable && (names["magnitude"] ?? names["bias"]) !== undefined)
      throw new ModelError(`${this.path}: the adapter of the embedding ${layer} has more than A and B`);
    const { shape } = this.model.parameters[parameter];
    if (shape.length !== 2) throw new ModelError(`${this.path}: adapts ${layer}, which is not a dense layer`);
    const [first, second] = shape;
    const isFlipped = isTable || isTransposed(this.model, parameter);
    const [inputs, out] = isFlipped ? [first, second] : [second, first];
    const rank = this.#rank(layer);
    const { use_rslora: isStable = false, use_dora: isDora = false } = this.config;
    if (isDora !== (names["magnitude"] !== undefined) && !isTable)
      throw new ModelError(`${this.path}: ${layer} ${isDora ? "lacks" : "has"} a magnitude; use_dora is ${isDora}`);
    return {
      A: await this.#tensor(A, [rank, inputs]),
      B: await this.#tensor(B, [out, rank]),
      scale: this.#alpha(layer) / (isStable === true ? Math.sqrt(rank) : rank),
      isTable,
      ...(names["magnitude"] !== undefined && { magnitude: await this.#tensor(names["magnitude"], [out]) }),
      ...(names["bias"] !== undefined && { bias: await this.#tensor(names["bias"], [out]) }),
    };
  }
}

const taskNames: Readonly<Record<string, ModelTask>> = {
  SEQ_CLS: "classification",
  TOKEN_CLS: "token-classification",
  CAUSAL_LM: "causal-lm",
};

/** A folder of adapters whose configuration was checked. */
export interface AdapterFolder {
  /** Task that the adapters were trained for, if the folder names one. */
  readonly task?: ModelTask;
  /** Number of classes of a head that the folder holds, or their names. */
  readonly labels?: number | readonly string[];
  /** Kind of the classification of the head. */
  readonly problem?: ProblemType;
  read(model: Model): Promise<StoredAdapters>;
  close(): Promise<void>;
}

/** Names of the metadata of a file of adapters, which `adapter_config.json` has no keys for. */
const metadataNames = { labels: "weft.labels", problem: "weft.problem_type" } as const;

/** What a file of adapters says about a head beside its weights: names of the classes, and what they mean. */
export const adapterMetadata = ({ task, labels, problem }: Model): Record<string, string> =>
  task === "classification" || task === "token-classification"
    ? { [metadataNames.labels]: JSON.stringify(labels), ...(problem !== null && { [metadataNames.problem]: problem }) }
    : {};

/** Names of the classes of a head by the metadata of its file; their number without it. */
function labelsIn(metadata: Readonly<Record<string, string>>, count: number, path: string): number | readonly string[] {
  const text = metadata[metadataNames.labels];
  if (text === undefined) return count;
  let names: unknown;
  try {
    names = JSON.parse(text);
  } catch {
    names = null;
  }
  if (!Array.isArray(names) || names.length !== count || !names.every((name) => typeof name === "string"))
    throw new ModelError(
      `${path}: the names of the classes (${metadataNames.labels}) are not a list of ${count} texts`,
    );
  return names as string[];
}

/** Opens a folder that `peft` or {@link Lora.save} wrote. */
export async function openAdapters(folder: string): Promise<AdapterFolder> {
  const config = await readJson(folder, adapterConfigName);
  if (config === null) throw new ModelError(`${folder}: has no ${adapterConfigName}; give a folder of LoRA adapters`);
  const label = `${folder}/${adapterConfigName}`;
  checkOptions(config, label);
  const path = await fileOf(folder, adapterFileName);
  if (path === null)
    throw new ModelError(
      `${folder}: has no ${adapterFileName}; adapters in the format of pickle (.bin) are not read: save them as safetensors`,
    );
  const file = await io.openSafetensors(path);
  const head = file.names.find((name) =>
    /^base_model\.model\.(classifier|classifier\.out_proj|score)\.weight$/.test(name),
  );
  const task = taskNames[String(config["task_type"])];
  const { metadata } = file;
  let labels: AdapterFolder["labels"];
  try {
    labels = head === undefined ? undefined : labelsIn(metadata, file.info(head).shape[0], path);
  } catch (error) {
    await file.close();
    throw error;
  }
  const problem = problemTypes.find((known) => known === metadata[metadataNames.problem]);
  return {
    ...(task !== undefined && { task }),
    ...(labels !== undefined && { labels }),
    ...(problem !== undefined && { problem }),
    read: (model) => new AdapterReader(model, config, file, path, label).read(),
    close: () => file.close(),
  };
}

const wideOf = (dtype: DType): DType => (dtype === "float64" ? "float64" : "float32");

/** A weight with its update added. */
export function mergedWeight(weight: Tensor, adapter: StoredAdapter, isFlipped: boolean): Tensor {
  const wide = wideOf(weight.dtype);
  const update = adapter.B.cast(wide).matmul(adapter.A.cast(wide)).mul(adapter.scale);
  const own = weight.cast(wide);
  let merged = (isFlipped ? own.transpose() : own).add(update);
  if (adapter.magnitude !== undefined) {
    const length = merged.square().sum(1, { keepDims: true }).sqrt();
    merged = merged.mul(adapter.magnitude.cast(wide).reshape([-1, 1]).div(length));
  }
  return (isFlipped ? merged.transpose() : merged).cast(weight.dtype).realize();
}

/** Adds the updates of a folder to the parameters of a model, and returns the names of the parameters that it gave as a whole. */
export async function mergeAdapters(model: Model, params: Map<string, Tensor>, from: AdapterFolder): Promise<string[]> {
  const { adapters, replaced } = await from.read(model);
  const put = (name: string, value: Tensor): void => {
    params.get(name)?.dispose();
    params.set(name, value);
  };
  for (const [name, value] of replaced) {
    const { dtype } = params.get(name) as Tensor;
    put(name, value.dtype === dtype ? value : value.cast(dtype).realize());
  }
  for (const [layer, adapter] of adapters) {
    const name = `${layer}.weight`;
    const isFlipped = adapter.isTable || isTransposed(model, layer);
    put(name, mergedWeight(params.get(name) as Tensor, adapter, isFlipped));
    if (adapter.bias === undefined) continue;
    const bias = params.get(`${layer}.bias`);
    if (bias === undefined)
      throw new ModelError(`the adapter of ${layer} has a bias (lora_bias), and the layer has none to add it to`);
    put(
      `${layer}.bias`,
      bias.cast("float32").add(adapter.bias.cast("float32").mul(adapter.scale)).cast(bias.dtype).realize(),
    );
  }
  return [...replaced.keys()];
}
