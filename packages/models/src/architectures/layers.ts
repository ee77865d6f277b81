// Layers that the architectures share. Parameters are cast to the dtype of the activations where they are used, so that
// float32 master weights serve a bfloat16 pass.
import {
  arange,
  checkpoint,
  dynamicUpdateSlice,
  gelu,
  type Key,
  layerNorm,
  relu,
  scaledDotProductAttention,
  sigmoid,
  silu,
  splitKey,
  type Tensor,
  tanh,
} from "@weft/core";
import * as nn from "@weft/core/nn";
import { ModelError } from "../config/index.js";
import type { ApplyOptions, Batch, CheckpointPolicy, KeyValueCacheOptions } from "./contract.js";

/** Low-rank update of a layer: y += scale (x A^T) B^T. */
interface LowRank {
  A: Tensor;
  B: Tensor;
  scale: number;
  /** Dropout of the input of the update. */
  dropout: number;
  key: Key | null;
}

/** Parameters of a fully connected layer, and its low-rank update if it has one. */
export interface Dense {
  weight: Tensor;
  bias?: Tensor;
  lora?: LowRank;
}

/** Gain and shift of a norm. */
export interface Norm {
  weight: Tensor;
  bias?: Tensor;
}

const finishDense = (params: Dense, x: Tensor, product: Tensor): Tensor => {
  const shifted = params.bias === undefined ? product : product.add(params.bias.cast(x.dtype));
  if (params.lora === undefined) return shifted;
  const { A, B, scale, dropout: rate, key } = params.lora;
  const input = nn.dropout(x, { rate, key });
  const update = input.matmul(A.cast(x.dtype).transpose()).matmul(B.cast(x.dtype).transpose());
  return shifted.add(update.mul(scale));
};

/** x W^T + b with W [out, in]. */
export const dense = (params: Dense, x: Tensor): Tensor =>
  finishDense(params, x, x.matmul(params.weight.cast(x.dtype).transpose()));

/** x W + b with W [in, out], as GPT-2 stores its weights. */
export const denseTransposed = (params: Dense, x: Tensor): Tensor =>
  finishDense(params, x, x.matmul(params.weight.cast(x.dtype)));

/** Layer norm over the last axis. */
export const applyLayerNorm = (params: Norm, x: Tensor, epsilon: number): Tensor =>
  layerNorm(x, { ...params, epsilon });

/** RMS norm over the last axis, computed in float32. */
export function applyRmsNorm({ weight }: Norm, x: Tensor, epsilon: number): Tensor {
  const wide = x.cast(x.dtype === "float64" ? "float64" : "float32");
  const scaled = wide.mul(wide.square().mean(-1, { keepDims: true }).add(epsilon).rsqrt());
  return scaled.cast(x.dtype).mul(weight.cast(x.dtype));
}

const tanhGelu = (x: Tensor): Tensor => gelu(x, { approximate: true });
const activationTable = {
  gelu: (x: Tensor) => gelu(x),
  gelu_new: tanhGelu,
  gelu_pytorch_tanh: tanhGelu,
  gelu_fast: tanhGelu,
  gelu_python: (x: Tensor) => gelu(x),
  gelu_python_tanh: tanhGelu,
  gelu_accurate: tanhGelu,
  quick_gelu: (x: Tensor) => x.mul(sigmoid(x.mul(1.702))),
  relu: (x: Tensor) => relu(x),
  relu2: (x: Tensor) => relu(x).square(),
  relu6: (x: Tensor) => relu(x).minimum(6),
  sigmoid: (x: Tensor) => sigmoid(x),
  silu: (x: Tensor) => silu(x),
  swish: (x: Tensor) => silu(x),
  tanh: (x: Tensor) => tanh(x),
  linear: (x: Tensor) => x,
};
/** Names of activation functions in configurations. */
export type ActivationName = keyof typeof activationTable;
/** All of them. */
export const activationNames = Object.keys(activationTable) as ActivationName[];
/** Applies an activation by its name. */
export const activate = (name: ActivationName, x: Tensor): Tensor => activationTable[name](x);

/** Rows of an embedding in the dtype of the activations. */
export const lookup = (table: { weight: Tensor }, ids: Tensor, options: ApplyOptions): Tensor => {
  const rows = table.weight.take(ids, 0);
  return options.dtype === undefined ? rows : rows.cast(options.dtype);
};

/** [batch, length, heads * size] -> [batch, heads, length, size]. */
export const splitHeads = (x: Tensor, heads: number): Tensor => {
  const [batch, length, width] = x.shape;
  return x.reshape([batch, length, heads, width / heads]).transpose(1, 2);
};

/** The inverse of {@link splitHeads}. */
export const joinHeads = (x: Tensor): Tensor => {
  const [batch, heads, length, size] = x.shape;
  return x.transpose(1, 2).reshape([batch, length, heads * size]);
};

/** Dropout sites of one pass, each with a key of its own; nothing is dropped without a key. */
export class Dropout {
  private constructor(private key: Key | null) {}

  static of({ train = false, key = null }: ApplyOptions): Dropout {
    if (train && key === null)
      throw new ModelError("apply: train applies dropout and needs a key; pass key: weft.key(seed)");
    return new Dropout(train ? key : null);
  }

  /** Key of the next site. */
  next(): Key | null {
    if (this.key === null) return null;
    const [rest, mine] = splitKey(this.key, 2);
    this.key = rest;
    return mine;
  }

  /** The sites of a layer. */
  fork(): Dropout {
    return new Dropout(this.next());
  }

  /** The same sites once more. */
  copy(): Dropout {
    return new Dropout(this.key);
  }

  apply(x: Tensor, rate: number): Tensor {
    return nn.dropout(x, { rate, key: this.next() });
  }
}

