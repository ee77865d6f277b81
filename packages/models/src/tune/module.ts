// The module that `weft train` loads for configurations with `model: { from: DIR }`.
import type { Key, Tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import { type FineTuning, type FineTuningOptions, fineTuning, type Trained, type TuningBatch } from "./fine-tuning.js";

let current: FineTuning | null = null;

function prepared(): FineTuning {
  if (current === null) throw new ModelError("fine-tuning: data(options) must be called first");
  return current;
}

/** Loads model and data. */
export async function data(options: FineTuningOptions): Promise<FineTuning["data"]> {
  current = await fineTuning(options);
  return current.data;
}

/** Draws what is trained. */
export const init = (key: Key): Trained => prepared().model.init(key);

/** The loss of a batch. */
export const loss = (trained: Trained, batch: TuningBatch, options: { key: Key; train: boolean }): Tensor =>
  prepared().loss(trained, batch, options);
