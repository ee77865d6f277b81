// Rows of the general suite: arithmetic and sums of rarer dtypes, transposed operands, rarer functions, and small training steps.
// The peer is peers/torch_rarer.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type Entry, entryRows, fused, fusedLoose, gradients, loose, type Operand } from "./general-layers.js";
import type { GeneralRow, Sizer } from "./general-row.js";

const f16: DType = "float16";
const bf16: DType = "bfloat16";
const f32: DType = "float32";
const f64: DType = "float64";
const byte = 256;

/** Whole numbers of the suite are int32; these are of a dtype. */
const as =
  (dtype: DType, f: (...args: Tensor[]) => Tensor) =>
  (...args: Tensor[]): Tensor =>
    f(...args.map((x) => x.cast(dtype)));

const dtypes = (s: Sizer): Entry[] => {
  const [n, line] = [s(8192), s(1 << 24)];
  const square = (dtype: DType): Operand => [[n, n], dtype];
  return [
    ["sum-half-rows", "sums of rows, f16", [square(f16)], (x) => x.sum(-1), loose],
    ["gelu-half", "gelu, f16", [square(f16)], (x) => weft.gelu(x), fusedLoose],
    ["tanh-half", "x tanh x + x, f16", [square(f16)], (x) => weft.tanh(x).mul(x).add(x), fusedLoose],
    [
      "silu-gradient",
      "gradient of silu(x) y, bf16",
      [square(bf16), square(bf16)],
      gradients((x, y) => weft.silu(x).mul(y), 2),
      fusedLoose,
    ],
    [
      "byte-blend",
      "(3 a + b) mod 256 of 2^24 uint8",
      [
        [[line], byte],
        [[line], byte],
      ],
      as("uint8", (a, b) => a.mul(3).add(b)),
      fused,
    ],
    [
      "byte-distance",
      "mean distance of two images of 2^24 uint8",
      [
        [[line], byte],
        [[line], byte],
      ],
      as("uint8", (a, b) => a.cast("int16").sub(b.cast("int16")).abs().cast(f32).mean()),
      fused,
    ],
    [
      "quantize-rows",
      "rows as int8 by their largest magnitudes, f32",
      [square(f32)],
      (x) =>
        weft
          .round(x.mul(weft.div(127, x.abs().max(-1, { keepDims: true }))))
          .cast("int8")
          .cast(f32),
      { ...fused, tolerance: 0.02 },
    ],
    [
      "dequantize",
      "int8 times a scale per row, bf16",
      [
        [[n, n], 127],
        [[n, 1], bf16],
      ],
      (x, scale) => x.cast("int8").cast(bf16).mul(scale),
      fusedLoose,
    ],
    ["divide-long", "2^24 int64 divided by 7, rounded down", [[[line], 1 << 30]], as("int64", (x) => x.floorDivide(7))],
    [
      "shift-bits",
      "bits of 2^24 int32 shifted and mixed",
      [[[line], 1 << 30]],
      (x) => weft.bitwiseXor(x, weft.rightShift(x, 15)).mul(3),
      fused,
    ],
    [
      "complex-divide",
      "angles of quotients of 2^22 c64",
      [1, 2, 3].map((): Operand => [[s(1 << 22)], f32]),
      (a, b, c) => weft.angle(weft.complex(a, b).div(weft.complex(c, a))),
      { tolerance: 0.01 },
    ],
    [
      "log-double",
      "log1p and tanh of 2^22 f64",
      [[[s(1 << 22)], f64]],
      (x) => weft.log1p(x.abs()).mul(weft.tanh(x)),
      fused,
    ],
    ["softplus-double", "softplus of 2^22 f64", [[[s(1 << 22)], f64]], (x) => weft.softplus(x), fused],
    [
      "normal-double",
      "distribution function of 2^22 f64",
      [[[s(1 << 22)], f64]],
      (x) => weft.erfc(x.mul(-2)).mul(0.5),
      fused,
    ],
    [
      "logarithm-gamma",
      "lgamma and digamma of 2^22 f32",
      [[[s(1 << 22)], f32]],
      (x) => weft.gammaln(x.abs().add(0.5)).add(weft.digamma(x.abs().add(0.5))),
    ],
  ];
};

