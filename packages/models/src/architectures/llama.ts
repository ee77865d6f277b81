// Llama and Qwen2: pre-norm decoders with rotary positions, RMS norms, gated feed-forward parts and grouped queries. Qwen2 adds
// biases to the projections of queries, keys and values, and sliding windows.
import type { Tensor } from "@weft/core";
import type { Fields } from "../config/index.js";
import type { Architecture, CommonConfig, KeyValueCache, ModelTask, Outputs, ParameterTable } from "./contract.js";
import {
  type ActivationName,
  activate,
  activationNames,
  applyRmsNorm,
  causalAttention,
  checkLength,
  type Dense,
  Dropout,
  dense,
  idsOf,
  joinHeads,
  lastToken,
  lookup,
  maskOf,
  type Norm,
  positionsOf,
  runLayers,
  splitHeads,
} from "./layers.js";
import { type Rope, readRope, rotate, rotationOf } from "./rope.js";
import { denseTable, embeddingTable, layerTables, normTable } from "./tables.js";

interface LlamaConfig extends CommonConfig {
  readonly heads: number;
  readonly keyHeads: number;
  readonly size: number;
  readonly feedForward: number;
  readonly epsilon: number;
  readonly activation: ActivationName;
  readonly attentionDropout: number;
  readonly classifierDropout: number;
  /** The head of token classification has a bias. */
  readonly hasTokenBias: boolean;
  readonly rope: Rope;
  /** Biases of queries, keys and values; of the output projection; of the feed-forward part. */
  readonly biases: { inputs: boolean; output: boolean; feedForward: boolean };
  /** Window of each layer, undefined for full attention. */
  readonly windows: readonly (number | undefined)[];
}

interface LlamaLayer {
  input_layernorm: Norm;
  self_attn: { q_proj: Dense; k_proj: Dense; v_proj: Dense; o_proj: Dense };
  post_attention_layernorm: Norm;
  mlp: { gate_proj: Dense; up_proj: Dense; down_proj: Dense };
}

interface LlamaParams {
  model: { embed_tokens: { weight: Tensor }; layers: LlamaLayer[]; norm: Norm };
  lm_head?: Dense;
  score: Dense;
}

/** Values of the fields that a configuration lacks. */
interface Absent {
  vocabulary: number;
  feedForward: number;
  positions: number;
  /** As many as queries by default. */
  keyHeads?: number;
}

function readConfig(
  fields: Fields,
  absent: Absent,
  biases: LlamaConfig["biases"],
  windows: (layers: number) => LlamaConfig["windows"],
): LlamaConfig {
  const width = fields.count("hidden_size", { otherwise: 4096, most: 2 ** 17 });
  const heads = fields.count("num_attention_heads", { otherwise: 32, most: 2 ** 12 });
  // Null means as many as queries; a missing number is that of the published class.
  const usual = Object.hasOwn(fields.raw, "num_key_value_heads") ? heads : (absent.keyHeads ?? heads);
  const keyHeads = fields.count("num_key_value_heads", { otherwise: usual, most: 2 ** 12 });
  if (heads % keyHeads !== 0)
    throw fields.error("num_key_value_heads", `is ${keyHeads}, which does not divide num_attention_heads ${heads}`);
  const size = fields.count("head_dim", { otherwise: width / heads, most: 2 ** 12 });
  if (size % 2 !== 0) throw fields.error("head_dim", `is ${size}; rotary positions need an even number`);
  const layers = fields.count("num_hidden_layers", { otherwise: 32, most: 2 ** 12 });
  const maxPositions = fields.count("max_position_embeddings", { otherwise: absent.positions });
  const rope = readRope(fields, size, maxPositions);
  return {
    width,
    heads,
    keyHeads,
    size,
    layers,
    maxPositions,
    feedForward: fields.count("intermediate_size", { otherwise: absent.feedForward }),
    vocabulary: fields.count("vocab_size", { otherwise: absent.vocabulary }),
    epsilon: fields.number("rms_norm_eps", { otherwise: 1e-6, most: 1 }),
    activation: fields.choice("hidden_act", activationNames, "silu"),
    attentionDropout: fields.rate("attention_dropout", 0),
    classifierDropout: fields.rate("classifier_dropout", fields.rate("hidden_dropout", 0.1)),
    hasTokenBias: fields.flag("token_classification_bias", true),
    rope,
    biases,
    windows: windows(layers),
    ...fields.common(),
    tied: fields.flag("tie_word_embeddings", false),
    // Dynamic scaling is for texts that are longer than the model's positions.
    cache: {
      heads: keyHeads,
      size,
      ...(rope.kind === "dynamic" && { positions: Math.floor(Math.max(1, rope.factor) * maxPositions) }),
    },
  };
}

