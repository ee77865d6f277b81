// Configurations of pretrained models: `model: { from: DIR }` fine-tunes one, `model: { config: {...} }` trains a new one. Both
// become the module of @weft/models, with the keys of `model`, `data` and `lora` as its options.
import { existsSync, readFileSync, statSync } from "node:fs";
import { isAbsolute, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { WeftError } from "@weft/core/internal/graph";
import { dataHome, datasetNames, ownFormats } from "../data/index.js";

/** Options that are paths, relative to the configuration. */
const paths = ["from", "adapter", "data", "validation", "test"];

/** The file of a split, in a folder of its data set or of several. */
function splitFile(dataset: string, split: string, folder: string | undefined): string {
  const places = folder === undefined ? [join(dataHome(), dataset)] : [join(folder, dataset), folder];
  const files = places.flatMap((place) =>
    [".csv", ".jsonl", ".parquet"].flatMap((ending) =>
      ["", ".gz"].map((packed) => join(place, `${split}${ending}${packed}`)),
    ),
  );
  // A configuration is valid before its data is there; the error comes when it is read.
  return files.find((file) => existsSync(file)) ?? files[0];
}

/** A file of texts, or the splits of a folder: train.csv, validation.csv and test.csv, also in the other formats. */
function splitsIn(path: string, isClassifier: boolean): Record<string, unknown> {
  if (!existsSync(path) || !statSync(path).isDirectory()) return { data: path };
  const find = (split: string): string | undefined =>
    [".csv", ".tsv", ".jsonl", ".parquet"]
      .flatMap((ending) => ["", ".gz"].map((packed) => join(path, `${split}${ending}${packed}`)))
      .find((file) => existsSync(file));
  const [train, validation, test] = ["train", "validation", "test"].map(find);
  if (train === undefined)
    throw new WeftError(`data: ${path} is a folder without a training split (train.csv, .tsv, .jsonl or .parquet)`);
  return {
    data: train,
    ...(validation !== undefined && { validation }),
    ...(test !== undefined && isClassifier && { test }),
  };
}

/** The rows that `data` names: a file, files by key, or data sets by name. */
function rowsOf(
  data: unknown,
  isClassifier: boolean,
  base: string,
  given: string | undefined,
): Record<string, unknown> {
  if (typeof data === "string") return splitsIn(resolve(base, data), isClassifier);
  if (typeof data !== "object" || data === null || Array.isArray(data)) return data === undefined ? {} : { data };
  const { dataset, path, ...rest } = data as Record<string, unknown>;
  // Own data, as configurations of text classifiers name it.
  if (typeof path === "string" && (dataset === undefined || (ownFormats as readonly unknown[]).includes(dataset)))
    return { ...splitsIn(resolve(base, path), isClassifier), ...rest };
  if (dataset === undefined) return { ...data };
  const names = Array.isArray(dataset) ? dataset : [dataset];
  const unknown = names.find((name) => !(datasetNames as readonly unknown[]).includes(name) || name === "synthetic");
  if (unknown !== undefined)
    throw new WeftError(
      `data.dataset: ${JSON.stringify(unknown)} is not known; write ag_news, imdb, or files as data: texts.csv`,
    );
  const folder = given !== undefined ? resolve(given) : typeof path === "string" ? resolve(base, path) : undefined;
  const files = names.map((name) => splitFile(String(name), "train", folder));
  // Language models have no accuracy to be tested.
  const test = isClassifier && names.length === 1 ? { test: splitFile(String(names[0]), "test", folder) } : {};
  return { data: files.length === 1 ? files[0] : files, ...test, ...rest };
}

/** Whether a configuration is that of a pretrained model, or of a new one of the same kinds. */
export const isPretrained = (raw: unknown): boolean => {
  const model = (raw as { model?: unknown } | null)?.model;
  return typeof model === "object" && model !== null && ("from" in model || "config" in model);
};

/** Whether the model is a GPT-2, whose attention projections have a layout that devices cannot divide. */
function isFused({ from, config }: Record<string, unknown>, base: string): boolean {
  try {
    const read = config ?? JSON.parse(readFileSync(join(resolve(base, from as string), "config.json"), "utf8"));
    return (read as { model_type?: unknown }).model_type === "gpt2";
  } catch {
    // The error comes when the model is loaded.
    return false;
  }
}

/**
 * The configuration of the module that trains the model.
 *
 * @param base - Folder that paths are relative to.
 * @param folder - Folder of data sets that are given by name.
 * @param memory - Limit of memory on the command line.
 */
export function asModule(raw: unknown, base: string, folder?: string, memory?: unknown): unknown {
  const { model, data, lora, ...rest } = raw as {
    model: Record<string, unknown>;
    data?: unknown;
    lora?: unknown;
    distributed?: { memory?: unknown } | null;
  };
  // Only a plan for a limit of memory divides layers. Without one, the layout of the files is 2% faster.
  const isLimited = (memory ?? rest.distributed?.memory) !== undefined;
  const byHead = lora === undefined && isLimited && isFused(model, base);
  const isClassifier = (model["task"] ?? "classification") === "classification";
  const options: Record<string, unknown> = {
    ...(byHead && { by_head: true }),
    ...model,
    ...rowsOf(data, isClassifier, base, folder),
    ...(lora !== undefined && { lora }),
  };
  for (const name of paths) {
    const path = options[name];
    if (typeof path === "string" && !isAbsolute(path)) options[name] = join(base, path);
    else if (Array.isArray(path)) options[name] = path.map((one) => resolve(base, String(one)));
  }
  return { ...rest, model: fileURLToPath(import.meta.resolve("@weft/models/fine-tune")), options };
}
