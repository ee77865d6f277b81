// Cases of the functions that networks are made of: activations, normalizations, losses.

import type { Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { type Case, floats, singles } from "./case.js";

const activations: [string, (x: Tensor) => Tensor, string][] = [
  ["relu", weft.relu, "np.maximum(a, 0)"],
  ["leakyRelu", (x) => weft.leakyRelu(x, 0.1), "np.where(a > 0, a, 0.1 * a)"],
  ["sigmoid", weft.sigmoid, "special.expit(a)"],
  ["silu", weft.silu, "a * special.expit(a)"],
  ["gelu", weft.gelu, "0.5 * a * (1 + special.erf(a / np.sqrt(2)))"],
  ["softplus", weft.softplus, "np.logaddexp(a, 0)"],
  ["logSigmoid", weft.logSigmoid, "-np.logaddexp(-a, 0)"],
];

const pointwise: Case[] = [
  ...activations.flatMap(([name, fn, np]): Case[] => [
    { name: `${name}: matrix`, dtypes: floats, inputs: (s) => [s.nonzero([3, 4])], fn, np, loose: 4 },
    { name: `${name}: scalar and nothing`, dtypes: singles, inputs: (s) => [s.nonzero([])], fn, np, loose: 4 },
  ]),
  {
    name: "gelu: the tanh formula",
    dtypes: floats,
    inputs: (s) => [s.any([5])],
    fn: (x) => x.gelu({ approximate: true }),
    np: "0.5 * a * (1 + np.tanh(np.sqrt(2 / np.pi) * (a + 0.044715 * a ** 3)))",
    loose: 4,
  },
  {
    name: "sigmoid: far ends do not overflow",
    dtypes: singles,
    inputs: (s) => [s.exact([5], [-1000, -30, 0, 30, 1000])],
    fn: (x) => [x.sigmoid(), weft.softplus(x), x.silu(), x.relu()],
    np: "(special.expit(a), np.logaddexp(a, 0), a * special.expit(a), np.maximum(a, 0))",
    grad: false,
  },
  {
    name: "relu: NaN stays NaN",
    dtypes: floats,
    inputs: (s) => [s.exact([3], [NaN, -1, Infinity])],
    fn: (x) => [x.relu(), weft.leakyRelu(x)],
    np: "(np.maximum(a, 0), np.where(a > 0, a, 0.01 * a))",
    grad: false,
  },
];

const normalizations: Case[] = [
  {
    name: "rmsNorm: weight",
    dtypes: floats,
    inputs: (s) => [s.nonzero([3, 4]), s.nonzero([4])],
    fn: (x, weight) => weft.rmsNorm(x, { weight, epsilon: 1e-3 }),
    np: "a / np.sqrt(np.mean(a * a, -1, keepdims=True) + 1e-3) * b",
    loose: 8,
  },
  {
    name: "normalize: orders",
    dtypes: floats,
    inputs: (s) => [s.nonzero([3, 4])],
    fn: (x) => [weft.normalize(x), weft.normalize(x, { axes: 0, order: 1 }), weft.normalize(x, { epsilon: 1e3 })],
    np: "(a / np.linalg.norm(a, axis=-1, keepdims=True), a / np.abs(a).sum(0, keepdims=True), a / 1e3)",
    loose: 8,
  },
  ...[0, 1, -1].flatMap((axis): Case[] => [
    {
      name: `softmax: axis ${axis}`,
      dtypes: floats,
      inputs: (s) => [s.any([3, 4, 2])],
      fn: (x) => weft.softmax(x, axis),
      np: `special.softmax(a, ${axis})`,
      loose: 4,
    },
    {
      name: `logSoftmax: axis ${axis}`,
      dtypes: floats,
      inputs: (s) => [s.any([3, 4, 2])],
      fn: (x) => weft.logSoftmax(x, axis),
      np: `special.log_softmax(a, ${axis})`,
      loose: 4,
    },
  ]),
  {
    name: "softmax: large numbers, masked numbers, one element",
    dtypes: singles,
    inputs: (s) => [s.exact([3, 3], [1000, 1001, 999, -Infinity, 0, -Infinity, 5, 5, 5]), s.any([2, 1])],
    fn: (x, y) => [x.softmax(), y.softmax(), y.logSoftmax()],
    np: "(special.softmax(a, 1), np.ones((2, 1)), np.zeros((2, 1)))",
    grad: false,
  },
  {
    name: "softmax: nothing",
    dtypes: singles,
    inputs: (s) => [s.any([0, 3]), s.any([2, 0])],
    fn: (x, y) => [x.softmax(), y.softmax(), y.logSoftmax()],
    np: "(a, b, b)",
  },
  {
    name: "layerNorm: last axis, weight and bias",
    dtypes: floats,
    inputs: (s) => [s.any([2, 3, 6]), s.any([6]), s.any([6])],
    fn: (x, weight, bias) => [weft.layerNorm(x), weft.layerNorm(x, { weight, bias })],
    np: "(layer_norm(a, -1), layer_norm(a, -1) * b + c)",
    loose: 8,
  },
  {
    name: "layerNorm: two axes, another epsilon",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 4])],
    fn: (x) => weft.layerNorm(x, { axes: [-2, -1], epsilon: 0.01 }),
    np: "layer_norm(a, (1, 2), 0.01)",
    loose: 8,
  },
];

