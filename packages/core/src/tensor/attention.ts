// Attention over tensors: checks, masks and keys, around the custom function of transform/attention.
import {
  type AttentionKernel,
  broadcastShapes,
  checkOptions,
  type DType,
  DTypeError,
  isFloat,
  kindOf,
  type Node,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import {
  attentionNode,
  type Band,
  bandIntersection,
  belowZero,
  biasBand,
  closedScore,
  narrowed,
  seesEverywhere,
  segmentIds,
  splitBand,
  swapHeads,
  tightened,
} from "../transform/index.js";
import { checkArguments, wrap } from "./convert.js";
import { type ProductOptions, productPrecision } from "./precision.js";
import type { Key } from "./random.js";
import { Tensor } from "./tensor.js";

/** Options of {@link scaledDotProductAttention} and {@link packedAttention}. @inline */
interface AttentionOptions extends ProductOptions {
  /**
   * Broadcasts to [..., heads, queries, keys]. bool: true where a query may attend to a key (fully masked queries
   * give zeros). Float: added to the scores.
   */
  mask?: Tensor;
  /** Query i sees keys j <= i only, as if masked; kernels skip the rest. */
  causal?: boolean;
  /** Query i sees keys from i - window[0] to i + window[1] only; kernels skip the rest. One number stands for both sides. */
  window?: number | readonly [number, number];
  /**
   * Segment ids [..., length], whole numbers: a query sees the keys of its own segment only, such as those of one of several
   * sequences that are packed into a row. One tensor for queries and keys, or one for each. Kernels skip tiles of other segments.
   */
  segments?: Tensor | readonly [queries: Tensor, keys: Tensor];
  /** Factor of the scores; 1 / sqrt(size) by default. */
  scale?: number;
  /** Dropout rate of the weights; needs a key, one for all examples ([2]) or one per example ([...batch, 2]). */
  dropout?: number;
  /** Key of the dropout; null or absent means no dropout. */
  key?: Key | null;
}

const attend = (inputs: readonly Node[], kernel: AttentionKernel): Node => build.pick(attentionNode(inputs, kernel), 0);

/** The band of the options `causal` and `window`. */
function bandOption(op: string, { causal = false, window }: AttentionOptions): Band {
  if (window === undefined) return causal ? { upper: 0 } : {};
  const sides = typeof window === "number" ? [window, window] : window;
  if (sides.length !== 2 || !sides.every((n) => Number.isInteger(n) && n >= 0 && n < 2 ** 30))
    throw new WeftError(`${op}: window is a whole number of at least 0 or two of them, got ${showValue(window)}`);
  return bandIntersection({ lower: 0 - sides[0], upper: sides[1] }, causal ? { upper: 0 } : {});
}

/** Whether a query may see a key by their segments [..., 1, queries, keys], and by the mask. */
function segmentMask(op: string, { segments, mask }: AttentionOptions, scores: readonly number[]): Tensor | undefined {
  if (segments === undefined) return mask;
  const ids = Array.isArray(segments) ? segments : [segments, segments];
  if (ids.length !== 2 || !ids.every((x) => x instanceof Tensor))
    throw new WeftError(`${op}: segments are a tensor, or one for the queries and one for the keys`);
  const [rows, columns] = ids.map((x, i) => {
    const length = scores[scores.length - 2 + i];
    const batch = scores.slice(0, -3);
    const shape = broadcastShapes(x.shape, [...batch, length]);
    const fits = shape !== null && showShape(shape) === showShape([...batch, length]);
    if (!fits || kindOf(x.dtype) !== "int" || x.shape[x.rank - 1] !== length)
      throw new ShapeError(
        `${op}: segments are whole numbers of the shape ${showShape([...batch, length])}, got ${x.dtype} ${showShape(x.shape)}`,
      );
    const axes = i === 0 ? [1, length, 1] : [1, 1, length];
    return build.expandTo(build.reshape(x.node, [...x.shape.slice(0, -1), ...axes]), [
      ...batch,
      1,
      ...scores.slice(-2),
    ]);
  });
  const same = wrap(build.eq(rows, columns));
  if (mask === undefined) return same;
  if (mask.dtype === "bool") return same.logicalAnd(mask);
  return mask.where(same, Number.NEGATIVE_INFINITY);
}

/** A mask without the conditions that depend only on the distance between query and key. */
function maskOption(mask: Tensor, scores: readonly number[]): { band: Band; node: Node | null } {
  const [queries, keys] = scores.slice(-2);
  const plain = narrowed(build.expandTo(mask.node, scores));
  if (mask.dtype === "bool") {
    const { band, rest } = splitBand(plain);
    return { band, node: rest };
  }
  const band = biasBand(plain, closedScore);
  return band !== null && seesEverywhere(band, queries, keys) ? { band, node: null } : { band: {}, node: mask.node };
}

/** Mask and key as inputs, and the kernel attributes that follow from them. */
function extras(
  op: string,
  options: AttentionOptions,
  scores: readonly number[],
  size: number,
  dtype: DType,
): { nodes: Node[]; kernel: Omit<AttentionKernel, "packed"> } {
  checkOptions(op, options, ["mask", "causal", "window", "segments", "scale", "dropout", "key", "precision"]);
  const { scale = 1 / Math.sqrt(size), dropout = 0, key = null } = options;
  const mask = segmentMask(op, options, scores);
  if (!(dropout >= 0 && dropout < 1))
    throw new WeftError(`${op}: dropout is at least 0 and less than 1, got ${dropout}`);
  if (!Number.isFinite(scale)) throw new WeftError(`${op}: scale is a number, got ${scale}`);
  const nodes: Node[] = [];
  let kind: AttentionKernel["mask"] = "none";
  let band = bandOption(op, options);
  if (mask !== undefined) {
    const shape = broadcastShapes(mask.shape, scores);
    if (shape === null || showShape(shape) !== showShape(scores))
      throw new ShapeError(`${op}: mask ${showShape(mask.shape)} does not broadcast to ${showShape(scores)}`);
    if (mask.dtype !== "bool" && !isFloat(mask.dtype))
      throw new DTypeError(`${op}: a mask is bool (who may look) or float (added to the scores), got ${mask.dtype}`);
    const found = maskOption(mask, scores);
    band = bandIntersection(band, found.band);
    const ids = found.node !== null && mask.dtype === "bool" ? segmentIds(found.node, scores) : null;
    if (ids !== null) {
      kind = "segments";
      nodes.push(ids);
    } else if (found.node !== null) {
      kind = mask.dtype === "bool" ? "bool" : "float";
      const node =
        kind === "bool" ? found.node : belowZero(build.cast(found.node, dtype === "float64" ? "float64" : "float32"));
      nodes.push(build.expandTo(node, scores));
    }
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
      ...tightened(band, scores[scores.length - 2], scores[scores.length - 1]),
      dropout: drops ? dropout : 0,
      ...(precision === undefined ? {} : { precision }),
    },
  };
}

