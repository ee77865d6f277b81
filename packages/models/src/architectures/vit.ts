// ViT: a pre-norm encoder over patches of an image.
import { concat, scaledDotProductAttention, type Tensor } from "@weft/core";
import { ModelError } from "../config/index.js";
import type { Architecture, CommonConfig, Outputs, ParameterTable } from "./contract.js";
import {
  type ActivationName,
  activate,
  activationNames,
  applyLayerNorm,
  type Dense,
  Dropout,
  dense,
  joinHeads,
  type Norm,
  runLayers,
  splitHeads,
} from "./layers.js";
import { denseTable, layerTables, normTable } from "./tables.js";

interface VitConfig extends CommonConfig {
  readonly heads: number;
  readonly feedForward: number;
  readonly epsilon: number;
  readonly activation: ActivationName;
  readonly poolerActivation: ActivationName;
  readonly poolerWidth: number;
  readonly hiddenDropout: number;
  readonly attentionDropout: number;
  readonly channels: number;
  /** Height and width. */
  readonly image: readonly [number, number];
  readonly patch: readonly [number, number];
  readonly bias: boolean;
}

interface VitLayer {
  layernorm_before: Norm;
  attention: { attention: { query: Dense; key: Dense; value: Dense }; output: { dense: Dense } };
  layernorm_after: Norm;
  intermediate: { dense: Dense };
  output: { dense: Dense };
}

interface VitParams {
  vit: {
    embeddings: {
      cls_token: Tensor;
      position_embeddings: Tensor;
      patch_embeddings: { projection: { weight: Tensor; bias: Tensor } };
    };
    encoder: { layer: VitLayer[] };
    layernorm: Norm;
    pooler?: { dense: Dense };
  };
  classifier: Dense;
}

function layer(p: VitLayer, x: Tensor, c: VitConfig, drop: Dropout): Tensor {
  const n = applyLayerNorm(p.layernorm_before, x, c.epsilon);
  const { query, key, value } = p.attention.attention;
  const [q, k, v] = [query, key, value].map((part) => splitHeads(dense(part, n), c.heads));
  const attended = scaledDotProductAttention(q, k, v, { dropout: c.attentionDropout, key: drop.next() });
  const h = x.add(drop.apply(dense(p.attention.output.dense, joinHeads(attended)), c.hiddenDropout));
  const inner = activate(c.activation, dense(p.intermediate.dense, applyLayerNorm(p.layernorm_after, h, c.epsilon)));
  return h.add(drop.apply(dense(p.output.dense, inner), c.hiddenDropout));
}

/** Rows and columns of patches: pixels beyond the last whole patch belong to none. */
const gridOf = ({ image, patch }: Pick<VitConfig, "image" | "patch">): [number, number] => [
  Math.floor(image[0] / patch[0]),
  Math.floor(image[1] / patch[1]),
];

/** The patches of images as rows [batch, patches, channels * height * width of a patch]. */
function patchesOf(images: Tensor, config: VitConfig): Tensor {
  const [batch, channels] = images.shape;
  const [tall, wide] = config.patch;
  const [rows, columns] = gridOf(config);
  return images
    .index(":", ":", `:${rows * tall}`, `:${columns * wide}`)
    .reshape([batch, channels, rows, tall, columns, wide])
    .permute([0, 2, 4, 1, 3, 5])
    .reshape([batch, rows * columns, channels * tall * wide]);
}

