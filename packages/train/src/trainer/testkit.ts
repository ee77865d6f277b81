// Test helpers: a configuration that trains in a second, and runs of it.
import { join } from "node:path";
import { type Tensor, tensor } from "@weft/core";
import type * as nn from "@weft/core/nn";
import { type Config, checkConfig, type RawConfig, resolveConfig } from "./config.js";
import { singleRank } from "./group.js";
import { type ClassifierModel, makeModel } from "./model.js";
import { makeOptimizer } from "./optimizer.js";
import type { RankBatch, StepOptions } from "./step.js";
import { textStep } from "./text-task.js";

/** Sections of the configuration to replace. */
export type ConfigParts = {
  [K in keyof RawConfig]?: RawConfig[K] extends object ? Partial<RawConfig[K]> : RawConfig[K];
};

export function tinyRaw(parts: ConfigParts = {}): RawConfig {
  const base = {
    name: "tiny",
    seed: 7,
    model: {
      vocab_size: 300,
      d_model: 16,
      n_heads: 2,
      num_layers: 1,
      dim_feedforward: 24,
      max_seq_len: 32,
      dropout: 0.1,
    },
    data: { dataset: "synthetic", loaders: 0, train_limit: 210, test_limit: 60, validation: 0 },
    training: { epochs: 2, global_batch: 20 },
    optimizer: { learning_rate: 0.01, warmup_steps: 3 },
  };
  const merged: Record<string, unknown> = { ...base };
  for (const [section, part] of Object.entries(parts))
    merged[section] =
      typeof part === "object"
        ? { ...(base as unknown as Record<string, object>)[section], ...(part as object) }
        : part;
  return checkConfig(merged, "tiny.yaml");
}

export const tiny = (folder: string, name: string, parts: ConfigParts = {}): Config =>
  resolveConfig(tinyRaw(parts), { output: join(folder, name) });

/** The step of a text classifier on one rank. */
export function textStepOptions(raw: RawConfig, parts: Partial<StepOptions> & { model?: ClassifierModel } = {}) {
  const { model = makeModel(raw, 4, parts.dtype ?? "float32"), ...rest } = parts;
  const dtype = parts.dtype ?? "float32";
  const { optimizer, scaling } = makeOptimizer(raw, 10);
  const options: StepOptions<nn.TextClassifier> = {
    task: textStep(model, { dropout: raw.model.dropout > 0, labelSmoothing: raw.training.label_smoothing, dtype }),
    optimizer,
    scaling,
    group: singleRank,
    dtype,
    seed: raw.seed,
    gradientClip: undefined,
    bucketBytes: 1 << 20,
    window: 1,
    ...(rest as object),
  };
  return options;
}

/** A packed batch of one rank out of `ranks`. */
export const rankBatch = (packed: Tensor, ranks = 1): RankBatch => ({
  inputs: packed,
  rows: ranks * packed.shape[0],
  share: 1,
  stop: ranks === 1 ? null : tensor(Int32Array.from([0]), { dtype: "int32" }),
});
