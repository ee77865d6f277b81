// Exports the parameters of a run's newest checkpoint as one folder in the layout of Hugging Face: model.safetensors, or
// several files with an index if it is large, and config.json. Sharded checkpoints are read tensor by tensor.
import { existsSync, mkdirSync, mkdtempSync, readdirSync, renameSync, rmSync, writeFileSync } from "node:fs";
import { basename, dirname, join, resolve } from "node:path";
import { fileURLToPath } from "node:url";
import { bytesOf, checkOptions, numel } from "@weft/core/internal/graph";
import { fromStorage, type Tensor } from "@weft/core/internal/tensor";
import { type ArraySource, writeSafetensors } from "@weft/core/io";
import { findResult, hasState, type Progress, stateFile } from "./checkpoint.js";
import type { ModuleConfig, RunConfig } from "./config.js";
import { TrainError } from "./errors.js";
import { SectionReader } from "./shards.js";

/** Result of `exportRun`. */
export interface ExportedRun {
  /** Where they are. */
  folder: string;
  /** Optimizer steps of the checkpoint. */
  step: number;
  /** Names of the written files. */
  files: string[];
  /** Number of tensors. */
  tensors: number;
}

/** Names of tensors in files of at most `limit` bytes each; a larger tensor has a file of its own. */
function filesOf(sizes: ReadonlyMap<string, number>, limit: number): string[][] {
  const files: string[][] = [[]];
  let bytes = 0;
  for (const [name, size] of sizes) {
    if (bytes > 0 && bytes + size > limit) {
      files.push([]);
      bytes = 0;
    }
    files[files.length - 1].push(name);
    bytes += size;
  }
  return files;
}

/** Writes the tensors as they are, with a description of the run's model. */
async function writePlain(
  { config, classes }: Pick<Progress, "config" | "classes">,
  reader: SectionReader,
  temporary: string,
  maxBytes: number,
): Promise<string[]> {
  const sizes = new Map(
    reader.names.map((name) => {
      const { shape, dtype } = reader.info(name);
      return [name, numel(shape) * bytesOf(dtype)];
    }),
  );
  const lists = filesOf(sizes, maxBytes);
  const files: string[] = [];
  const places: Record<string, string> = {};
  for (const [i, names] of lists.entries()) {
    const number = (n: number): string => String(n).padStart(5, "0");
    const file =
      lists.length === 1 ? "model.safetensors" : `model-${number(i + 1)}-of-${number(lists.length)}.safetensors`;
    const arrays: [string, ArraySource][] = names.map((name) => [
      name,
      { ...reader.info(name), load: () => reader.read(name) },
    ]);
    await writeSafetensors(join(temporary, file), Object.fromEntries(arrays), { format: "pt" });
    files.push(file);
    for (const name of names) places[name] = file;
  }
  if (lists.length > 1) {
    const total = [...sizes.values()].reduce((n, size) => n + size, 0);
    const index = { metadata: { total_size: total }, weight_map: places };
    writeFileSync(join(temporary, "model.safetensors.index.json"), `${JSON.stringify(index, null, 2)}\n`);
  }
  const described = {
    model_type: "weft",
    weft: config.model,
    ...(classes.length > 0 && { id2label: Object.fromEntries(classes.map((name, i) => [i, name])) }),
  };
  writeFileSync(join(temporary, "config.json"), `${JSON.stringify(described, null, 2)}\n`);
  return files;
}

const fineTuningModule = "@weft/models/fine-tune";

/** Whether a run fine-tunes a pretrained model. Other modules that a run names are not loaded: its folder may be anybody's. */
const isFineTuning = (config: RunConfig): config is ModuleConfig =>
  typeof config.model === "string" &&
  [fileURLToPath(import.meta.resolve(fineTuningModule)), "models/dist/tune/module.js"].some((own) =>
    String(config.model).endsWith(own),
  );

/** The functions of the module of fine-tunings that read the tensors of a run. */
const fineTuned = async () => (await import(fineTuningModule)) as typeof import("@weft/models/fine-tune");

/** The trained tensors of a run by name. */
async function trainedTensors(reader: SectionReader): Promise<Record<string, Tensor>> {
  const tensors: Record<string, Tensor> = {};
  for (const name of reader.names) {
    const { shape, dtype, data } = await reader.read(name);
    tensors[name] = fromStorage(shape, dtype, data);
  }
  return tensors;
}

/** The model of a run that fine-tuned one, with its tokenizer; null for other runs. */
export async function openFineTuned(
  run: string,
): Promise<Awaited<ReturnType<typeof import("@weft/models/fine-tune").open>> | null> {
  const found = findResult(run);
  if (found === null || !isFineTuning(found.progress.config)) return null;
  const { config, classes } = found.progress;
  const reader = await SectionReader.open(found.folder, "model");
  try {
    return await (await fineTuned()).open((config as ModuleConfig).options, await trainedTensors(reader), classes);
  } finally {
    await reader.close();
  }
}

/** Writes the whole model of a fine-tuning, with its own configuration and tokenizer; adapters are merged. */
async function writeFineTuned(
  config: ModuleConfig,
  reader: SectionReader,
  classes: readonly string[],
  temporary: string,
  asAdapter: boolean,
): Promise<string[]> {
  await (await fineTuned()).save(config.options, await trainedTensors(reader), classes, temporary, asAdapter);
  return readdirSync(temporary).filter((name) => name.endsWith(".safetensors"));
}

/**
 * Writes the parameters of a run as a folder that `transformers` and `weft` read.
 *
 * @param run - Folder of a run that `weft train` has written.
 * @param target - Folder to create; it must not exist, or be empty.
 * @param maxBytes - Largest size of one file.
 * @param options - `adapter`: writes the LoRA adapters of a fine-tuning as a folder that `peft` loads, instead of the whole model.
 */
export async function exportRun(
  run: string,
  target: string,
  maxBytes = 5e9,
  options: { adapter?: boolean } = {},
): Promise<ExportedRun> {
  const { adapter = false } = checkOptions("exportRun", options, ["adapter"]);
  const found = findResult(run);
  if (found === null) throw new TrainError(`${run} holds no checkpoint; give the folder of a run of weft train`);
  const folder = resolve(target);
  if (existsSync(folder) && readdirSync(folder).length > 0)
    throw new TrainError(`${target} is not empty; name a folder that does not exist yet`);
  const reader = await SectionReader.open(found.folder, "model");
  const state = hasState(found.folder) ? await SectionReader.open(found.folder, "state") : null;
  mkdirSync(dirname(folder), { recursive: true });
  const temporary = mkdtempSync(join(dirname(folder), `.${basename(folder)}-`));
  try {
    const { config, classes } = found.progress;
    if (adapter && !isFineTuning(config)) throw new TrainError(`${run} did not train LoRA adapters`);
    const files = isFineTuning(config)
      ? await writeFineTuned(config, reader, classes, temporary, adapter)
      : await writePlain({ config, classes }, reader, temporary, maxBytes);
    if (state !== null) {
      const arrays = state.names.map((name) => [name, { ...state.info(name), load: () => state.read(name) }]);
      await writeSafetensors(join(temporary, stateFile), Object.fromEntries(arrays) as Record<string, ArraySource>);
      files.push(stateFile);
    }
    rmSync(folder, { recursive: true, force: true });
    renameSync(temporary, folder);
    return { folder, step: found.progress.step, files, tensors: reader.names.length };
  } catch (error) {
    rmSync(temporary, { recursive: true, force: true });
    throw error;
  } finally {
    await reader.close();
    await state?.close();
  }
}
