// Rows of the general suite that are typical programs, second part: layers and losses, images, attention with masks and biases,
// products, small matrices. The peer is peers/torch_programs.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { type Entry, fused, fusedLoose, gradients, loose } from "./general-layers.js";
import { type Sizer, tf32 } from "./general-row.js";

const half: DType = "bfloat16";
const wide = (x: Tensor): Tensor => x.cast("float32");

const layers = (s: Sizer): Entry[] => [
  [
    "layernorm-1000",
    "layer norm of rows of 1000, f32",
    [[[s(65536), 1000], "float32"]],
    (x) => weft.layerNorm(x),
    fused,
  ],
  [
    "layernorm-769",
    "layer norm of rows of 769 with gain and bias, bf16",
    [
      [[s(32768), 769], half],
      [[769], half],
      [[769], half],
    ],
    (x, g, b) => weft.layerNorm(x).mul(g).add(b),
    { ...fused, tolerance: 0.1 },
  ],
  [
    "rms-gain",
    "RMS norm of 8192 x 4096 bf16 with gain, gradients of both",
    [
      [[s(8192), s(4096)], half],
      [[s(4096)], half],
    ],
    gradients((x, g) => {
      const w = wide(x);
      return w
        .mul(w.square().mean(-1, { keepDims: true }).add(1e-6).rsqrt())
        .cast(half)
        .mul(g);
    }, 2),
    { ...fused, tolerance: 0.2 },
  ],
  [
    "vocabulary-loss",
    "cross-entropy of 4096 x 128256 bf16 with gradient",
    [
      [[s(4096), s(128256)], half],
      [[s(4096)], s(128256)],
    ],
    (x, y) => weft.grad((z: Tensor) => weft.crossEntropy(wide(z), y))(x),
    { ...fused, tolerance: 0.05 },
  ],
  [
    "divergence",
    "divergence of two softmaxes of 4096 x 32000 bf16",
    [
      [[s(4096), s(32000)], half],
      [[s(4096), s(32000)], half],
    ],
    (a, b) => {
      const [p, q] = [weft.logSoftmax(wide(a).mul(4)), weft.logSoftmax(wide(b).mul(4))];
      return weft.exp(p).mul(p.sub(q)).sum(-1).mean();
    },
    fusedLoose,
  ],
  [
    "softmax-lengths",
    "softmax of 64 x 12 x 256 x 256 f16 before lengths",
    [
      [[64, 12, s(256), s(256)], "float16"],
      [[64, 1, 1, 1], s(256)],
    ],
    (x, n) =>
      weft.softmax(
        weft.where(weft.arange(0, x.shape[3], 1, { dtype: "int32" }).lessEqual(n), x, Number.NEGATIVE_INFINITY),
      ),
    fusedLoose,
  ],
  [
    "rotary-pairs",
    "rotary embedding of neighbors, 8 x 2048 x 32 x 128 bf16",
    [
      [[8, s(2048), 32, 128], half],
      [[s(2048), 1, 64], "float32"],
    ],
    (x, angle) => {
      const [c, d] = [weft.cos(angle), weft.sin(angle)];
      const [a, b] = [x.index("...", "::2"), x.index("...", "1::2")].map(wide);
      return weft
        .stack([a.mul(c).sub(b.mul(d)), a.mul(d).add(b.mul(c))], -1)
        .reshape([...x.shape])
        .cast(half);
    },
    fusedLoose,
  ],
  [
    "vit-block",
    "gradients of the weights of an encoder block, 64 x 197 x 768 bf16",
    [
      [[2304, 768], half],
      [[768, 768], half],
      [[3072, 768], half],
      [[768, 3072], half],
      [[s(64), 197, 768], half],
    ],
    // The gradient of x is a difference of large numbers, of which bf16 leaves no digit.
    gradients((qkv, out, up, down, x) => {
      const scale = (w: Tensor): Tensor => w.mul(0.05).transpose();
      const heads = weft.layerNorm(x).matmul(scale(qkv)).reshape([x.shape[0], 197, 3, 12, 64]);
      const [q, k, v] = [0, 1, 2].map((i) => heads.index(":", ":", i).permute([0, 2, 1, 3]));
      const seen = weft
        .scaledDotProductAttention(q, k, v)
        .permute([0, 2, 1, 3])
        .reshape([...x.shape]);
      const h = x.add(seen.matmul(scale(out)));
      return h.add(weft.gelu(weft.layerNorm(h).matmul(scale(up))).matmul(scale(down)));
    }, 4),
    { ...fused, tolerance: 0.1 },
  ],
  [
    "gru",
    "GRU by scan, 128 steps, batch 64, width 256, tf32",
    [
      [[768, 256], "float32"],
      [[768, 256], "float32"],
      [[s(128), 64, 256], "float32"],
    ],
    tf32((wx, wh, xs) => {
      const inputs = xs.matmul(wx.transpose().mul(0.05));
      const w = wh.transpose().mul(0.05);
      const cell = (h: Tensor, x: Tensor): [Tensor, Tensor] => {
        const [a, b] = [x, h.matmul(w)];
        const part = (t: Tensor, k: number): Tensor => t.index(":", `${k * 256}:${(k + 1) * 256}`);
        const [reset, update] = [0, 1].map((k) => weft.sigmoid(part(a, k).add(part(b, k))));
        const made = weft.tanh(part(a, 2).add(reset.mul(part(b, 2))));
        const next = made.add(update.mul(h.sub(made)));
        return [next, next];
      };
      return weft.scan(cell, weft.zeros([64, 256]), inputs)[1] as Tensor;
    }),
    { tolerance: 0.02 },
  ],
];

