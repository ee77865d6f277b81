// GPT-2: a pre-norm decoder with learned positions; its weights are stored as [in, out].
import { packedAttention, type Tensor } from "@weft/core";
import type { Architecture, CommonConfig, KeyValueCache, ModelTask, Outputs, ParameterTable } from "./contract.js";
import {
  type ActivationName,
  activate,
  activationNames,
  applyLayerNorm,
  causalAttention,
  checkLength,
  type Dense,
  Dropout,
  dense,
  denseTransposed,
  idsOf,
  joinHeads,
  lastToken,
  lookup,
  maskOf,
  type Norm,
  positionsOf,
  runLayers,
} from "./layers.js";
import { denseTable, embeddingTable, layerTables, normTable } from "./tables.js";

interface Gpt2Config extends CommonConfig {
  readonly heads: number;
  readonly feedForward: number;
  readonly epsilon: number;
  readonly activation: ActivationName;
  readonly embeddingDropout: number;
  readonly attentionDropout: number;
  readonly residualDropout: number;
  readonly classifierDropout: number;
  /** Factors of the scores of each layer. */
  readonly scales: readonly number[];
}

interface Gpt2Layer {
  ln_1: Norm;
  attn: { c_attn: Dense; c_proj: Dense };
  ln_2: Norm;
  mlp: { c_fc: Dense; c_proj: Dense };
}

interface Gpt2Params {
  transformer: { wte: { weight: Tensor }; wpe: { weight: Tensor }; h: Gpt2Layer[]; ln_f: Norm };
  lm_head?: Dense;
  score: Dense;
  classifier: Dense;
}

/** A dense layer whose weight is stored as [in, out]. */
const transposedTable = (name: string, out: number, inputs: number, gain = 1): ParameterTable => ({
  [`${name}.weight`]: { shape: [inputs, out], init: "normal", gain },
  [`${name}.bias`]: { shape: [out], init: "zeros" },
});

/** Queries, keys and values [rows, length, 3, heads, size]. A weight of four dimensions is stored by head, see {@link Architecture.fused}. */
function project(layer: Dense, x: Tensor, { heads, width }: Gpt2Config): Tensor {
  const { weight } = layer;
  const size = width / heads;
  const lead = x.shape.slice(0, -1);
  const isByHead = weight.shape.length === 4;
  const joint = denseTransposed(isByHead ? { ...layer, weight: weight.reshape([width, 3 * width]) } : layer, x);
  return isByHead
    ? joint.reshape([...lead, heads, 3, size]).transpose(-3, -2)
    : joint.reshape([...lead, 3, heads, size]);
}

