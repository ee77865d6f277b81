// Fine-tuning of a pretrained model on a file of texts: what `train` of @weft/train needs (model, loss, data), made from a folder
// and a few options.
import { type Key, key, type Tensor, tensor } from "@weft/core";
import { checkOptions } from "@weft/core/internal/graph";
import { classCounts, loadStateDict, stateDict } from "@weft/core/nn";
import type { Batch, ModelTask, Params } from "../architectures/index.js";
import { type PretrainedModel, savePretrained } from "../checkpoint/index.js";
import { type JsonObject, ModelError } from "../config/index.js";
import { ignoredLabel, nextLabels } from "../model/index.js";
import { encodeTexts, frameOf, padRows, type TextTokenizer } from "../text/index.js";
import { storedAsInFiles, storedByHead } from "./by-head.js";
import { maskTokens, packSequences } from "./examples.js";
import { type Adapters, type Lora, type LoraOptions, loraOf, splitParams } from "./lora.js";
import { openModel } from "./open-model.js";
import { type LabeledText, readTexts, type TextColumns } from "./rows.js";

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
  /** Column of the class, if it has no usual name. */
  label?: string;
  /** Texts for the evaluation after each epoch: a file, or the share of the training texts that are held out for it. */
  validation?: string | number;
  /** Texts for one evaluation at the end. */
  test?: string;
  /** Share of the tokens that a masked language model predicts; 0.15 by default. */
  maskShare?: number;
  /** Language models: several texts share a row, and long ones take several, so that no position is padding. */
  packed?: boolean;
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
    "label",
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
  /** Names of the classes; none for language models. */
  readonly classes: readonly string[];
  /** Counts of right predictions, predictions and labels by class [3, classes]; of tags for token classification. */
  correct(trained: Trained, batch: TuningBatch): Tensor;
  /** All parameters of the model after training: adapters are merged. */
  finish(trained: Trained): Params;
  /** Scores of a batch with the trained parameters. */
  logits(trained: Trained, batch: Omit<TuningBatch, "labels">): Tensor;
  /** The trained parameters from the tensors of a checkpoint, by name. */
  restore(tensors: Record<string, Tensor>, key: Key): Trained;
}

/** Texts as tensors with one row per text, or several texts per row. */
export interface TuningBatch {
  /** Token ids [rows, length], int32. */
  inputIds: Tensor;
  /** Absent for packed rows. */
  attentionMask?: Tensor;
  /** Packed rows only. */
  segmentIds?: Tensor;
  /** Class per row, or label per token; -100 is ignored. */
  labels: Tensor;
}

/** A text as errors show it. */
const shortened = (text: string): string => JSON.stringify(text.length > 40 ? `${text.slice(0, 40)}...` : text);

/** Names of the classes: those of the training texts. Texts for the evaluation have no others. */
function classNames(
  splits: Readonly<Record<string, readonly LabeledText[] | null>>,
  given: readonly string[] | undefined,
): string[] {
  const unique = [...new Set(splits["data"]?.map(({ label }) => label ?? ""))];
  const names = given ?? unique.sort((a, b) => a.localeCompare(b, "en", { numeric: true }));
  for (const [split, rows] of Object.entries(splits))
    rows?.forEach(({ label = "", text }, i) => {
      if (label === "")
        throw new ModelError(`${split}: text ${i + 1} has no label (${shortened(text)}); give it one, or remove it`);
      if (!names.includes(label))
        throw new ModelError(
          given === undefined
            ? `${split}: text ${i + 1} has the label ${label}, which no training text has; these have ${names.join(", ")}`
            : `${split}: text ${i + 1} has the label ${label}, which is not one of labels: ${names.join(", ")}`,
        );
    });
  if (names.length < 2)
    throw new ModelError(
      `data: all texts have the label ${names[0]}; a classifier needs texts of at least two classes`,
    );
  return [...names];
}

/** Pieces of at most `length` tokens, each between the tokens that the tokenizer puts around a text. */
function pieces(ids: Int32Array, { before, after }: ReturnType<typeof frameOf>, length: number): number[][] {
  const end = ids.length - after;
  const [start, close] = [ids.subarray(0, before), ids.subarray(end)];
  const room = length - before - after;
  const all: number[][] = [];
  for (let at = before; at < end || all.length === 0; at += room)
    all.push([...start, ...ids.subarray(at, Math.min(at + room, end)), ...close]);
  return all;
}

