// What an architecture is: a checked configuration, a table of parameters by the names that checkpoints use, and one function
// from a parameter tree and a batch to outputs.
import type { DType, Key, Tensor } from "@weft/core";
import type { Fields } from "../config/index.js";

/** What a model predicts. `base` stops at the hidden states. */
export const tasks = ["base", "classification", "token-classification", "causal-lm", "masked-lm"] as const;
/** See {@link tasks}. */
export type ModelTask = (typeof tasks)[number];

/** A tree of parameters: nested objects and lists with tensors at the leaves, by the names of the checkpoint. */
export type Params = Record<string, unknown>;

/** Shape and initial distribution of one parameter. */
export interface ParameterSpec {
  readonly shape: readonly number[];
  /** `normal` has the deviation `initializer_range` of the configuration; `sinusoids` are fixed position embeddings. */
  readonly init: "normal" | "zeros" | "ones" | "sinusoids";
  /** Factor of the deviation; 1 by default. */
  readonly gain?: number;
}

/** Parameters by their dotted names, such as `bert.encoder.layer.0.attention.self.query.weight`. */
export type ParameterTable = Record<string, ParameterSpec>;

/** Inputs of a model. Integers are int32; masks are bool or int32, with 0 for padding. */
export interface Batch {
  /** Token ids [batch, length]. */
  inputIds?: Tensor;
  /** [batch, length], 0 for padding. By default nothing is padding. */
  attentionMask?: Tensor;
  /** Segment of the pair of texts that a token belongs to [batch, length]: 0 or 1 (BERT). */
  tokenTypeIds?: Tensor;
  /** Position of each token [batch, length]; counted from 0 by default, and within each packed sequence. */
  positionIds?: Tensor;
  /** Number of the packed sequence that a token belongs to [batch, length]; tokens attend within their own. 0 is padding. */
  segmentIds?: Tensor;
  /** Images [batch, channels, height, width] (ViT). */
  pixelValues?: Tensor;
  /** Classes [batch], or one per token [batch, length] with -100 where there is no loss. */
  labels?: Tensor;
}

/** Keys and values of earlier tokens: one tensor [batch, heads, slots, size] per layer. */
export interface KeyValueCache {
  /** Keys of every layer. */
  keys: Tensor[];
  /** Values of every layer. */
  values: Tensor[];
}

/** Generation with a cache. @inline */
export interface KeyValueCacheOptions {
  /** The cache, whose memory the result reuses where it is donated. */
  cache: KeyValueCache;
  /** Slot of the first token of this call: 0 for the prompt, an int32 tensor without dimensions for later tokens. */
  slot: 0 | Tensor;
  /** Which slots hold tokens that may be attended to [batch, slots], bool; the tokens of this call included. */
  visible: Tensor;
}

/** Which layers rematerialize their intermediate results in the reverse pass. */
export type CheckpointPolicy = "none" | "all" | ((layer: number) => boolean);

/** Options of a forward pass. @inline */
export interface ApplyOptions {
  /** Applies dropout; needs a key. */
  train?: boolean;
  /** Key of the dropout. */
  key?: Key | null;
  /** Dtype of activations and products; that of the parameters by default. */
  dtype?: DType;
  /** Gradient checkpointing by layer; none by default. */
  checkpoint?: CheckpointPolicy;
  /** Generation with a cache of keys and values. */
  cached?: KeyValueCacheOptions;
  /** Computes only the logits of the last token (causal language models). */
  lastOnly?: boolean;
}

/** Results of a forward pass. */
export interface Outputs {
  /** Hidden states after the last layer [batch, length, width]. */
  hidden: Tensor;
  /** Pooled hidden state [batch, width], where the architecture has a pooler and the task uses it. */
  pooled?: Tensor;
  /** Scores of the task's head; absent for the task `base`. */
  logits?: Tensor;
  /** The updated cache, with the option `cached`. */
  cache?: KeyValueCache;
}

/** Sizes that every architecture has. */
export interface CommonConfig {
  /** Standard deviation of new parameters. */
  readonly initializerRange: number;
  /** Number of classes of a head. */
  readonly labels: number;
  /** Number of layers. */
  readonly layers: number;
  /** Size of the hidden state of a token. */
  readonly width: number;
  /** Number of token ids; 0 for models of images. */
  readonly vocabulary: number;
  /** Maximum number of tokens of a text, or of patches and the class token of an image. */
  readonly maxPositions: number;
  /** Id of the padding token, null without one. */
  readonly padToken: number | null;
  /** Output and input embeddings are one tensor. */
  readonly tied: boolean;
  /** Shape of the cache of keys and values; null if the architecture does not generate. */
  readonly cache: {
    readonly heads: number;
    readonly size: number;
    /** Positions that generation may reach, if these are not `maxPositions`. */
    readonly positions?: number;
  } | null;
}

/** Sizes of a projection to queries, keys and values in one parameter. */
export interface FusedProjection {
  readonly heads: number;
  readonly size: number;
}

/** One family of models. */
export interface Architecture<C extends CommonConfig = CommonConfig> {
  /** Name of the backbone in parameter names; checkpoints of the task `base` omit it. */
  readonly prefix: string;
  /** Class names of the checkpoint format, by task. */
  readonly classes: Partial<Record<ModelTask, string>>;
  /** Parameters of files that are not parameters of the model (buffers, heads of other tasks). */
  readonly ignored: readonly RegExp[];
  /** Other names of fields of the configuration, and the name that {@link Architecture.config} reads. */
  readonly aliases?: Readonly<Record<string, string>>;
  /** Reads and checks the configuration. */
  config(fields: Fields): C;
  /** The parameters of a task. */
  parameters(config: C, task: ModelTask): ParameterTable;
  /**
   * Layout of a parameter that holds queries, keys and values in one dimension; null for others. {@link Architecture.apply} also takes its
   * weight as [inputs, heads, 3, size], which devices can divide by heads.
   */
  fused?(name: string, config: C): FusedProjection | null;
  /** Computes the outputs. */
  apply(params: Params, batch: Batch, config: C, task: ModelTask, options: ApplyOptions): Outputs;
}
