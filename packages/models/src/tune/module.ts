// The module that `weft train` loads for configurations with `model: { from: DIR }`.
import type { Key, Tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import type { TuningBatch } from "./encode-rows.js";
import { type FineTuning, type FineTuningOptions, fineTuning, type Trained } from "./fine-tuning.js";
import { openTuned, saveTuned } from "./saved.js";

let current: FineTuning | null = null;

function prepared(): FineTuning {
  if (current === null) throw new ModelError("fine-tuning: data(options) must be called first");
  return current;
}

/** Keys of the options, which YAML files write with underscores. */
const keys: readonly (keyof FineTuningOptions)[] = [
  "from",
  "adapter",
  "config",
  "task",
  "data",
  "text",
  "pair",
  "label",
  "problemType",
  "validation",
  "test",
  "packed",
  "maskShare",
  "labels",
  "maxLength",
  "compute",
  "lora",
  "freeze",
  "checkpoint",
  "byHead",
  "seed",
];

function checked(options: Record<string, unknown>): FineTuningOptions {
  const named = Object.entries(options).map(([name, value]) => [
    name.replace(/_([a-z])/g, (_, letter: string) => letter.toUpperCase()),
    value,
  ]);
  const unknown = named.find(([name]) => !keys.includes(name as keyof FineTuningOptions));
  if (unknown !== undefined)
    throw new ModelError(`model: ${String(unknown[0])} is not known; the keys are ${keys.join(", ")}`);
  const made = Object.fromEntries(named) as Record<string, unknown>;
  const { data: rows } = made;
  if (typeof rows !== "string" && !(Array.isArray(rows) && rows.every((path) => typeof path === "string")))
    throw new ModelError("model: data is missing; it is a path, or a list of paths");
  if ((typeof made["from"] === "string") === (made["config"] !== undefined))
    throw new ModelError("model: give from, the folder of a model, or config, that of a new one");
  return made as unknown as FineTuningOptions;
}

/** Loads model and data. */
export async function data(options: Record<string, unknown>): Promise<FineTuning["data"]> {
  current = await fineTuning(checked(options));
  return current.data;
}

/** Draws what is trained. */
export const init = (key: Key): Trained => prepared().model.init(key);

/** The loss of a batch. */
export const loss = (trained: Trained, batch: TuningBatch, options: { key: Key; train: boolean }): Tensor =>
  prepared().loss(trained, batch, options);

/** Number of labels of a batch that the loss is a mean over. */
export const weight = (batch: TuningBatch, options: { key: Key; train: boolean }): Tensor =>
  prepared().weight(batch, options);

/** Counts by class: right predictions, predictions, labels. */
export const correct = (trained: Trained, batch: TuningBatch): Tensor => prepared().correct(trained, batch);

/** Predictions and labels of rows, where scores need those of all rows. */
export const scored = (): FineTuning["scored"] => prepared().scored;

/** Names of the classes; none for language models. */
export const classes = (): readonly string[] => prepared().classes;

/**
 * Writes the model of a finished run as a folder that `loadPretrained` and `transformers` load.
 *
 * @param tensors - The trained tensors of a checkpoint, by name.
 * @param names - Names of the classes of the run.
 */
export async function save(
  options: Record<string, unknown>,
  tensors: Record<string, Tensor>,
  names: readonly string[],
  folder: string,
  asAdapter = false,
): Promise<void> {
  await saveTuned(checked(options), tensors, names, folder, asAdapter);
}

/** The model of a finished run, with merged adapters, and its tokenizer. */
export const open = (
  options: Record<string, unknown>,
  tensors: Record<string, Tensor>,
  names: readonly string[],
): ReturnType<typeof openTuned> => openTuned(checked(options), tensors, names);