const reductions = (s: Sizer): Entry[] => {
  const [n, tall] = [s(8192), s(65536)];
  return [
    [
      "logsumexp-columns",
      "logsumexp of columns, 65536 x 200 f32",
      [[[tall, 200], f32]],
      (x) => weft.logsumexp(x, 0),
      fused,
    ],
    [
      "cube-norm",
      "3-norms of rows, f32",
      [[[n, n], f32]],
      (x) =>
        x
          .abs()
          .pow(3)
          .sum(-1)
          .pow(1 / 3),
      fused,
    ],
    [
      "range-rows",
      "largest less smallest of rows of 100, f32",
      [[[tall, 100], f32]],
      (x) => x.max(-1).sub(x.min(-1)),
      fused,
    ],
    [
      "deviation-half-rows",
      "deviations of rows of 1000, bf16",
      [[[s(16384), 1000], bf16]],
      (x) => weft.std(x, -1),
      fusedLoose,
    ],
    [
      "softmax-half-gradient",
      "gradient of softmax of rows of 500, f16",
      [[[s(16384), 500], f16]],
      gradients((x) => weft.softmax(x)),
      fusedLoose,
    ],
    [
      "cumsum-half-columns",
      "running sums of columns, f16",
      [[[s(2048), n], f16]],
      (x) => weft.cumsum(x.mul(0.01), 0),
      loose,
    ],
    [
      "cumprod-middle",
      "running products of the middle axis, f64",
      [[[64, s(4096), 33], f64]],
      (x) => weft.cumprod(x.mul(0.01).add(1), 1),
    ],
    ["cummax-double", "running maximum of rows of 999, f64", [[[s(16384), 999], f64]], (x) => weft.cummax(x)],
    [
      "quantile-rows",
      "0.9-quantiles of rows of 1001, f32",
      [[[s(16384), 1001], f32]],
      (x) => weft.quantile(x, 0.9, -1),
    ],
    [
      "histogram-weights",
      "sums of 2^22 weights in 300 bins, f32",
      [
        [[s(1 << 22)], 300],
        [[s(1 << 22)], f32],
      ],
      (i, w) => weft.bincount(i, { weights: w, length: 300 }),
    ],
    [
      "distances-taxi",
      "taxicab distances of 2048 and 2048 points of 20, f32",
      [
        [[s(2048), 20], f32],
        [[s(2048), 20], f32],
      ],
      (x, y) => weft.cdist(x, y, { order: 1 }),
    ],
    ["sort-few", "sort 2^22 int32 of 5000 values", [[[s(1 << 22)], 5000]], (x) => weft.sort(x.cast("int32"))],
  ];
};

const layouts = (s: Sizer): Entry[] => {
  const [odd, n] = [3 + s(4096), s(4096)];
  return [
    [
      "transposed-sum",
      "a + transposed b of 4099 x 4099 f32",
      [
        [[odd, odd], f32],
        [[odd, odd], f32],
      ],
      (a, b) => a.add(b.transpose()),
      fused,
    ],
    ["transpose-half-odd", "transpose of 4099 x 4099 f16", [[[odd, odd], f16]], (x) => x.transpose().add(0), loose],
    ["roll-both", "roll by 100 and 77 of 4099 x 4099 f64", [[[odd, odd], f64]], (x) => weft.roll(x, [100, 77], [0, 1])],
    [
      "pad-half",
      "padding by 2 and 5 of 64 x 4099 x 99 f16",
      [[[64, odd, 99], f16]],
      (x) =>
        weft.pad(x, [
          [0, 0],
          [2, 5],
          [5, 2],
        ]),
    ],
    ["diagonals", "sums of diagonals of 4096 x 64 x 64 f32", [[[n, 64, 64], f32]], (x) => weft.trace(x)],
    [
      "einsum-chain",
      "bij,bjk,bkl->il of 4096 products of 48, f32",
      [
        [[s(4096), 48, 48], f32],
        [[s(4096), 48, 48], f32],
        [[s(4096), 48, 48], f32],
      ],
      (a, b, c) => weft.einsum("bij,bjk,bkl->il", a, b, c),
      { tolerance: 0.02 },
    ],
    [
      "pixel-shuffle",
      "pixel shuffle by 2 of 64 x 64 x 56 x 56 f32",
      [[[s(256), 64, 56, 56], f32]],
      (x) => weft.pixelShuffle(x, 2),
    ],
    [
      "resize-cubic",
      "bicubic interpolation of 32 x 3 x 112 x 112 f32 to 224 x 224",
      [[[s(512), 3, 112, 112], f32]],
      (x) => weft.interpolate(x, { size: [224, 224], mode: "cubic" }),
      { tolerance: 0.01 },
    ],
  ];
};

