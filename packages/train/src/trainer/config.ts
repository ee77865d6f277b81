// Configurations of training runs. Every key is validated; an unknown key is an error with a suggestion, and so is a
// key without effect. It knows nothing of tensors.

import { basename, dirname, isAbsolute, join, resolve } from "node:path";
import { WeftError } from "@weft/core/internal/graph";
import type { schedule } from "@weft/core/optim";
import { readText } from "@weft/formats/file";
import { suggestKey, valueOf, withSettings } from "@weft/formats/internal";
import { parseYaml as parse } from "@weft/formats/yaml";
import { stringify } from "yaml";
import { z } from "zod";
import { datasetNames, type OwnFormat, ownFormats } from "../data/index.js";
import { foreignKeys, translateConfig } from "./foreign-config.js";
import { asModule, isPretrained } from "./pretrained-config.js";

/** A configuration is invalid; the message names the key and the remedy. */
export class ConfigError extends WeftError {
  override name = "ConfigError";
}

const count = z.int().min(1);
const share = z.number().min(0).lt(1);
const positive = z.number().positive();

/** Shapes of learning-rate schedules. Only the names, so that checking a configuration does not load the optimizers. */
const shapes = ["constant", "linear", "cosine"] as const satisfies readonly Parameters<typeof schedule>[0]["shape"][];

const computePrecisions = ["float32", "tf32", "float64", "bfloat16", "float16"] as const;

/** Sections of every configuration. */
const common = {
  name: z.string().regex(/^[\w.-]+$/, "letters, digits, dots, dashes and underscores"),
  /** Folder of the run; runs/NAME by default. */
  output: z.string().optional(),
  seed: z.int().default(42),
  device: z.string().optional(),
  training: z.strictObject({
    epochs: count,
    /** Batch of one rank in one micro-step. */
    batch_per_rank: count.optional(),
    /** Batch of one optimizer step over all ranks. */
    global_batch: count.optional(),
    accumulation: count.default(1),
    max_steps: count.optional(),
    gradient_clip: positive.optional(),
    evaluate: z.boolean().default(true),
    /**
     * The result is the epoch with the best validation loss, accuracy, F1 (of entities, or mean of the classes) or correlation; the last
     * epoch by default.
     */
    best: z.enum(["loss", "accuracy", "f1", "pearson", "spearman"]).optional(),
    /** Ends the run after this many epochs without a better one. */
    patience: count.optional(),
  }),
  optimizer: z.strictObject({
    type: z.enum(["adamw", "adam", "sgd"]).default("adamw"),
    learning_rate: positive,
    weight_decay: z.number().min(0).optional(),
    /** false: biases and norms do not decay. */
    decay_vectors: z.boolean().optional(),
    betas: z.tuple([share, share]).optional(),
    epsilon: positive.optional(),
    momentum: share.optional(),
    schedule: z.enum(shapes).default("constant"),
    warmup_steps: z.int().min(0).default(0),
    min_ratio: z.number().min(0).max(1).optional(),
    /** Factors of the learning rate by starts of parameter names; 0 freezes. */
    rates: z.record(z.string(), z.number().min(0)).optional(),
    /** The rate falls by this factor per layer, from the head down to the embeddings. */
    layer_decay: positive.max(1).optional(),
  }),
  precision: z
    .strictObject({
      compute: z.enum(computePrecisions).default("float32"),
      /** float16 only: a fixed scale, or "dynamic". */
      loss_scale: z.union([positive, z.literal("dynamic")]).optional(),
    })
    .prefault({}),
  distributed: z
    .strictObject({
      devices: count.default(1),
      /** Gradients are summed over ranks in buckets of about this size. */
      bucket_mb: positive.default(4),
      /** false: one sum after the backward pass, to measure the benefit of overlap. */
      overlap: z.boolean().default(true),
      /** How gradients are sent: rounded to a half type, or their largest elements. */
      compression: z.union([z.enum(["bfloat16", "float16"]), z.strictObject({ top_k: positive.max(1) })]).optional(),
      cores_per_rank: count.default(1),
      /** How batches are divided over the ranks: equally, as fast as the ranks are when the run starts, or by these numbers. */
      shares: z.union([z.enum(["even", "measured"]), z.array(positive).min(1)]).default("even"),
      /** Memory of one device, such as 2GB, or of each of them: the step is placed so that it fits. */
      memory: z.union([z.string(), positive, z.array(z.union([z.string(), positive])).min(1)]).optional(),
    })
    .prefault({}),
  checkpoint: z
    .strictObject({
      /** In addition to the checkpoint at the end of each epoch. */
      every_steps: count.optional(),
      keep: count.default(2),
    })
    .prefault({}),
  logging: z.strictObject({ every_steps: count.default(256) }).prefault({}),
};

