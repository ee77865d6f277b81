// Rows of the general suite that are typical programs: statistics along every axis, arrays in chains, sampling and routing. The peer is
// peers/torch_programs.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type Entry, entryRows, fused, fusedLoose, loose } from "./general-layers.js";
import { layerProgramEntries } from "./general-programs-layers.js";
import type { GeneralRow, Sizer } from "./general-row.js";

const half: DType = "bfloat16";
const wide = (x: Tensor): Tensor => x.cast("float32");

const statistics = (s: Sizer): Entry[] => [
  [
    "deviation-middle",
    "standard deviation of the middle axis, 64 x 2048 x 512 f32",
    [[[64, s(2048), s(512)], "float32"]],
    (x) => weft.std(x, 1, { correction: 1 }),
    fused,
  ],
  [
    "variance-columns-half",
    "variance of columns, 32768 x 2048 bf16",
    [[[s(32768), s(2048)], half]],
    (x) => weft.variance(wide(x), 0, { correction: 1 }),
    fused,
  ],
  [
    "max-columns-half",
    "maximum of columns, 65536 x 1024 f16",
    [[[s(65536), s(1024)], "float16"]],
    (x) => x.max(0),
    fusedLoose,
  ],
  [
    "norm-columns",
    "2-norms of columns, 16384 x 4096 f32",
    [[[s(16384), s(4096)], "float32"]],
    (x) => x.square().sum(0).sqrt(),
    fused,
  ],
  [
    "argmax-columns",
    "argmax of columns, 16384 x 4096 f32",
    [[[s(16384), s(4096)], "float32"]],
    (x) => x.argmax(0),
    fused,
  ],
  [
    "argmax-channels",
    "argmax of 21 channels, 32 x 21 x 512 x 512 f32",
    [[[s(32), 21, s(512), s(512)], "float32"]],
    (x) => x.argmax(1),
    fused,
  ],
  [
    "mean-double-columns",
    "means of columns, 8192 x 4096 f64",
    [[[s(8192), s(4096)], "float64"]],
    (x) => x.mean(0),
    { ...fused, tolerance: 1e-2 },
  ],
  [
    "image-statistics",
    "mean and deviation of three channels of 256 images, uint8",
    [[[s(256), s(224), s(224), 3], 256]],
    (x) => [wide(x.cast("uint8")).mean([0, 1, 2]), weft.std(wide(x.cast("uint8")), [0, 1, 2])],
    fused,
  ],
  [
    "mean-masked",
    "means of the rows before a length, 256 x 512 x 768 bf16",
    [
      [[s(256), s(512), s(768)], half],
      [[s(256), 1, 1], s(512)],
    ],
    (x, n) => {
      const seen = weft.arange(0, x.shape[1], 1, { dtype: "int32" }).unsqueeze(1).lessEqual(n);
      return weft
        .where(seen, wide(x), 0)
        .sum(1)
        .div(wide(n.squeeze(2).add(1)));
    },
    fusedLoose,
  ],
  [
    "batch-norm-last",
    "batch norm of 128 x 28 x 28 x 512, channels last, bf16",
    [[[s(128), 28, 28, 512], half]],
    (x) => weft.batchNorm(x, { channelsLast: true }),
    fusedLoose,
  ],
  [
    "softmax-tall",
    "softmax of columns of 65536 x 96 f32",
    [[[s(65536), 96], "float32"]],
    (x) => weft.softmax(x, 0),
    fused,
  ],
  [
    "all-middle",
    "all of the middle axis, 256 x 512 x 512 bool",
    [[[s(256), s(512), s(512)], 100]],
    (x) => weft.all(x.cast("uint8").less(99), 1).cast("float32"),
    fused,
  ],
  [
    "norm-clip",
    "24 gradients of 1024 x 2048 scaled to norm 1, f32",
    Array.from({ length: 24 }, () => [[s(1024), s(2048)], "float32"] as [number[], DType]),
    (...x) => {
      const norm = weft.sqrt(x.map((t) => t.square().sum()).reduce((a, b) => a.add(b)));
      return x.map((t) => t.div(norm.add(1e-6)));
    },
    fused,
  ],
];

