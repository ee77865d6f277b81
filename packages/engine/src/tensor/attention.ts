// Attention: softmax(q k^T scale) v with masks and dropout, as ordinary ops inside one custom function, so that a device
// which has a kernel for the whole of it can use that; everywhere else the ops are inlined and fused like any others.
import {
  type AttentionKernel,
  broadcastShapes,
  type DType,
  DTypeError,
  isFloat,
  isHalf,
  type Node,
  type Precision,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { build, keptScale } from "../ops/index.js";
import { backward, instantiate } from "../transform/index.js";
import { wrap } from "./convert.js";
import { div, exp, isFinite as isFiniteOf, log, maximum, where } from "./math.js";
import { softmax } from "./nnfunctions.js";
import { type ProductOptions, productPrecision } from "./precision.js";
import { type Key, keptMask } from "./random.js";
import { logsumexp, max, stopGradient, sum } from "./reduce.js";
import type { Tensor } from "./tensor.js";

export interface AttentionOptions extends ProductOptions {
  /**
   * Broadcasts to [..., heads, queries, keys]. bool: true where a query may look at a key (a query that may look at
   * nothing gets zeros). Float: added to the scores.
   */
  mask?: Tensor;
  /** Factor of the scores; 1 / sqrt(size) by default. */
  scale?: number;
  /** Dropout of the weights; needs a key, one for all ([2]) or one an example ([...batch, 2]). */
  dropout?: number;
  key?: Key | null;
}

/** Softmax of the last axis over the places where the mask is true; rows without any are zeros. */
function maskedSoftmax(scores: Tensor, mask: Tensor): { weights: Tensor; logSum: Tensor } {
  const open = where(mask, scores, Number.NEGATIVE_INFINITY);
  const top = stopGradient(max(open, -1, { keepDims: true }));
  const shift = where(isFiniteOf(top), top, 0);
  const e = where(mask, exp(scores.sub(shift)), 0);
  const total = sum(e, -1, { keepDims: true });
  // The largest open score contributes exp(0) = 1, so the bound acts on closed rows alone.
  const weights = div(e, maximum(total, 0.5));
  return { weights, logSum: where(total.greater(0), log(total).add(shift), 0).squeeze(-1) };
}

/** 32 kept weights a number, the first in the lowest bit; the last number is filled up with zeros. */
function asBits(kept: Tensor): Tensor {
  const n = kept.shape[kept.rank - 1];
  const words = Math.ceil(n / 32);
  const node = build.cast(kept.node, "int32");
  const low = node.shape.map(() => 0);
  const padded = build.pad(node, low, [...low.slice(0, -1), words * 32 - n]);
  const grouped = build.reshape(padded, [...node.shape.slice(0, -1), words, 32]);
  const at = build.iota(grouped.shape, grouped.shape.length - 1, "int32");
  const last = build.eq(at, build.fullLike(at, 31));
  const power = build.binary("pow", build.fullLike(at, 2), build.binary("min", at, build.fullLike(at, 30)));
  const bit = build.where(last, build.fullLike(at, -(2 ** 31)), power);
  return wrap(build.sum(build.mul(grouped, bit), [grouped.shape.length - 1]));
}

/** [..., length, heads, size] <-> [..., heads, length, size] */
const swapHeads = (x: Node): Node => build.moveAxis(x, x.shape.length - 2, x.shape.length - 3);

/** Queries, keys and values as [..., heads, length, size], in the dtype of the arithmetic. */
function parts(inputs: readonly Node[], packed: boolean): Node[] {
  const [joint] = inputs;
  const axis = joint.shape.length - 3;
  const split = packed
    ? [0, 1, 2].map((i) => {
        const part = build.sliceAxis(joint, axis, i, i + 1);
        return build.reshape(part, [...joint.shape.slice(0, axis), ...joint.shape.slice(axis + 1)]);
      })
    : inputs.slice(0, 3);
  return split.map((x) => swapHeads(isHalf(x.dtype) ? build.cast(x, "float32") : x));
}

/** The function in ops: its result, the log-sums of its rows, the kept weights as bits. */
function compose(inputs: readonly Node[], kernel: AttentionKernel): Node[] {
  const { dtype } = inputs[0];
  const precision = isHalf(dtype) ? (dtype as Precision) : kernel.precision;
  const [q, k, v] = parts(inputs, kernel.packed);
  let next = kernel.packed ? 1 : 3;
  const scores = wrap(build.scale(build.matmul(q, build.transpose(k), precision), kernel.scale));
  const mask = kernel.mask === "none" ? null : wrap(inputs[next++]);
  let weights: Tensor;
  let logSum: Tensor;
  if (kernel.mask === "bool") ({ weights, logSum } = maskedSoftmax(scores, mask!));
  else {
    const shown = mask === null ? scores : scores.add(mask);
    weights = softmax(shown);
    logSum = logsumexp(shown, -1);
  }
  const saved = [logSum.node];
  if (kernel.dropout > 0) {
    const key = wrap(inputs[next]);
    const kept = keptMask(weights.shape.slice(key.rank - 1), kernel.dropout, key);
    weights = where(kept, weights.mul(keptScale(kernel.dropout)), 0);
    saved.push(asBits(kept).node);
  }
  const result = swapHeads(build.matmul(weights.node, v, precision));
  return [build.cast(result, dtype), ...saved];
}

const placeholders = (nodes: readonly Node[]): Node[] => nodes.map((n) => build.input(n.shape, n.dtype, "x"));

/** The gradient as one custom function too. Its body differentiates the ops; what the forward pass saved is for kernels. */
function gradientNode(kernel: AttentionKernel, inputs: Node[], outputs: Node[], cotangent: Node): (Node | null)[] {
  const tensors = (kernel.packed ? 1 : 3) + (kernel.mask === "float" ? 1 : 0);
  const params = placeholders([...inputs, ...outputs, cotangent]);
  const own = params.slice(0, inputs.length);
  const wanted = own.slice(0, tensors);
  const [result] = compose(own, kernel);
  const grads = backward([result], [params[params.length - 1]], wanted).map((g, i) => g ?? build.zerosLike(wanted[i]));
  const body = { params, outputs: grads };
  const node = build.make("custom", [...inputs, ...outputs, cotangent], {
    body,
    kernel: { ...kernel, gradient: true },
    rule: {
      name: "attentionGradient",
      backward: (given, _results, cotangents) => backward(instantiate(body, given), cotangents, given),
    },
  });
  return inputs.map((_, i) => (i < tensors ? build.pick(node, i) : null));
}

function attentionNode(inputs: Node[], kernel: AttentionKernel): Node {
  const params = placeholders(inputs);
  const node = build.make("custom", inputs, {
    body: { params, outputs: compose(params, kernel) },
    kernel,
    rule: {
      name: "attention",
      backward: (given, outputs, cotangents) => gradientNode(kernel, given, outputs, cotangents[0]),
    },
  });
  return build.pick(node, 0);
}

/** Mask and key as inputs, and what the kernel must know of them. */
function extras(
  op: string,
  options: AttentionOptions,
  scores: readonly number[],
  size: number,
  dtype: DType,
): { nodes: Node[]; kernel: Omit<AttentionKernel, "packed"> } {
  const { mask, scale = 1 / Math.sqrt(size), dropout = 0, key = null } = options;
  if (!(dropout >= 0 && dropout < 1))
    throw new WeftError(`${op}: dropout is at least 0 and less than 1, got ${dropout}`);
  if (!Number.isFinite(scale)) throw new WeftError(`${op}: scale is a number, got ${scale}`);
  const nodes: Node[] = [];
  let kind: AttentionKernel["mask"] = "none";
  if (mask !== undefined) {
    const shape = broadcastShapes(mask.shape, scores);
    if (shape === null || showShape(shape) !== showShape(scores))
      throw new ShapeError(`${op}: mask ${showShape(mask.shape)} does not broadcast to ${showShape(scores)}`);
    if (mask.dtype !== "bool" && !isFloat(mask.dtype))
      throw new DTypeError(`${op}: a mask is bool (who may look) or float (added to the scores), got ${mask.dtype}`);
    kind = mask.dtype === "bool" ? "bool" : "float";
    const node = kind === "bool" ? mask.node : build.cast(mask.node, dtype === "float64" ? "float64" : "float32");
    nodes.push(build.expandTo(node, scores));
  }
  const drops = dropout > 0 && key !== null;
  if (drops) {
    const lead = key.shape.slice(0, -1);
    if (showShape(lead) !== showShape(scores.slice(0, lead.length)) || lead.length > scores.length - 3)
      throw new ShapeError(
        `${op}: keys ${showShape(key.shape)} are one for each of ${showShape(lead)} examples, the scores are ${showShape(scores)}`,
      );
    nodes.push(key.node);
  }
  const precision = productPrecision(op, options);
  return {
    nodes,
    kernel: {
      kind: "attention",
      gradient: false,
      scale,
      mask: kind,
      dropout: drops ? dropout : 0,
      ...(precision === undefined ? {} : { precision }),
    },
  };
}

/**
 * softmax(q k^T scale) v. q: [..., heads, queries, size], k and v: [..., heads, keys, size]; the axes before the last two
 * are equal. On GPUs one kernel computes it without writing the weights to memory, and two its gradient.
 */
export function scaledDotProductAttention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): Tensor {
  const op = "scaledDotProductAttention";
  const shapes = `q ${showShape(q.shape)}, k ${showShape(k.shape)}, v ${showShape(v.shape)}`;
  if (!isFloat(q.dtype) || q.dtype !== k.dtype || q.dtype !== v.dtype)
    throw new DTypeError(`${op}: q, k and v have one float dtype, got ${q.dtype}, ${k.dtype} and ${v.dtype}`);
  const rank = q.rank;
  const lead = showShape(q.shape.slice(0, -2));
  const fits =
    rank >= 2 &&
    showShape(k.shape.slice(0, -2)) === lead &&
    showShape(k.shape) === showShape(v.shape) &&
    k.shape[rank - 1] === q.shape[rank - 1];
  if (!fits)
    throw new ShapeError(
      `${op}: ${shapes}: q is [..., queries, size], k and v are [..., keys, size], with the same axes before and the same size`,
    );
  const size = q.shape[rank - 1];
  const headed = (x: Tensor): Node => (rank === 2 ? build.reshape(x.node, [1, ...x.shape]) : x.node);
  const scores = [...(rank === 2 ? [1] : q.shape.slice(0, -2)), q.shape[rank - 2], k.shape[rank - 2]];
  const { nodes, kernel } = extras(op, options, scores, size, q.dtype);
  const inputs = [...[q, k, v].map((x) => swapHeads(headed(x))), ...nodes];
  const result = swapHeads(attentionNode(inputs, { ...kernel, packed: false }));
  return wrap(build.reshape(result, q.shape));
}

/**
 * Attention of one tensor with itself: queries, keys and values as they come out of one projection,
 * [..., length, 3, heads, size] -> [..., length, heads, size].
 */
export function packedAttention(joint: Tensor, options: AttentionOptions = {}): Tensor {
  const op = "packedAttention";
  if (!isFloat(joint.dtype)) throw new DTypeError(`${op}: needs a float dtype, got ${joint.dtype}`);
  if (joint.rank < 4 || joint.shape[joint.rank - 3] !== 3)
    throw new ShapeError(`${op}: needs [..., length, 3, heads, size], got ${showShape(joint.shape)}`);
  const [length, , heads, size] = joint.shape.slice(-4);
  const scores = [...joint.shape.slice(0, -4), heads, length, length];
  const { nodes, kernel } = extras(op, options, scores, size, joint.dtype);
  return wrap(attentionNode([joint.node, ...nodes], { ...kernel, packed: true }));
}