/** Configuration of a text classifier. */
const schema = z.strictObject({
  ...common,
  model: z.strictObject({
    vocab_size: z.int().min(2),
    d_model: count,
    n_heads: count,
    num_layers: count,
    dim_feedforward: count,
    max_seq_len: count,
    dropout: share.default(0.1),
    activation: z.enum(["relu", "gelu"]).default("relu"),
    norm: z.enum(["post", "pre"]).default("post"),
    positions: z.enum(["sinusoidal", "learned"]).default("sinusoidal"),
    /** Standard deviation of initial token and learned position embeddings; PyTorch's default is 1. */
    embedding_std: positive.default(1),
  }),
  data: z.strictObject({
    dataset: z.enum([...datasetNames, ...ownFormats]),
    /** Columns of an own data set: the text (several are joined by spaces) and the class. */
    text: z.union([z.string(), z.array(z.string()).min(1)]).optional(),
    label: z.string().optional(),
    /** Folder that holds the splits; the cache of `weft data get` by default. */
    path: z.string().optional(),
    tokenizer: z.string().default("hash"),
    loaders: z.int().min(0).max(64).default(1),
    prefetch: z.int().min(1).max(1024).optional(),
    /** Lengths that batches are padded to; the last is max_seq_len. */
    length_buckets: z.array(count).min(1).optional(),
    /** Share of the training rows held out for evaluation after each epoch. 0 evaluates on the test split. */
    validation: share.default(0.05),
    train_limit: count.optional(),
    test_limit: count.optional(),
  }),
  training: common.training.extend({ label_smoothing: share.default(0) }),
});

/** Configuration of a model that a module defines. */
const moduleSchema = z.strictObject({
  ...common,
  /** Path of the module. */
  model: z.string().min(1),
  /** Passed to the functions of the module. */
  options: z.record(z.string(), z.unknown()).default({}),
});

/** Configuration that trains a pretrained model or a new one, as `asModule` reads it. */
const pretrainedSchema = z.strictObject({
  ...common,
  model: z.union([z.looseObject({ from: z.string() }), z.looseObject({ config: z.looseObject({}) })]),
  data: z.unknown(),
  lora: z.unknown().optional(),
});

/** The JSON Schema of training configurations, for editors. */
export const configJsonSchema = (): Record<string, unknown> => {
  const { $schema, ...json } = z.toJSONSchema(z.union([schema, moduleSchema, pretrainedSchema]), {
    io: "input",
    unrepresentable: "any",
  });
  return { $schema, title: "Training configuration of weft train", ...json };
};

/** A validated configuration of a text classifier, as written in the file. */
export type RawConfig = z.infer<typeof schema>;

/** A validated configuration of a model that a module defines, as written in the file. */
export type RawModuleConfig = z.infer<typeof moduleSchema>;

/** Values derived from a configuration for a number of ranks. */
interface Derived {
  output: string;
  ranks: number;
  batchPerRank: number;
  globalBatch: number;
}

/** A validated configuration of a text classifier with derived values. */
export interface Config extends RawConfig, Derived {
  output: string;
  /** Lengths of sequences that batches are padded to. */
  lengths: number[];
}

/** A validated configuration of a model that a module defines, with derived values. */
export interface ModuleConfig extends RawModuleConfig, Derived {
  output: string;
}

/** What the training loop itself reads of a configuration. */
export type RunConfig = Derived &
  Pick<RawConfig, "name" | "seed" | "device" | "optimizer" | "precision" | "distributed" | "checkpoint" | "logging"> & {
    model: unknown;
    training: RawModuleConfig["training"];
  };

/** Whether the model of a configuration is a module. */
export const isModuleConfig = (config: RawConfig | RawModuleConfig): config is RawModuleConfig =>
  typeof config.model === "string";

/** Whether a data set is the user's own, by its format. */
export const isOwnFormat = (dataset: string): dataset is OwnFormat =>
  (ownFormats as readonly string[]).includes(dataset);
const hasColumns = (dataset: string): boolean => isOwnFormat(dataset) && dataset !== "folder";

