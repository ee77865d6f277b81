// Rows of the general suite, second part: norms and losses, images, products of unusual shapes; and helpers that build rows of both
// parts. The peer is peers/torch_classes.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { compiled, eager, type GeneralRow, indices, numbers, rowOf, type Sizer, tf32 } from "./general-row.js";

/** An operand: uniform numbers of a dtype, or whole numbers below a bound. */
export type Operand = [shape: number[], dtype: DType] | [shape: number[], below: number];
export type Entry = [
  id: string,
  title: string,
  operands: Operand[],
  f: (...args: Tensor[]) => unknown,
  options?: Options,
];
interface Options {
  tolerance?: number;
  /** Compare with peers that compile (torch.compile, jax.jit), as users do for such work. */
  fused?: boolean;
}

export const fused: Options = { fused: true };
export const loose: Options = { tolerance: 0.05 };
export const fusedLoose: Options = { fused: true, tolerance: 0.05 };

/** Gradients of the sum of squares with respect to the first operands. */
export const gradients =
  (f: (...args: Tensor[]) => Tensor, count = 1) =>
  (...args: Tensor[]): unknown =>
    weft.grad(
      (...x: Tensor[]) =>
        f(...x)
          .cast("float32")
          .square()
          .sum(),
      { argument: Array.from({ length: count }, (_, i) => i) },
    )(...args);

const norms = (s: Sizer): Entry[] => {
  const [b, n] = [s(16384), s(8192)];
  return [
    [
      "layernorm-odd",
      "gradient of layer norm of 771 with gain, bf16",
      [
        [[b, 771], "bfloat16"],
        [[771], "bfloat16"],
      ],
      gradients((x, g) => weft.layerNorm(x).mul(g), 2),
      { ...fused, tolerance: 0.2 },
    ],
    [
      "layernorm-narrow",
      "layer norm of rows of 32, f32",
      [[[s(1 << 20), 32], "float32"]],
      (x) => weft.layerNorm(x),
      fused,
    ],
    [
      "group-norm-half",
      "group norm, 32 groups of 64 x 256 x 32 x 32, f16",
      [[[s(64), 256, 32, 32], "float16"]],
      (x) => weft.groupNorm(x, 32),
      fusedLoose,
    ],
    [
      "instance-norm",
      "instance norm of 32 x 64 x 128 x 128, f32",
      [[[s(32), 64, s(128), s(128)], "float32"]],
      (x) => weft.instanceNorm(x),
      fused,
    ],
    [
      "masked-softmax",
      "softmax below the diagonal, 64 x 1024 x 1024 bf16",
      [[[64, s(1024), s(1024)], "bfloat16"]],
      (x) =>
        weft.softmax(
          weft.where(weft.tril(weft.ones(x.shape.slice(1), { dtype: "bool" })), x, Number.NEGATIVE_INFINITY),
        ),
      fusedLoose,
    ],
    [
      "classes",
      "cross-entropy of 4096 x 100277 f32 with gradient",
      [
        [[s(4096), s(100277)], "float32"],
        [[s(4096)], s(100277)],
      ],
      (x, y) => weft.grad((z: Tensor) => weft.crossEntropy(z, y))(x),
      fused,
    ],
    [
      "binary-loss",
      "gradient of binary cross-entropy of 2^24 f32",
      [[[s(1 << 24)], "float32"]],
      gradients((x) => weft.binaryCrossEntropyWithLogits(x, weft.abs(weft.stopGradient(x)))),
      fused,
    ],
    [
      "cosine",
      "cosine similarity of rows, 65536 x 256 f32",
      [
        [[s(65536), 256], "float32"],
        [[s(65536), 256], "float32"],
      ],
      (a, b) => weft.cosineSimilarity(a, b),
      fused,
    ],
    [
      "variance-columns",
      "variance of columns, f32",
      [[[n, n], "float32"]],
      (x) => weft.variance(x, 0, { correction: 1 }),
      fused,
    ],
    ["max-double", "maximum of rows, f64", [[[s(4096), s(4096)], "float64"]], (x) => x.max(-1)],
    ["product", "products of rows, f32", [[[s(4096), s(4096)], "float32"]], (x) => x.mul(0.001).add(1).prod(-1), fused],
    [
      "count",
      "number of elements above 0.5, f16",
      [[[n, n], "float16"]],
      (x) => weft.countNonzero(x.greater(0.5)).cast("float32"),
    ],
    [
      "mlp-small",
      "gradients of an MLP of 256, batch 8, f32",
      [
        [[256, 256], "float32"],
        [[256, 256], "float32"],
        [[256, 10], "float32"],
        [[8, 256], "float32"],
      ],
      gradients((a, b, c, x) => weft.tanh(weft.tanh(x.matmul(a).mul(0.1)).matmul(b).mul(0.1)).matmul(c), 3),
      { ...fused, tolerance: 0.01 },
    ],
  ];
};