export const gpt2: Architecture<Gpt2Config> = {
  prefix: "transformer",
  classes: {
    base: "GPT2Model",
    "causal-lm": "GPT2LMHeadModel",
    classification: "GPT2ForSequenceClassification",
    "token-classification": "GPT2ForTokenClassification",
  },
  ignored: [/(^|\.)h\.\d+\.attn\.(bias|masked_bias)$/],
  aliases: {
    hidden_size: "n_embd",
    max_position_embeddings: "n_positions",
    num_attention_heads: "n_head",
    num_hidden_layers: "n_layer",
  },

  config(fields) {
    const width = fields.count("n_embd", { otherwise: 768, most: 2 ** 17 });
    const heads = fields.count("n_head", { otherwise: 12, most: 2 ** 12 });
    if (width % heads !== 0) throw fields.error("n_head", `is ${heads}, which does not divide n_embd ${width}`);
    const layers = fields.count("n_layer", { otherwise: 12, most: 2 ** 12 });
    const scale = fields.flag("scale_attn_weights", true) ? 1 / Math.sqrt(width / heads) : 1;
    const byLayer = fields.flag("scale_attn_by_inverse_layer_idx", false);
    return {
      width,
      heads,
      layers,
      scales: Array.from({ length: layers }, (_, i) => (byLayer ? scale / (i + 1) : scale)),
      feedForward: fields.count("n_inner", { otherwise: 4 * width }),
      vocabulary: fields.count("vocab_size", { otherwise: 50257 }),
      maxPositions: fields.count("n_positions", { otherwise: 1024 }),
      epsilon: fields.number("layer_norm_epsilon", { otherwise: 1e-5, most: 1 }),
      activation: fields.choice("activation_function", activationNames, "gelu_new"),
      embeddingDropout: fields.rate("embd_pdrop", 0.1),
      attentionDropout: fields.rate("attn_pdrop", 0.1),
      residualDropout: fields.rate("resid_pdrop", 0.1),
      classifierDropout: fields.rate("classifier_dropout", fields.rate("hidden_dropout", 0.1)),
      ...fields.common(),
      tied: fields.flag("tie_word_embeddings", true),
      cache: { heads, size: width / heads },
    };
  },

  fused: (name, { heads, width }) =>
    /\.attn\.c_attn\.(weight|bias)$/.test(name) ? { heads, size: width / heads } : null,

  parameters(c, task) {
    const { width, feedForward } = c;
    // The sum of all layers has the variance of one.
    const gain = 1 / Math.sqrt(2 * c.layers);
    const heads: Record<Exclude<ModelTask, "masked-lm">, ParameterTable> = {
      base: {},
      "causal-lm": c.tied ? {} : denseTable("lm_head", c.vocabulary, width, false),
      classification: denseTable("score", c.labels, width, false),
      "token-classification": denseTable("classifier", c.labels, width),
    };
    return {
      ...embeddingTable("transformer.wte", c.vocabulary, width),
      ...embeddingTable("transformer.wpe", c.maxPositions, width),
      ...layerTables("transformer.h", c.layers, (at) => ({
        ...normTable(`${at}.ln_1`, width),
        ...transposedTable(`${at}.attn.c_attn`, 3 * width, width),
        ...transposedTable(`${at}.attn.c_proj`, width, width, gain),
        ...normTable(`${at}.ln_2`, width),
        ...transposedTable(`${at}.mlp.c_fc`, feedForward, width),
        ...transposedTable(`${at}.mlp.c_proj`, width, feedForward, gain),
      })),
      ...normTable("transformer.ln_f", width),
      ...heads[task as keyof typeof heads],
    };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as unknown as Gpt2Params;
    const { ids, batch: rows, length } = idsOf("apply", batch);
    checkLength("apply", length, c.maxPositions);
    const dropout = Dropout.of(options);
    const { transformer } = p;
    const { cached } = options;
    const tokens = lookup(transformer.wte, ids, options);
    const positions = lookup(transformer.wpe, positionsOf(batch, length), options);
    const x = dropout.apply(tokens.add(positions), c.embeddingDropout);
    const mask = maskOf(batch);
    const cache: KeyValueCache = { keys: [], values: [] };
    const attend = (joint: Tensor, index: number, drop: Dropout): Tensor => {
      const how = { mask, causal: true, scale: c.scales[index], dropout: c.attentionDropout, key: drop.next() };
      if (cached === undefined) return packedAttention(joint, how).reshape([rows, length, c.width]);
      const [q, k, v] = [0, 1, 2].map((part) => joint.index(":", ":", part).transpose(1, 2));
      const made = causalAttention(q, k, v, index, { ...how, cached, window: undefined });
      cache.keys.push(made.keys as Tensor);
      cache.values.push(made.values as Tensor);
      return joinHeads(made.attended);
    };
    const layer = (block: Gpt2Layer, h: Tensor, drop: Dropout, index: number): Tensor => {
      const attended = attend(project(block.attn.c_attn, applyLayerNorm(block.ln_1, h, c.epsilon), c), index, drop);
      const middle = h.add(drop.apply(denseTransposed(block.attn.c_proj, attended), c.residualDropout));
      const inner = activate(
        c.activation,
        denseTransposed(block.mlp.c_fc, applyLayerNorm(block.ln_2, middle, c.epsilon)),
      );
      return middle.add(drop.apply(denseTransposed(block.mlp.c_proj, inner), c.residualDropout));
    };
    const last = runLayers(transformer.h, x, dropout, cached === undefined ? options.checkpoint : "none", layer);
    const hidden = applyLayerNorm(
      transformer.ln_f,
      options.lastOnly ? last.index(":", `${length - 1}:`) : last,
      c.epsilon,
    );
    const more = cached === undefined ? {} : { cache };
    if (task === "causal-lm") return { hidden, logits: dense(p.lm_head ?? transformer.wte, hidden), ...more };
    if (task === "classification") return { hidden, logits: dense(p.score, lastToken(hidden, batch, c.padToken)) };
    if (task === "token-classification")
      return { hidden, logits: dense(p.classifier, dropout.apply(hidden, c.classifierDropout)) };
    return { hidden, ...more };
  },
};
