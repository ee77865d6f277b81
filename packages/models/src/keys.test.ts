// Configurations as real folders have them: every key of the configuration classes of transformers is read, refused or known to
// have no effect, and a changed value gives the logits of transformers or an error that names the key.
import assert from "node:assert/strict";
import { mkdirSync, writeFileSync } from "node:fs";
import { join } from "node:path";
import { describe, test } from "node:test";
import { key, setDevice } from "@weft/core";
import { architectureOf } from "./architectures/index.js";
import { Fields, keysWithoutEffect, refusedKeys, refuseForeignModels } from "./config/index.js";
import { defineModel, loadPretrained, loadTokenizer, savePretrained, trainTokenizer } from "./index.js";
import {
  askTransformers,
  difference,
  integers,
  needsTransformers,
  numbers,
  type OracleRequest,
  scratch,
  toBatch,
} from "./transformers.testkit.js";

setDevice("reference");
const folder = scratch();
const ids = integers(2, 9, 3, 40, 1);
const attention_mask = [ids[0].map(() => 1), ids[1].map((_, i) => (i < 6 ? 1 : 0))];
const text = { input_ids: ids, attention_mask };
const wide = {
  vocab_size: 40,
  hidden_size: 24,
  num_hidden_layers: 2,
  num_attention_heads: 4,
  intermediate_size: 40,
  max_position_embeddings: 32,
  num_labels: 3,
};
const image = (height: number, width: number) => ({
  pixel_values: [0, 1].map((b) =>
    [0, 1, 2].map((c) => Array.from({ length: height }, (_, h) => numbers(width, b * 99 + c * 20 + h))),
  ),
});
const base = {
  bert: { ...wide, model_type: "bert" },
  roberta: { ...wide, model_type: "roberta" },
  distilbert: { model_type: "distilbert", vocab_size: 40, dim: 24, n_layers: 2, n_heads: 4, hidden_dim: 40 },
  gpt2: { model_type: "gpt2", vocab_size: 40, n_embd: 24, n_layer: 2, n_head: 4, n_positions: 32 },
  llama: { ...wide, model_type: "llama", pad_token_id: 0 },
  qwen2: { ...wide, model_type: "qwen2", num_key_value_heads: 2, pad_token_id: 0 },
  vit: { ...wide, model_type: "vit", image_size: 12, patch_size: 4 },
};
type Kind = keyof typeof base;

