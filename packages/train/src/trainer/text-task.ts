// The text classifier of a configuration as a task: data sets, tokens, packed batches, loss and evaluation.
import { type DType, WeftError } from "@weft/core/internal/graph";
import { concat, crossEntropy, type Key, stack, type Tensor, tensor, where } from "@weft/core/internal/tensor";
import { classCounts, type TextClassifier } from "@weft/core/nn";
import type { Workload } from "@weft/formats/internal";
import {
  columns,
  DataError,
  type DatasetSplit,
  type Epoch,
  findSplit,
  headColumns,
  holdOut,
  type LoaderOptions,
  limitRows,
  type MicroBatch,
  makeTokenizer,
  openLoader,
  openTokens,
  ownSplit,
  type Position,
  planEpoch,
  type TokenSet,
} from "../data/index.js";
import { type Config, isOwnFormat } from "./config.js";
import { batchInWords, prefetched } from "./derived.js";
import { type ClassifierModel, halfOf, makeModel, unpackBatch } from "./model.js";
import { firstNonFiniteTensor } from "./nonfinite.js";
import type { StepTask } from "./step.js";
import type { DataShare, SplitName, Task, TaskBatch, TaskLoader } from "./task.js";

/** This part of the mean loss of the step: the rows of a packed micro-batch. */
function textLoss(
  model: ClassifierModel,
  params: TextClassifier,
  packed: Tensor,
  options: { dropout: boolean; labelSmoothing: number; dtype: DType },
): Tensor {
  const { dropout, labelSmoothing, dtype } = options;
  const batch = unpackBatch(packed, model.vocabulary);
  const logits = model.logits(params, batch, dropout ? batch.keys : null);
  const each = crossEntropy(logits, batch.labels, { reduction: "none", labelSmoothing });
  // Every row has the size of the step, so that no rank needs that of another.
  return where(batch.real, each, 0).cast(dtype).div(batch.total.cast(dtype)).sum();
}

/** Sums over the rows of a packed batch: loss, correct predictions, rows (twice), and counts by class. */
function textEvaluation(model: ClassifierModel, params: TextClassifier, packed: Tensor, dtype: DType): Tensor {
  const batch = unpackBatch(packed);
  const logits = model.logits(params, batch, null);
  const losses = where(batch.real, crossEntropy(logits, batch.labels, { reduction: "none" }), 0);
  const counts = classCounts(logits.argmax(-1), where(batch.real, batch.labels, -1), logits.shape[1]).cast(dtype);
  const rows = batch.real.cast(dtype).sum();
  const sums = stack([losses.sum().cast(dtype), counts.index(0).sum(), rows, rows]);
  return concat([sums, counts.reshape([-1])]);
}

async function openSplit(config: Config, split: DatasetSplit): Promise<TokenSet> {
  const tokenizer = await makeTokenizer(config.data.tokenizer, config.model.vocab_size);
  const { dataset, path, text, label } = config.data;
  const columns = typeof text === "string" ? [text] : text;
  const source = isOwnFormat(dataset)
    ? await ownSplit({ format: dataset, path: path as string, text: columns, label }, split)
    : findSplit(dataset, split, path);
  const set = await openTokens(source, tokenizer);
  return limitRows(set, split === "train" ? config.data.train_limit : config.data.test_limit);
}

type Sets = Record<SplitName, TokenSet | null> & { train: TokenSet };

async function openSets(config: Config): Promise<Sets> {
  const rows = await openSplit(config, "train");
  if (!config.training.evaluate) return { train: rows, validation: null, test: null };
  const test = await openSplit(config, "test");
  if (config.data.validation === 0) return { train: rows, validation: test, test: null };
  const { train, held } = holdOut(rows, config.data.validation, config.seed);
  return { train, validation: held, test };
}

/** Opens the data of a configuration. */
export async function openTextTask(config: Config): Promise<Task<TextClassifier>> {
  return new TextTask(config, await openSets(config));
}

/** Loss and evaluation of a classifier over packed batches. */
export const textStep = (
  model: ClassifierModel,
  options: { dropout: boolean; labelSmoothing: number; dtype: DType },
): StepTask<TextClassifier> => ({
  init: (key) => model.init(key),
  loss(params, batch, { train }) {
    return textLoss(model, params, batch as Tensor, { ...options, dropout: train && options.dropout });
  },
  evaluate: (params, batch) => textEvaluation(model, params, batch as Tensor, options.dtype),
});

class TextTask implements Task<TextClassifier> {
  readonly samples: Task["samples"];
  readonly dataKeys: Task["dataKeys"];
  readonly classes: readonly string[];
  readonly hasAccuracy = true;
  readonly workload: Workload;
  readonly loaders: number;
  readonly #step: StepTask<TextClassifier>;

