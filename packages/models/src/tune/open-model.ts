// The model and tokenizer that a fine-tuning starts from: a folder, or a new model with a tokenizer of its own texts.
import { createHash, randomBytes } from "node:crypto";
import { existsSync, mkdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { jit, key } from "@weft/core";
import { cacheRoot, makeFolder } from "@weft/core/internal/device";
import type { ModelTask } from "../architectures/index.js";
import { loadPretrained, type PretrainedModel } from "../checkpoint/index.js";
import { type JsonObject, ModelError } from "../config/index.js";
import { defineModel, type ProblemType } from "../model/index.js";
import { loadTokenizer, type TextTokenizer, trainTokenizer } from "../text/index.js";

interface Source {
  from?: string;
  adapter?: string;
  config?: JsonObject;
  task: ModelTask;
  problem?: ProblemType;
  seed?: number;
}

/** Folder with a tokenizer of these texts, made once. */
function tokenizerFolder(texts: readonly string[], size: number): string {
  const hash = createHash("sha256").update(`pieces ${size}`);
  for (const text of texts) hash.update(`${text.length}|`).update(text);
  const folder = join(cacheRoot(), "tokenizers", hash.digest("hex").slice(0, 32));
  if (existsSync(join(folder, "tokenizer.json"))) return folder;
  const { tokenizer, settings } = trainTokenizer(texts, size);
  const temporary = `${folder}-${randomBytes(6).toString("hex")}`;
  makeFolder(join(folder, ".."));
  mkdirSync(temporary);
  writeFileSync(join(temporary, "tokenizer.json"), JSON.stringify(tokenizer));
  writeFileSync(join(temporary, "tokenizer_config.json"), JSON.stringify(settings));
  try {
    renameSync(temporary, folder);
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    // Another process made the same one.
    if (!existsSync(join(folder, "tokenizer.json"))) throw error;
  }
  return folder;
}

/** Opens the model of a folder, or makes a new one; `texts` are those that a new tokenizer is made from. */
export async function openModel(
  { from, adapter, config, task, problem, seed = 0 }: Source,
  classes: readonly string[] | null,
  texts: () => readonly string[],
): Promise<{ pretrained: PretrainedModel; tokenizer: TextTokenizer }> {
  const labels = { ...(classes !== null && { labels: classes }), ...(problem !== undefined && { problem }) };
  if (from !== undefined) {
    const pretrained = await loadPretrained(from, { task, seed, ...labels, ...(adapter !== undefined && { adapter }) });
    return { pretrained, tokenizer: await loadTokenizer(from, pretrained.config.vocabulary) };
  }
  if (config === undefined)
    throw new ModelError("fineTuning: give from, the folder of a model, or config, that of a new one");
  const model = defineModel(config, { task, ...labels });
  const folder = tokenizerFolder(texts(), model.config.vocabulary);
  const params = jit((from: ReturnType<typeof key>) => model.init(from))(key(seed));
  return {
    pretrained: { ...model, params, folder, initialized: Object.keys(model.parameters), unused: [] },
    tokenizer: await loadTokenizer(folder, model.config.vocabulary),
  };
}