const llama3 = { rope_type: "llama3", factor: 8, low_freq_factor: 1, high_freq_factor: 4 };
const yarn = { rope_type: "yarn", factor: 4, original_max_position_embeddings: 8 };
/** Changes of a configuration: [architecture, class, change, the key that an error names if it is refused]. */
const changes: [Kind, string, Record<string, unknown>, RegExp?][] = [
  ["bert", "BertModel", { hidden_act: "quick_gelu", layer_norm_eps: 0.1 }],
  ["bert", "BertModel", { hidden_act: "gelu_python", type_vocab_size: 4, chunk_size_feed_forward: 3 }],
  ["bert", "BertModel", { hidden_act: "relu2", use_cache: false, initializer_range: 0.5 }],
  ["bert", "BertModel", { hidden_act: "mish" }, /hidden_act/],
  ["bert", "BertModel", { hidden_act: "gelu_10" }, /hidden_act/],
  ["bert", "BertForMaskedLM", { pad_token_id: 7, hidden_act: "sigmoid" }],
  ["bert", "BertForSequenceClassification", { classifier_dropout: 0.5, num_labels: 5 }],
  ["bert", "BertModel", { is_decoder: true }, /is_decoder/],
  ["bert", "BertModel", { position_embedding_type: "relative_key" }, /position_embedding_type/],
  ["bert", "BertModel", { pruned_heads: { "0": [1] } }, /pruned_heads/],
  ["bert", "BertModel", { quantization_config: { quant_method: "gptq", bits: 4 } }, /quantization_config/],
  ["roberta", "RobertaModel", { pad_token_id: 0, type_vocab_size: 3 }],
  ["roberta", "RobertaModel", { pad_token_id: 5 }],
  ["roberta", "RobertaForMaskedLM", { tie_word_embeddings: false, hidden_act: "relu" }],
  ["roberta", "RobertaModel", { add_cross_attention: true, is_decoder: true }, /add_cross_attention|is_decoder/],
  ["distilbert", "DistilBertModel", { activation: "relu", sinusoidal_pos_embds: true }],
  ["distilbert", "DistilBertModel", { dim: undefined, hidden_size: 16, n_heads: undefined, num_attention_heads: 2 }],
  ["distilbert", "DistilBertForMaskedLM", { tie_word_embeddings: false, activation: "gelu_new" }],
  ["gpt2", "GPT2LMHeadModel", { scale_attn_weights: false }],
  ["gpt2", "GPT2LMHeadModel", { scale_attn_by_inverse_layer_idx: true, reorder_and_upcast_attn: true }],
  ["gpt2", "GPT2LMHeadModel", { n_inner: 20, activation_function: "linear", layer_norm_epsilon: 0.1 }],
  ["gpt2", "GPT2LMHeadModel", { tie_word_embeddings: false, activation_function: "relu6" }],
  ["gpt2", "GPT2LMHeadModel", { n_embd: undefined, hidden_size: 16, n_layer: undefined, num_hidden_layers: 1 }],
  ["gpt2", "GPT2LMHeadModel", { add_cross_attention: true }, /add_cross_attention/],
  ["llama", "LlamaForCausalLM", { hidden_act: "gelu_pytorch_tanh", rms_norm_eps: 0.1, pretraining_tp: 2 }],
  ["llama", "LlamaForCausalLM", { rope_theta: 100 }],
  ["llama", "LlamaForCausalLM", { rope_theta: 100, rope_scaling: { type: "linear", factor: 3 } }],
  ["llama", "LlamaForCausalLM", { rope_scaling: { type: "linear", factor: 3 }, rope_parameters: { rope_theta: 50 } }],
  ["llama", "LlamaForCausalLM", { rope_scaling: llama3, original_max_position_embeddings: 4 }],
  ["llama", "LlamaForCausalLM", { rope_scaling: { ...yarn, factor: null } }],
  ["llama", "LlamaForCausalLM", { rope_scaling: { ...yarn, mscale: 0.7, mscale_all_dim: 0.4, beta_fast: 8 } }],
  ["llama", "LlamaForCausalLM", { rope_scaling: { ...yarn, attention_factor: 0.5, truncate: false, beta_slow: 0.5 } }],
  ["llama", "LlamaForCausalLM", { rope_scaling: yarn, original_max_position_embeddings: 20 }],
  ["llama", "LlamaForCausalLM", { rope_scaling: { type: "dynamic", factor: 3 }, max_position_embeddings: 5 }],
  [
    "llama",
    "LlamaForCausalLM",
    { rope_scaling: { type: "dynamic", factor: 3, original_max_position_embeddings: 4 }, max_position_embeddings: 6 },
  ],
  ["llama", "LlamaForCausalLM", { rope_scaling: { rope_type: "longrope", factor: 2 } }, /rope_type/],
  ["llama", "LlamaForCausalLM", { partial_rotary_factor: 0.5 }, /partial_rotary_factor/],
  [
    "llama",
    "LlamaForCausalLM",
    { rope_parameters: { full_attention: { rope_type: "linear", factor: 2 } } },
    /full_att/,
  ],
  ["llama", "LlamaForCausalLM", { num_key_value_heads: null, head_dim: 8 }],
  ["llama", "LlamaForCausalLM", { per_layer_config: { "1": { hidden_act: "relu" } } }, /per_layer_config/],
  ["llama", "LlamaForTokenClassification", { token_classification_bias: false, hidden_dropout: 0.3 }],
  ["llama", "LlamaForSequenceClassification", { pad_token_id: ids[0][8] }],
  ["qwen2", "Qwen2ForCausalLM", { use_sliding_window: true, sliding_window: 3, max_window_layers: 0 }],
  ["qwen2", "Qwen2ForCausalLM", { use_sliding_window: true, sliding_window: null, max_window_layers: 0 }],
  ["qwen2", "Qwen2ForCausalLM", { use_sliding_window: false, sliding_window: 3, max_window_layers: 0 }],
  [
    "qwen2",
    "Qwen2ForCausalLM",
    { use_sliding_window: true, sliding_window: 4, layer_types: ["sliding_attention", "full_attention"] },
  ],
  ["qwen2", "Qwen2ForCausalLM", { layer_types: ["chunked_attention", "full_attention"] }, /layer_types/],
  ["qwen2", "Qwen2ForCausalLM", { layer_types: ["sliding_attention", "full_attention"] }, /layer_types/],
  ["qwen2", "Qwen2ForCausalLM", { num_key_value_heads: null, rope_theta: 1e6, attention_bias: false }],
  ["vit", "ViTForImageClassification", { image_size: [12, 8], patch_size: [4, 2] }],
  // Pixels beyond the last whole patch are cut off.
  ["vit", "ViTForImageClassification", { image_size: [12, 8], patch_size: [5, 3] }],
  ["vit", "ViTModel", { qkv_bias: false, pooler_act: "relu", pooler_output_size: 10, hidden_act: "gelu_fast" }],
  ["vit", "ViTModel", { layer_norm_eps: 0.1, encoder_stride: 4 }],
  ["vit", "ViTModel", { head_dim: 8 }, /head_dim/],
];