const decoder = (name: string, config: (fields: Fields) => LlamaConfig): Architecture<LlamaConfig> => ({
  prefix: "model",
  classes: {
    base: `${name}Model`,
    "causal-lm": `${name}ForCausalLM`,
    classification: `${name}ForSequenceClassification`,
    "token-classification": `${name}ForTokenClassification`,
  },
  ignored: [/\.rotary_emb\.inv_freq$/],
  config,

  parameters(c, task) {
    const { width, size, biases, feedForward } = c;
    const heads: Record<Exclude<ModelTask, "masked-lm">, ParameterTable> = {
      base: {},
      "causal-lm": c.tied ? {} : denseTable("lm_head", c.vocabulary, width, false),
      classification: denseTable("score", c.labels, width, false),
      "token-classification": denseTable("score", c.labels, width, c.hasTokenBias),
    };
    return {
      ...embeddingTable("model.embed_tokens", c.vocabulary, width),
      ...layerTables("model.layers", c.layers, (at) => ({
        ...normTable(`${at}.input_layernorm`, width, false),
        ...denseTable(`${at}.self_attn.q_proj`, c.heads * size, width, biases.inputs),
        ...denseTable(`${at}.self_attn.k_proj`, c.keyHeads * size, width, biases.inputs),
        ...denseTable(`${at}.self_attn.v_proj`, c.keyHeads * size, width, biases.inputs),
        ...denseTable(`${at}.self_attn.o_proj`, width, c.heads * size, biases.output),
        ...normTable(`${at}.post_attention_layernorm`, width, false),
        ...denseTable(`${at}.mlp.gate_proj`, feedForward, width, biases.feedForward),
        ...denseTable(`${at}.mlp.up_proj`, feedForward, width, biases.feedForward),
        ...denseTable(`${at}.mlp.down_proj`, width, feedForward, biases.feedForward),
      })),
      ...normTable("model.norm", width, false),
      ...heads[task as keyof typeof heads],
    };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as unknown as LlamaParams;
    const { ids, length } = idsOf("apply", batch);
    if (c.rope.kind === "default") checkLength("apply", length, c.maxPositions);
    const dropout = Dropout.of(options);
    const { cached } = options;
    const rotation = rotationOf(c.rope, positionsOf(batch, length));
    const mask = maskOf(batch);
    const cache: KeyValueCache = { keys: [], values: [] };
    const layer = (block: LlamaLayer, x: Tensor, drop: Dropout, index: number): Tensor => {
      const { q_proj, k_proj, v_proj, o_proj } = block.self_attn;
      const n = applyRmsNorm(block.input_layernorm, x, c.epsilon);
      const q = rotate(splitHeads(dense(q_proj, n), c.heads), rotation);
      const k = rotate(splitHeads(dense(k_proj, n), c.keyHeads), rotation);
      const v = splitHeads(dense(v_proj, n), c.keyHeads);
      const how = { mask, cached, window: c.windows[index], dropout: c.attentionDropout, key: drop.next() };
      const { attended, keys, values } = causalAttention(q, k, v, index, how);
      if (keys !== undefined && values !== undefined) {
        cache.keys.push(keys);
        cache.values.push(values);
      }
      const h = x.add(dense(o_proj, joinHeads(attended)));
      const m = applyRmsNorm(block.post_attention_layernorm, h, c.epsilon);
      const gated = activate(c.activation, dense(block.mlp.gate_proj, m)).mul(dense(block.mlp.up_proj, m));
      return h.add(dense(block.mlp.down_proj, gated));
    };
    const x = lookup(p.model.embed_tokens, ids, options);
    const last = runLayers(p.model.layers, x, dropout, cached === undefined ? options.checkpoint : "none", layer);
    const hidden = applyRmsNorm(p.model.norm, options.lastOnly ? last.index(":", `${length - 1}:`) : last, c.epsilon);
    const more = cached === undefined ? {} : { cache };
    if (task === "causal-lm") return { hidden, logits: dense(p.lm_head ?? p.model.embed_tokens, hidden), ...more };
    if (task === "classification") return { hidden, logits: dense(p.score, lastToken(hidden, batch, c.padToken)) };
    if (task === "token-classification")
      return { hidden, logits: dense(p.score, dropout.apply(hidden, c.classifierDropout)) };
    return { hidden, ...more };
  },
});

export const llama = decoder("Llama", (fields) => {
  const bias = fields.flag("attention_bias", false);
  const biases = { inputs: bias, output: bias, feedForward: fields.flag("mlp_bias", false) };
  const absent = { vocabulary: 32000, feedForward: 11008, positions: 2048 };
  return readConfig(fields, absent, biases, (layers) => new Array<undefined>(layers).fill(undefined));
});

export const qwen2 = decoder("Qwen2", (fields) => {
  const biases = { inputs: true, output: false, feedForward: false };
  const absent = { vocabulary: 151936, feedForward: 22016, positions: 32768, keyHeads: 32 };
  return readConfig(fields, absent, biases, (layers) => windowsOf(fields, layers));
});

/** The windows of `layer_types`, or of the layers from `max_window_layers` on in older files. */
function windowsOf(fields: Fields, layers: number): (number | undefined)[] {
  const isOn = fields.flag("use_sliding_window", false);
  // A window of w tokens contains the query itself. A null window means no window.
  const given = Object.hasOwn(fields.raw, "sliding_window") && !fields.has("sliding_window");
  const size = fields.count("sliding_window", { otherwise: 4096, most: 2 ** 29 });
  const window = isOn && !given ? size - 1 : undefined;
  const first = fields.count("max_window_layers", { otherwise: 28, least: 0 });
  const types = fields.list("layer_types");
  if (types === null) return Array.from({ length: layers }, (_, i) => (i >= first ? window : undefined));
  if (types.length !== layers)
    throw fields.error("layer_types", `must list the kinds of ${layers} layers, got ${types.length}`);
  return types.map((type) => {
    if (type === "full_attention") return undefined;
    if (type === "sliding_attention" && window !== undefined) return window;
    const reason = type === "sliding_attention" ? "but use_sliding_window is false" : "which is not supported";
    throw fields.error("layer_types", `has ${JSON.stringify(type)?.slice(0, 80)}, ${reason}`);
  });
}