  constructor(
    private readonly config: Config,
    private readonly sets: Sets,
  ) {
    const { train, validation, test } = sets;
    if (config.globalBatch > train.rows)
      throw new DataError(`${batchInWords(config)} is larger than the data set of ${train.rows} rows; make it smaller`);
    this.samples = { train: train.rows, validation: validation?.rows ?? null, test: test?.rows ?? null };
    this.dataKeys = { train: train.key, test: (test ?? validation)?.key ?? null };
    this.classes = train.classes;
    this.workload = {
      dataset: config.data.dataset,
      sequenceLength: config.model.max_seq_len,
      model: "encoder classifier",
    };
    this.loaders = config.data.loaders;
    const dtype = config.precision.compute === "float64" ? "float64" : "float32";
    this.#step = textStep(makeModel(config, train.classes.length, dtype, halfOf(config)), {
      dropout: config.model.dropout > 0,
      labelSmoothing: config.training.label_smoothing,
      dtype,
    });
  }

  init(key: Key): TextClassifier {
    return this.#step.init(key);
  }

  loss(params: TextClassifier, batch: unknown, options: { key: Key; train: boolean }): Tensor {
    return this.#step.loss(params, batch, options) as Tensor;
  }

  evaluate(params: TextClassifier, batch: unknown): Tensor {
    return this.#step.evaluate(params, batch);
  }

  load(split: SplitName, share: DataShare, from: Position): TaskLoader {
    const set = this.sets[split];
    if (set === null) throw new WeftError(`there is no ${split} split`);
    const loader = openLoader(set, this.#loaderOptions(split === "train", share), from);
    return { next: () => asTaskBatch(loader.next(), this.#rows(share)), close: () => loader.close() };
  }

  *shapesAhead(share: DataShare, from: Position, steps: number): ReturnType<Task["shapesAhead"]> {
    const rows = this.#rows(share);
    const ahead = this.#epoch(share, from.epoch).padded.subarray(from.index, from.index + steps);
    for (const length of new Set(ahead)) {
      const shape = [rows[share.rank], headColumns + length];
      const inputs = tensor(new Int32Array(shape[0] * shape[1]), { shape, dtype: "int32" });
      yield { rows: sumOf(rows), bounds: boundsOf(rows), share: 1, inputs };
    }
  }

  samplesBefore({ epoch, index }: Position): Uint32Array {
    const plan = this.#epoch({ rank: 0, ranks: 1 }, epoch);
    return plan.order.subarray(0, plan.starts[index]);
  }

  diagnose(params: TextClassifier, inputs: unknown): string {
    // Dropout has keys of its own, in the rows.
    const options = { key: tensor(Int32Array.from([0, 0]), { dtype: "int32" }), train: true };
    const loss = (p: TextClassifier): Tensor => this.loss(p, inputs, options);
    return firstNonFiniteTensor(loss, params, inputs as Tensor, this.config.model.n_heads);
  }

  #epoch(share: DataShare, epoch: number): Epoch {
    const { train } = this.sets;
    const options = { ...this.#loaderOptions(true, share), rows: train.rows };
    return planEpoch(options, epoch, (row) => train.offsets[row + 1] - train.offsets[row]);
  }

  /** Rows of a micro-batch by rank, padding included. */
  #rows({ ranks, speeds }: DataShare): number[] {
    const { batchPerRank, globalBatch, training } = this.config;
    if (speeds === undefined) return Array.from({ length: ranks }, () => batchPerRank);
    // Room for every batch: the part of a smaller one may be larger by what its bounds are rounded.
    const each = globalBatch / sumOf(speeds);
    return speeds.map((speed) => Math.ceil(Math.floor(each * speed + 1) / training.accumulation));
  }

  #loaderOptions(training: boolean, share: DataShare): LoaderOptions {
    const { config } = this;
    const { rank, ranks, speeds } = share;
    return {
      globalBatch: training
        ? config.globalBatch
        : speeds === undefined
          ? config.batchPerRank * ranks
          : Math.floor(config.globalBatch / config.training.accumulation),
      seed: config.seed,
      lengths: config.lengths,
      shuffle: training,
      rank,
      ranks,
      accumulation: training ? config.training.accumulation : 1,
      rows: this.#rows(share)[rank],
      speeds,
      loaders: training ? config.data.loaders : 0,
      prefetch: config.data.prefetch ?? prefetched(config),
    };
  }
}

const sumOf = (list: readonly number[]): number => list.reduce((n, x) => n + x, 0);
/** Boundaries of parts of these sizes; undefined if they are equal. */
const boundsOf = (sizes: readonly number[]): number[] | undefined =>
  sizes.every((size) => size === sizes[0]) ? undefined : [0, ...sizes.map((_, i) => sumOf(sizes.slice(0, i + 1)))];

function asTaskBatch(batch: MicroBatch, all: readonly number[]): TaskBatch {
  const { epoch, index, micro, samples, total, rows, length, data } = batch;
  const width = headColumns + length;
  const ids = Array.from({ length: samples }, (_, row) => data[row * width + columns.sample]);
  const inputs = tensor(data, { shape: [rows, width], dtype: "int32" });
  const divided = { rows: sumOf(all), bounds: boundsOf(all) };
  return { epoch, index, micro, samples, total, ...divided, share: 1, inputs, ids };
}