/** Runs the layers in order; those that the policy names rematerialize in the reverse pass. */
export function runLayers<L>(
  layers: readonly L[],
  x: Tensor,
  dropout: Dropout,
  policy: CheckpointPolicy | undefined,
  layer: (params: L, x: Tensor, drop: Dropout, index: number) => Tensor,
): Tensor {
  let state = x;
  layers.forEach((params, i) => {
    // The keys of a layer are drawn outside of what is rematerialized, so that both computations drop the same elements.
    const drop = dropout.fork();
    const once = (p: L, h: Tensor): Tensor => layer(p, h, drop.copy(), i);
    const rematerializes = policy === "all" || (typeof policy === "function" && policy(i));
    state = (rematerializes ? checkpoint(once) : once)(params, state);
  });
  return state;
}

/** Required token ids, and their sizes. */
export function idsOf(op: string, { inputIds }: Batch): { ids: Tensor; batch: number; length: number } {
  if (inputIds === undefined || inputIds.rank !== 2)
    throw new ModelError(
      `${op}: inputIds are [batch, length], got ${inputIds === undefined ? "none" : `[${inputIds.shape.join(", ")}]`}`,
    );
  const [batch, length] = inputIds.shape;
  return { ids: inputIds, batch, length };
}

/** Throws if a sequence is longer than the table of positions. */
export function checkLength(op: string, length: number, most: number): void {
  if (length > most)
    throw new ModelError(`${op}: a sequence of ${length} tokens; the model has ${most} positions. Truncate it`);
}

/** Attention mask that broadcasts to [batch, heads, queries, keys]; undefined if every key is visible. */
export function maskOf({ attentionMask, segmentIds }: Batch): Tensor | undefined {
  const padding = attentionMask?.cast("bool").unsqueeze(1).unsqueeze(1);
  if (segmentIds === undefined) return padding;
  const segments = segmentIds.cast("int32");
  const same = segments.unsqueeze(2).equal(segments.unsqueeze(1)).logicalAnd(segments.greater(0).unsqueeze(1));
  return padding === undefined ? same.unsqueeze(1) : same.unsqueeze(1).logicalAnd(padding);
}

/** Positions [batch, length], or [length] if all rows count from 0. */
export function positionsOf(batch: Batch, length: number): Tensor {
  if (batch.positionIds !== undefined) return batch.positionIds.cast("int32");
  const index = arange(0, length, 1, { dtype: "int32" });
  if (batch.segmentIds === undefined) return index;
  // The position within a packed sequence: the index minus the index at which the sequence starts.
  const segments = batch.segmentIds.cast("int32");
  const same = segments.unsqueeze(2).equal(segments.unsqueeze(1));
  return index.sub(index.where(same, length).min(-1)).cast("int32");
}

/** How a decoder layer attends. */
interface CausalOptions {
  mask: Tensor | undefined;
  cached: KeyValueCacheOptions | undefined;
  /** Number of keys before the query that it sees, besides itself; undefined for all. */
  window: number | undefined;
  /** Factor of the scores; 1 / sqrt(size) by default. */
  scale?: number;
  dropout: number;
  key: Key | null;
}

/**
 * Causal attention of q [batch, heads, length, size]. With a cache, the new keys and values are written at its slot. The prompt
 * (slot 0) attends to itself; later tokens attend to the slots that are visible, up to their own.
 */
export function causalAttention(
  q: Tensor,
  k: Tensor,
  v: Tensor,
  layer: number,
  { mask, cached, window, scale, dropout, key }: CausalOptions,
): { attended: Tensor; keys?: Tensor; values?: Tensor } {
  const scaled = scale === undefined ? {} : { scale };
  const limits = { ...scaled, ...(window !== undefined && { window: [window, 0] as const }) };
  if (cached === undefined)
    return { attended: scaledDotProductAttention(q, k, v, { mask, causal: true, ...limits, dropout, key }) };
  const { cache, slot, visible } = cached;
  const start = [0, 0, slot, 0];
  const keys = dynamicUpdateSlice(cache.keys[layer], k.cast(cache.keys[layer].dtype), start);
  const values = dynamicUpdateSlice(cache.values[layer], v.cast(cache.values[layer].dtype), start);
  if (slot === 0)
    return { attended: scaledDotProductAttention(q, k, v, { mask, causal: true, ...limits }), keys, values };
  const [, , length] = q.shape;
  const index = arange(0, visible.shape[1], 1, { dtype: "int32" });
  let seen = visible.unsqueeze(1);
  // Slots of the queries; no slot after that of a single one is visible.
  const own = length === 1 ? slot : slot.add(arange(0, length, 1, { dtype: "int32" })).unsqueeze(1);
  if (length > 1) seen = seen.logicalAnd(index.lessEqual(own));
  if (window !== undefined) seen = seen.logicalAnd(index.greaterEqual(own.sub(window)));
  const attended = scaledDotProductAttention(q, keys.cast(q.dtype), values.cast(q.dtype), {
    mask: seen.unsqueeze(1),
    ...scaled,
  });
  return { attended, keys, values };
}

/** The hidden state of the last token of each sequence that is not padding. */
export function lastToken(hidden: Tensor, batch: Batch, padToken: number | null): Tensor {
  const [rows, length] = hidden.shape;
  const real =
    padToken !== null && batch.inputIds !== undefined
      ? batch.inputIds.notEqual(padToken)
      : batch.attentionMask?.cast("bool");
  if (real === undefined) return hidden.index(":", length - 1);
  const index = arange(0, length, 1, { dtype: "int32" });
  const last = index.where(real, 0).max(-1, { keepDims: true });
  return hidden.where(index.equal(last).unsqueeze(-1), 0).sum(1).reshape([rows, hidden.shape[2]]);
}