/** Keys without effect unless a condition holds: [key, condition, what it needs]. */
const conditional: [key: string, used: (c: RawConfig) => boolean, needs: string][] = [
  ["optimizer.betas", (c) => c.optimizer.type !== "sgd", "optimizer.type adam or adamw"],
  ["optimizer.epsilon", (c) => c.optimizer.type !== "sgd", "optimizer.type adam or adamw"],
  [
    "optimizer.decay_vectors",
    (c) => (c.optimizer.weight_decay ?? (c.optimizer.type === "adamw" ? 0.01 : 0)) > 0,
    "optimizer.weight_decay above 0",
  ],
  ["optimizer.momentum", (c) => c.optimizer.type === "sgd", "optimizer.type sgd"],
  ["optimizer.min_ratio", (c) => c.optimizer.schedule !== "constant", "optimizer.schedule linear or cosine"],
  ["precision.loss_scale", (c) => c.precision.compute === "float16", "precision.compute float16"],
  ["data.prefetch", (c) => c.data.loaders > 0, "data.loaders above 0"],
  ["data.path", (c) => c.data.dataset !== "synthetic", "a data set that is read from files"],
  ["data.text", (c) => hasColumns(c.data.dataset), "data.dataset csv, jsonl or parquet"],
  ["data.label", (c) => hasColumns(c.data.dataset), "data.dataset csv, jsonl or parquet"],
  ["data.validation", (c) => c.training.evaluate || c.data.validation === 0, "training.evaluate: true"],
  ["data.test_limit", (c) => c.training.evaluate, "training.evaluate: true"],
  // Without held-out rows epochs are evaluated on the test split, which must not choose among them.
  // Models of a module define their own rows.
  [
    "training.best",
    (c) => c.training.evaluate && c.data?.validation !== 0,
    "rows to evaluate on (data.validation above 0)",
  ],
  ["training.patience", (c) => c.training.best !== undefined, "training.best: loss, accuracy, f1, pearson or spearman"],
];

function knownKeys(shape: z.ZodType, path = ""): string[] {
  let inner: unknown = shape;
  while (inner instanceof z.ZodOptional || inner instanceof z.ZodDefault || inner instanceof z.ZodPrefault)
    inner = inner.unwrap();
  if (!(inner instanceof z.ZodObject)) return [path];
  return Object.entries(inner.shape as Record<string, z.ZodType>).flatMap(([name, part]) =>
    knownKeys(part, path === "" ? name : `${path}.${name}`),
  );
}
/** Every key by its dotted name. */
export const allKeys: readonly string[] = knownKeys(schema);

/** Keys of every kind of configuration and the sections above them: these are never translated. */
const knownNames: ReadonlySet<string> = new Set(
  [...allKeys, "options", "lora", "model.from", "model.config"].flatMap((key) =>
    key.split(".").map((_, i, parts) => parts.slice(0, i + 1).join(".")),
  ),
);

/** Validates a parsed configuration of a text classifier. `label` names it in errors. */
export function checkConfig(raw: unknown, label: string): RawConfig {
  const checked = checkAnyConfig(raw, label);
  if (isModuleConfig(checked))
    throw new ConfigError(`${label}: model is the path of a module; this needs the sections of a text classifier`);
  return checked;
}

/** Validates a parsed configuration of either kind. */
export function checkAnyConfig(raw: unknown, label: string): RawConfig | RawModuleConfig {
  if (typeof raw !== "object" || raw === null || Array.isArray(raw))
    throw new ConfigError(`${label}: a configuration is a map of sections (name, model, data, training, optimizer)`);
  const isModule = typeof (raw as { model?: unknown }).model === "string";
  const parsed = (isModule ? moduleSchema : schema).safeParse(raw);
  const problems: string[] = [];
  if (!parsed.success)
    for (const issue of parsed.error.issues) {
      const path = issue.path.join(".");
      if (issue.code === "unrecognized_keys")
        for (const name of issue.keys) {
          const key = path === "" ? name : `${path}.${name}`;
          problems.push(`${key} is not known${suggestKey(key, allKeys, foreignKeys)}`);
        }
      else {
        const given = path === "" ? raw : valueOf(raw, path);
        const what = path === "" ? "the file" : path;
        problems.push(
          given === undefined ? `${what} is missing` : `${what} is ${JSON.stringify(given)}: ${issue.message}`,
        );
      }
    }
  else
    for (const [key, used, needs] of conditional)
      if (valueOf(raw, key) !== undefined && !used(parsed.data as RawConfig))
        problems.push(`${key} would have no effect: it needs ${needs}; remove it or change that`);
  if (problems.length > 0) throw new ConfigError(`${label}: ${problems.join("\n  ")}`);
  return parsed.data as RawConfig | RawModuleConfig;
}

