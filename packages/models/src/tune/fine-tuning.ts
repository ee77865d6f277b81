// Fine-tuning of a pretrained model on a file of texts: what `train` of @weft/train needs (model, loss, data), made from a folder
// and a few options.
import { type Key, type Tensor, tensor } from "@weft/core";
import { loadStateDict } from "@weft/core/nn";
import type { Batch, Params, Task } from "../architectures/index.js";
import { loadPretrained, type PretrainedModel } from "../checkpoint/index.js";
import { ModelError } from "../config/index.js";
import { ignoredLabel } from "../model/index.js";
import { loadTokenizer, padRows, type TextTokenizer } from "../text/index.js";
import { maskTokens } from "./examples.js";
import { type Adapters, type Lora, type LoraOptions, loraOf, splitParams } from "./lora.js";
import { type LabeledText, readTexts } from "./rows.js";

/** Options of {@link fineTuning}. */
export interface FineTuningOptions {
  /** Folder of the pretrained model. */
  from: string;
  /** `classification` (default), `causal-lm` or `masked-lm`. */
  task?: Task;
  /** Texts with labels: a `.csv` or `.jsonl` file. */
  data: string;
  /** Texts for the evaluation after each epoch. */
  validation?: string;
  /** Names of the classes in the order of their ids; those of the data, sorted, by default. */
  labels?: readonly string[];
  /** Tokens per text; 128 by default. */
  maxLength?: number;
  /** Dtype of activations and products, with parameters in float32: `bfloat16` on GPUs. */
  compute?: "float32" | "bfloat16" | "float16";
  /** Trains low-rank updates and a new head instead of all parameters. */
  lora?: LoraOptions;
  /** Starts of names of parameters that are not trained, such as `bert.embeddings`. */
  freeze?: readonly string[];
  /** Rematerializes every layer in the reverse pass. */
  checkpoint?: boolean;
  /** Seed of a new head. */
  seed?: number;
}

/** The trained parameters: those of the model that are not frozen, and adapters. */
export interface Trained {
  params?: Record<string, Tensor>;
  adapters?: Adapters;
}

/** A fine-tuning task for `train` of @weft/train. */
export interface FineTuning {
  readonly pretrained: PretrainedModel;
  readonly tokenizer: TextTokenizer;
  /** Draws what is trained. */
  model: { init(key: Key): Trained };
  loss(trained: Trained, batch: TuningBatch, options: { key: Key; train: boolean }): Tensor;
  data: { train: TuningBatch; validation?: TuningBatch };
  /** All parameters of the model after training: adapters are merged. */
  finish(trained: Trained): Params;
  /** Scores of a batch with the trained parameters. */
  logits(trained: Trained, batch: Omit<TuningBatch, "labels">): Tensor;
  /** The trained parameters from the tensors of a checkpoint, by name. */
  restore(tensors: Record<string, Tensor>, key: Key): Trained;
}

/** Texts as tensors with one row per text. */
export interface TuningBatch {
  inputIds: Tensor;
  attentionMask: Tensor;
  labels: Tensor;
}

function classNames(rows: readonly LabeledText[], given: readonly string[] | undefined, path: string): string[] {
  const names = [...new Set(rows.map(({ label }) => label ?? ""))].sort((a, b) =>
    a.localeCompare(b, "en", { numeric: true }),
  );
  if (names.includes("")) throw new ModelError(`${path}: a text has no label`);
  if (given === undefined) return names;
  const missing = names.find((name) => !given.includes(name));
  if (missing !== undefined)
    throw new ModelError(`${path}: the label ${missing} is not one of labels: ${given.join(", ")}`);
  return [...given];
}