const images = (s: Sizer): Entry[] => {
  const half: DType = "bfloat16";
  const [b, n] = [s(32), s(56)];
  return [
    [
      "resize-gradient",
      "gradient of bilinear interpolation to twice the size, f32",
      [[[b, 64, n, n], "float32"]],
      gradients((x) => weft.interpolate(x, { scale: 2, mode: "linear" })),
      fused,
    ],
    [
      "resize-nearest",
      "nearest interpolation to twice the size, bf16",
      [[[b, 128, n, n], half]],
      (x) => weft.interpolate(x, { scale: 2, mode: "nearest" }),
      fused,
    ],
    [
      "adaptive-pool",
      "mean pooling of 28 x 28 to 7 x 7, f32",
      [[[s(128), 512, 28, 28], "float32"]],
      (x) => weft.avgPool2d(x, { kernel: 4, stride: 4 }),
      fused,
    ],
    [
      "global-pool",
      "mean of images, channels last, bf16",
      [[[s(128), 28, 28, 512], half]],
      (x) => x.mean([1, 2]),
      fusedLoose,
    ],
    [
      "max-pool-3d",
      "max pooling 2 x 2 x 2, 8 x 64 x 32 x 56 x 56 f32",
      [[[8, 64, s(32), n, n], "float32"]],
      (x) => weft.maxPool3d(x, { kernel: 2, stride: 2 }),
      fused,
    ],
    [
      "conv-stem",
      "7 x 7 of three channels, stride 2, 224 x 224, f16",
      [
        [[s(64), 3, s(224), s(224)], "float16"],
        [[64, 3, 7, 7], "float16"],
      ],
      (x, w) => weft.conv2d(x, w, { stride: 2, padding: 3 }),
      loose,
    ],
    [
      "conv-causal",
      "depthwise convolution of 4 along 2048, 2048 channels, bf16",
      [
        [[s(8), 2048, s(2048)], half],
        [[2048, 1, 4], half],
      ],
      (x, w) => weft.conv1d(x, w, { groups: 2048, padding: [[3, 0]] }),
      loose,
    ],
    [
      "unet-block",
      "convolution, group norm and silu with gradients, bf16",
      [
        [[16, 128, s(64), s(64)], half],
        [[128, 128, 3, 3], half],
      ],
      gradients((x, w) => weft.silu(weft.groupNorm(weft.conv2d(x, w.mul(0.03), { padding: 1 }), 32)), 2),
      { fused: true, tolerance: 0.3 },
    ],
  ];
};