async function encodeRows(
  rows: readonly LabeledText[],
  tokenizer: TextTokenizer,
  length: number,
  labels: readonly string[] | null,
  packed: boolean,
  padToken: number,
): Promise<TuningBatch> {
  const { ids: all, offsets } = await encodeTexts(
    tokenizer,
    rows.map(({ text }) => text),
  );
  const frame = frameOf(tokenizer);
  if (length <= frame.before + frame.after)
    throw new ModelError(
      `fineTuning: maxLength is ${length}; the tokens around a text alone are ${frame.before + frame.after}`,
    );
  const cut = rows.map((_, i) => pieces(all.subarray(offsets[i], offsets[i + 1]), frame, length));
  if (packed) return packSequences(cut.flat(), length, padToken);
  // A text that is too long loses its end, or its beginning if the tokenizer cuts there.
  const encoded = cut.map(([first], i) => {
    if (cut[i].length === 1 || tokenizer.truncationSide === "right") return first;
    const own = all.subarray(offsets[i], offsets[i + 1]);
    return [...own.subarray(0, frame.before), ...own.subarray(own.length - length + frame.before)];
  });
  const shape = [rows.length, length];
  const ids = padRows(encoded, length, padToken);
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

type Splits = Readonly<Record<string, readonly LabeledText[] | null>>;
const mapped = (splits: Splits, change: (rows: readonly LabeledText[], split: string) => LabeledText[]): Splits =>
  Object.fromEntries(Object.entries(splits).map(([name, rows]) => [name, rows === null ? null : change(rows, name)]));

/** The words of texts with tags as labeled texts, to find and check the names of the tags. */
const asTags = (rows: readonly LabeledText[], split: string): LabeledText[] =>
  rows.flatMap(({ words, tags, text }, i) => {
    if (words === undefined || tags === undefined)
      throw new ModelError(
        `${split}: text ${i + 1} has no tags (${shortened(text)}); token classification needs .jsonl with lists "tokens" and "tags"`,
      );
    return words.map((word, k) => ({ text: word, label: tags[k] }));
  });

/**
 * Texts with a tag per word: the first token of a word has its tag, the others have no loss, as `transformers` aligns them. Words that
 * do not fit are left out.
 */
function encodeWords(
  rows: readonly LabeledText[],
  tokenizer: TextTokenizer,
  length: number,
  names: readonly string[],
  padToken: number,
): TuningBatch {
  const frame = frameOf(tokenizer);
  const around = tokenizer.encode("").ids;
  const [start, close] = [around.slice(0, frame.before), around.slice(around.length - frame.after)];
  const room = length - start.length - close.length;
  if (room < 1) throw new ModelError(`fineTuning: maxLength is ${length}; the tokens around a text alone are as many`);
  const numbers = new Map(names.map((name, i) => [name, i]));
  const encoded = rows.map(({ words = [], tags = [] }) => {
    const [ids, labels]: [number[], number[]] = [[], []];
    words.forEach((word, k) => {
      // The space is what stands before a word in a text.
      tokenizer.encode(` ${word}`, { specialTokens: false }).ids.forEach((id, at) => {
        ids.push(id);
        labels.push(at === 0 ? (numbers.get(tags[k]) as number) : ignoredLabel);
      });
    });
    const kept = (list: readonly number[]): number[] =>
      tokenizer.truncationSide === "right" ? list.slice(0, room) : list.slice(-room);
    const blank = (list: readonly number[]): number[] => list.map(() => ignoredLabel);
    return { ids: [...start, ...kept(ids), ...close], labels: [...blank(start), ...kept(labels), ...blank(close)] };
  });
  const shape = [rows.length, length];
  const table = (lists: number[][], fill: number): Tensor => tensor(padRows(lists, length, fill), { shape });
  return {
    inputIds: table(
      encoded.map(({ ids }) => ids),
      padToken,
    ),
    attentionMask: table(
      encoded.map(({ ids }) => ids.map(() => 1)),
      0,
    ),
    labels: table(
      encoded.map(({ labels }) => labels),
      ignoredLabel,
    ),
  };
}

/** The columns that options name. */
const columnsOf = ({ text, label }: FineTuningOptions): TextColumns => ({
  ...(text !== undefined && { text }),
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
async function trainingRows(
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
  if (task === "base")
    throw new ModelError("fineTuning: task is classification, token-classification, causal-lm or masked-lm, got base");
  const isTagger = task === "token-classification";
  if (packed && (task === "classification" || isTagger))
    throw new ModelError("fineTuning: packed is for language models; a text of a classifier has a row of its own");
  const { train: rows, validation: others } = await trainingRows(options);
  const tests = options.test === undefined ? null : await readTexts(options.test, columnsOf(options));
  const splits = { data: rows, validation: others, test: tests };
  const classes = isTagger
    ? classNames(mapped(splits, asTags), options.labels)
    : task === "classification"
      ? classNames(splits, options.labels)
      : null;
  const { pretrained, tokenizer } = await openModel({ ...options, task }, classes, () => rows.map(({ text }) => text));
  if (task === "classification" && pretrained.problem !== null && pretrained.problem !== "single_label_classification")
    throw new ModelError(
      `${pretrained.folder}: problem_type is ${pretrained.problem}, and the texts have one class each; remove problem_type from config.json`,
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
      : encodeRows(given, tokenizer, length, classes, packed, padToken);
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
      const { labels, segmentIds } = inputsOf(batch, key);
      const counted = task === "causal-lm" ? nextLabels(labels as Tensor, segmentIds) : (labels as Tensor);
      return counted.notEqual(ignoredLabel).cast("float32").sum();
    },
    classes: classes ?? [],
    correct(trained, batch) {
      return classCounts(logits(trained, batch).argmax(-1), batch.labels, Math.max(1, classes?.length ?? 0));
    },
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

/**
 * Writes the model of a finished training as a folder that `loadPretrained` and `transformers` load; adapters are merged, unless
 * `asAdapter` asks for them as a folder that `peft` loads.
 *
 * @param options - The options of the training.
 * @param tensors - The trained tensors by name, as a checkpoint of the training holds them.
 * @param classes - Names of the classes, empty for language models.
 * @param folder - The folder to write.
 */
export async function saveTuned(
  options: FineTuningOptions,
  tensors: Record<string, Tensor>,
  classes: readonly string[],
  folder: string,
  asAdapter = false,
): Promise<void> {
  const { task = "classification", lora } = options;
  if (asAdapter && (lora === undefined || options.adapter !== undefined))
    throw new ModelError(
      lora === undefined
        ? "the run trained all parameters, not LoRA adapters; export it as a model"
        : `the adapters of the run belong to a model with other adapters (${options.adapter}); export it as a model`,
    );
  const texts = options.from === undefined ? (await trainingRows(options)).train : [];
  const names = classes.length === 0 ? null : classes;
  const { pretrained } = await openModel({ ...options, task }, names, () => texts.map(({ text }) => text));
  const start = options.byHead === true ? storedByHead(pretrained, pretrained.params) : pretrained.params;
  const whole = stateDict(start);
  const own = Object.entries(tensors).filter(([name]) => name.startsWith("params."));
  const wrong = own.find(([name]) => !Object.hasOwn(whole, name.slice("params.".length)));
  if (wrong !== undefined)
    throw new ModelError(`the checkpoint has ${wrong[0]}, which is not a parameter of the model`);
  const trained = {
    ...whole,
    ...Object.fromEntries(own.map(([name, value]) => [name.slice("params.".length), value])),
  };
  const loaded = loadStateDict(start, trained);
  const params = options.byHead === true ? storedAsInFiles(pretrained, loaded) : loaded;
  if (lora === undefined) return savePretrained(folder, pretrained, params);
  const updates = loraOf(pretrained, lora);
  const adapters = Object.fromEntries(
    Object.entries(tensors)
      .filter(([name]) => name.startsWith("adapters."))
      .map(([name, value]) => [name.slice("adapters.".length), value]),
  );
  const restored = loadStateDict(updates.init(key(0)), adapters);
  if (!asAdapter) return savePretrained(folder, pretrained, updates.merge(params, restored));
  const heads = own.map(([name, value]) => [name.slice("params.".length), value] as const);
  return updates.save(folder, restored, Object.fromEntries(heads));
}
