// Test helpers: a configuration that trains in a second, and runs of it.
import { join } from "node:path";
import { type Config, checkConfig, type RawConfig, resolveConfig } from "./config.js";

/** Sections of the configuration to replace. */
export type Parts = { [K in keyof RawConfig]?: RawConfig[K] extends object ? Partial<RawConfig[K]> : RawConfig[K] };

export function tinyRaw(parts: Parts = {}): RawConfig {
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

export const tiny = (folder: string, name: string, parts: Parts = {}): Config =>
  resolveConfig(tinyRaw(parts), { output: join(folder, name) });
