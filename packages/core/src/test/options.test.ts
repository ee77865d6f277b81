// Options with a wrong name, and arguments of a wrong form, are refused: other libraries' words must not be ignored in silence.
import assert from "node:assert/strict";
import { test } from "node:test";
import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import * as optim from "../optim/index.js";

const x = weft.tensor([
  [1, 2],
  [3, 4],
]);
const image = weft.ones([1, 1, 4, 4]);
const kernel = weft.ones([1, 1, 3, 3]);
const signal = weft.ones([1, 1, 8]);
const heads = weft.ones([1, 1, 2, 2]);
const double = (t: Tensor): Tensor => t.mul(2);
const total = (t: Tensor): Tensor => t.sum();

/** Calls that get another library's options. */
const calls: Record<string, (options: never) => unknown> = {
  sum: (o) => x.sum(0, o),
  prod: (o) => weft.prod(x, 0, o),
  mean: (o) => x.mean(0, o),
  max: (o) => x.max(0, o),
  min: (o) => x.min(0, o),
  any: (o) => weft.any(x, 0, o),
  all: (o) => weft.all(x, 0, o),
  argmax: (o) => weft.argmax(x, 0, o),
  variance: (o) => weft.variance(x, 0, o),
  std: (o) => weft.std(x, 0, o),
  logsumexp: (o) => weft.logsumexp(x, 0, o),
  cumsum: (o) => weft.cumsum(x, 0, o),
  cumprod: (o) => weft.cumprod(x, 0, o),
  countNonzero: (o) => weft.countNonzero(x, 0, o),
  quantile: (o) => weft.quantile(x, 0.5, 0, o),
  median: (o) => weft.median(x, 0, o),
  sort: (o) => weft.sort(x, 0, o),
  argsort: (o) => weft.argsort(x, 0, o),
  diff: (o) => weft.diff(x, 0, o),
  bincount: (o) => weft.bincount(weft.tensor([1, 2], { dtype: "int32" }), o),
  histogram: (o) => weft.histogram(x, 2, o),
  scatter: (o) => weft.scatter(x, weft.tensor([0], { dtype: "int32" }), weft.ones([1, 2]), o),
  conv1d: (o) => weft.conv1d(signal, weft.ones([1, 1, 3]), o),
  conv2d: (o) => weft.conv2d(image, kernel, o),
  convTranspose2d: (o) => weft.convTranspose2d(image, kernel, o),
  maxPool2d: (o) => weft.maxPool2d(image, { kernel: 2, ...(o as object) }),
  avgPool2d: (o) => weft.avgPool2d(image, { kernel: 2, ...(o as object) }),
  adaptiveAvgPool2d: (o) => weft.adaptiveAvgPool2d(image, 2, o),
  interpolate: (o) => weft.interpolate(image, { size: 2, ...(o as object) }),
  batchNorm: (o) => weft.batchNorm(image, o),
  groupNorm: (o) => weft.groupNorm(image, 1, o),
  instanceNorm: (o) => weft.instanceNorm(image, o),
  layerNorm: (o) => weft.layerNorm(x, o),
  gelu: (o) => weft.gelu(x, o),
  scaledDotProductAttention: (o) => weft.scaledDotProductAttention(heads, heads, heads, o),
  crossEntropy: (o) => weft.crossEntropy(x, weft.tensor([0, 1], { dtype: "int32" }), o),
  mseLoss: (o) => weft.mseLoss(x, x, o),
  huberLoss: (o) => weft.huberLoss(x, x, o),
  smoothL1Loss: (o) => weft.smoothL1Loss(x, x, o),
  grad: (o) => weft.grad(total, o)(x),
  valueAndGrad: (o) => weft.valueAndGrad(total, o)(x),
  jacrev: (o) => weft.jacrev(double, o)(x),
  jvp: (o) => weft.jvp(double as never, [x] as never, [x] as never, o),
  vmap: (o) => weft.vmap(double, o)(x),
  scan: (o) => weft.scan((c: Tensor, v: Tensor): [Tensor, Tensor] => [c, v], weft.zeros([2]), x, o),
  whileLoop: (o) => weft.whileLoop((c: Tensor) => c.less(1), double, weft.ones([]), o),
  jit: (o) => weft.jit(double, o),
  zeros: (o) => weft.zeros([2], o),
  full: (o) => weft.full([2], 1, o),
  onesLike: (o) => weft.onesLike(x, o),
  tensor: (o) => weft.tensor([1], o),
  arange: (o) => weft.arange(0, 3, 1, o),
  linspace: (o) => weft.linspace(0, 1, 3, o),
  eye: (o) => weft.eye(2, o),
  rand: (o) => weft.rand([2], o),
  randn: (o) => weft.randn([2], o),
  randint: (o) => weft.randint(0, 4, [2], o),
  bernoulli: (o) => weft.bernoulli(0.5, [2], o),
  exponential: (o) => weft.exponential([2], o),
  gumbel: (o) => weft.gumbel([2], o),
  laplace: (o) => weft.laplace([2], o),
  gamma: (o) => weft.gamma(1, [2], o),
  cauchy: (o) => weft.cauchy([2], o),
  fft: (o) => weft.fft(x, o),
  rfft: (o) => weft.rfft(x, o),
  fftn: (o) => weft.fftn(x, o),
  adam: (o) => optim.adam(o),
  adamW: (o) => optim.adamW(o),
  sgd: (o) => optim.sgd({ learningRate: 1, ...(o as object) }),
  schedule: (o) => optim.schedule({ learningRate: 1, ...(o as object) }),
};

test("options that do not exist are refused", () => {
  const accepted = Object.keys(calls).filter((name) => {
    try {
      calls[name]({ nonsense: 1 } as never);
      return true;
    } catch (error) {
      assert.match(String(error), /there is no option "nonsense"/, name);
      return false;
    }
  });
  assert.deepEqual(accepted, []);
});

test("words of other libraries are translated", () => {
  const meant: [string, object, RegExp][] = [
    ["sum", { keepdims: true }, /did you mean "keepDims"/],
    ["sum", { keepdim: true }, /did you mean "keepDims"/],
    ["grad", { argnums: [0] }, /did you mean "argument"/],
    ["vmap", { in_axes: 1 }, /did you mean "inAxes"/],
    ["std", { ddof: 1 }, /did you mean "correction"/],
    ["layerNorm", { eps: 1 }, /did you mean "epsilon"/],
    ["scaledDotProductAttention", { is_causal: true }, /did you mean "causal"/],
    ["conv2d", { pad: 1 }, /did you mean "padding"/],
    ["adam", { lr: 1 }, /did you mean "learningRate"/],
    ["mseLoss", { reduction: "avg" }, /"mean", "sum" or "none"/],
  ];
  for (const [name, options, expected] of meant) assert.throws(() => calls[name](options as never), expected, name);
});

test("arguments of a wrong form get a sentence, not a stack trace", () => {
  const wrong: [() => unknown, RegExp][] = [
    [() => x.sum({ axis: 1 } as never), /axes are a number or an array/],
    [() => weft.sort(x, { descending: true } as never), /an axis is a number/],
    [() => x.reshape(4 as never), /one array, such as reshape/],
    [() => x.permute(1 as never), /one array, such as permute/],
    [() => weft.zeros([2], "float64" as never), /options are an object/],
    [() => (x as unknown as number) + 1, /take tensors of one element/],
  ];
  for (const [call, expected] of wrong) assert.throws(call, expected);
  assert.equal((weft.tensor([2]) as unknown as number) + 1, 3);
});