const reductionsOfLosses = ["mean", "sum", "none"] as const;

function lossCase(
  name: string,
  fn: (prediction: Tensor, target: Tensor, options: Parameters<typeof weft.mseLoss>[2]) => Tensor,
  np: string,
  inputs: Case["inputs"],
  extra: Partial<Case> = {},
): Case {
  return {
    name,
    dtypes: floats,
    inputs,
    fn: (prediction, target) => reductionsOfLosses.map((reduction) => fn(prediction, target, { reduction })),
    np: `(lambda v: (v.mean(), v.sum(), v))(${np})`,
    loose: 8,
    ...extra,
  };
}

const losses: Case[] = [
  lossCase("mseLoss: matrix", weft.mseLoss, "(a - b) ** 2", (s) => [s.any([3, 2]), s.any([3, 2])]),
  lossCase("l1Loss: matrix", weft.l1Loss, "np.abs(a - b)", (s) => [s.any([3, 2]), s.any([3, 2])]),
  lossCase("huberLoss: both sides of delta", weft.huberLoss, "special.huber(1, a - b)", (s) => [
    s.any([3, 4]),
    s.any([3, 4]),
  ]),
  lossCase(
    "huberLoss: another delta",
    (x, y, options) => weft.huberLoss(x, y, { ...options, delta: 0.4 }),
    "special.huber(0.4, a - b)",
    (s) => [s.any([3, 4]), s.any([3, 4])],
  ),
  lossCase(
    "binaryCrossEntropyWithLogits: matrix",
    weft.binaryCrossEntropyWithLogits,
    "np.logaddexp(a, 0) - a * b",
    (s) => [s.any([3, 4]), s.between(0, 1, [3, 4])],
  ),
  lossCase(
    "crossEntropy: class numbers",
    weft.crossEntropy,
    "-np.take_along_axis(special.log_softmax(a, -1), b[..., None], -1)[..., 0]",
    (s) => [s.any([2, 3, 5]), s.indices([2, 3], 0, 5)],
  ),
  lossCase("crossEntropy: probabilities", weft.crossEntropy, "-(b * special.log_softmax(a, -1)).sum(-1)", (s) => [
    s.any([3, 4]),
    s.between(0, 1, [3, 4]),
  ]),
  lossCase(
    "crossEntropy: smoothed labels",
    (x, y, options) => weft.crossEntropy(x, y, { ...options, labelSmoothing: 0.1 }),
    "-(special.log_softmax(a, -1) * (0.9 * one_hot(b, 5) + 0.1 / 5)).sum(-1)",
    (s) => [s.any([4, 5]), s.indices([4], 0, 5)],
  ),
  {
    name: "crossEntropy: a class that does not exist is NaN, not zero",
    dtypes: singles,
    inputs: (s) => [s.any([3, 4]), s.exact([3], [1, 4, -1], "int32")],
    fn: (x, y) => weft.crossEntropy(x, y, { reduction: "none" }),
    np: "np.array([-special.log_softmax(a[0])[1], np.nan, np.nan])",
    grad: false,
  },
];

