// Loading: every tensor of the files is matched with the parameter table of the architecture, read, and moved to the device
// before the next one, so that the host holds one tensor at a time.

import { readdir } from "node:fs/promises";
import { type DType, key, OutOfMemoryError, session, splitKey, type Tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { fromStorage } from "@weft/core/internal/tensor";
import { type ModelTask, type Params, sizeOf, tasks, treeOf } from "../architectures/index.js";
import { Fields, ModelError, readGenerationConfig, readJson } from "../config/index.js";
import { defineModel, drawParameter, type Model, type ModelOptions } from "../model/index.js";
import { type AdapterFolder, adapterConfigName, mergeAdapters, openAdapters } from "./adapters.js";
import { openTensors, type TensorFolder } from "./shards.js";

/** Options of {@link loadPretrained}. @inline */
interface LoadOptions extends ModelOptions {
  /** Dtype of the parameters; float32 by default, `"auto"` for that of the files. */
  dtype?: "auto" | "float32" | "bfloat16" | "float16" | "float64";
  /** Called before each tensor is read, for a progress line. */
  onTensor?: (name: string, done: number, total: number) => void;
  /** Seed of parameters that the files lack, such as a new classification head. */
  seed?: number;
  /** Folder of LoRA adapters that `peft` or Weft wrote; they are merged into the weights. */
  adapter?: string;
}

/** A model with its parameters. */
export interface PretrainedModel extends Model {
  /** The parameters: a tree by the names of the checkpoint. */
  params: Params;
  /** Folder that the model was loaded from. */
  readonly folder: string;
  /** Parameters that the files lack and that were drawn: those of a new head. */
  readonly initialized: readonly string[];
  /** Tensors of the files that the task does not use. */
  readonly unused: readonly string[];
}

const floats: readonly (DType | null)[] = ["float32", "bfloat16", "float16", "float64"];

/** Names that a tensor of a file may stand for, the most literal first. */
function candidates(name: string, prefix: string): string[] {
  // Names of old checkpoints.
  const modern = name.replace(/\.gamma$/, ".weight").replace(/\.beta$/, ".bias");
  return [modern, `${prefix}.${modern}`];
}

/** Which tensor of the files each parameter comes from. */
function matchNames(model: Model, files: TensorFolder): { sources: Map<string, string>; unused: string[] } {
  const { architecture, parameters, config, type } = model;
  const others = new Set(
    tasks
      .filter((task) => architecture.classes[task] !== undefined)
      .flatMap((task) => Object.keys(architecture.parameters(config, task))),
  );
  // Copies of a tied embedding.
  if (config.tied) others.add("lm_head.weight").add("vocab_projector.weight");
  const sources = new Map<string, string>();
  const unused: string[] = [];
  for (const name of files.names) {
    const names = candidates(name, architecture.prefix);
    const found = names.find((candidate) => Object.hasOwn(parameters, candidate));
    if (found !== undefined) {
      const earlier = sources.get(found);
      if (earlier !== undefined)
        throw new ModelError(
          `${files.fileOf(name)}: the tensors ${earlier} and ${name} are both the parameter ${found}`,
        );
      sources.set(found, name);
    } else if (names.some((n) => others.has(n) || architecture.ignored.some((rule) => rule.test(n)))) unused.push(name);
    else if (names[0].startsWith(`${architecture.prefix}.`))
      throw new ModelError(
        `${files.fileOf(name)}: the tensor ${name} [${files.info(name).shape.join(", ")}] is not a parameter of ${type}; ` +
          "the configuration describes another model, or a variant that is not supported",
      );
    else unused.push(name);
  }
  return { sources, unused };
}

/** Parameters that every task has: these must be in the files. */
function backboneNames({ architecture, config }: Model): Set<string> {
  const tables = tasks
    .filter((task): task is ModelTask => architecture.classes[task] !== undefined)
    .map((task) => new Set(Object.keys(architecture.parameters(config, task))));
  return new Set([...tables[0]].filter((name) => tables.every((table) => table.has(name))));
}

function checkTensor(model: Model, files: TensorFolder, parameter: string, name: string): void {
  const { shape, dtype } = files.info(name);
  const wanted = model.parameters[parameter].shape;
  const label = `${files.fileOf(name)}: the tensor ${name}`;
  if (!floats.includes(dtype))
    throw new ModelError(
      `${label} is ${dtype ?? "of an unsupported dtype"}; parameters are float32, float16, bfloat16 or float64 (quantized checkpoints are not supported)`,
    );
  if (shape.join() !== wanted.join())
    throw new ModelError(
      `${label} has shape [${shape.join(", ")}]; the configuration gives [${wanted.join(", ")}]` +
        (shape[0] !== wanted[0] && /classifier|score/.test(name)
          ? ". For a new head of this size pass other labels"
          : ""),
    );
}

const gigabytes = (bytes: number): string => `${(bytes / 1e9).toPrecision(3)} GB`;
const bytesOf: Record<string, number> = { float64: 8, float32: 4, bfloat16: 2, float16: 2 };

/** What fits into the memory of the device instead. */
function memoryAdvice(model: Model, dtype: DType, error: OutOfMemoryError): ModelError {
  const { totalBytes, usedBytes } = session().device.memory();
  const count = Object.values(model.parameters).reduce((n, spec) => n + sizeOf(spec), 0);
  const bytes = count * bytesOf[dtype];
  const room = totalBytes > 0 ? totalBytes : usedBytes;
  const advice: string[] = [];
  if (bytesOf[dtype] > 2 && 2 * count < room)
    advice.push(`dtype: "bfloat16" takes ${gigabytes(2 * count)}, and LoRA fine-tuning on it a few percent more`);
  else if (bytesOf[dtype] > 2)
    advice.push(`dtype: "bfloat16" takes ${gigabytes(2 * count)}, which does not fit either`);
  const devices = Math.ceil((bytes * 1.1) / Math.max(room, 1));
  if (devices > 1) advice.push(`sharding over ${devices} such devices leaves ${gigabytes(bytes / devices)} on each`);
  advice.push("training also needs gradients and optimizer state; gradient checkpointing reduces activations only");
  return new ModelError(
    `out of memory while loading: ${count} parameters in ${dtype} take ${gigabytes(bytes)}, ` +
      `the device ${session().device.name} has ${gigabytes(room)}. What would fit: ${advice.join("; ")}. (${error.message})`,
  );
}

/** Reads one tensor to the device in the wanted dtype. */
async function upload(files: TensorFolder, name: string, dtype: DType | "auto"): Promise<Tensor> {
  const host = await files.read(name);
  const own = fromStorage(host.shape, host.dtype, host.data);
  if (dtype === "auto" || own.dtype === dtype) return own;
  const cast = own.cast(dtype).realize();
  own.dispose();
  return cast;
}

/** Why a folder without config.json is not that of a model. */
async function noModel(folder: string): Promise<ModelError> {
  const files = await readdir(folder).catch((): string[] => []);
  if (files.includes(adapterConfigName))
    return new ModelError(
      `${folder}: holds LoRA adapters, not a model; load the model that they belong to, with this folder as its adapter`,
    );
  const gguf = files.find((name) => name.toLowerCase().endsWith(".gguf"));
  if (gguf !== undefined)
    return new ModelError(
      `${folder}: holds ${gguf}, and the format GGUF is not read; give the folder that it was made from (config.json, model.safetensors)`,
    );
  return new ModelError(`${folder}: has no config.json; give the folder of a model`);
}

/**
 * Loads a model from a folder with `config.json` and `model.safetensors` (or shards with an index). Tensors go to the current
 * device one by one. A head that the files lack is drawn anew, and listed in `initialized`.
 *
 * @param folder - The folder.
 * @param options - Task, labels, dtype.
 */
export async function loadPretrained(folder: string, options: LoadOptions = {}): Promise<PretrainedModel> {
  // The dtype may be "auto", which is checked below.
  const { adapter } = options;
  const known = ["task", "labels", "problem", "dtype", "onTensor", "seed", "adapter"] as const;
  checkOptions("loadPretrained", { ...options, dtype: undefined }, known);
  if (adapter === undefined) return loadFolder(folder, options, null);
  const opened = await openAdapters(adapter);
  try {
    return await loadFolder(folder, { ...(opened.task !== undefined && { task: opened.task }), ...options }, opened);
  } finally {
    await opened.close();
  }
}

async function loadFolder(
  folder: string,
  options: LoadOptions,
  adapters: AdapterFolder | null,
): Promise<PretrainedModel> {
  const { dtype = "float32", seed = 0, onTensor: _, adapter: __, ...modelOptions } = options;
  const json = await readJson(folder, "config.json");
  if (json === null) throw await noModel(folder);
  // A head that was trained with the adapters has their number of classes.
  const labels = adapters?.labels;
  const hasOther = labels !== undefined && (typeof labels === "object" || new Fields(json).labels() !== labels);
  const problem = adapters?.problem;
  const model = defineModel(json, {
    ...(hasOther && { labels }),
    ...(problem !== undefined && { problem }),
    ...modelOptions,
  });
  const generation = await readGenerationConfig(folder);
  if (dtype !== "auto" && !floats.includes(dtype))
    throw new ModelError(`loadPretrained: dtype is auto, float32, bfloat16, float16 or float64, got ${String(dtype)}`);
  const files = await openTensors(folder);
  const loaded = new Map<string, Tensor>();
  try {
    const { sources, unused } = matchNames(model, files);
    const missing = Object.keys(model.parameters).filter((name) => !sources.has(name));
    const backbone = backboneNames(model);
    const lacking = missing.filter((name) => backbone.has(name));
    if (lacking.length > 0)
      throw new ModelError(
        `${folder}: lacks ${lacking.length} parameters of ${model.type}: ${lacking.slice(0, 4).join(", ")}${lacking.length > 4 ? ", ..." : ""}`,
      );
    for (const [parameter, name] of sources) checkTensor(model, files, parameter, name);
    // In the order of the files, so that reads are sequential.
    const parameterOf = new Map([...sources].map(([parameter, name]) => [name, parameter]));
    for (const name of files.names) {
      const parameter = parameterOf.get(name);
      if (parameter === undefined) continue;
      options.onTensor?.(name, loaded.size, sources.size);
      loaded.set(parameter, await upload(files, name, dtype));
    }
    const keys = splitKey(key(seed), Math.max(1, missing.length));
    const first = loaded.values().next().value as Tensor | undefined;
    missing.forEach((name, i) => {
      const own = dtype === "auto" ? (first?.dtype ?? "float32") : dtype;
      loaded.set(
        name,
        drawParameter(model.parameters[name], keys.index(i), model.config.initializerRange, own).realize(),
      );
    });
    const given = adapters === null ? [] : await mergeAdapters(model, loaded, adapters);
    const ordered = Object.keys(model.parameters).map((name) => [name, loaded.get(name) as Tensor] as const);
    return {
      ...model,
      ...(generation !== null && { generation }),
      params: treeOf(ordered),
      folder,
      initialized: missing.filter((name) => !given.includes(name)),
      unused,
    };
  } catch (error) {
    for (const tensor of loaded.values()) tensor.dispose();
    throw error instanceof OutOfMemoryError ? memoryAdvice(model, dtype === "auto" ? "float32" : dtype, error) : error;
  } finally {
    await files.close();
  }
}
