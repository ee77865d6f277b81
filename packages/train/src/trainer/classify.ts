// Classifies texts with a trained run: label and probabilities. It reads checkpoints only.

import { basename } from "node:path";
import { type Jitted, jit, key, softmax, type Tensor, tensor } from "@weft/core/internal/tensor";
import type { TextClassifier } from "@weft/core/nn";
import { columns, headColumns, IdList, makeTokenizer, type Tokenizer } from "../data/index.js";
import type { Progress } from "./checkpoint.js";
import { findResult, readParameters } from "./checkpoint.js";
import type { RawConfig } from "./config.js";
import { TrainError } from "./errors.js";
import { type ClassifierModel, halfOf, makeModel, unpackBatch } from "./model.js";

/** Predicted class of a text. */
export interface ClassPrediction {
  /** The most likely class. */
  label: string;
  /** Probability by class, in the data set's order. */
  probabilities: Record<string, number>;
}

/** Batch size. */
const batchRows = 32;

/** A trained text classifier, opened from the folder of a run. */
export class Classifier {
  /** Names of the classes. */
  readonly classes: readonly string[];
  /** Optimizer steps of the checkpoint. */
  readonly step: number;
  readonly #tokenizer: Tokenizer;
  readonly #params: TextClassifier;
  readonly #lengths: readonly number[];
  readonly #forward: Jitted<(params: TextClassifier, packed: Tensor) => Tensor>;

  private constructor(progress: Progress, tokenizer: Tokenizer, params: TextClassifier, model: ClassifierModel) {
    this.classes = progress.classes;
    this.step = progress.step;
    this.#tokenizer = tokenizer;
    this.#params = params;
    const { config } = progress as unknown as { config: RawConfig };
    this.#lengths = config.data.length_buckets ?? [config.model.max_seq_len];
    this.#forward = jit((p: TextClassifier, packed: Tensor) =>
      softmax(model.logits(p, unpackBatch(packed), null).cast("float64")),
    );
  }

  /** Opens the result of a run: its best epoch if it chose one, or its newest checkpoint. */
  static async open(run: string): Promise<Classifier> {
    const found = findResult(run);
    if (found === null)
      throw new TrainError(`${run} holds no checkpoint; give the folder of a run that weft train has written`);
    const { classes } = found.progress;
    if (typeof found.progress.config.model === "string")
      throw new TrainError(
        `${run} is a run of your own model (${basename(found.progress.config.model)}), not of a text classifier; weft classify cannot load it`,
      );
    const config = found.progress.config as unknown as RawConfig;
    const tokenizer = await makeTokenizer(config.data.tokenizer, config.model.vocab_size);
    const dtype = config.precision.compute === "float64" ? "float64" : "float32";
    const model = makeModel(config, classes.length, dtype, halfOf(config));
    const params = await readParameters(found.folder, jit((k: Tensor) => model.init(k))(key(0)));
    return new Classifier(found.progress, tokenizer, params, model);
  }

  /** Classifies texts. */
  classify(texts: readonly string[]): ClassPrediction[] {
    const results: ClassPrediction[] = [];
    for (let from = 0; from < texts.length; from += batchRows)
      results.push(...this.#batch(texts.slice(from, from + batchRows)));
    return results;
  }

  #batch(texts: readonly string[]): ClassPrediction[] {
    const longest = this.#lengths[this.#lengths.length - 1];
    const ids = texts.map((text) => {
      const out = new IdList();
      const bytes = Buffer.from(text, "utf8");
      this.#tokenizer.encode(bytes, 0, bytes.length, out);
      return out.ids.subarray(0, Math.min(longest, out.length));
    });
    const most = Math.max(1, ...ids.map((row) => row.length));
    const width = headColumns + (this.#lengths.find((length) => length >= most) as number);
    // A single text does not need a batch of 32; two batch shapes are compiled.
    const rows = texts.length === 1 ? 1 : batchRows;
    const packed = new Int32Array(rows * width);
    ids.forEach((row, i) => {
      packed[i * width + columns.length] = Math.max(1, row.length);
      packed.set(row, i * width + headColumns);
    });
    const shares = this.#forward(
      this.#params,
      tensor(packed, { shape: [rows, width], dtype: "int32" }),
    ).dataSync() as Float64Array;
    return texts.map((text, i) => {
      const own = shares.subarray(i * this.classes.length, (i + 1) * this.classes.length);
      if (own.some(Number.isNaN))
        throw new TrainError(
          `the scores of the text ${JSON.stringify(text.slice(0, 40))} are not numbers (NaN); the checkpoint of step ${this.step} is damaged, or its training diverged`,
        );
      return {
        label: this.classes[own.indexOf(Math.max(...own))],
        probabilities: Object.fromEntries(this.classes.map((name, c) => [name, own[c]])),
      };
    });
  }
}