const requests = changes.map(
  ([kind, name, change, refused], i): OracleRequest => ({
    dir: join(folder, `change-${i}`),
    class: name,
    config: { ...base[kind], ...change },
    raw: true,
    seed: i,
    batch: kind === "vit" ? image(12, Array.isArray(change["image_size"]) ? 8 : 12) : text,
    mayFail: refused !== undefined,
  }),
);
const kinds = Object.keys(base) as Kind[];
const all =
  needsTransformers.skip !== false
    ? []
    : await askTransformers([...requests, ...kinds.map((kind) => ({ dir: join(folder, `keys-${kind}`), keys: kind }))]);

describe("configurations", needsTransformers, () => {
  changes.forEach(([kind, , change, refused], i) => {
    const { dir, batch, config } = requests[i];
    test(`${kind} with ${JSON.stringify(change)}`, async () => {
      if (refused !== undefined) {
        assert.throws(() => defineModel(config as Record<string, unknown>), refused);
        return;
      }
      const model = await loadPretrained(dir);
      assert.deepEqual(model.initialized, []);
      const outputs = model.apply(model.params, toBatch(batch as Record<string, unknown>));
      for (const [own, name] of [
        [outputs.logits, "logits"],
        [model.task === "base" ? outputs.hidden : undefined, "hidden"],
        [outputs.pooled, "pooled"],
      ] as const) {
        if (own === undefined || all[i][name] === undefined) continue;
        const off = await difference(
          own,
          all[i][name],
          1,
          own.rank < 3 || kind === "vit" ? undefined : attention_mask.flat(),
        );
        assert.ok(off <= 1e-4, `${name} differ by ${off}`);
      }
    });
  });

  kinds.forEach((kind, k) => {
    test(`every key of ${kind} is read, refused or known to have no effect`, () => {
      const fields = new Fields(base[kind]).withAliases({});
      refuseForeignModels(fields);
      architectureOf(fields).architecture.config(fields);
      const known = new Set([
        ...fields.read,
        ...Object.values(keysWithoutEffect).flat(),
        ...refusedKeys.map(([name]) => name),
        ...["problem_type", "tie_word_embeddings"],
      ]);
      const listed = Buffer.from(all[changes.length + k].keys.data as Uint8Array)
        .toString()
        .split("\n");
      assert.ok(listed.length > 15, listed.join());
      assert.deepEqual(
        listed.filter((name) => !known.has(name)),
        [],
      );
    });
  });
});

/** Changes of tokenizer_config.json, and of other files of a tokenizer. */
const tokenizers: [string, Record<string, unknown>, Record<string, unknown>?][] = [
  ["plain", {}],
  ["cased", { do_lower_case: false }],
  ["accents", { strip_accents: false }],
  ["cut at the left", { truncation_side: "left" }],
  ["clean", { clean_up_tokenization_spaces: true }],
  ["not framed", { tokenizer_class: "PreTrainedTokenizerFast", add_bos_token: true, bos_token: "[CLS]" }],
  [
    "added",
    {
      added_tokens_decoder: {
        "300": { content: "<new>", lstrip: true, rstrip: false, normalized: false, single_word: false, special: true },
      },
    },
  ],
  ["map", { pad_token: undefined }, { pad_token: "[PAD]", mask_token: "[MASK]" }],
];
const pairs = [
  ["the cat sat on the mat", ""],
  ["the cat sat on the mat and the hat", "a dog"],
  ["a dog", "the cat sat on the mat and the hat"],
  ["the cat sat on", "the dog sat on"],
] as const;