const products = (s: Sizer): Entry[] => {
  const half: DType = "bfloat16";
  return [
    [
      "batched-odd",
      "4096 products 17 x 33 by 33 x 65, tf32",
      [
        [[s(4096), 17, 33], "float32"],
        [[s(4096), 33, 65], "float32"],
      ],
      tf32((a, b) => a.matmul(b)),
      { tolerance: 0.01 },
    ],
    [
      "batched-4",
      "2^18 products 4 x 4, tf32",
      [
        [[s(1 << 18), 4, 4], "float32"],
        [[s(1 << 18), 4, 4], "float32"],
      ],
      tf32((a, b) => a.matmul(b)),
      { tolerance: 0.01 },
    ],
    [
      "inner-small",
      "8192 x 16 by 16 x 8192 bf16",
      [
        [[s(8192), 16], half],
        [[16, s(8192)], half],
      ],
      (a, b) => a.matmul(b),
      loose,
    ],
    [
      "rows-few",
      "16 x 8192 by 8192 x 8192 bf16",
      [
        [[16, s(8192)], half],
        [[s(8192), s(8192)], half],
      ],
      (a, b) => a.matmul(b),
      loose,
    ],
    [
      "columns-few",
      "65536 x 1024 by 1024 x 8 bf16",
      [
        [[s(65536), s(1024)], half],
        [[s(1024), 8], half],
      ],
      (a, b) => a.matmul(b),
      loose,
    ],
    [
      "complex-product",
      "1024 x 1024 x 1024 c64",
      [
        [[s(1024), s(1024)], "float32"],
        [[s(1024), s(1024)], "float32"],
      ],
      (a, b) => weft.complex(a, b).matmul(weft.complex(b, b)),
      { tolerance: 0.01 },
    ],
    [
      "complex-batched",
      "8192 products 16 x 16 c64",
      [
        [[s(8192), 16, 16], "float32"],
        [[s(8192), 16, 16], "float32"],
      ],
      (a, b) => weft.complex(a, b).matmul(weft.complex(b, b)),
      { tolerance: 0.01 },
    ],
    [
      "einsum-heads",
      "bihd,bjhd->bhij of 8 x 512 x 12 x 64 f16",
      [
        [[8, s(512), 12, 64], "float16"],
        [[8, s(512), 12, 64], "float16"],
      ],
      (a, b) => weft.einsum("bihd,bjhd->bhij", a, b),
      loose,
    ],
    [
      "einsum-odd",
      "abc,cbd->ad of 512 x 64 x 128 and 128 x 64 x 512, tf32",
      [
        [[s(512), 64, 128], "float32"],
        [[128, 64, s(512)], "float32"],
      ],
      tf32((a, b) => weft.einsum("abc,cbd->ad", a, b)),
      { tolerance: 0.02 },
    ],
    [
      "distances",
      "distances of 4096 and 4096 points of 64, tf32",
      [
        [[s(4096), 64], "float32"],
        [[s(4096), 64], "float32"],
      ],
      tf32((a, b) =>
        weft.sqrt(
          weft.maximum(
            a.square().sum(-1, { keepDims: true }).add(b.square().sum(-1)).sub(a.matmul(b.transpose()).mul(2)),
            0,
          ),
        ),
      ),
      { fused: true, tolerance: 0.02 },
    ],
    [
      "double-batched",
      "4096 products 32 x 32 f64",
      [
        [[s(4096), 32, 32], "float64"],
        [[s(4096), 32, 32], "float64"],
      ],
      (a, b) => a.matmul(b),
    ],
    [
      "triangle-product",
      "lower triangle of a product, 4096 bf16",
      [
        [[s(4096), s(4096)], half],
        [[s(4096), s(4096)], half],
      ],
      (a, b) => weft.tril(a.matmul(b)),
      fusedLoose,
    ],
  ];
};

/** Rows of entries. */
export const entryRows = (entries: readonly Entry[]): GeneralRow[] =>
  entries.map(([id, title, operands, f, { fused: isFused = false, tolerance = 1e-3 } = {}]) =>
    rowOf(
      id,
      title,
      f as never,
      () =>
        operands.map(([shape, kind], i) =>
          typeof kind === "number" ? indices(shape, i + 1, kind) : numbers(shape, i + 1, kind),
        ),
      { peers: isFused ? compiled : eager, tolerance },
    ),
  );

export const layerEntries = (s: Sizer): Entry[] => [...norms(s), ...images(s), ...products(s)];
