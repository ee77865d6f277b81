// The module that `weft train` loads for configurations with `model: { from: DIR }`.
import type { Key, Tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import { type FineTuning, type FineTuningOptions, fineTuning, type Trained, type TuningBatch } from "./fine-tuning.js";

let current: FineTuning | null = null;

function prepared(): FineTuning {
  if (current === null) throw new ModelError("fine-tuning: data(options) must be called first");
  return current;
}

/** Keys of the options, which YAML files write with underscores. */
const keys: readonly (keyof FineTuningOptions)[] = [
  "from",
  "task",
  "data",
  "validation",
  "labels",
  "maxLength",
  "compute",
  "lora",
  "freeze",
  "checkpoint",
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
  for (const name of ["from", "data"])
    if (typeof made[name] !== "string") throw new ModelError(`model: ${name} is missing; it is a path`);
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