const weights = "special.softmax(a @ np.swapaxes(b, -1, -2) / 2";
const causal = (n: number): Tensor => weft.arange(0, n).unsqueeze(1).greaterEqual(weft.arange(0, n).unsqueeze(0));

const attentions: Case[] = [
  {
    name: "scaledDotProductAttention: heads, more keys than queries",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 4]), s.any([2, 5, 4]), s.any([2, 5, 4])],
    fn: (q, k, v) => weft.scaledDotProductAttention(q, k, v),
    np: `${weights}, -1) @ c`,
    loose: 4,
  },
  {
    name: "scaledDotProductAttention: matrices, a mask of bools, another scale",
    dtypes: singles,
    inputs: (s) => [s.any([3, 4]), s.any([3, 4]), s.any([3, 4])],
    fn: (q, k, v) => weft.scaledDotProductAttention(q, k, v, { mask: causal(3), scale: 0.5 }),
    np: `${weights} + np.where(np.tri(3) > 0, 0, -np.inf), -1) @ c`,
    loose: 4,
  },
  {
    name: "scaledDotProductAttention: a batch and numbers added to the scores",
    dtypes: singles,
    inputs: (s) => [s.any([2, 2, 3, 4]), s.any([2, 2, 3, 4]), s.any([2, 2, 3, 4]), s.any([3])],
    fn: (q, k, v, mask) => weft.scaledDotProductAttention(q, k, v, { mask }),
    np: `${weights} + d, -1) @ c`,
    grad2: false,
    loose: 4,
  },
  {
    name: "packedAttention: one tensor with itself",
    dtypes: singles,
    inputs: (s) => [s.any([2, 5, 3, 2, 4])],
    fn: (joint) => weft.packedAttention(joint),
    np: "np.swapaxes(special.softmax(np.einsum('bqhd,bkhd->bhqk', a[:, :, 0], a[:, :, 1]) / 2, -1) @ np.swapaxes(a[:, :, 2], 1, 2), 1, 2)",
    loose: 4,
  },
];

const scores = (q: Tensor, k: Tensor): Tensor => q.matmul(k.transpose()).div(2);

/** As users write it: on GPUs these run in the kernels of the functions above. */
const byHand: Case[] = [
  {
    name: "softmax: attention by hand",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 4]), s.any([2, 5, 4]), s.any([2, 5, 4])],
    fn: (q, k, v) => weft.softmax(scores(q, k)).matmul(v),
    np: `${weights}, -1) @ c`,
    loose: 4,
  },
  {
    name: "softmax: attention by hand, causal, written out",
    dtypes: singles,
    inputs: (s) => [s.any([3, 4]), s.any([3, 4]), s.any([3, 4])],
    fn: (q, k, v) => {
      const open = scores(q, k).where(causal(3), Number.NEGATIVE_INFINITY);
      const e = open.sub(weft.stopGradient(open.max(-1, { keepDims: true }))).exp();
      return e.div(e.sum(-1, { keepDims: true })).matmul(v);
    },
    np: `${weights} + np.where(np.tri(3) > 0, 0, -np.inf), -1) @ c`,
    loose: 4,
  },
  {
    name: "softmax: attention by hand, heads last, a mask with a row that is closed",
    dtypes: singles,
    inputs: (s) => [s.any([2, 3, 2, 4]), s.any([2, 5, 2, 4]), s.any([2, 5, 2, 4])],
    fn: (q, k, v) => {
      const length = weft.tensor([4, 0], { dtype: "int32" }).reshape([2, 1, 1, 1]);
      const open = weft.arange(0, 5, 1, { dtype: "int32" }).less(length);
      const weightsOf = weft.softmax(weft.einsum("bqhd,bkhd->bhqk", q, k).mul(0.5).where(open, -1e9));
      return weft.einsum("bhqk,bkhd->bqhd", weightsOf, v);
    },
    np: "np.einsum('bhqk,bkhd->bqhd', special.softmax(np.where(np.arange(5) < np.array([4, 0]).reshape(2, 1, 1, 1), np.einsum('bqhd,bkhd->bhqk', a, b) / 2, -1e9), -1), c)",
    loose: 4,
  },
];

export const nn: Case[] = [...pointwise, ...normalizations, ...losses, ...attentions, ...byHand];
