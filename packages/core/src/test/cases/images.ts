// Cases of pooling, normalization and interpolation of images.
import * as weft from "../../index.js";
import { type Case, floats, singles } from "./case.js";

type Pool = (x: weft.Tensor, options: Parameters<typeof weft.avgPool2d>[1]) => weft.Tensor;
type Adaptive = (x: weft.Tensor, size: Parameters<typeof weft.adaptiveAvgPool2d>[1]) => weft.Tensor;
const functions = new Map<string, unknown>(Object.entries(weft));
const named = <F>(name: string): F => functions.get(name) as F;

const pools: Case[] = (
  [
    ["maxPool1d", [1, 2, 7], { kernel: 3, stride: 2, padding: 1 }],
    ["maxPool1d", [2, 1, 12], { kernel: 9, stride: 2, padding: 4, ceilMode: true }],
    ["maxPool2d", [1, 2, 5, 6], { kernel: 2 }],
    ["maxPool2d", [1, 2, 7, 6], { kernel: [3, 2], stride: [2, 1], padding: [1, 0], dilation: [2, 1] }],
    ["maxPool2d", [1, 5, 6, 2], { kernel: 3, stride: 2, padding: 1, ceilMode: true, channelsLast: true }],
    ["maxPool3d", [1, 1, 4, 3, 4], { kernel: 2, stride: [2, 1, 1] }],
    ["maxPool1d", [1, 2, 37], { kernel: 17 }],
    ["avgPool2d", [1, 2, 33, 3], { kernel: [16, 1] }],
    ["avgPool1d", [1, 2, 8], { kernel: 3, stride: 2, padding: 1 }],
    ["avgPool1d", [1, 1, 13], { kernel: 11, stride: 1, padding: 5, countIncludePad: false }],
    ["avgPool2d", [1, 2, 5, 6], { kernel: 2 }],
    ["avgPool2d", [1, 2, 6, 5], { kernel: 3, stride: 2, padding: 1, ceilMode: true }],
    [
      "avgPool2d",
      [1, 5, 4, 2],
      { kernel: [2, 3], stride: 1, padding: [1, 1], countIncludePad: false, channelsLast: true },
    ],
    ["avgPool3d", [1, 1, 4, 3, 4], { kernel: 2, stride: [1, 1, 2] }],
  ] as [string, number[], Parameters<typeof weft.avgPool2d>[1]][]
).map(([name, shape, options]) => ({
  name: `${name}: [${shape}] ${JSON.stringify(options).replaceAll('"', "")}`,
  dtypes: floats,
  inputs: (s) => [s.distinct(shape)],
  fn: (x) => named<Pool>(name)(x, options),
  np: `pool(a, "${name.slice(0, 3)}", json.loads('${JSON.stringify(options)}'))`,
  loose: 8,
}));

const adaptivePools: Case[] = (
  [
    ["adaptiveAvgPool1d", [1, 2, 7], 3],
    ["adaptiveAvgPool2d", [1, 2, 6, 5], [3, 2]],
    ["adaptiveAvgPool3d", [1, 1, 4, 3, 5], [2, 3, 1]],
    ["adaptiveAvgPool2d", [1, 2, 32, 3], [2, 1]],
    ["adaptiveMaxPool2d", [1, 2, 3, 32], [1, 2]],
    ["adaptiveMaxPool1d", [1, 2, 7], 4],
    ["adaptiveMaxPool2d", [1, 2, 6, 5], [4, 5]],
    ["adaptiveMaxPool3d", [1, 1, 4, 3, 5], [2, 1, 3]],
  ] as const
).map(([name, shape, size]) => ({
  name: `${name}: [${shape}] to [${size}]`,
  dtypes: floats,
  inputs: (s) => [s.distinct([...shape])],
  fn: (x) => named<Adaptive>(name)(x, size),
  np: `adaptive_pool(a, "${name.slice(8, 11).toLowerCase()}", ${JSON.stringify(size)})`,
  loose: 8,
}));