/** Command-line options that override the configuration. */
export interface Overrides {
  /** Number of ranks. */
  devices?: number;
  /** Folder of the data set. */
  data?: string;
  /** Folder of the run. */
  output?: string;
  /** Device of the ranks. */
  device?: string;
  /** Maximum number of steps. */
  maxSteps?: number;
  /** Number of epochs. */
  epochs?: number;
  /** Seed of the run. */
  seed?: number;
  /** Replaces the batch sizes of the configuration; a run that changes its number of ranks keeps it. */
  globalBatch?: number;
  /** Memory of one device. */
  memory?: string | number;
  /** How gradients are sent: `bfloat16`, `float16`, or `top-k=SHARE`. */
  compression?: string;
  /** false: the test split is not evaluated; for measurements. */
  evaluate?: boolean;
  /** Values of other keys, as `section.key=value`. */
  set?: readonly string[];
  /** Called with what was translated, if the file uses the names of another trainer. */
  onTranslated?: (lines: readonly string[]) => void;
}

/**
 * Resolves the configuration of a run: batch sizes for this number of ranks, lengths, paths. Paths are relative to
 * `base`.
 */
export function resolveConfig(given: RawConfig, overrides: Overrides = {}, base = process.cwd()): Config {
  const raw: RawConfig = structuredClone(given);
  override(raw, overrides);
  if (overrides.data !== undefined) raw.data.path = resolve(overrides.data);
  if (!raw.training.evaluate) {
    // Without evaluation nothing is held out, and the key must be absent: it would have no effect when read again.
    raw.data.validation = 0;
    delete raw.data.test_limit;
  }
  const { model, data } = raw;
  if (model.d_model % model.n_heads !== 0)
    throw new ConfigError(`model.d_model ${model.d_model} is not a multiple of model.n_heads ${model.n_heads}`);
  const lengths = data.length_buckets ?? [model.max_seq_len];
  if (lengths.some((length, i) => i > 0 && length <= lengths[i - 1]) || lengths.at(-1) !== model.max_seq_len)
    throw new ConfigError(
      `data.length_buckets [${lengths.join(", ")}] must rise and end with model.max_seq_len ${model.max_seq_len}`,
    );
  if (isOwnFormat(data.dataset) && data.path === undefined)
    throw new ConfigError(`data.path is missing: dataset ${data.dataset} is read from a file or folder of yours`);
  if (data.path !== undefined && !isAbsolute(data.path)) data.path = join(base, data.path);
  if (data.tokenizer !== "hash" && !isAbsolute(data.tokenizer)) data.tokenizer = join(base, data.tokenizer);
  return { ...raw, ...derived(raw), lengths };
}

/** Resolves the configuration of a model that a module defines. */
export function resolveModuleConfig(
  given: RawModuleConfig,
  overrides: Overrides = {},
  base = process.cwd(),
): ModuleConfig {
  const raw: RawModuleConfig = structuredClone(given);
  override(raw, overrides);
  if (overrides.data !== undefined)
    throw new ConfigError("--data has no effect: the module reads its own data; pass paths in options");
  if (!isAbsolute(raw.model)) raw.model = join(base, raw.model);
  return { ...raw, ...derived(raw) };
}

/** The compression that a command line names. */
function parseCompression(text: string): RawConfig["distributed"]["compression"] {
  if (text === "bfloat16" || text === "float16") return text;
  const share = Number(/^top-?k=(.+)$/.exec(text)?.[1] ?? Number.NaN);
  if (!(share > 0 && share <= 1))
    throw new ConfigError(`--compress ${text}: write bfloat16, float16, or top-k=0.01 for the largest hundredth`);
  return { top_k: share };
}

/** Applies the options that both kinds of configurations have. */
function override(raw: RawConfig | RawModuleConfig, overrides: Overrides): void {
  if (overrides.devices !== undefined) raw.distributed.devices = overrides.devices;
  if (overrides.output !== undefined) raw.output = overrides.output;
  if (overrides.device !== undefined) raw.device = overrides.device;
  if (overrides.maxSteps !== undefined) raw.training.max_steps = overrides.maxSteps;
  if (overrides.epochs !== undefined) raw.training.epochs = overrides.epochs;
  if (overrides.seed !== undefined) raw.seed = overrides.seed;
  if (overrides.globalBatch !== undefined) {
    raw.training.global_batch = overrides.globalBatch;
    delete raw.training.batch_per_rank;
  }
  if (overrides.memory !== undefined) raw.distributed.memory = overrides.memory;
  if (overrides.compression !== undefined) raw.distributed.compression = parseCompression(overrides.compression);
  const { compression, memory } = raw.distributed;
  if (compression !== undefined && (memory !== undefined || raw.precision.compute === "float16"))
    throw new ConfigError(
      memory !== undefined
        ? "distributed.compression cannot be used with distributed.memory: gradients of divided parameters are sent in parts"
        : "distributed.compression cannot be used with precision.compute float16: the scale of the loss changes; use bfloat16",
    );
  if (overrides.evaluate === false) raw.training.evaluate = false;
}

