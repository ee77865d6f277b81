// BERT and RoBERTa: post-norm encoders with learned positions. They differ in positions and heads.
import { gelu, scaledDotProductAttention, type Tensor, tanh } from "@weft/core";
import type { Fields } from "../config/index.js";
import type {
  ApplyOptions,
  Architecture,
  Batch,
  CommonConfig,
  ModelTask,
  Outputs,
  ParameterTable,
} from "./contract.js";
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

interface BertConfig extends CommonConfig {
  readonly heads: number;
  readonly feedForward: number;
  readonly types: number;
  readonly epsilon: number;
  readonly activation: ActivationName;
  readonly hiddenDropout: number;
  readonly attentionDropout: number;
  readonly classifierDropout: number;
}

/** Parameters of one layer. */
interface BertLayer {
  attention: { self: { query: Dense; key: Dense; value: Dense }; output: { dense: Dense; LayerNorm: Norm } };
  intermediate: { dense: Dense };
  output: { dense: Dense; LayerNorm: Norm };
}

interface BertBackbone {
  embeddings: {
    word_embeddings: { weight: Tensor };
    position_embeddings: { weight: Tensor };
    token_type_embeddings: { weight: Tensor };
    LayerNorm: Norm;
  };
  encoder: { layer: BertLayer[] };
  pooler?: { dense: Dense };
}

function readConfig(fields: Fields, vocabulary: number): BertConfig {
  fields.refuse("position_embedding_type", (v) => v !== "absolute", "only absolute positions are");
  fields.refuse("is_decoder", (v) => v !== false, "the model is an encoder here");
  const width = fields.count("hidden_size", { otherwise: 768, most: 2 ** 17 });
  const heads = fields.count("num_attention_heads", { otherwise: 12, most: 2 ** 12 });
  if (width % heads !== 0)
    throw fields.error("num_attention_heads", `is ${heads}, which does not divide hidden_size ${width}`);
  const hiddenDropout = fields.rate("hidden_dropout_prob", 0.1);
  return {
    width,
    heads,
    layers: fields.count("num_hidden_layers", { otherwise: 12, most: 2 ** 12 }),
    feedForward: fields.count("intermediate_size", { otherwise: 3072 }),
    vocabulary: fields.count("vocab_size", { otherwise: vocabulary }),
    maxPositions: fields.count("max_position_embeddings", { otherwise: 512 }),
    types: fields.count("type_vocab_size", { otherwise: 2, most: 2 ** 16 }),
    epsilon: fields.number("layer_norm_eps", { otherwise: 1e-12, most: 1 }),
    activation: fields.choice("hidden_act", activationNames, "gelu"),
    hiddenDropout,
    attentionDropout: fields.rate("attention_probs_dropout_prob", 0.1),
    classifierDropout: fields.rate("classifier_dropout", hiddenDropout),
    ...fields.common(),
    tied: fields.flag("tie_word_embeddings", true),
    cache: null,
  };
}

/** @param positions - Rows of the table of positions. */
function backboneTable(name: string, c: BertConfig, positions = c.maxPositions): ParameterTable {
  const { width, feedForward } = c;
  return {
    ...embeddingTable(`${name}.embeddings.word_embeddings`, c.vocabulary, width),
    ...embeddingTable(`${name}.embeddings.position_embeddings`, positions, width),
    ...embeddingTable(`${name}.embeddings.token_type_embeddings`, c.types, width),
    ...normTable(`${name}.embeddings.LayerNorm`, width),
    ...layerTables(`${name}.encoder.layer`, c.layers, (at) => ({
      ...denseTable(`${at}.attention.self.query`, width, width),
      ...denseTable(`${at}.attention.self.key`, width, width),
      ...denseTable(`${at}.attention.self.value`, width, width),
      ...denseTable(`${at}.attention.output.dense`, width, width),
      ...normTable(`${at}.attention.output.LayerNorm`, width),
      ...denseTable(`${at}.intermediate.dense`, feedForward, width),
      ...denseTable(`${at}.output.dense`, width, feedForward),
      ...normTable(`${at}.output.LayerNorm`, width),
    })),
  };
}

