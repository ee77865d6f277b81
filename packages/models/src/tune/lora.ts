// LoRA: low-rank updates of dense layers beside frozen weights. Adapters are a small tree of their own, so that gradients,
// optimizer state and files hold nothing else.

import { mkdir, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { type DType, io, type Key, randn, splitKey, type Tensor, zeros } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { fromStorage } from "@weft/core/internal/tensor";
import { mapNamed } from "@weft/core/nn";
import type { Dense, Params } from "../architectures/index.js";
import { fileOf, type JsonObject, ModelError, readJson } from "../config/index.js";
import type { Model } from "../model/index.js";

/** Options of {@link loraOf}. */
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
  lora_A: Tensor;
  lora_B: Tensor;
}

/** Adapters by the name of their layer. */
export type Adapters = Record<string, Adapter>;

/** LoRA for one model. */
export interface Lora {
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
  /** Writes `adapter_model.safetensors` and `adapter_config.json` in the layout of PEFT. */
  save(folder: string, adapters: Adapters): Promise<void>;
  /** Reads adapters. */
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

/** GPT-2 stores the weights of its layers as [in, out], but not those of its heads. */
const isTransposed = (model: Model, layer: string): boolean => model.type === "gpt2" && layer.includes(".h.");

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

/** Options of PEFT that change what adapters compute, and their values without effect. */
const peftOptions: Readonly<Record<string, readonly unknown[]>> = {
  use_rslora: [false],
  use_dora: [false],
  use_qalora: [false],
  rank_pattern: [],
  alpha_pattern: [],
  lora_bias: [false],
  bias: ["none"],
  modules_to_save: [],
  layers_to_transform: [],
  trainable_token_indices: [],
  target_parameters: [],
};

/** Throws if a file of adapters says more than rank, alpha and layers. */
function checkPeft(folder: string, config: JsonObject): void {
  if (config["peft_type"] !== undefined && config["peft_type"] !== "LORA")
    throw new ModelError(`${folder}: has adapters of the kind ${String(config["peft_type"])}; LORA is supported`);
  for (const [name, neutral] of Object.entries(peftOptions)) {
    const value = config[name];
    const isEmpty =
      value === undefined || value === null || (typeof value === "object" && Object.keys(value).length === 0);
    if (!isEmpty && !neutral.includes(value))
      throw new ModelError(`${folder}: ${name} is ${JSON.stringify(value).slice(0, 80)}, which is not supported`);
  }
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

/** Name of a part of an adapter in files. */
const nameOf = (layer: string, part: string): string => `base_model.model.${layer}.${part}.weight`;

/** Defines LoRA for a model. */
export function loraOf(model: Model, given: LoraOptions): Lora {
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
        const { lora_A, lora_B } = adapters[name];
        const { dtype } = layer.weight;
        const wide = dtype === "float64" ? "float64" : "float32";
        const update = lora_B
          .cast(wide)
          .matmul(lora_A.cast(wide))
          .mul(sign * scale);
        const oriented = isTransposed(model, name) ? update.transpose() : update;
        return { ...layer, weight: layer.weight.cast(wide).add(oriented).cast(dtype).realize() };
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
    async save(folder, adapters) {
      await mkdir(folder, { recursive: true });
      const named = Object.fromEntries(
        Object.entries(adapters).flatMap(([layer, adapter]) =>
          (["lora_A", "lora_B"] as const).map((part) => [nameOf(layer, part), adapter[part]]),
        ),
      );
      await io.save(join(folder, "adapter_model.safetensors"), named);
      const config = {
        peft_type: "LORA",
        r: rank,
        lora_alpha: alpha,
        lora_dropout: dropout,
        target_modules: [...new Set(layers.map((name) => name.split(".").at(-1)))],
        fan_in_fan_out: layers.every((name) => isTransposed(model, name)),
        bias: "none",
        base_model_name_or_path: null,
      };
      await writeFile(join(folder, "adapter_config.json"), `${JSON.stringify(config, null, 2)}\n`);
    },
    async load(folder) {
      const config = await readJson(folder, "adapter_config.json");
      if (config === null) throw new ModelError(`${folder}: has no adapter_config.json`);
      if (config["r"] !== rank || config["lora_alpha"] !== alpha)
        throw new ModelError(
          `${folder}: has rank ${String(config["r"])} and alpha ${String(config["lora_alpha"])}, expected ${rank} and ${alpha}`,
        );
      checkPeft(folder, config);
      const path = await fileOf(folder, "adapter_model.safetensors");
      if (path === null) throw new ModelError(`${folder}: has no adapter_model.safetensors`);
      const file = await io.openSafetensors(path);
      try {
        const read = async (layer: string, part: string, shape: number[]): Promise<Tensor> => {
          const name = nameOf(layer, part);
          const found = file.info(name).shape;
          if (found.join() !== shape.join())
            throw new ModelError(`${path}: ${name} has shape [${found.join(", ")}], expected [${shape.join(", ")}]`);
          const host = await file.read(name);
          return fromStorage(host.shape, host.dtype, host.data);
        };
        const expected = new Set(layers.flatMap((layer) => ["lora_A", "lora_B"].map((part) => nameOf(layer, part))));
        const other = file.names.find((name) => !expected.has(name));
        if (other !== undefined)
          throw new ModelError(
            `${path}: has ${other}, which is not an adapter of the layers ${layers.join(", ")}; set targets`,
          );
        const adapters: Adapters = {};
        for (const layer of layers) {
          const { inputs, out } = sizes(layer);
          adapters[layer] = {
            lora_A: await read(layer, "lora_A", [rank, inputs]),
            lora_B: await read(layer, "lora_B", [out, rank]),
          };
        }
        return adapters;
      } finally {
        await file.close();
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