/** Attention with something added to its scores, or only some of its keys. */
const attention = (s: Sizer): Entry[] => {
  const heads = (t: number): [number[], DType] => [[4, 16, s(t), 64], half];
  const attend = (q: Tensor, k: Tensor, v: Tensor, options: object): Tensor =>
    weft.scaledDotProductAttention(q, k, v, options);
  return [
    [
      "attention-lengths",
      "attention before lengths, 16 x 12 x 512 x 64 bf16",
      [
        [[16, 12, s(512), 64], half],
        [[16, 12, s(512), 64], half],
        [[16, 12, s(512), 64], half],
        [[16, 1, 1, 1], s(512)],
      ],
      (q, k, v, n) => attend(q, k, v, { mask: weft.arange(0, k.shape[2], 1, { dtype: "int32" }).lessEqual(n) }),
      loose,
    ],
    [
      "attention-cross",
      "attention of 512 queries over 2048 keys before lengths, bf16",
      [heads(512), heads(2048), heads(2048), [[4, 1, 1, 1], s(2048)]],
      (q, k, v, n) => attend(q, k, v, { mask: weft.arange(0, k.shape[2], 1, { dtype: "int32" }).lessEqual(n) }),
      loose,
    ],
    [
      "attention-slopes",
      "causal attention with a linear bias per head, 4 x 16 x 2048 x 64 bf16",
      [heads(2048), heads(2048), heads(2048), [[16, 1, 1], "float32"]],
      (q, k, v, slope) => {
        const at = weft.arange(0, q.shape[2]);
        return attend(q, k, v, { mask: at.sub(at.unsqueeze(1)).mul(slope.mul(0.01)), causal: true });
      },
      // The peer rounds the bias to bf16.
      { tolerance: 0.1 },
    ],
    [
      "attention-bias-half",
      "attention with a bf16 bias, 4 x 16 x 2048 x 64",
      [heads(2048), heads(2048), heads(2048), [[16, s(2048), s(2048)], half]],
      (q, k, v, bias) => attend(q, k, v, { mask: bias }),
      loose,
    ],
    [
      "attention-relative",
      "attention with a bias by distance and gradients, 64 x 16 x 196 x 64 bf16",
      [
        [[s(64), 16, 196, 64], half],
        [[s(64), 16, 196, 64], half],
        [[s(64), 16, 196, 64], half],
        [[16, 391], "float32"],
      ],
      gradients((q, k, v, table) => {
        const at = weft.arange(0, 196, 1, { dtype: "int32" });
        return attend(q, k, v, { mask: table.take(at.unsqueeze(1).sub(at).add(195), 1) });
      }, 4),
      { tolerance: 0.2 },
    ],
  ];
};