const arrays = (s: Sizer): Entry[] => {
  const [line, many] = [s(1 << 24), s(1 << 22)];
  return [
    [
      "cumsum-double",
      "running sums of rows, 4096 x 4096 f64",
      [[[s(4096), s(4096)], "float64"]],
      (x) => weft.cumsum(x),
    ],
    [
      "cumsum-half",
      "running sums of rows, 8192 x 8192 bf16",
      [[[s(8192), s(8192)], half]],
      (x) => weft.cumsum(x),
      loose,
    ],
    [
      "cumsum-int-rows",
      "running sums of rows, 8192 x 4096 int64",
      [[[s(8192), s(4096)], 1000]],
      (x) => weft.cumsum(x.cast("int64")),
    ],
    ["cumprod-line", "running products of 2^24 f64", [[[line], "float64"]], (x) => weft.cumprod(x.mul(1e-4).add(1))],
    [
      "embedding-bag",
      "sums of 32 rows of 100000 x 128 each, f32",
      [
        [[s(100000), 128], "float32"],
        [[s(8192), 32], s(100000)],
      ],
      (w, i) => w.take(i, 0).sum(1),
      fused,
    ],
    [
      "bins-many",
      "bincount of 2^24 in 65536 bins",
      [[[line], s(65536)]],
      (x) => weft.bincount(x, { length: s(65536) }),
    ],
    [
      "bucketize",
      "places of 2^24 numbers among 100 edges, f32",
      [
        [[100], "float32"],
        [[line], "float32"],
      ],
      (a, x) => weft.searchsorted(weft.sort(a), x),
    ],
    [
      "scatter-add-few",
      "sums of 2^22 f32 in 1000 places",
      [
        [[1000], "float32"],
        [[many], 1000],
        [[many], "float32"],
      ],
      (x, i, u) => weft.indexAdd(x, i, u, 0),
      { tolerance: 0.01 },
    ],
    [
      "scatter-mul-double",
      "product of 2^20 f64 in 65536 places",
      [
        [[s(65536)], "float64"],
        [[s(1 << 20)], s(65536)],
        [[s(1 << 20)], "float64"],
      ],
      (x, i, u) => weft.scatter(x, i, u.mul(0.01).add(1), { mode: "mul" }),
      { tolerance: 0.01 },
    ],
    [
      "segment-mean",
      "means of 2^20 rows of 16 in 65536 segments, f32",
      [
        [[s(1 << 20), 16], "float32"],
        [[s(1 << 20)], s(65536)],
      ],
      (x, i) =>
        weft
          .segmentReduce(x, i, s(65536))
          .div(weft.maximum(weft.bincount(i, { length: s(65536) }).cast("float32"), 1).unsqueeze(1)),
      { tolerance: 0.01 },
    ],
    [
      "gather-rows-half",
      "32768 rows of 65536 x 4096 bf16",
      [
        [[s(65536), s(4096)], half],
        [[s(32768)], s(65536)],
      ],
      (x, i) => x.take(i, 0),
    ],
    [
      "one-hot-words",
      "one-hot encoding of 4096 ids, 32000 classes, bf16",
      [[[s(4096)], s(32000)]],
      (i) => weft.oneHot(i, s(32000), { dtype: "bool" }).cast(half),
      fused,
    ],
    [
      "triangles",
      "upper triangles of 64 x 1024 x 1024 f32",
      [[[64, s(1024), s(1024)], "float32"]],
      (x) => weft.triu(x),
      fused,
    ],
    [
      "shift-chain",
      "flip, roll, pad and concatenate 4096 x 8192 f32",
      [[[s(4096), s(8192)], "float32"]],
      (x) =>
        weft.concat(
          [
            weft.flip(x, 0),
            weft.pad(weft.roll(x, 3, 1).index(":", "8:"), [
              [0, 0],
              [4, 4],
            ]),
          ],
          0,
        ),
      fused,
    ],
    [
      "frames",
      "windows of 400 at every 160th place of 64 x 160400 f32",
      [
        [[64, 400 + s(160000)], "float32"],
        [[400], "float32"],
      ],
      (x, w) => weft.slidingWindow(x, [400], { stride: 160 }).mul(w),
      fused,
    ],
    [
      "broadcast-chain",
      "relu(x a + b) of 16384 x 4096 bf16, a per row, b per column",
      [
        [[s(16384), s(4096)], half],
        [[s(16384), 1], half],
        [[s(4096)], half],
      ],
      (x, a, b) => weft.relu(x.mul(a).add(b)),
      fusedLoose,
    ],
    [
      "complex-multiply",
      "a conj(b) + b of 2^23 c64",
      [
        [[s(1 << 23), 2], "float32"],
        [[s(1 << 23), 2], "float32"],
      ],
      (a, b) => {
        const [x, y] = [a, b].map((t) => weft.complex(t.index(":", 0), t.index(":", 1)));
        return x.mul(weft.conj(y)).add(y);
      },
      { tolerance: 1e-3 },
    ],
    [
      "image-crop",
      "crop, mirror and normalize 256 x 256 x 256 x 3 uint8 to channels first f32",
      [[[s(256), 256, 256, 3], 256]],
      (x) => {
        const cut = weft.flip(x.cast("uint8").index(":", "16:240", "16:240"), 2).permute([0, 3, 1, 2]);
        const [mean, deviation] = [
          [0.485, 0.456, 0.406],
          [0.229, 0.224, 0.225],
        ].map((v) => weft.tensor(v).reshape([3, 1, 1]));
        return wide(cut).div(255).sub(mean).div(deviation);
      },
      fused,
    ],
    [
      "total-variation",
      "gradient of the total variation of 64 x 3 x 512 x 512 f32",
      [[[s(64), 3, s(512), s(512)], "float32"]],
      (x) =>
        weft.grad((y: Tensor) =>
          weft
            .abs(weft.diff(y, -1))
            .mean()
            .add(weft.abs(weft.diff(y, -2)).mean()),
        )(x),
      fused,
    ],
    [
      "top-filter",
      "softmax of the 50 largest of 64 x 128256 bf16",
      [[[64, s(128256)], half]],
      (x) => {
        const least = weft.topk(x, Math.min(50, x.shape[1])).values.index(":", "-1:");
        return weft.softmax(wide(weft.where(x.less(least), Number.NEGATIVE_INFINITY, x)), -1);
      },
      fusedLoose,
    ],
    [
      "routing",
      "two of 64 experts and places in them, 16384 tokens f32",
      [[[s(16384), 64], "float32"]],
      (x) => {
        const { values, indices } = weft.topk(weft.softmax(x), 2);
        const sent = weft.oneHot(indices.reshape([-1]), 64, { dtype: "int32" });
        const place = weft.cumsum(sent, 0).mul(sent).sum(-1);
        return [values.div(values.sum(-1, { keepDims: true })), place.cast("float32")];
      },
      fused,
    ],
    [
      "beam-step",
      "best 8 of 4 beams x 50304 words, 16 sentences, f32",
      [
        [[16, 4, s(50304)], "float32"],
        [[16, 4, 1], "float32"],
      ],
      (x, score) => {
        const total = weft.logSoftmax(x.mul(8)).add(score).reshape([16, -1]);
        return weft.topk(total, 8).values;
      },
      fused,
    ],
    [
      "nearest-centers",
      "nearest of 1024 centers for 65536 points of 64, tf32",
      [
        [[s(65536), 64], "float32"],
        [[s(1024), 64], "float32"],
      ],
      (x, c) =>
        weft.withPrecision("tf32", () => {
          const far = c.square().sum(-1).sub(x.matmul(c.transpose()).mul(2));
          return far.min(-1);
        }),
      { ...fused, tolerance: 0.02 },
    ],
  ];
};

export const programRows = (s: Sizer): GeneralRow[] =>
  [statistics, arrays, layerProgramEntries].flatMap((rows) => entryRows(rows(s)));
