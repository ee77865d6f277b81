// Fine-tuning of a pretrained model on a file of texts: what `train` of @weft/train needs (model, loss, data), made from a folder
// and a few options.
import { type Key, stack, type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { classCounts, loadStateDict } from "@weft/core/nn";
import type { Batch, ModelTask, Params } from "../architectures/index.js";
import type { PretrainedModel } from "../checkpoint/index.js";
import { type JsonObject, ModelError, readJson } from "../config/index.js";
import { ignoredLabel, nextLabels, type ProblemType, problemTypes } from "../model/index.js";
import type { TextTokenizer } from "../text/index.js";
import { storedAsInFiles, storedByHead } from "./by-head.js";
import { encodeRows, encodeWords, type TuningBatch } from "./encode-rows.js";
import { maskTokens } from "./examples.js";
import { type Adapters, type Lora, type LoraOptions, loraOf, splitParams } from "./lora.js";
import { openModel } from "./open-model.js";
import { type LabeledText, readTexts, type TextColumns } from "./rows.js";
import { asTags, classNames, targetsOf } from "./targets.js";

/** Options of {@link fineTuning}. @inline */
export interface FineTuningOptions {
  /** Folder of the pretrained model; none for a new one, see `config`. */
  from?: string;
  /** Folder of LoRA adapters that are merged into the pretrained model first. */
  adapter?: string;
  /**
   * Configuration of a new model in the format of `config.json`, instead of `from`: it starts with random parameters and a tokenizer
   * with `vocab_size` pieces of the texts.
   */
  config?: JsonObject;
  /** `classification` (default), `causal-lm` or `masked-lm`. */
  task?: ModelTask;
  /** Texts with labels: a `.csv`, `.tsv`, `.jsonl` or `.parquet` file, or several. */
  data: string | readonly string[];
  /** Columns of the text, if it has no usual name. */
  text?: string | readonly string[];
  /** Column of the second text of a pair. */
  pair?: string;
  /** Column of the label, if it has no usual name; columns of numbers or of 0 and 1, if a text has several. */
  label?: string | readonly string[];
  /**
   * Classification: one class per text (default), `regression` for numbers, or `multi_label_classification` for any number of labels.
   * That of the model's configuration by default.
   */
  problemType?: ProblemType;
  /** Texts for the evaluation after each epoch: a file, or the share of the training texts that are held out for it. */
  validation?: string | number;
  /** Texts for one evaluation at the end. */
  test?: string;
  /** Share of the tokens that a masked language model predicts; 0.15 by default. */
  maskShare?: number;
  /** Language models: several texts share a row, and long ones take several, so that no position is padding. */
  packed?: boolean;
  /** Names of the classes, or of the numbers of a regression, in the order of their ids; those of the data, sorted, by default. */
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
  /**
   * Trains fused attention projections (GPT-2's `c_attn`) in a layout by head, which several devices can divide under a memory limit.
   * Checkpoints of the training have that layout; exported models do not.
   */
  byHead?: boolean;
  /** Seed of a new head. */
  seed?: number;
}

const fineTuningNames = [
  ...[
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
    "maskShare",
    "packed",
    "labels",
  ],
  ...["maxLength", "compute", "lora", "freeze", "checkpoint", "byHead", "seed"],
] as (keyof FineTuningOptions)[];

/** The trained parameters: those of the model that are not frozen, and adapters. */
export interface Trained {
  /** Parameters of the model by name. */
  params?: Record<string, Tensor>;
  /** LoRA adapters by layer. */
  adapters?: Adapters;
}

/** A fine-tuning task for `train` of @weft/train. */
export interface FineTuning {
  /** The model before training. */
  readonly pretrained: PretrainedModel;
  /** The tokenizer of its folder. */
  readonly tokenizer: TextTokenizer;
  /** Draws what is trained. */
  model: { init(key: Key): Trained };
  /** Mean loss of a batch. */
  loss(trained: Trained, batch: TuningBatch, options: { key: Key; train: boolean }): Tensor;
  /** Number of labels in a batch that the loss is a mean over. */
  weight(batch: TuningBatch, options: { key: Key; train: boolean }): Tensor;
  /** The splits as token ids. */
  data: { train: TuningBatch; validation?: TuningBatch; test?: TuningBatch };
  /** Names of the classes, labels, tags, or numbers; none for language models. */
  readonly classes: readonly string[];
  /** Counts of right predictions, predictions and labels by class [3, classes]; of tags for token classification. */
  correct(trained: Trained, batch: TuningBatch): Tensor;
  /** Predictions and labels of rows whose scores need all rows; null for models with one class per text and for language models. */
  readonly scored: {
    kind: "regression" | "multi-label" | "tags";
    rows(trained: Trained, batch: TuningBatch): Tensor;
  } | null;
  /** All parameters of the model after training: adapters are merged. */
  finish(trained: Trained): Params;
  /** Scores of a batch with the trained parameters. */
  logits(trained: Trained, batch: Omit<TuningBatch, "labels">): Tensor;
  /** The trained parameters from the tensors of a checkpoint, by name. */
  restore(tensors: Record<string, Tensor>, key: Key): Trained;
}

/** The columns that options name. */
const columnsOf = ({ text, pair, label }: FineTuningOptions): TextColumns => ({
  ...(text !== undefined && { text }),
  ...(pair !== undefined && { pair }),
  ...(label !== undefined && { label }),
});

/** Numbers of the texts that are held out: the same at every call, and without a rhythm, because the classes of a file may have one. */
function heldOut(rows: number, share: number): Set<number> {
  const count = Math.floor(rows * share);
  if (count === 0)
    throw new ModelError(
      `fineTuning: validation is ${share}, which is less than one of ${rows} texts; give a larger share`,
    );
  const random = Uint32Array.from({ length: rows }, (_, i) => {
    const mixed = Math.imul(i ^ (i >>> 16), 0x7feb352d);
    return Math.imul(mixed ^ (mixed >>> 15), 0x846ca68b);
  });
  const order = Array.from(random, (_, i) => i).sort((a, b) => random[a] - random[b] || a - b);
  return new Set(order.slice(0, count));
}

/** Training texts, and those held out or read for validation. */
export async function trainingRows(
  options: FineTuningOptions,
): Promise<{ train: LabeledText[]; validation: LabeledText[] | null }> {
  const { data, validation } = options;
  const columns = columnsOf(options);
  const rows: LabeledText[] = [];
  for (const path of typeof data === "string" ? [data] : data)
    for (const row of await readTexts(path, columns)) rows.push(row);
  if (validation === undefined) return { train: rows, validation: null };
  if (typeof validation === "string") return { train: rows, validation: await readTexts(validation, columns) };
  if (!(validation > 0 && validation < 1))
    throw new ModelError(`fineTuning: validation is a file, or a share between 0 and 1, got ${validation}`);
  const held = heldOut(rows.length, validation);
  return { train: rows.filter((_, i) => !held.has(i)), validation: rows.filter((_, i) => held.has(i)) };
}

/** Kinds of scores by the kind of classification; one class per text is counted batch by batch. */
const scoreKinds = {
  single_label_classification: null,
  multi_label_classification: "multi-label",
  regression: "regression",
} as const;

/** Predictions and labels beside each other [rows, 2, width]. */
function predictedRows(logits: Tensor, labels: Tensor, kind: "regression" | "multi-label" | "tags"): Tensor {
  // A score of 0 is a probability of one half, which is not enough.
  const predicted = kind === "tags" ? logits.argmax(-1) : kind === "regression" ? logits : logits.greater(0);
  const shape = [labels.shape[0], labels.size / labels.shape[0]];
  return stack(
    [predicted, labels].map((t) => t.cast("float32").reshape(shape)),
    1,
  );
}

/** The kind of classification that the configuration of the model names; null if it names none. */
async function problemOf({ from, config }: FineTuningOptions): Promise<ProblemType | null> {
  const json = from === undefined ? config : await readJson(from, "config.json");
  return problemTypes.find((known) => known === json?.["problem_type"]) ?? null;
}

/** What the model is opened by. */
export const sourceOf = (options: FineTuningOptions, task: ModelTask) => ({
  ...options,
  task,
  ...(options.problemType !== undefined && { problem: options.problemType }),
});

/** Whether a parameter belongs to a new head, which LoRA trains as a whole. */
const isNew = (pretrained: PretrainedModel, name: string): boolean => pretrained.initialized.includes(name);

/**
 * Prepares the fine-tuning of a pretrained model on a file of texts.
 *
 * The result has the fields `model`, `loss` and `data` that `train` of `@weft/train` takes.
 */
export async function fineTuning(options: FineTuningOptions): Promise<FineTuning> {
  checkOptions("fineTuning", options, fineTuningNames);
  const {
    task = "classification",
    maxLength = 128,
    compute,
    lora,
    freeze = [],
    packed = false,
    byHead = false,
  } = options;
  if (options.problemType !== undefined && (task !== "classification" || !problemTypes.includes(options.problemType)))
    throw new ModelError(
      `fineTuning: problem_type is ${options.problemType}; it is one of ${problemTypes.join(", ")}, for the task classification`,
    );
  if (task === "base")
    throw new ModelError("fineTuning: task is classification, token-classification, causal-lm or masked-lm, got base");
  const isTagger = task === "token-classification";
  if (packed && (task === "classification" || isTagger))
    throw new ModelError("fineTuning: packed is for language models; a text of a classifier has a row of its own");
  const { train: rows, validation: others } = await trainingRows(options);
  const tests = options.test === undefined ? null : await readTexts(options.test, columnsOf(options));
  const splits = { data: rows, validation: others, test: tests };
  const problem = options.problemType ?? (await problemOf(options)) ?? "single_label_classification";
  const targets = task === "classification" ? targetsOf(splits, problem, options.label, options.labels) : null;
  const classes = isTagger ? classNames(asTags(splits), options.labels) : (targets?.names ?? null);
  const kind = isTagger ? "tags" : targets === null ? null : scoreKinds[targets.problem];
  const { pretrained, tokenizer } = await openModel(sourceOf(options, task), classes, () =>
    rows.map(({ text }) => text),
  );
  const { mask } = tokenizer.special;
  if (task === "masked-lm" && mask === null)
    throw new ModelError(`${pretrained.folder}: its tokenizer has no mask token`);
  const length = Math.min(maxLength, pretrained.config.maxPositions);
  const updates: Lora | null = lora === undefined ? null : loraOf(pretrained, lora);
  const isFrozen = (name: string): boolean => freeze.some((start) => name.startsWith(start));
  const names = Object.keys(pretrained.parameters);
  const unmatched = freeze.find((start) => !names.some((name) => name.startsWith(start)));
  if (unmatched !== undefined)
    throw new ModelError(
      `freeze: no parameter of the model starts with ${unmatched}; they are called ${names.slice(0, 3).join(", ")}, ...`,
    );
  const isTrained = (name: string): boolean => !isFrozen(name) && (updates === null || isNew(pretrained, name));
  const hasOwn = names.some(isTrained);
  if (!hasOwn && updates === null)
    throw new ModelError(
      "freeze: all parameters are frozen, so that there is nothing to train; freeze fewer, or use lora",
    );
  if (byHead && updates !== null)
    throw new ModelError(
      "fineTuning: byHead is for all parameters; lora trains none of the projections that it divides",
    );
  const start = byHead ? storedByHead(pretrained, pretrained.params) : pretrained.params;
  const split = hasOwn ? splitParams(start, isTrained) : null;

  const joined = (trained: Trained, key: Key | null): Params => {
    const whole = split === null ? start : split.join(trained.params ?? {});
    return updates === null ? whole : updates.combine(whole, trained.adapters as Adapters, { key });
  };
  const how = {
    ...(compute !== undefined && compute !== "float32" && { dtype: compute }),
    ...(options.checkpoint === true && { checkpoint: "all" as const }),
  };
  const padToken = pretrained.config.padToken ?? tokenizer.special.pad ?? 0;
  const encode = async (given: readonly LabeledText[]): Promise<TuningBatch> =>
    isTagger
      ? encodeWords(given, tokenizer, length, classes as string[], padToken)
      : encodeRows(pretrained, given, tokenizer, length, targets?.labelsOf(given) ?? null, packed, padToken);
  const logits = (trained: Trained, batch: Omit<TuningBatch, "labels">): Tensor =>
    pretrained.apply(joined(trained, null), batch, how).logits as Tensor;
  const init = (key: Key): Trained => ({
    ...(split !== null && { params: split.trained }),
    ...(updates !== null && { adapters: updates.init(key) }),
  });
  /** A batch as the model sees it: a masked language model gets masked tokens. */
  const inputsOf = (batch: TuningBatch, key: Key): Batch => {
    if (task !== "masked-lm") return { ...batch };
    const real = batch.attentionMask ?? batch.segmentIds?.greater(0);
    const masked = maskTokens(batch.inputIds, real, key, {
      maskToken: mask as number,
      vocabulary: pretrained.config.vocabulary,
      specialIds: tokenizer.specialIds,
      ...(options.maskShare !== undefined && { share: options.maskShare }),
    });
    return { ...batch, ...masked };
  };
  return {
    pretrained,
    tokenizer,
    model: { init },
    loss: (trained, batch, { key, train }) =>
      pretrained.loss(joined(trained, train ? key : null), inputsOf(batch, key), {
        ...how,
        train,
        key: train ? key : null,
      }),
    weight(batch, { key }) {
      // Numbers, and labels that are 0 or 1, have no value that is ignored.
      if (kind === "regression" || kind === "multi-label") return tensor(batch.labels.shape[0]).cast("float32");
      const { labels, segmentIds } = inputsOf(batch, key);
      const counted = task === "causal-lm" ? nextLabels(labels as Tensor, segmentIds) : (labels as Tensor);
      return counted.notEqual(ignoredLabel).cast("float32").sum();
    },
    classes: classes ?? [],
    correct(trained, batch) {
      if (kind === "regression" || kind === "multi-label")
        throw new ModelError(`fineTuning: rows of a ${kind} model are not counted by class; use scored`);
      return classCounts(logits(trained, batch).argmax(-1), batch.labels, Math.max(1, classes?.length ?? 0));
    },
    scored:
      kind === null
        ? null
        : { kind, rows: (trained, batch) => predictedRows(logits(trained, batch), batch.labels, kind) },
    data: {
      train: await encode(rows),
      ...(others !== null && { validation: await encode(others) }),
      ...(tests !== null && { test: await encode(tests) }),
    },
    finish(trained) {
      const whole = split === null ? start : split.join(trained.params ?? {});
      if (byHead) return storedAsInFiles(pretrained, whole);
      return updates === null ? whole : updates.merge(whole, trained.adapters as Adapters);
    },
    logits,
    restore: (tensors, key) => loadStateDict(init(key), tensors),
  };
}