const images = (s: Sizer): Entry[] => [
  [
    "resize-down",
    "bilinear interpolation of 32 x 3 x 512 x 512 f32 to 224 x 224",
    [[[s(32), 3, 512, 512], "float32"]],
    (x) => weft.interpolate(x, { size: [224, 224], mode: "linear" }),
    fused,
  ],
  [
    "resize-nearest-3",
    "nearest interpolation to three times the size, 16 x 64 x 64 x 64 f32",
    [[[16, 64, s(64), s(64)], "float32"]],
    (x) => weft.interpolate(x, { scale: 3, mode: "nearest" }),
    fused,
  ],
  [
    "conv-audio",
    "convolution of 3 along 3000, 80 to 384 channels, f16",
    [
      [[16, 80, s(3000)], "float16"],
      [[384, 80, 3], "float16"],
    ],
    (x, w) => weft.conv1d(x, w, { padding: 1 }),
    loose,
  ],
  [
    "conv-transposed-half",
    "transposed convolution 4 x 4, stride 2, 32 x 256 x 32 x 32 bf16",
    [
      [[s(32), 256, 32, 32], half],
      [[256, 128, 4, 4], half],
    ],
    (x, w) => weft.convTranspose2d(x, w, { stride: 2, padding: 1 }),
    { tolerance: 0.1 },
  ],
  [
    "conv-video",
    "convolution 3 x 3 x 3 of 8 x 32 x 16 x 56 x 56 bf16",
    [
      [[8, 32, s(16), s(56), s(56)], half],
      [[64, 32, 3, 3, 3], half],
    ],
    (x, w) => weft.conv3d(x, w, { padding: 1 }),
    loose,
  ],
];

const products = (s: Sizer): Entry[] => [
  [
    "skinny-4",
    "4 x 4096 by transposed 14336 x 4096 bf16",
    [
      [[4, s(4096)], half],
      [[s(14336), s(4096)], half],
    ],
    (a, b) => a.matmul(b.transpose()),
    loose,
  ],
  [
    "skinny-2",
    "2 x 4096 by 4096 x 14336 bf16",
    [
      [[2, s(4096)], half],
      [[s(4096), s(14336)], half],
    ],
    (a, b) => a.matmul(b),
    loose,
  ],
  [
    "products-33",
    "2048 products 33 x 65 by 65 x 33 bf16",
    [
      [[s(2048), 33, 65], half],
      [[s(2048), 65, 33], half],
    ],
    (a, b) => a.matmul(b),
    loose,
  ],
  [
    "batched-vector",
    "bij,bj->bi of 256 x 1024 x 1024 bf16",
    [
      [[s(256), s(1024), s(1024)], half],
      [[s(256), s(1024)], half],
    ],
    (a, b) => weft.einsum("bij,bj->bi", a, b),
    loose,
  ],
  [
    "gram",
    "64 x 64 products of 2^20 rows, tf32",
    [[[s(1 << 20), 64], "float32"]],
    tf32((x) => x.transpose().matmul(x)),
    { tolerance: 0.02 },
  ],
  ["fft2-odd", "2d Fourier transforms of 64 x 243 x 375", [[[64, 243, 375], "float32"]], (x) => weft.fft2(x)],
  [
    "cholesky-16",
    "16384 Cholesky factors of 16 x 16 f32",
    [[[s(16384), 16, 16], "float32"]],
    (x) => weft.cholesky(x.matmul(x.transpose(1, 2)).add(weft.eye(16))),
    { tolerance: 0.01 },
  ],
  [
    "solve-8",
    "65536 systems of 8 f32",
    [
      [[s(65536), 8, 8], "float32"],
      [[s(65536), 8, 1], "float32"],
    ],
    (a, b) => weft.solve(a.add(weft.eye(8).mul(8)), b),
    { tolerance: 0.01 },
  ],
  [
    "solve-64",
    "2048 systems of 64 f32",
    [
      [[s(2048), 64, 64], "float32"],
      [[s(2048), 64, 4], "float32"],
    ],
    (a, b) => weft.solve(a.add(weft.eye(64).mul(40)), b),
    { tolerance: 0.01 },
  ],
];

export const layerProgramEntries = (s: Sizer): Entry[] =>
  [layers, attention, images, products].flatMap((rows) => rows(s));