const layers = (s: Sizer): Entry[] => {
  const recurrent = (parts: number): Operand[] => [
    [[50, 16, 32], f32],
    [[parts * 32, 32], f32],
    [[parts * 32, 32], f32],
  ];
  return [
    [
      "layernorm-gain-gradient",
      "gradients of layer norm of rows of 512 with gain and bias, f32",
      [
        [[s(65536), 512], f32],
        [[512], f32],
        [[512], f32],
      ],
      gradients((x, g, b) => weft.layerNorm(x).mul(g).add(b), 3),
      { ...fused, tolerance: 0.05 },
    ],
    [
      "smooth-loss",
      "gradient of the smooth L1 loss of 2^22 f32",
      [
        [[s(1 << 22)], f32],
        [[s(1 << 22)], f32],
      ],
      (x, y) => weft.grad((z: Tensor) => weft.smoothL1Loss(z, y))(x),
      fused,
    ],
    [
      "lstm-small",
      "gradients of an LSTM of width 32 by scan, 50 steps, batch 16, f32",
      recurrent(4),
      gradients((x, wx, wh) => {
        const step = ([h, c]: Tensor[], part: Tensor): [Tensor[], Tensor] => {
          const [i, f, g, o] = weft.split(
            part.matmul(wx.transpose().mul(0.2)).add(h.matmul(wh.transpose().mul(0.2))),
            4,
            -1,
          );
          const cell = weft
            .sigmoid(f)
            .mul(c)
            .add(weft.sigmoid(i).mul(weft.tanh(g)));
          const next = weft.sigmoid(o).mul(weft.tanh(cell));
          return [[next, cell], next];
        };
        return weft.scan(step, [weft.zeros([16, 32]), weft.zeros([16, 32])], x)[1] as Tensor;
      }, 3),
      { tolerance: 0.02 },
    ],
    [
      "gru-small",
      "gradients of a GRU of width 32 by scan, 50 steps, batch 16, f32",
      recurrent(3),
      gradients((x, wx, wh) => {
        const step = (h: Tensor, part: Tensor): [Tensor, Tensor] => {
          const [r, z, n] = weft.split(part.matmul(wx.transpose().mul(0.2)), 3, -1);
          const [hr, hz, hn] = weft.split(h.matmul(wh.transpose().mul(0.2)), 3, -1);
          const gate = weft.sigmoid(z.add(hz));
          const fresh = weft.tanh(n.add(weft.sigmoid(r.add(hr)).mul(hn)));
          const next = fresh.add(gate.mul(h.sub(fresh)));
          return [next, next];
        };
        return weft.scan(step, weft.zeros([16, 32]), x)[1] as Tensor;
      }, 3),
      { tolerance: 0.02 },
    ],
    [
      "convnet-small",
      "gradients of two convolutions, pooling and a layer, 32 x 1 x 28 x 28 f32",
      [
        [[32, 1, 28, 28], f32],
        [[8, 1, 3, 3], f32],
        [[16, 8, 3, 3], f32],
        [[400, 10], f32],
      ],
      gradients((x, a, b, w) => {
        const first = weft.maxPool2d(weft.relu(weft.conv2d(x, a)), { kernel: 2 });
        return weft
          .maxPool2d(weft.relu(weft.conv2d(first, b.mul(0.1))), { kernel: 2 })
          .reshape([32, 400])
          .matmul(w.mul(0.1));
      }, 4),
      { ...fused, tolerance: 0.02 },
    ],
    [
      "conv-wave",
      "convolution of 9 along 16000, 1 to 16 channels, f32",
      [
        [[s(256), 1, 16000], f32],
        [[16, 1, 9], f32],
      ],
      (x, w) => weft.conv1d(x, w, { padding: 4 }),
    ],
    [
      "average-pool-gradient",
      "gradient of mean pooling 2 x 2 of 64 x 32 x 56 x 56 f32",
      [[[s(1024), 32, 56, 56], f32]],
      gradients((x) => weft.avgPool2d(x, { kernel: 2 })),
      fused,
    ],
    [
      "inverse-3",
      "inverses of 2^18 matrices 3 x 3 f32",
      [[[s(1 << 18), 3, 3], f32]],
      (x) => weft.inv(x.add(weft.eye(3).mul(4))),
    ],
    [
      "cross-product",
      "cross products of 2^20 vectors, f32",
      [
        [[s(1 << 20), 3], f32],
        [[s(1 << 20), 3], f32],
      ],
      (a, b) => weft.cross(a, b),
    ],
    [
      "bag-gradient",
      "gradient of sums of 20 rows of 10000 x 64 each, f32",
      [
        [[10000, 64], f32],
        [[s(16384), 20], 10000],
      ],
      gradients((w, i) => w.take(i, 0).sum(1)),
    ],
  ];
};

export const rarerRows = (s: Sizer): GeneralRow[] =>
  [dtypes, reductions, layouts, layers].flatMap((rows) => entryRows(rows(s)));