function encodeRows(
  rows: readonly LabeledText[],
  tokenizer: TextTokenizer,
  length: number,
  labels: readonly string[] | null,
): TuningBatch {
  const encoded = rows.map(({ text }) => tokenizer.encode(text, { maxLength: length }).ids);
  const shape = [rows.length, length];
  const ids = padRows(encoded, length, tokenizer.special.pad ?? 0);
  const mask = padRows(
    encoded.map((row) => row.map(() => 1)),
    length,
    0,
  );
  const known = labels === null ? null : new Map(labels.map((name, i) => [name, i]));
  return {
    inputIds: tensor(ids, { shape }),
    attentionMask: tensor(mask, { shape }),
    labels:
      known === null
        ? tensor(padRows(encoded, length, ignoredLabel), { shape })
        : tensor(Int32Array.from(rows, ({ label }) => known.get(label as string) as number)),
  };
}

/** Whether a parameter belongs to a new head, which LoRA trains as a whole. */
const isNew = (pretrained: PretrainedModel, name: string): boolean => pretrained.initialized.includes(name);

/**
 * Prepares the fine-tuning of a pretrained model on a file of texts.
 *
 * The result has the fields `model`, `loss` and `data` that `train` of `@weft/train` takes.
 */
export async function fineTuning(options: FineTuningOptions): Promise<FineTuning> {
  const { from, task = "classification", data, validation, maxLength = 128, compute, lora, freeze = [] } = options;
  if (task !== "classification" && task !== "causal-lm" && task !== "masked-lm")
    throw new ModelError(`fineTuning: task is classification, causal-lm or masked-lm, got ${task}`);
  const rows = await readTexts(data);
  const others = validation === undefined ? null : await readTexts(validation);
  const classes = task === "classification" ? classNames([...rows, ...(others ?? [])], options.labels, data) : null;
  const pretrained = await loadPretrained(from, {
    task,
    seed: options.seed ?? 0,
    ...(classes !== null && { labels: classes }),
  });
  const tokenizer = await loadTokenizer(from, pretrained.config.vocabulary);
  const { mask } = tokenizer.special;
  if (task === "masked-lm" && mask === null) throw new ModelError(`${from}: its tokenizer has no mask token`);
  const length = Math.min(maxLength, pretrained.config.maxPositions);
  const updates: Lora | null = lora === undefined ? null : loraOf(pretrained, lora);
  const isFrozen = (name: string): boolean => freeze.some((start) => name.startsWith(start));
  const isTrained = (name: string): boolean => !isFrozen(name) && (updates === null || isNew(pretrained, name));
  const hasOwn = Object.keys(pretrained.parameters).some(isTrained);
  const split = hasOwn ? splitParams(pretrained.params, isTrained) : null;

  const joined = (trained: Trained, key: Key | null): Params => {
    const whole = split === null ? pretrained.params : split.join(trained.params ?? {});
    return updates === null ? whole : updates.combine(whole, trained.adapters as Adapters, { key });
  };
  const how = {
    ...(compute !== undefined && compute !== "float32" && { dtype: compute }),
    ...(options.checkpoint === true && { checkpoint: "all" as const }),
  };
  const init = (key: Key): Trained => ({
    ...(split !== null && { params: split.trained }),
    ...(updates !== null && { adapters: updates.init(key) }),
  });
  return {
    pretrained,
    tokenizer,
    model: { init },
    loss(trained, batch, { key, train }) {
      const inputs: Batch =
        task === "masked-lm"
          ? {
              ...batch,
              ...maskTokens(batch.inputIds, batch.attentionMask, key, {
                maskToken: mask as number,
                vocabulary: pretrained.config.vocabulary,
                specialIds: tokenizer.specialIds,
              }),
            }
          : { ...batch };
      return pretrained.loss(joined(trained, train ? key : null), inputs, { ...how, train, key: train ? key : null });
    },
    data: {
      train: encodeRows(rows, tokenizer, length, classes),
      ...(others !== null && { validation: encodeRows(others, tokenizer, length, classes) }),
    },
    finish(trained) {
      const whole = split === null ? pretrained.params : split.join(trained.params ?? {});
      return updates === null ? whole : updates.merge(whole, trained.adapters as Adapters);
    },
    logits: (trained, batch) => pretrained.apply(joined(trained, null), batch, how).logits as Tensor,
    restore: (tensors, key) => loadStateDict(init(key), tensors),
  };
}
