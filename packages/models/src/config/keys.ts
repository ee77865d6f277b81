// The keys of config.json that no architecture reads: those without an effect on values, and those that are refused because they
// describe another model. A key in neither list is reported, not ignored silently.
import type { Fields } from "./fields.js";

/** Keys that do not change what a model computes, by the reason. */
export const keysWithoutEffect: Readonly<Record<string, readonly string[]>> = {
  "origin of the files": [
    "_name_or_path",
    "name_or_path",
    "_commit_hash",
    "transformers_version",
    "architectures",
    "model_type",
    "auto_map",
    "custom_pipelines",
    "finetuning_task",
    "task_specific_params",
    "tokenizer_class",
    "prefix",
    "license",
    "vocab_file",
    "unsloth_version",
    "unsloth_fixed",
  ],
  "dtype of the files, which have their own": ["torch_dtype", "dtype"],
  "what a call returns": [
    "output_hidden_states",
    "output_attentions",
    "return_dict",
    "use_return_dict",
    "torchscript",
    "tie_last_hidden_states",
    "output_past",
  ],
  "speed and memory": [
    "use_cache",
    "chunk_size_feed_forward",
    "gradient_checkpointing",
    "use_bfloat16",
    "attn_implementation",
    "_attn_implementation",
    "_attn_implementation_autoset",
    "_flash_attn_2_enabled",
    "reorder_and_upcast_attn",
    "pretraining_tp",
  ],
  "generation, which generation_config.json and the options of generate describe": [
    "bos_token_id",
    "eos_token_id",
    "sep_token_id",
    "cls_token_id",
    "decoder_start_token_id",
    "max_length",
    "min_length",
    "do_sample",
    "early_stopping",
    "num_beams",
    "num_beam_groups",
    "diversity_penalty",
    "temperature",
    "top_k",
    "top_p",
    "typical_p",
    "repetition_penalty",
    "length_penalty",
    "no_repeat_ngram_size",
    "encoder_no_repeat_ngram_size",
    "bad_words_ids",
    "num_return_sequences",
    "output_scores",
    "return_dict_in_generate",
    "forced_bos_token_id",
    "forced_eos_token_id",
    "remove_invalid_values",
    "exponential_decay_length_penalty",
    "suppress_tokens",
    "begin_suppress_tokens",
  ],
  "heads that are not loaded": [
    "encoder_stride",
    "qa_dropout",
    "summary_type",
    "summary_use_proj",
    "summary_activation",
    "summary_proj_to_labels",
    "summary_first_dropout",
    "summary_last_dropout",
    "label2id",
    "pooler_fc_size",
    "pooler_num_attention_heads",
    "pooler_num_fc_layers",
    "pooler_size_per_head",
    "pooler_type",
  ],
  "no implementation of these architectures reads them": [
    "is_decoder",
    "n_ctx",
    "directionality",
    "tf_legacy_loss",
    "use_mrope",
  ],
};

const withoutEffect: ReadonlySet<string> = new Set(Object.values(keysWithoutEffect).flat());

const isSet = (value: unknown): boolean =>
  value !== false && !(typeof value === "object" && value !== null && Object.keys(value).length === 0);

/** Keys that every architecture refuses: [key, whether its value is unsupported, what is]. */
export const refusedKeys: readonly [key: string, isUnsupported: (value: unknown) => boolean, remedy: string][] = [
  ["quantization_config", isSet, "load the weights before quantization, in bfloat16, float16 or float32"],
  ["compression_config", isSet, "load the weights before compression, in bfloat16, float16 or float32"],
  ["per_layer_config", isSet, "all layers have the same sizes here"],
  ["pruned_heads", isSet, "all layers have all heads here"],
  ["is_encoder_decoder", isSet, "the model is an encoder or a decoder here"],
  ["tie_encoder_decoder", isSet, "the model is an encoder or a decoder here"],
  ["cross_attention_hidden_size", isSet, "there is no cross-attention"],
  ["add_cross_attention", isSet, "there is no cross-attention"],
];

/** Throws if the configuration describes a model that no architecture here is. */
export function refuseForeignModels(fields: Fields): void {
  for (const [key, isUnsupported, remedy] of refusedKeys) fields.refuse(key, isUnsupported, remedy);
}

/** Keys of a configuration that are neither read nor known to have no effect. */
export const unknownKeys = (fields: Fields): string[] =>
  Object.keys(fields.raw).filter((key) => !fields.read.has(key) && !withoutEffect.has(key));