export const vit: Architecture<VitConfig> = {
  prefix: "vit",
  classes: { base: "ViTModel", classification: "ViTForImageClassification" },
  ignored: [],

  config(fields) {
    const width = fields.count("hidden_size", { otherwise: 768, most: 2 ** 17 });
    const heads = fields.count("num_attention_heads", { otherwise: 12, most: 2 ** 12 });
    fields.refuse("head_dim", (v) => v !== width / heads, "heads have hidden_size / num_attention_heads elements");
    if (width % heads !== 0)
      throw fields.error("num_attention_heads", `is ${heads}, which does not divide hidden_size ${width}`);
    const image = fields.pair("image_size", 224, 2 ** 14);
    const patch = fields.pair("patch_size", 16, 2 ** 14);
    const grid = gridOf({ image, patch });
    if (grid.includes(0))
      throw fields.error("patch_size", `is ${patch.join(" x ")}, larger than image_size ${image.join(" x ")}`);
    return {
      width,
      heads,
      image,
      patch,
      layers: fields.count("num_hidden_layers", { otherwise: 12, most: 2 ** 12 }),
      feedForward: fields.count("intermediate_size", { otherwise: 3072 }),
      epsilon: fields.number("layer_norm_eps", { otherwise: 1e-12, most: 1 }),
      activation: fields.choice("hidden_act", activationNames, "gelu"),
      poolerActivation: fields.choice("pooler_act", activationNames, "tanh"),
      poolerWidth: fields.count("pooler_output_size", { otherwise: width, most: 2 ** 17 }),
      hiddenDropout: fields.rate("hidden_dropout_prob", 0),
      attentionDropout: fields.rate("attention_probs_dropout_prob", 0),
      channels: fields.count("num_channels", { otherwise: 3, most: 2 ** 12 }),
      bias: fields.flag("qkv_bias", true),
      ...fields.common(),
      vocabulary: 0,
      maxPositions: grid[0] * grid[1] + 1,
      padToken: null,
      tied: false,
      cache: null,
    };
  },

  parameters(c, task) {
    const { width, channels, patch } = c;
    const embeddings: ParameterTable = {
      "vit.embeddings.cls_token": { shape: [1, 1, width], init: "normal" },
      "vit.embeddings.position_embeddings": { shape: [1, c.maxPositions, width], init: "normal" },
      "vit.embeddings.patch_embeddings.projection.weight": { shape: [width, channels, ...patch], init: "normal" },
      "vit.embeddings.patch_embeddings.projection.bias": { shape: [width], init: "zeros" },
    };
    return {
      ...embeddings,
      ...layerTables("vit.encoder.layer", c.layers, (at) => ({
        ...normTable(`${at}.layernorm_before`, width),
        ...denseTable(`${at}.attention.attention.query`, width, width, c.bias),
        ...denseTable(`${at}.attention.attention.key`, width, width, c.bias),
        ...denseTable(`${at}.attention.attention.value`, width, width, c.bias),
        ...denseTable(`${at}.attention.output.dense`, width, width),
        ...normTable(`${at}.layernorm_after`, width),
        ...denseTable(`${at}.intermediate.dense`, c.feedForward, width),
        ...denseTable(`${at}.output.dense`, width, c.feedForward),
      })),
      ...normTable("vit.layernorm", width),
      ...(task === "base"
        ? denseTable("vit.pooler.dense", c.poolerWidth, width)
        : denseTable("classifier", c.labels, width)),
    };
  },

  apply(params, batch, c, task, options): Outputs {
    const p = params as unknown as VitParams;
    const images = batch.pixelValues;
    const shown = images === undefined ? "none" : `[${images.shape.join(", ")}]`;
    const size = [c.channels, ...c.image];
    if (images === undefined || images.shape.slice(1).join() !== size.join())
      throw new ModelError(`apply: pixelValues are [batch, ${size.join(", ")}], got ${shown}; resize the images`);
    const { embeddings, encoder, layernorm, pooler } = p.vit;
    const dropout = Dropout.of(options);
    const { weight, bias } = embeddings.patch_embeddings.projection;
    const flat = weight.reshape([c.width, c.channels * c.patch[0] * c.patch[1]]);
    const dtype = options.dtype ?? weight.dtype;
    const patches = dense({ weight: flat, bias }, patchesOf(images, c).cast(dtype));
    const start = embeddings.cls_token.cast(dtype).expand([images.shape[0], 1, c.width]);
    const placed = concat([start, patches], 1).add(embeddings.position_embeddings.cast(dtype));
    const x = dropout.apply(placed, c.hiddenDropout);
    const last = runLayers(encoder.layer, x, dropout, options.checkpoint, (block, h, drop) => layer(block, h, c, drop));
    const hidden = applyLayerNorm(layernorm, last, c.epsilon);
    const first = hidden.index(":", 0);
    if (task === "classification") return { hidden, logits: dense(p.classifier, first) };
    if (pooler === undefined) return { hidden };
    const pooled = activate(c.poolerActivation, dense(pooler.dense, first));
    return { hidden, pooled };
  },
};