/**
 * Computes softmax(q k^T scale) v, with q: [..., heads, queries, size] and k, v: [..., heads, keys, size]. The axes before the
 * last two must be equal, except that k and v may have fewer heads: each serves consecutive heads of q (grouped queries). GPUs run one fused kernel that does not store the weights, and two kernels for the gradient.
 */
export function scaledDotProductAttention(q: Tensor, k: Tensor, v: Tensor, options: AttentionOptions = {}): Tensor {
  const op = "scaledDotProductAttention";
  checkArguments(op, "tensor", { q, k, v });
  const shapes = `q ${showShape(q.shape)}, k ${showShape(k.shape)}, v ${showShape(v.shape)}`;
  if (!isFloat(q.dtype) || q.dtype !== k.dtype || q.dtype !== v.dtype)
    throw new DTypeError(`${op}: q, k and v have one float dtype, got ${q.dtype}, ${k.dtype} and ${v.dtype}`);
  const rank = q.rank;
  const lead = showShape(q.shape.slice(0, -3));
  const [heads, shared] = rank < 3 ? [1, 1] : [q.shape[rank - 3], k.shape[rank - 3]];
  const fits =
    rank >= 2 &&
    k.rank === rank &&
    showShape(k.shape.slice(0, -3)) === lead &&
    (heads === shared || (shared > 0 && heads % shared === 0)) &&
    showShape(k.shape) === showShape(v.shape) &&
    k.shape[rank - 1] === q.shape[rank - 1];
  if (!fits)
    throw new ShapeError(
      `${op}: ${shapes}: q is [..., queries, size], k and v are [..., keys, size], with the same axes before and the same size; the heads of k and v divide those of q`,
    );
  const size = q.shape[rank - 1];
  const headed = (x: Tensor): Node => (rank === 2 ? build.reshape(x.node, [1, ...x.shape]) : x.node);
  const scores = [...(rank === 2 ? [1] : q.shape.slice(0, -2)), q.shape[rank - 2], k.shape[rank - 2]];
  const { nodes, kernel } = extras(op, options, scores, size, q.dtype);
  const inputs = [...[q, k, v].map((x) => swapHeads(headed(x))), ...nodes];
  const result = swapHeads(attend(inputs, { ...kernel, packed: false }));
  return wrap(build.reshape(result, q.shape));
}

/**
 * Self-attention on queries, keys and values packed by one projection: [..., length, 3, heads, size] -> [..., length, heads,
 * size].
 */
export function packedAttention(joint: Tensor, options: AttentionOptions = {}): Tensor {
  const op = "packedAttention";
  checkArguments(op, "tensor", { joint });
  if (!isFloat(joint.dtype)) throw new DTypeError(`${op}: needs a float dtype, got ${joint.dtype}`);
  if (joint.rank < 4 || joint.shape[joint.rank - 3] !== 3)
    throw new ShapeError(`${op}: needs [..., length, 3, heads, size], got ${showShape(joint.shape)}`);
  const [length, , heads, size] = joint.shape.slice(-4);
  const scores = [...joint.shape.slice(0, -4), heads, length, length];
  const { nodes, kernel } = extras(op, options, scores, size, joint.dtype);
  return wrap(attend([joint.node, ...nodes], { ...kernel, packed: true }));
}