const ties: Case = {
  name: "maxPool2d: equal elements, NaN",
  dtypes: singles,
  inputs: (s) => [s.exact([1, 1, 3, 4], [0, 0, 1, 1, 0, 0, 1, Number.NaN, 0, 0, 0, 0])],
  fn: (x) => [
    weft.maxPool2d(x, { kernel: 2, stride: 1 }),
    weft.grad((t: weft.Tensor) => weft.maxPool2d(weft.where(t.isNaN(), 0, t), { kernel: 2, stride: 1 }).sum())(x),
  ],
  np: "(np.array([[[[0, 1, np.nan], [0, 1, np.nan]]]]), np.array([[[[1, 0, 2, 0], [1, 0, 2, 0], [0, 0, 0, 0]]]]))",
  grad: false,
};

const interpolations: Case[] = (
  [
    [[1, 2, 5], { size: 8 }],
    [[1, 2, 5], { size: 3, mode: "linear" }],
    [[1, 2, 4], { size: 7, mode: "linear", alignCorners: true }],
    [[1, 1, 4, 3], { size: [6, 5], mode: "linear" }],
    [[1, 2, 4, 5], { scale: 1.7, mode: "linear" }],
    [[1, 1, 5, 4], { size: [3, 9], mode: "cubic" }],
    [[1, 1, 4, 4], { scale: [2, 0.5], mode: "cubic", alignCorners: true }],
    [[1, 3, 4, 2], { scale: 2, channelsLast: true }],
    [[1, 1, 2, 3, 2], { size: [3, 2, 4], mode: "linear" }],
  ] as [number[], Parameters<typeof weft.interpolate>[1]][]
).map(([shape, options]) => ({
  name: `interpolate: [${shape}] ${JSON.stringify(options).replaceAll('"', "")}`,
  dtypes: floats,
  inputs: (s) => [s.any(shape)],
  fn: (x) => weft.interpolate(x, options),
  np: `interpolate(a, json.loads('${JSON.stringify(options)}'))`,
  loose: 8,
}));

const norms: Case[] = [
  {
    name: "batchNorm: of the batch, given, channels last",
    dtypes: floats,
    inputs: (s) => [s.any([3, 2, 4]), s.any([2]), s.any([2]), s.between(0.5, 2, [2])],
    fn: (x, weight, bias, spread) => [
      weft.batchNorm(x),
      weft.batchNorm(x, { weight, bias, epsilon: 0.01 }),
      weft.batchNorm(x, { statistics: { mean: bias, variance: spread }, weight }),
      weft.batchNorm(x.transpose(1, 2), { channelsLast: true, weight, bias }),
    ],
    np: "(layer_norm(a, (0, 2)), layer_norm(a, (0, 2), 0.01) * b[:, None] + c[:, None], (a - c[:, None]) / np.sqrt(d[:, None] + 1e-5) * b[:, None], np.swapaxes(layer_norm(a, (0, 2)) * b[:, None] + c[:, None], 1, 2))",
    vmap: false,
    loose: 20,
  },
  {
    name: "groupNorm: two groups, channels last",
    dtypes: floats,
    inputs: (s) => [s.any([2, 4, 3]), s.any([4]), s.any([4])],
    fn: (x, weight, bias) => [
      weft.groupNorm(x, 2, { weight, bias }),
      weft.groupNorm(x.transpose(1, 2), 2, { channelsLast: true }),
    ],
    np: "(lambda y: (y * b[:, None] + c[:, None], np.swapaxes(y, 1, 2)))(layer_norm(a.reshape(2, 2, 6), 2).reshape(2, 4, 3))",
    vmap: false,
    loose: 20,
  },
  {
    name: "instanceNorm: images",
    dtypes: floats,
    inputs: (s) => [s.any([2, 3, 2, 3]), s.any([3])],
    fn: (x, weight) => [weft.instanceNorm(x), weft.instanceNorm(x, { weight })],
    np: "(layer_norm(a, (2, 3)), layer_norm(a, (2, 3)) * b[:, None, None])",
    vmap: false,
    loose: 20,
  },
];

export const images: Case[] = [...pools, ...adaptivePools, ties, ...interpolations, ...norms];
