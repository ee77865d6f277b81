// Rows of the general suite: windows of signals, pairs, short orders, convolutions of few channels, rarer functions, in shapes that no
// vector divides. The peer is peers/torch_windows.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type Entry, entryRows, fused, loose } from "./general-layers.js";
import type { GeneralRow, Sizer } from "./general-row.js";

const half: DType = "bfloat16";
const wide = (x: Tensor): Tensor => x.cast("float32");

const signals = (s: Sizer): Entry[] => {
  const line = 7 + s(160000);
  return [
    [
      "moving-maximum",
      "maximum of windows of 7, 64 x 160007 f32",
      [[[64, line], "float32"]],
      (x) => weft.slidingWindow(x, [7]).max(-1),
    ],
    [
      "moving-deviation",
      "standard deviation of windows of 25, 64 x 160007 f32",
      [[[64, line], "float32"]],
      (x) => weft.std(weft.slidingWindow(x, [25]), -1),
      fused,
    ],
    [
      "frames-odd",
      "windows of 401 at every 97th place of 16 x 160401 f32",
      [
        [[16, 401 + s(160000)], "float32"],
        [[401], "float32"],
      ],
      (x, w) => weft.slidingWindow(x, [401], { stride: 97 }).mul(w),
      fused,
    ],
    [
      "pair-distances",
      "distances of 8192 and 6144 points of 24, f32",
      [
        [[s(8192), 24], "float32"],
        [[s(6144), 24], "float32"],
      ],
      (x, y) => weft.sqrt(x.unsqueeze(1).sub(y.unsqueeze(0)).square().sum(-1)),
      fused,
    ],
    ["median-rows", "medians of 131072 rows of 31, f32", [[[s(131072), 31], "float32"]], (x) => weft.median(x, -1)],
    ["sort-33", "sort rows 131072 x 33 f64", [[[s(131072), 33], "float64"]], (x) => weft.sort(x)],
    ["sort-columns", "sort columns 64 x 65536 f32", [[[64, s(65536)], "float32"]], (x) => weft.sort(x, 0)],
  ];
};

const functions = (s: Sizer): Entry[] => {
  const line = s(1 << 22);
  const pair: [number[], DType][] = [
    [[line], "float32"],
    [[line], "float32"],
  ];
  return [
    ["angles", "angles of 2^22 points, f32", pair, (x, y) => weft.atan2(x, y), fused],
    ["remainders", "remainders of 2^22 f32", pair, (x, y) => weft.mod(x.mul(100), y.abs().add(0.1)), fused],
    [
      "inverse-hyperbolic",
      "asinh and atanh of 2^22 f64",
      [[[line], "float64"]],
      (x) => weft.asinh(x.mul(9)).add(weft.atanh(x.mul(0.9))),
      fused,
    ],
    ["erf-double", "erf of 2^22 f64", [[[line], "float64"]], (x) => weft.erf(x), fused],
    ["power-double", "2^22 f64 to the 1.7", [[[line], "float64"]], (x) => weft.pow(x.abs().add(0.1), 1.7), fused],
  ];
};

const convolutions = (s: Sizer): Entry[] => [
  [
    "depthwise-strided",
    "gradients of a depthwise convolution 3 x 3, stride 2, 64 x 96 x 56 x 56 bf16",
    [
      [[s(256), 96, 56, 56], half],
      [[96, 1, 3, 3], half],
    ],
    (x, w) =>
      weft.grad(
        (a: Tensor, b: Tensor) =>
          wide(weft.conv2d(a, b, { padding: 1, stride: 2, groups: 96 }))
            .square()
            .sum(),
        { argument: [0, 1] },
      )(x, w),
    { tolerance: 0.03 },
  ],
  [
    "grouped-four",
    "convolution 3 x 3 of 32 groups of 4 channels, 64 x 128 x 28 x 28 bf16",
    [
      [[s(1024), 128, 28, 28], half],
      [[128, 4, 3, 3], half],
    ],
    (x, w) => weft.conv2d(x, w, { padding: 1, groups: 32 }),
    loose,
  ],
  [
    "conv-stem-112",
    "convolution 7 x 7, stride 2, 64 x 3 x 112 x 112 f32",
    [
      [[s(1024), 3, 112, 112], "float32"],
      [[64, 3, 7, 7], "float32"],
    ],
    (x, w) => weft.conv2d(x, w, { stride: 2, padding: 3 }),
  ],
  [
    "conv-transposed-last",
    "transposed convolution 3 x 3, stride 2, 64 x 28 x 28 x 64, channels last, f32",
    [
      [[s(1024), 28, 28, 64], "float32"],
      [[64, 48, 3, 3], "float32"],
    ],
    (x, w) => weft.convTranspose2d(x, w, { stride: 2, padding: 1, outputPadding: 1, channelsLast: true }),
  ],
  [
    "recurrent-37",
    "tanh recurrence of width 37 by scan, 60 steps, batch 20, f32",
    [
      [[60, 20, 37], "float32"],
      [[37, 37], "float32"],
    ],
    (x, w) =>
      weft.scan(
        (h: Tensor, part: Tensor): [Tensor, Tensor] => {
          const next = weft.tanh(part.add(h.matmul(w.mul(0.1))));
          return [next, next];
        },
        weft.zeros([20, 37]),
        x,
      )[0],
  ],
];

export const windowRows = (s: Sizer): GeneralRow[] =>
  [signals, functions, convolutions].flatMap((rows) => entryRows(rows(s)));