/** Batch sizes for this number of ranks, and the folder of the run. */
function derived({ name, output, training, distributed }: RawConfig | RawModuleConfig): Derived {
  const ranks = distributed.devices;
  const parts = ranks * training.accumulation;
  if (training.batch_per_rank === undefined && training.global_batch === undefined)
    throw new ConfigError(
      "training needs batch_per_rank (of one rank and micro-step) or global_batch (of one step over all ranks)",
    );
  const globalBatch = training.global_batch ?? (training.batch_per_rank as number) * parts;
  const batchPerRank = Math.ceil(globalBatch / parts);
  if (training.batch_per_rank !== undefined && training.batch_per_rank !== batchPerRank)
    throw new ConfigError(
      `training.global_batch ${globalBatch} over ${ranks} ranks x ${training.accumulation} micro-steps makes ${batchPerRank} per rank, ` +
        `but training.batch_per_rank says ${training.batch_per_rank}; keep one of the two`,
    );
  const { shares, memory } = distributed;
  if (Array.isArray(memory) && memory.length !== ranks)
    throw new ConfigError(
      `distributed.memory has ${memory.length} sizes for ${ranks} ranks; give one for all, or one for each`,
    );
  if (Array.isArray(shares) && shares.length !== ranks)
    throw new ConfigError(`distributed.shares has ${shares.length} numbers for ${ranks} ranks; give one for each`);
  if (globalBatch < parts)
    throw new ConfigError(
      `training.global_batch ${globalBatch} is less than ${ranks} ranks x ${training.accumulation} micro-steps; use fewer devices or a larger batch`,
    );
  return { output: resolve(output ?? join("runs", name)), ranks, batchPerRank, globalBatch };
}

function parseYaml(file: string): unknown {
  const text = readText(file);
  try {
    return parse(text);
  } catch (error) {
    throw new ConfigError(`${file} ${(error as Error).message}`);
  }
}

/** The content of a file with the values of --set, in our keys. */
function readFile(file: string, { set = [], onTranslated }: Overrides): unknown {
  const { file: raw, wrong } = withSettings(parseYaml(file), set);
  if (wrong !== undefined) throw new ConfigError(`--set ${wrong}: write section.key=value`);
  const translated = translateConfig(raw, file, knownNames);
  if (translated.lines.length > 0) onTranslated?.(translated.lines);
  return translated.file;
}

const folderOf = (file: string): string => dirname(resolve(file));

/** Reads the YAML file of a text classifier. Paths in it are relative to it. */
export const readConfig = (file: string, overrides: Overrides = {}): { raw: RawConfig; base: string } => ({
  raw: checkConfig(readFile(file, overrides), basename(file)),
  base: folderOf(file),
});

/** Reads, validates and resolves the configuration of a text classifier. */
export const loadConfig = (file: string, overrides: Overrides = {}): Config => {
  const { raw, base } = readConfig(file, overrides);
  return resolveConfig(raw, overrides, base);
};

/** Reads, validates and resolves a configuration of any kind. */
export function loadAnyConfig(file: string, overrides: Overrides = {}): Config | ModuleConfig {
  const base = folderOf(file);
  const given = readFile(file, overrides);
  if (!isPretrained(given)) {
    const raw = checkAnyConfig(given, basename(file));
    return isModuleConfig(raw) ? resolveModuleConfig(raw, overrides, base) : resolveConfig(raw, overrides, base);
  }
  const { data, ...others } = overrides;
  const raw = checkAnyConfig(asModule(given, base, data, others.memory), basename(file)) as RawModuleConfig;
  return resolveModuleConfig(raw, others, base);
}

/** The configuration as YAML, without derived values. */
export function showConfig(config: RunConfig | RawConfig): string {
  const { ranks: _r, batchPerRank: _b, globalBatch: _g, lengths: _l, ...raw } = config as Config;
  return stringify(raw);
}