function layer(p: BertLayer, x: Tensor, mask: Tensor | undefined, c: BertConfig, drop: Dropout): Tensor {
  const { query, key, value } = p.attention.self;
  const [q, k, v] = [query, key, value].map((part) => splitHeads(dense(part, x), c.heads));
  const attended = joinHeads(
    scaledDotProductAttention(q, k, v, { mask, dropout: c.attentionDropout, key: drop.next() }),
  );
  const { output } = p.attention;
  const h = applyLayerNorm(
    output.LayerNorm,
    drop.apply(dense(output.dense, attended), c.hiddenDropout).add(x),
    c.epsilon,
  );
  const inner = activate(c.activation, dense(p.intermediate.dense, h));
  return applyLayerNorm(
    p.output.LayerNorm,
    drop.apply(dense(p.output.dense, inner), c.hiddenDropout).add(h),
    c.epsilon,
  );
}

/** Embeddings and layers; `positions` are those of the architecture. */
function encode(
  p: BertBackbone,
  batch: Batch,
  positions: Tensor,
  c: BertConfig,
  options: ApplyOptions,
  dropout: Dropout,
): Tensor {
  const { ids } = idsOf("apply", batch);
  const { embeddings } = p;
  const types =
    batch.tokenTypeIds === undefined
      ? embeddings.token_type_embeddings.weight
          .index(0)
          .cast(options.dtype ?? embeddings.token_type_embeddings.weight.dtype)
      : lookup(embeddings.token_type_embeddings, batch.tokenTypeIds, options);
  const sum = lookup(embeddings.word_embeddings, ids, options)
    .add(types)
    .add(lookup(embeddings.position_embeddings, positions, options));
  const x = dropout.apply(applyLayerNorm(embeddings.LayerNorm, sum, c.epsilon), c.hiddenDropout);
  const mask = maskOf(batch);
  return runLayers(p.encoder.layer, x, dropout, options.checkpoint, (params, h, drop) =>
    layer(params, h, mask, c, drop),
  );
}

const first = (hidden: Tensor): Tensor => hidden.index(":", 0);

export const bert: Architecture<BertConfig> = {
  prefix: "bert",
  classes: {
    base: "BertModel",
    classification: "BertForSequenceClassification",
    "token-classification": "BertForTokenClassification",
    "masked-lm": "BertForMaskedLM",
  },
  ignored: [/(^|\.)embeddings\.position_ids$/, /^cls\.seq_relationship\./, /^cls\.predictions\.decoder\./],
  config: (fields) => readConfig(fields, 30522),

  parameters(c, task) {
    const { width } = c;
    const pooler = denseTable("bert.pooler.dense", width, width);
    const heads: Record<Exclude<ModelTask, "causal-lm">, ParameterTable> = {
      base: pooler,
      classification: { ...pooler, ...denseTable("classifier", c.labels, width) },
      "token-classification": denseTable("classifier", c.labels, width),
      "masked-lm": {
        ...denseTable("cls.predictions.transform.dense", width, width),
        ...normTable("cls.predictions.transform.LayerNorm", width),
        "cls.predictions.bias": { shape: [c.vocabulary], init: "zeros" },
        ...(c.tied ? {} : denseTable("cls.predictions.decoder", c.vocabulary, width)),
      },
    };
    return { ...backboneTable("bert", c), ...heads[task as keyof typeof heads] };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as {
      bert: BertBackbone;
      classifier: Dense;
      cls: { predictions: { transform: { dense: Dense; LayerNorm: Norm }; bias: Tensor; decoder?: Dense } };
    };
    const { length } = idsOf("apply", batch);
    checkLength("apply", length, c.maxPositions);
    const dropout = Dropout.of(options);
    const hidden = encode(p.bert, batch, positionsOf(batch, length), c, options, dropout);
    if (task === "token-classification")
      return { hidden, logits: dense(p.classifier, dropout.apply(hidden, c.classifierDropout)) };
    if (task === "masked-lm") {
      const { transform, bias, decoder } = p.cls.predictions;
      const h = applyLayerNorm(transform.LayerNorm, activate(c.activation, dense(transform.dense, hidden)), c.epsilon);
      // A decoder of its own has a bias of its own; the other one is then unused, but part of the files.
      const projection = decoder ?? { weight: p.bert.embeddings.word_embeddings.weight, bias };
      return { hidden, logits: dense(projection, h) };
    }
    if (p.bert.pooler === undefined) return { hidden };
    const pooled = tanh(dense(p.bert.pooler.dense, first(hidden)));
    if (task === "base") return { hidden, pooled };
    return { hidden, pooled, logits: dense(p.classifier, dropout.apply(pooled, c.classifierDropout)) };
  },
};

