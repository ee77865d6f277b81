// Attention as one custom function: softmax(q k^T scale) v with masks and dropout in ordinary ops, marked so that a device with a
// fused kernel can use it. Built by the user function (tensor/attention) and by the matcher (recognize).
import { type AttentionKernel, type GraphFn, isHalf, type Node, type Precision, type Shape } from "../graph/index.js";
import { build, composed, differentiableOperands, keptScale } from "../ops/index.js";
import { bandMask } from "./attention-band.js";
import { backward } from "./gradient.js";
import { instantiate } from "./walk.js";

/** Packs 32 bits of the dropout mask per number, the first in the lowest bit; the last number is padded with zeros. */
function asBits(kept: Node): Node {
  const n = kept.shape[kept.shape.length - 1];
  const words = Math.ceil(n / 32);
  const node = build.cast(kept, "int32");
  const low = node.shape.map(() => 0);
  const padded = build.pad(node, low, [...low.slice(0, -1), words * 32 - n]);
  const grouped = build.reshape(padded, [...node.shape.slice(0, -1), words, 32]);
  const at = build.iota(grouped.shape, grouped.shape.length - 1, "int32");
  const last = build.eq(at, build.fullLike(at, 31));
  const power = build.binary("pow", build.fullLike(at, 2), build.binary("min", at, build.fullLike(at, 30)));
  const bit = build.where(last, build.fullLike(at, -(2 ** 31)), power);
  return build.sum(build.mul(grouped, bit), [grouped.shape.length - 1]);
}

/** [..., length, heads, size] <-> [..., heads, length, size] */
export const swapHeads = (x: Node): Node => build.moveAxis(x, x.shape.length - 2, x.shape.length - 3);

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
  const heads = split[0].shape[axis + (packed ? 0 : 1)];
  return split.map((x) => sharedHeads(swapHeads(isHalf(x.dtype) ? build.cast(x, "float32") : x), heads));
}

/** Keys or values [..., heads, length, size] of fewer heads, repeated for consecutive heads of the queries. */
function sharedHeads(x: Node, heads: number): Node {
  const axis = x.shape.length - 3;
  const own = x.shape[axis];
  if (own === heads) return x;
  const [lead, tail] = [x.shape.slice(0, axis), x.shape.slice(axis + 1)];
  const repeated = build.expand(build.reshape(x, [...lead, own, 1, ...tail]), [...lead, own, heads / own, ...tail]);
  return build.reshape(repeated, [...lead, heads, ...tail]);
}

/** Where a query and a key have the same id: bool in the layout of the scores; ids: [..., queries + keys]. */
function sameSegment(ids: Node, scores: Shape): Node {
  const [queries, keys] = scores.slice(-2);
  const axis = ids.shape.length - 1;
  const lead = ids.shape.slice(0, -1);
  const part = (from: number, to: number, shape: Shape): Node =>
    build.expandTo(build.reshape(build.sliceAxis(ids, axis, from, to), [...lead, 1, ...shape]), scores);
  return build.eq(part(0, queries, [queries, 1]), part(queries, queries + keys, [1, keys]));
}

/** The function in ops: its result, the log-sums of its rows, the dropout mask as bits. */
function compose(inputs: readonly Node[], kernel: AttentionKernel): Node[] {
  const { dtype } = inputs[0];
  const precision = isHalf(dtype) ? (dtype as Precision) : kernel.precision;
  const [q, k, v] = parts(inputs, kernel.packed);
  let next = kernel.packed ? 1 : 3;
  const scores = build.scale(build.matmul(q, build.transpose(k), precision), kernel.scale);
  const given = kernel.mask === "none" ? null : inputs[next++];
  const mask = kernel.mask === "segments" ? sameSegment(given!, scores.shape) : given;
  const last = scores.shape.length - 1;
  let weights: Node;
  let logSum: Node;
  const shown = kernel.mask === "float" ? build.add(scores, build.cast(mask!, scores.dtype)) : scores;
  const band = kernel.lower === undefined && kernel.upper === undefined ? null : bandMask(kernel, scores.shape);
  if (kernel.mask !== "float" && (mask !== null || band !== null)) {
    const open = band === null ? mask! : mask === null ? band : build.binary("and", mask, band);
    ({ weights, logSum } = composed.maskedSoftmax(shown, open));
  } else {
    const seen = band === null ? shown : build.where(band, shown, build.fullLike(shown, Number.NEGATIVE_INFINITY));
    weights = composed.softmax(seen, last);
    logSum = composed.logSumExp(seen, [last]);
  }
  const saved = [build.reshape(logSum, logSum.shape.slice(0, -1))];
  if (kernel.dropout > 0) {
    const key = inputs[next];
    const kept = composed.dropoutMask(weights.shape.slice(key.shape.length - 1), kernel.dropout, key);
    const scaled = build.scale(weights, keptScale(kernel.dropout));
    weights = build.where(kept, scaled, build.zerosLike(scaled));
    saved.push(asBits(kept));
  }
  const result = swapHeads(build.matmul(weights, v, precision));
  return [build.cast(result, dtype), ...saved];
}

const placeholders = (nodes: readonly Node[]): Node[] => nodes.map((n) => build.input(n.shape, n.dtype, "x"));

/**
 * Inputs, results and a cotangent -> gradients, by differentiating the ops; results saved by the forward pass are for kernels.
 */
function gradientBody(kernel: AttentionKernel, given: readonly Node[], inputs: number): GraphFn {
  const params = placeholders(given);
  const own = params.slice(0, inputs);
  const wanted = own.slice(0, differentiableOperands(kernel));
  const [result] = compose(own, kernel);
  const grads = backward([result], [params[params.length - 1]], wanted);
  return { params, outputs: grads.map((g, i) => g ?? build.zerosLike(wanted[i])) };
}

/**
 * The gradient as a custom function of the `inputs` operands, the results and a cotangent. Rules use the shapes of their
 * arguments, because vmap adds leading axes and devices have shards.
 */
const gradientCustom = (kernel: AttentionKernel, all: readonly Node[], inputs: number): Node =>
  build.make("custom", all, {
    body: gradientBody(kernel, all, inputs),
    kernel: { ...kernel, gradient: true },
    rule: {
      name: "attentionGradient",
      backward: (given, _results, cotangents) =>
        backward(instantiate(gradientBody(kernel, given, inputs), given), cotangents, given),
      onParts: (given) => gradientCustom(kernel, given, inputs),
    },
  });

function gradientNode(kernel: AttentionKernel, inputs: Node[], outputs: Node[], cotangent: Node): (Node | null)[] {
  const node = gradientCustom(kernel, [...inputs, ...outputs, cotangent], inputs.length);
  return inputs.map((_, i) => (i < differentiableOperands(kernel) ? build.pick(node, i) : null));
}

/** The custom function on inputs as AttentionKernel defines them; use `pick` for its results. */
export function attentionNode(inputs: readonly Node[], kernel: AttentionKernel): Node<"custom"> {
  const params = placeholders(inputs);
  return build.make("custom", inputs, {
    body: { params, outputs: compose(params, kernel) },
    kernel,
    rule: {
      name: "attention",
      backward: (given, outputs, cotangents) => gradientNode(kernel, given, outputs, cotangents[0]),
      onParts: (given) => attentionNode(given, kernel),
    },
  });
}