describe("tokenizers", needsTransformers, () => {
  const texts = ["The cat sat on the mat .", "Caf\u00e9 <new> [SEP] hats, \u4f60\u597d!", "don't do not"];
  test("options of the files change ids as in transformers, and long pairs are cut as there", async () => {
    const made = trainTokenizer(
      ["the cat sat on the mat and the hat", "a dog sat on a log, caf\u00e9 don't", "THE Cat"],
      120,
    );
    const requests = tokenizers.map(([name, settings, map]): OracleRequest => {
      const dir = join(folder, `tokenizer-${name.replaceAll(" ", "-")}`);
      mkdirSync(dir);
      writeFileSync(join(dir, "tokenizer.json"), JSON.stringify(made.tokenizer));
      writeFileSync(join(dir, "tokenizer_config.json"), JSON.stringify({ ...made.settings, ...settings }));
      if (map !== undefined) writeFileSync(join(dir, "special_tokens_map.json"), JSON.stringify(map));
      return { dir, texts, pairs: [...pairs], maxLength: 8 };
    });
    const answers = await askTransformers(requests);
    for (const [i, answer] of answers.entries()) {
      const tokenizer = await loadTokenizer(requests[i].dir);
      const ids = [
        ...texts.map((text) => tokenizer.encode(text).ids),
        ...pairs.map(
          ([first, second]) => tokenizer.encode(first, { maxLength: 8, ...(second !== "" && { pair: second }) }).ids,
        ),
      ];
      ids.forEach((row, k) => {
        assert.deepEqual(row, Array.from(answer[`ids.${k}`].data, Number), `${tokenizers[i][0]} row ${k}`);
      });
      texts.forEach((_, k) => {
        const theirs = Buffer.from(Int32Array.from(answer[`ids.${ids.length + k}`].data, Number)).toString();
        assert.equal(tokenizer.decode(ids[k]), theirs, `${tokenizers[i][0]} text ${k}`);
      });
    }
  });
});

test("keys that nobody knows are reported, and the names of other architectures are translated", () => {
  const model = defineModel({ ...base.gpt2, attention_multiplier: 3, n_ctx: 32, _name_or_path: "gpt2" });
  assert.deepEqual(model.unknownKeys, ["attention_multiplier"]);
  assert.throws(() => defineModel({ ...base.gpt2, hidden_size: 32 }), /hidden_size is 32, but n_embd.* 24/);
  assert.throws(
    () => defineModel({ ...base.bert, id2label: { "0": "a" }, num_labels: 2 }),
    /num_labels is 2, but id2label has 1 names/,
  );
  assert.throws(
    () => defineModel({ ...base.bert, num_labels: 1, problem_type: "single_label_classification" }),
    /needs at least 2 labels/,
  );
  assert.equal(defineModel({ ...base.llama, pad_token_id: -1 }).config.padToken, -1);
  // Missing keys have the values of the published classes.
  const plain = defineModel({ model_type: "qwen2" }).config as unknown as Record<string, unknown>;
  assert.deepEqual([plain["maxPositions"], plain["keyHeads"], plain["feedForward"]], [32768, 32, 22016]);
});

test("files that TensorFlow or Flax saved are refused", async () => {
  const model = defineModel(base.gpt2);
  const dir = join(folder, "flax");
  await savePretrained(dir, model, model.init(key(0)));
  const { io } = await import("@weft/core");
  const path = join(dir, "model.safetensors");
  const tensors = await io.readSafetensors(path);
  await io.writeSafetensors(path, tensors, { format: "flax" });
  await assert.rejects(loadPretrained(dir), /was saved by flax/);
  await io.writeSafetensors(path, tensors, { format: "mlx", note: "anything" });
  assert.equal((await loadPretrained(dir)).type, "gpt2");
  writeFileSync(join(dir, "generation_config.json"), JSON.stringify({ eos_token_id: [3, 4], num_beams: 2 }));
  const { generateTokens } = await import("./index.js");
  const loaded = await loadPretrained(dir, { task: "causal-lm" });
  await assert.rejects(
    generateTokens(loaded, loaded.params, [[1]]).next(),
    /generation_config\.json of the model has num_beams: 2, which is not supported/,
  );
  const ended = generateTokens(loaded, loaded.params, [[1]], { ignoreUnsupported: true, maxNewTokens: 2 });
  assert.equal((await ended.next()).done, false);
});