export const roberta: Architecture<BertConfig> = {
  prefix: "roberta",
  classes: {
    base: "RobertaModel",
    classification: "RobertaForSequenceClassification",
    "token-classification": "RobertaForTokenClassification",
    "masked-lm": "RobertaForMaskedLM",
  },
  ignored: [/(^|\.)embeddings\.position_ids$/, /^lm_head\.decoder\./],
  config(fields) {
    const c = readConfig(fields, 50265);
    const padToken = c.padToken ?? 1;
    if (c.maxPositions <= padToken + 1)
      throw fields.error("max_position_embeddings", `is ${c.maxPositions}; it must be above pad_token_id + 1`);
    return { ...c, padToken, maxPositions: c.maxPositions - padToken - 1 };
  },

  parameters(c, task) {
    const { width } = c;
    const heads: Record<Exclude<ModelTask, "causal-lm">, ParameterTable> = {
      base: denseTable("roberta.pooler.dense", width, width),
      classification: {
        ...denseTable("classifier.dense", width, width),
        ...denseTable("classifier.out_proj", c.labels, width),
      },
      "token-classification": denseTable("classifier", c.labels, width),
      "masked-lm": {
        ...denseTable("lm_head.dense", width, width),
        ...normTable("lm_head.layer_norm", width),
        "lm_head.bias": { shape: [c.vocabulary], init: "zeros" },
        ...(c.tied ? {} : denseTable("lm_head.decoder", c.vocabulary, width)),
      },
    };
    // Positions start after the padding id, so the table has that many rows more than there are positions.
    const positions = c.maxPositions + (c.padToken as number) + 1;
    return { ...backboneTable("roberta", c, positions), ...heads[task as keyof typeof heads] };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as {
      roberta: BertBackbone;
      classifier: Dense & { dense: Dense; out_proj: Dense };
      lm_head: { dense: Dense; layer_norm: Norm; bias: Tensor; decoder?: Dense };
    };
    const { ids, length } = idsOf("apply", batch);
    const padToken = c.padToken as number;
    checkLength("apply", length, c.maxPositions);
    const dropout = Dropout.of(options);
    const real = ids.notEqual(padToken).cast("int32");
    const counted =
      batch.positionIds ?? (batch.segmentIds === undefined ? undefined : positionsOf(batch, length).add(padToken + 1));
    const positions = counted ?? real.cumsum(-1).mul(real).add(padToken).cast("int32");
    const hidden = encode(p.roberta, batch, positions, c, options, dropout);
    if (task === "token-classification")
      return { hidden, logits: dense(p.classifier, dropout.apply(hidden, c.classifierDropout)) };
    if (task === "classification") {
      const inner = tanh(dense(p.classifier.dense, dropout.apply(first(hidden), c.classifierDropout)));
      return { hidden, logits: dense(p.classifier.out_proj, dropout.apply(inner, c.classifierDropout)) };
    }
    if (task === "masked-lm") {
      const h = applyLayerNorm(p.lm_head.layer_norm, gelu(dense(p.lm_head.dense, hidden)), c.epsilon);
      const { decoder, bias } = p.lm_head;
      return { hidden, logits: dense(decoder ?? { weight: p.roberta.embeddings.word_embeddings.weight, bias }, h) };
    }
    const { pooler } = p.roberta;
    return pooler === undefined ? { hidden } : { hidden, pooled: tanh(dense(pooler.dense, first(hidden))) };
  },
};
