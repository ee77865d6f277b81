// Cases of the convolutions: one to three axes, forward and transposed, both layouts, all kinds of padding.
import type { ConvOptions, Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { type Case, complexes, floats, singles } from "./case.js";

/** Options as keyword arguments of Python. */
const python = (options: object): string =>
  Object.entries(options)
    .filter(([name]) => name !== "channelsLast")
    .map(([name, value]) => `${name}=${JSON.stringify(value)}`)
    .join(", ");

const label = (options: object): string => JSON.stringify(options).replaceAll('"', "");

const forwards: [number[], number[], Omit<ConvOptions, "bias">][] = [
  [[2, 3, 8], [4, 3, 3], {}],
  [[1, 2, 9], [2, 2, 3], { stride: 2, padding: 1 }],
  [[1, 2, 10], [3, 2, 3], { dilation: 2, padding: "same" }],
  [[2, 4, 6], [4, 2, 2], { groups: 2 }],
  [[1, 3, 5], [3, 1, 5], { groups: 3, padding: 2, stride: 3 }],
  [[1, 9, 2], [4, 2, 4], { channelsLast: true, stride: 2, padding: "same" }],
  [[2, 2, 5, 6], [3, 2, 3, 2], {}],
  [[1, 2, 6, 7], [2, 2, 3, 3], { stride: [2, 1], padding: [1, 0] }],
  [[1, 2, 7, 7], [2, 2, 2, 3], { dilation: [2, 1], padding: "same" }],
  [[1, 4, 5, 5], [2, 2, 3, 3], { groups: 2, stride: 2, padding: 1 }],
  [[1, 1, 3, 3], [1, 1, 1, 1], {}],
  [[2, 2, 4, 5], [3, 2, 1, 1], {}],
  [
    [1, 2, 5, 4],
    [2, 2, 3, 3],
    {
      padding: [
        [2, 0],
        [0, 1],
      ],
      stride: [1, 2],
    },
  ],
  [[2, 5, 6, 4], [6, 2, 3, 3], { channelsLast: true, groups: 2, padding: 1 }],
  [[1, 4, 5, 3], [3, 1, 3, 2], { channelsLast: true, groups: 3, padding: [1, 0], dilation: [1, 2] }],
  [[2, 3, 4, 2], [4, 2, 1, 1], { channelsLast: true }],
  [[1, 3, 6, 5], [3, 1, 3, 3], { groups: 3, padding: 1, stride: [1, 2] }],
  [[1, 2, 4, 3, 5], [2, 2, 2, 3, 2], { padding: [0, 1, 1], stride: [2, 1, 2] }],
  [[1, 3, 4, 3, 2], [2, 2, 2, 2, 2], { channelsLast: true, padding: "valid" }],
];

const transposes: [number[], number[], Omit<NonNullable<Parameters<typeof weft.convTranspose2d>[2]>, "bias">][] = [
  [[2, 3, 5], [3, 2, 3], {}],
  [[1, 2, 4], [2, 3, 3], { stride: 3, padding: 1, outputPadding: 2 }],
  [[1, 2, 4, 3], [2, 3, 3, 2], { stride: 2, padding: [1, 0], outputPadding: [1, 0] }],
  [[2, 4, 3, 3], [4, 1, 2, 2], { groups: 2, stride: [1, 2], dilation: [2, 1] }],
  [
    [1, 3, 4, 2],
    [2, 2, 3, 3],
    {
      channelsLast: true,
      padding: [
        [1, 0],
        [2, 1],
      ],
    },
  ],
  [[1, 2, 2, 3, 2], [2, 1, 2, 2, 2], { stride: [1, 2, 1] }],
  [[1, 2, 3, 3, 2], [2, 1, 2, 1, 2], { channelsLast: true, groups: 2, stride: 2, outputPadding: 1 }],
];

type Conv = (x: Tensor, w: Tensor, options: ConvOptions) => Tensor;
const functions: Record<string, readonly (readonly [string, Conv])[]> = {
  conv: [
    ["conv1d", weft.conv1d],
    ["conv2d", weft.conv2d],
    ["conv3d", weft.conv3d],
  ],
  conv_transpose: [
    ["convTranspose1d", weft.convTranspose1d as Conv],
    ["convTranspose2d", weft.convTranspose2d as Conv],
    ["convTranspose3d", weft.convTranspose3d as Conv],
  ],
};

function convCase(numpy: string, x: number[], w: number[], options: Omit<ConvOptions, "bias">): Case {
  const [name, fn] = functions[numpy][x.length - 3];
  const out = numpy === "conv" ? w[0] : w[1] * (options.groups ?? 1);
  const call = options.channelsLast ? `last(${numpy}, a, b, ${python(options)})` : `${numpy}(a, b, ${python(options)})`;
  const wide = options.channelsLast
    ? "c"
    : `c.reshape(-1, ${x
        .slice(2)
        .map(() => 1)
        .join(", ")})`;
  return {
    name: `${name}: [${x}] with [${w}] ${label(options)}`,
    dtypes: w[1] === 2 ? [...floats, ...complexes] : floats,
    inputs: (s) => [s.any(x), s.any(w), s.any([out])],
    fn: (input, weight, bias) => [fn(input, weight, options), fn(input, weight, { ...options, bias })],
    np: `(${call}, ${call} + ${wide})`,
    loose: 8,
  };
}

/** Sizes at which the code of devices divides its work: several panels of windows, several images in one, many channels. */
const large: Case[] = (
  [
    [[3, 5, 9, 11], [7, 5, 3, 3], { padding: 1 }],
    [[5, 11, 13, 6], [9, 6, 3, 2], { channelsLast: true, stride: [2, 1] }],
    [[2, 18, 10, 10], [20, 18, 3, 3], { padding: 1 }],
  ] as [number[], number[], ConvOptions][]
).map(([x, w, options]) => ({
  name: `conv2d: all gradients of [${x}] with [${w}]`,
  dtypes: singles,
  inputs: (s) => [s.any(x), s.any(w)],
  fn: (input, weight) => [
    weft.conv2d(input, weight, options),
    ...weft.grad((a: Tensor, b: Tensor) => weft.conv2d(a, b, options).square().sum().mul(0.01), { argument: [0, 1] })(
      input,
      weight,
    ),
  ],
  grad: false,
  vmap: false,
  loose: 400,
}));

export const convs: Case[] = [
  ...forwards.map(([x, w, options]) => convCase("conv", x, w, options)),
  ...transposes.map(([x, w, options]) => convCase("conv_transpose", x, w, options)),
  ...large,
];
