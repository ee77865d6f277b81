// LoRA: low-rank updates of dense layers beside frozen weights. Adapters are a small tree of their own, so that gradients,
// optimizer state and files hold nothing else.

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type DType, io, type Key, randn, splitKey, type Tensor, zeros } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { mapNamed } from "@weft/core/nn";
import type { Dense, ModelTask, Params } from "../architectures/index.js";
import {
  adapterConfigName,
  adapterFileName,
  adapterMetadata,
  isTransposed,
  lazily,
  mergedWeight,
  openAdapters,
  peftPrefix,
} from "../checkpoint/index.js";
import { ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";

/** Options of {@link loraOf}. @inline */
export interface LoraOptions {
  /** Rank of the updates. */
  rank: number;
  /** The update is scaled by alpha / rank; alpha is twice the rank by default. */
  alpha?: number;
  /** Layers by the last part of their name, such as `["query", "value"]`; all layers of attention by default. */
  targets?: readonly string[];
  /** Dropout of the input of an update. */
  dropout?: number;
}

/** One low-rank update: B A. */
export interface Adapter {
  /** Maps the input to the rank: [rank, in]. */
  lora_A: Tensor;
  /** Maps the rank to the output: [out, rank]. */
  lora_B: Tensor;
}

/** Adapters by the name of their layer. */
export type Adapters = Record<string, Adapter>;

/** LoRA for one model. */
export interface Lora {
  /** The settings, with defaults filled in. */
  readonly options: Required<LoraOptions>;
  /** Names of the adapted layers. */
  readonly layers: readonly string[];
  /** New adapters, which change nothing yet: B is 0. */
  init(key: Key, options?: { dtype?: DType }): Adapters;
  /** Parameters for `apply` and `loss`: the frozen ones with the updates beside them. */
  combine(params: Params, adapters: Adapters, options?: { key?: Key | null }): Params;
  /** Parameters with the updates added to the weights. */
  merge(params: Params, adapters: Adapters): Params;
  /** Parameters with the updates subtracted again: those before, but for rounding. */
  unmerge(params: Params, adapters: Adapters): Params;
  /**
   * Writes `adapter_model.safetensors` and `adapter_config.json` in the layout of PEFT.
   *
   * @param trained - Parameters that were trained as a whole, by name: those of a new head.
   */
  save(folder: string, adapters: Adapters, trained?: Record<string, Tensor>): Promise<void>;
  /** Reads adapters with these settings. Others are merged by `loadPretrained(folder, { adapter })`. */
  load(folder: string): Promise<Adapters>;
}

/** Layers of attention in the architectures. */
const attentionLayers = [
  "query",
  "key",
  "value",
  "q_lin",
  "k_lin",
  "v_lin",
  "c_attn",
  "q_proj",
  "k_proj",
  "v_proj",
  "o_proj",
  "out_lin",
];

/** Tables whose rows are looked up: they have no product that an update could be added to. */
const isTable = (name: string): boolean => /embed|(^|\.)w[tp]e$/.test(name);

const isCalled = (layer: string, target: string): boolean => layer === target || layer.split(".").at(-1) === target;

/** Layers with updates. Every target that was asked for must exist. */
function layersOf(model: Model, given: readonly string[] | undefined): string[] {
  const matrices = Object.entries(model.parameters)
    .filter(([name, { shape }]) => name.endsWith(".weight") && shape.length === 2)
    .map(([name]) => name.slice(0, -".weight".length));
  const dense = matrices.filter((name) => !isTable(name));
  const targets = given ?? attentionLayers;
  for (const target of given ?? []) {
    if (dense.some((name) => isCalled(name, target))) continue;
    if (matrices.some((name) => isCalled(name, target)))
      throw new ModelError(`lora: ${target} is an embedding, which has no low-rank update; name dense layers`);
    const known = [...new Set(dense.map((name) => name.split(".").at(-1)))];
    throw new ModelError(`lora: ${model.type} has no layer called ${target}; its layers are ${known.join(", ")}`);
  }
  return dense.filter((name) => targets.some((target) => isCalled(name, target)));
}

/** Replaces the layers of a tree that have adapters. */
function mapLayers(
  params: Params,
  change: (name: string, layer: Dense) => Dense,
  adapted: ReadonlySet<string>,
): Params {
  const walk = (at: unknown, path: string): unknown => {
    if (Array.isArray(at)) return at.map((part, i) => walk(part, `${path}.${i}`));
    if (typeof at !== "object" || at === null || Object.getPrototypeOf(at) !== Object.prototype) return at;
    if (adapted.has(path)) return change(path, at as Dense);
    return Object.fromEntries(
      Object.entries(at).map(([name, part]) => [name, walk(part, path === "" ? name : `${path}.${name}`)]),
    );
  };
  return walk(params, "") as Params;
}

/** Tasks by the names of PEFT. */
const taskTypes: Partial<Record<ModelTask, string>> = {
  classification: "SEQ_CLS",
  "token-classification": "TOKEN_CLS",
  "causal-lm": "CAUSAL_LM",
};

/** The name in files: those of a backbone without a head have no prefix. */
function fileName(model: Model, name: string): string {
  const { prefix } = model.architecture;
  const short = model.task === "base" && name.startsWith(`${prefix}.`) ? name.slice(prefix.length + 1) : name;
  return peftPrefix + short;
}

/** Modules that PEFT keeps as a whole: a head, or the module of a parameter inside the backbone. */
const wholeModules = (model: Model, names: readonly string[]): string[] => [
  ...new Set(
    names.map((name) =>
      name.startsWith(`${model.architecture.prefix}.`) ? name.slice(0, name.lastIndexOf(".")) : name.split(".")[0],
    ),
  ),
];

/** Defines LoRA for a model. */
export function loraOf(model: Model & { folder?: string }, given: LoraOptions): Lora {
  checkOptions("lora", given, ["rank", "alpha", "targets", "dropout"]);
  const { rank, alpha = 2 * rank, dropout = 0 } = given;
  if (!Number.isInteger(rank) || rank < 1 || rank > 4096)
    throw new ModelError(`lora: rank is a whole number from 1 to 4096, got ${rank}`);
  if (!(alpha > 0)) throw new ModelError(`lora: alpha is positive, got ${alpha}`);
  if (!(dropout >= 0 && dropout < 1)) throw new ModelError(`lora: dropout is at least 0 and below 1, got ${dropout}`);
  const layers = layersOf(model, given.targets);
  const scale = alpha / rank;
  const sizes = (layer: string): { inputs: number; out: number } => {
    const [first, second] = model.parameters[`${layer}.weight`].shape;
    return isTransposed(model, layer) ? { inputs: first, out: second } : { inputs: second, out: first };
  };
  const adapted = new Set(layers);
  const shifted = (params: Params, adapters: Adapters, sign: number): Params => {
    for (const name of layers)
      if (adapters[name] === undefined) throw new ModelError(`lora: there is no adapter of ${name}`);
    return mapLayers(
      params,
      (name, layer) => {
        const { lora_A: A, lora_B: B } = adapters[name];
        const update = { A, B, scale: sign * scale, isTable: false };
        return { ...layer, weight: mergedWeight(layer.weight, update, isTransposed(model, name)) };
      },
      adapted,
    );
  };
  return {
    options: { rank, alpha, targets: given.targets ?? attentionLayers, dropout },
    layers,
    init(key, { dtype = "float32" } = {}) {
      const keys = splitKey(key, layers.length);
      return Object.fromEntries(
        layers.map((name, i) => {
          const { inputs, out } = sizes(name);
          const lora_A = randn([rank, inputs], { key: keys.index(i), std: 1 / Math.sqrt(inputs) }).cast(dtype);
          return [name, { lora_A, lora_B: zeros([out, rank], { dtype }) }];
        }),
      );
    },
    combine(params, adapters, { key = null } = {}) {
      const keys = key === null || dropout === 0 ? null : splitKey(key, layers.length);
      const order = new Map(layers.map((name, i) => [name, i]));
      return mapLayers(
        params,
        (name, layer) => ({
          ...layer,
          lora: {
            A: adapters[name].lora_A,
            B: adapters[name].lora_B,
            scale,
            dropout,
            key: keys === null ? null : keys.index(order.get(name) as number),
          },
        }),
        adapted,
      );
    },
    merge: (params, adapters) => shifted(params, adapters, 1),
    unmerge: (params, adapters) => shifted(params, adapters, -1),
    async save(folder, adapters, trained = {}) {
      await mkdir(folder, { recursive: true });
      const named = Object.fromEntries(
        Object.entries(adapters).flatMap(([layer, adapter]) =>
          (["lora_A", "lora_B"] as const).map((part) => [fileName(model, `${layer}.${part}.weight`), adapter[part]]),
        ),
      );
      const whole = Object.fromEntries(Object.entries(trained).map(([name, value]) => [fileName(model, name), value]));
      const all = Object.entries({ ...named, ...whole }).map(([name, value]) => [name, lazily(value)]);
      await io.writeSafetensors(join(folder, adapterFileName), Object.fromEntries(all), {
        format: "pt",
        ...adapterMetadata(model),
      });
      const modules = wholeModules(model, Object.keys(trained));
      const task = taskTypes[model.task];
      const config = {
        peft_type: "LORA",
        ...(task !== undefined && { task_type: task }),
        r: rank,
        lora_alpha: alpha,
        lora_dropout: dropout,
        target_modules: [...new Set(layers.map((name) => name.split(".").at(-1)))],
        ...(modules.length > 0 && { modules_to_save: modules }),
        fan_in_fan_out: layers.every((name) => isTransposed(model, name)),
        bias: "none",
        base_model_name_or_path: model.folder ?? null,
      };
      await writeFile(join(folder, adapterConfigName), `${JSON.stringify(config, null, 2)}\n`);
    },
    async load(folder) {
      const opened = await openAdapters(folder);
      try {
        const { adapters, replaced } = await opened.read(model);
        const other = [...replaced.keys()][0] ?? [...adapters.keys()].find((layer) => !adapted.has(layer));
        if (other !== undefined)
          throw new ModelError(
            `${folder}: has ${other}, which is not one of the adapted layers; set targets, or merge it: loadPretrained(base, { adapter })`,
          );
        return Object.fromEntries(
          layers.map((layer) => {
            const found = adapters.get(layer);
            if (found === undefined) throw new ModelError(`${folder}: has no adapter of ${layer}`);
            const { A, B, scale: own, magnitude, bias } = found;
            if (A.shape[0] !== rank || own !== scale)
              throw new ModelError(
                `${folder}: ${layer} has rank ${A.shape[0]} and scale ${own}, expected ${rank} and ${scale}`,
              );
            if (magnitude !== undefined || bias !== undefined)
              throw new ModelError(
                `${folder}: ${layer} has a ${bias === undefined ? "magnitude (DoRA)" : "bias"}; it can only be merged: loadPretrained(base, { adapter })`,
              );
            return [layer, { lora_A: A, lora_B: B }];
          }),
        );
      } finally {
        await opened.close();
      }
    },
  };
}

/** Splits a tree into the parameters that a predicate selects and the others, and joins both again. */
export function splitParams(
  params: Params,
  isTrained: (name: string) => boolean,
): { trained: Record<string, Tensor>; join(trained: Record<string, Tensor>): Params } {
  const trained: Record<string, Tensor> = {};
  mapNamed(params, (name, leaf) => {
    if (isTrained(name)) trained[name] = leaf;
    return leaf;
  });
  if (Object.keys(trained).length === 0) throw new ModelError("no parameter is trained; the predicate selects none");
  return { trained, join: (own) => mapNamed(params, (name, leaf) => own[name] ?? leaf) };
}
