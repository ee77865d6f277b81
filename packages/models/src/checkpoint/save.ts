// Saving in the layout that transformers reads: config.json, and safetensors in one file or in shards with an index.

import { copyFile, mkdir, readdir, rename, rm, writeFile } from "node:fs/promises";
import { join } from "node:path";
import { io, type Tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { stateDict } from "@weft/core/nn";
import { type Params, sizeOf } from "../architectures/index.js";
import { fileOf, ModelError } from "../config/index.js";
import type { Model } from "../model/index.js";
import { indexName, singleFile } from "./shards.js";

/** Options of {@link savePretrained}. @inline */
interface SaveModelOptions {
  /** Largest shard in bytes; 5 GB by default. */
  maxShardBytes?: number;
  /** Folder whose tokenizer files are copied; that of a loaded model by default. */
  tokenizerFrom?: string;
}

/** Files of a tokenizer, copied as they are. */
const tokenizerFiles = [
  "tokenizer.json",
  "tokenizer_config.json",
  "special_tokens_map.json",
  "added_tokens.json",
  "tokenizer.model",
  "vocab.txt",
  "vocab.json",
  "merges.txt",
  "chat_template.jinja",
  "generation_config.json",
  "preprocessor_config.json",
];

const elementBytes: Record<string, number> = { float64: 8, float32: 4, bfloat16: 2, float16: 2 };

/** A tensor whose value is read only when it is written. */
export const lazily = (t: Tensor): io.LazyArray => ({
  shape: t.shape,
  dtype: t.dtype,
  load: async () => ({ shape: t.shape, dtype: t.dtype, data: t.rawSync() }),
});

/** Tensors by the names of the checkpoint; those of a backbone without a head have no prefix. */
function namesForFile(model: Model, params: Params): [string, Tensor][] {
  const named = stateDict(params);
  return Object.entries(model.parameters).map(([name, spec]) => {
    const tensor = named[name];
    if (tensor === undefined) throw new ModelError(`savePretrained: the parameters lack ${name}`);
    if (tensor.shape.join() !== spec.shape.join())
      throw new ModelError(
        `savePretrained: ${name} has shape [${tensor.shape.join(", ")}], the model has [${spec.shape.join(", ")}]`,
      );
    const { prefix } = model.architecture;
    const short = model.task === "base" && name.startsWith(`${prefix}.`) ? name.slice(prefix.length + 1) : name;
    return [short, tensor];
  });
}

/** Writes a small file by a rename, so that it is never half written. */
async function writeText(path: string, text: string): Promise<void> {
  await writeFile(`${path}.new`, text);
  await rename(`${path}.new`, path);
}

/** Divides the tensors into shards of at most `most` bytes (a larger tensor is a shard of its own). */
function shardsOf(tensors: readonly [string, Tensor][], most: number): [string, Tensor][][] {
  const shards: [string, Tensor][][] = [];
  let room = 0;
  for (const entry of tensors) {
    const bytes = sizeOf({ shape: entry[1].shape, init: "zeros" }) * elementBytes[entry[1].dtype];
    if (shards.length === 0 || bytes > room) {
      shards.push([]);
      room = most;
    }
    shards[shards.length - 1].push(entry);
    room -= bytes;
  }
  return shards;
}

/**
 * Saves a model as a folder that `transformers` loads.
 *
 * @param folder - Created if it does not exist; a model that it holds is replaced.
 */
export async function savePretrained(
  folder: string,
  model: Model & { folder?: string },
  params: Params,
  options: SaveModelOptions = {},
): Promise<void> {
  const known = ["maxShardBytes", "tokenizerFrom"] as const;
  const { maxShardBytes = 5e9, tokenizerFrom = model.folder } = checkOptions("savePretrained", options, known);
  if (!(maxShardBytes > 0))
    throw new ModelError(`savePretrained: maxShardBytes must be positive, got ${maxShardBytes}`);
  const tensors = namesForFile(model, params);
  await mkdir(folder, { recursive: true });
  const shards = shardsOf(tensors, maxShardBytes);
  const digits = (n: number): string => String(n).padStart(5, "0");
  const fileNames = shards.map((_, i) =>
    shards.length === 1 ? singleFile : `model-${digits(i + 1)}-of-${digits(shards.length)}.safetensors`,
  );
  for (const [i, shard] of shards.entries()) {
    const lazy = Object.fromEntries(shard.map(([name, tensor]) => [name, lazily(tensor)]));
    await io.writeSafetensors(join(folder, fileNames[i]), lazy, { format: "pt" });
  }
  const keep = new Set(fileNames);
  if (shards.length > 1) {
    const weight_map = Object.fromEntries(shards.flatMap((shard, i) => shard.map(([name]) => [name, fileNames[i]])));
    const total_size = tensors.reduce((n, [, t]) => n + t.size * elementBytes[t.dtype], 0);
    await writeText(join(folder, indexName), `${JSON.stringify({ metadata: { total_size }, weight_map }, null, 2)}\n`);
    keep.add(indexName);
  }
  // The older name of the same key, which would contradict it.
  const { torch_dtype: _, ...described } = model.json;
  const json = { ...described, dtype: tensors[0]?.[1].dtype ?? "float32" };
  await writeText(join(folder, "config.json"), `${JSON.stringify(json, null, 2)}\n`);
  // Files of an earlier model in the same folder, which would be read instead.
  for (const name of await readdir(folder))
    if (/^model.*\.safetensors$/.test(name) || name === indexName) if (!keep.has(name)) await rm(join(folder, name));
  if (tokenizerFrom === undefined || tokenizerFrom === folder) return;
  for (const name of tokenizerFiles) {
    const path = await fileOf(tokenizerFrom, name);
    if (path !== null) await copyFile(path, join(folder, name));
  }
}
