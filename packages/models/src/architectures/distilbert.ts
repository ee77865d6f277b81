// DistilBERT: BERT without token types and pooler, with half the layers.
import { relu, scaledDotProductAttention, type Tensor } from "@weft/core";
import type { Architecture, CommonConfig, ModelTask, Outputs, ParameterTable } from "./contract.js";
import {
  type ActivationName,
  activate,
  activationNames,
  applyLayerNorm,
  checkLength,
  type Dense,
  Dropout,
  dense,
  idsOf,
  joinHeads,
  lookup,
  maskOf,
  type Norm,
  positionsOf,
  runLayers,
  splitHeads,
} from "./layers.js";
import { denseTable, embeddingTable, layerTables, normTable } from "./tables.js";

interface DistilBertConfig extends CommonConfig {
  readonly heads: number;
  readonly feedForward: number;
  readonly activation: ActivationName;
  /** New position embeddings are sines and cosines instead of random numbers. */
  readonly hasSinusoids: boolean;
  readonly dropout: number;
  readonly attentionDropout: number;
  readonly classifierDropout: number;
}

interface DistilBertLayer {
  attention: { q_lin: Dense; k_lin: Dense; v_lin: Dense; out_lin: Dense };
  sa_layer_norm: Norm;
  ffn: { lin1: Dense; lin2: Dense };
  output_layer_norm: Norm;
}

interface DistilBertParams {
  distilbert: {
    embeddings: { word_embeddings: { weight: Tensor }; position_embeddings: { weight: Tensor }; LayerNorm: Norm };
    transformer: { layer: DistilBertLayer[] };
  };
  pre_classifier: Dense;
  classifier: Dense;
  vocab_transform: Dense;
  vocab_layer_norm: Norm;
  vocab_projector: Partial<Dense>;
}

const epsilon = 1e-12;

function layer(p: DistilBertLayer, x: Tensor, mask: Tensor | undefined, c: DistilBertConfig, drop: Dropout): Tensor {
  const { q_lin, k_lin, v_lin, out_lin } = p.attention;
  const [q, k, v] = [q_lin, k_lin, v_lin].map((part) => splitHeads(dense(part, x), c.heads));
  const attended = scaledDotProductAttention(q, k, v, { mask, dropout: c.attentionDropout, key: drop.next() });
  const h = applyLayerNorm(p.sa_layer_norm, dense(out_lin, joinHeads(attended)).add(x), epsilon);
  const inner = dense(p.ffn.lin2, activate(c.activation, dense(p.ffn.lin1, h)));
  return applyLayerNorm(p.output_layer_norm, drop.apply(inner, c.dropout).add(h), epsilon);
}

export const distilbert: Architecture<DistilBertConfig> = {
  prefix: "distilbert",
  classes: {
    base: "DistilBertModel",
    classification: "DistilBertForSequenceClassification",
    "token-classification": "DistilBertForTokenClassification",
    "masked-lm": "DistilBertForMaskedLM",
  },
  ignored: [/(^|\.)embeddings\.position_ids$/],
  aliases: { hidden_size: "dim", num_attention_heads: "n_heads", num_hidden_layers: "n_layers" },

  config(fields) {
    const width = fields.count("dim", { otherwise: 768, most: 2 ** 17 });
    const heads = fields.count("n_heads", { otherwise: 12, most: 2 ** 12 });
    if (width % heads !== 0) throw fields.error("n_heads", `is ${heads}, which does not divide dim ${width}`);
    return {
      width,
      heads,
      layers: fields.count("n_layers", { otherwise: 6, most: 2 ** 12 }),
      feedForward: fields.count("hidden_dim", { otherwise: 3072 }),
      vocabulary: fields.count("vocab_size", { otherwise: 30522 }),
      hasSinusoids: fields.flag("sinusoidal_pos_embds", false),
      maxPositions: fields.count("max_position_embeddings", { otherwise: 512 }),
      activation: fields.choice("activation", activationNames, "gelu"),
      dropout: fields.rate("dropout", 0.1),
      attentionDropout: fields.rate("attention_dropout", 0.1),
      classifierDropout: fields.rate("seq_classif_dropout", 0.2),
      ...fields.common(),
      tied: fields.flag("tie_word_embeddings", true),
      cache: null,
    };
  },

  parameters(c, task) {
    const { width, feedForward, vocabulary } = c;
    const heads: Record<Exclude<ModelTask, "causal-lm">, ParameterTable> = {
      base: {},
      classification: { ...denseTable("pre_classifier", width, width), ...denseTable("classifier", c.labels, width) },
      "token-classification": denseTable("classifier", c.labels, width),
      "masked-lm": {
        ...denseTable("vocab_transform", width, width),
        ...normTable("vocab_layer_norm", width),
        "vocab_projector.bias": { shape: [vocabulary], init: "zeros" },
        ...(c.tied ? {} : embeddingTable("vocab_projector", vocabulary, width)),
      },
    };
    return {
      ...embeddingTable("distilbert.embeddings.word_embeddings", vocabulary, width),
      "distilbert.embeddings.position_embeddings.weight": {
        shape: [c.maxPositions, width],
        init: c.hasSinusoids ? "sinusoids" : "normal",
      },
      ...normTable("distilbert.embeddings.LayerNorm", width),
      ...layerTables("distilbert.transformer.layer", c.layers, (at) => ({
        ...denseTable(`${at}.attention.q_lin`, width, width),
        ...denseTable(`${at}.attention.k_lin`, width, width),
        ...denseTable(`${at}.attention.v_lin`, width, width),
        ...denseTable(`${at}.attention.out_lin`, width, width),
        ...normTable(`${at}.sa_layer_norm`, width),
        ...denseTable(`${at}.ffn.lin1`, feedForward, width),
        ...denseTable(`${at}.ffn.lin2`, width, feedForward),
        ...normTable(`${at}.output_layer_norm`, width),
      })),
      ...heads[task as keyof typeof heads],
    };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as unknown as DistilBertParams;
    const { ids, length } = idsOf("apply", batch);
    checkLength("apply", length, c.maxPositions);
    const dropout = Dropout.of(options);
    const { embeddings, transformer } = p.distilbert;
    const positions = lookup(embeddings.position_embeddings, positionsOf(batch, length), options);
    const sum = lookup(embeddings.word_embeddings, ids, options).add(positions);
    const x = dropout.apply(applyLayerNorm(embeddings.LayerNorm, sum, epsilon), c.dropout);
    const mask = maskOf(batch);
    const hidden = runLayers(transformer.layer, x, dropout, options.checkpoint, (params, h, drop) =>
      layer(params, h, mask, c, drop),
    );
    if (task === "classification") {
      const inner = relu(dense(p.pre_classifier, hidden.index(":", 0)));
      return { hidden, logits: dense(p.classifier, dropout.apply(inner, c.classifierDropout)) };
    }
    if (task === "token-classification")
      return { hidden, logits: dense(p.classifier, dropout.apply(hidden, c.dropout)) };
    if (task === "masked-lm") {
      const h = applyLayerNorm(p.vocab_layer_norm, activate(c.activation, dense(p.vocab_transform, hidden)), epsilon);
      return { hidden, logits: dense({ ...embeddings.word_embeddings, ...p.vocab_projector }, h) };
    }
    return { hidden };
  },
};
