// Further rows of the general suite: cumulative products, scatter with other functions, histograms, padding,
// attention of single queries and with an added bias, products with one vector, gates and rotations. The peer is
// peers/torch_more.py.
import type { DType, Tensor } from "@weft/core";
import * as weft from "@weft/core";
import { compiled, type GeneralRow, indices, numbers, rowOf, type Sizer, unaryRow } from "./general-row.js";

function arrays(s: Sizer): GeneralRow[] {
  const [n, line] = [s(4096), s(1 << 24)];
  const [places, updates] = [s(1 << 20), s(1 << 22)];
  const near = (x: Tensor): Tensor => x.mul(0.01).add(1);
  const images = [s(64), 64, s(224), s(224)];
  const padded = (mode: "reflect" | "edge" | "wrap", title: string): GeneralRow =>
    unaryRow(`pad-${mode}`, `${title} padding by 3 of ${images.join(" x ")} f32`, images, (x) =>
      weft.pad(
        x,
        [
          [0, 0],
          [0, 0],
          [3, 3],
          [3, 3],
        ],
        { mode },
      ),
    );
  const extreme = (mode: "max" | "min"): GeneralRow =>
    rowOf(
      `scatter-${mode}`,
      `${mode}imum of ${updates} f32 in ${places} places`,
      (x, i, u) => weft.scatter(x, i, u, { mode }),
      () => [numbers([places], 1), indices([updates], 2, places), numbers([updates], 3)],
    );
  return [
    unaryRow("cumprod", `running products of rows ${n} x ${n} f32`, [n, n], (x) => weft.cumprod(near(x)), {
      tolerance: 1e-3,
    }),
    unaryRow(
      "cumprod-columns",
      `running products of columns ${n} x ${n} f32`,
      [n, n],
      (x) => weft.cumprod(near(x), 0),
      { tolerance: 1e-3 },
    ),
    extreme("max"),
    extreme("min"),
    unaryRow("histogram", `histogram of ${line} f32 in 100 bins`, [line], (x) =>
      weft.histogram(x, 100, { range: [-1, 1] }).counts.cast("float32"),
    ),
    padded("reflect", "reflecting"),
    padded("edge", "replicating"),
    padded("wrap", "circular"),
    unaryRow("sort-half", `sort rows ${n} x ${n} bf16`, [n, n], (x) => weft.sort(x), { dtype: "bfloat16" }),
    unaryRow("sort-double", `sort ${updates} f64`, [updates], (x) => weft.sort(x), { dtype: "float64" }),
  ];
}

/** Rotary position embedding: rotates the two halves of the last axis by an angle per position. */
function rotated(x: Tensor): Tensor {
  const [length, size] = x.shape.slice(-2);
  const angle = weft
    .arange(0, length)
    .unsqueeze(1)
    .mul(weft.exp(weft.arange(0, size / 2).mul(-0.14)));
  const [c, d] = [weft.cos(angle), weft.sin(angle)].map((t) => t.cast(x.dtype));
  const [a, b] = [x.index("...", `:${size / 2}`), x.index("...", `${size / 2}:`)];
  return weft.concat([a.mul(c).sub(b.mul(d)), b.mul(c).add(a.mul(d))], -1);
}

function models(s: Sizer): GeneralRow[] {
  const [width, inner, keys] = [s(4096), s(14336), s(4096)];
  const half: DType = "bfloat16";
  const lengths = (batch: number): Tensor => indices([batch, 1, 1, 1], 5, keys).add(1);
  const attend = (q: Tensor, k: Tensor, v: Tensor, bias: Tensor): Tensor =>
    weft.scaledDotProductAttention(q, k, v, { mask: bias });
  const biased = (): Tensor[] => [
    ...[1, 2, 3].map((salt) => numbers([4, 16, s(2048), 64], salt, half)),
    numbers([1, 16, s(2048), s(2048)], 4),
  ];
  return [
    rowOf(
      "attention-single",
      `one query per row, 16 rows, 32 heads over 8, ${keys} keys with lengths, size 128, bf16`,
      (q, k, v, n) =>
        weft.scaledDotProductAttention(q, k, v, { mask: weft.arange(0, keys, 1, { dtype: "int32" }).less(n) }),
      () => [
        numbers([16, 32, 1, 128], 1, half),
        ...[2, 3].map((salt) => numbers([16, 8, keys, 128], salt, half)),
        lengths(16).realize(),
      ],
      { tolerance: 0.03 },
    ),
    rowOf("attention-bias", `attention with a bias, 4 x 16 x ${s(2048)} x 64 bf16`, attend, biased, {
      tolerance: 0.03,
    }),
    rowOf(
      "attention-bias-gradient",
      `attention with a bias and its gradients, 4 x 16 x ${s(2048)} x 64 bf16`,
      (...args) =>
        weft.grad(
          (...x: Tensor[]) =>
            (attend as (...y: Tensor[]) => Tensor)(...x)
              .cast("float32")
              .sum(),
          { argument: [0, 1, 2, 3] },
        )(...args),
      biased,
      { tolerance: 0.1 },
    ),
    rowOf(
      "vector-rows",
      `one row of ${width} times a transposed ${inner} x ${width} bf16`,
      (x, w) => x.matmul(w.transpose()),
      () => [numbers([1, width], 1, half), numbers([inner, width], 2, half)],
      { tolerance: 0.02, bytes: 2 * width * inner },
    ),
    rowOf(
      "vector-columns",
      `one row of ${width} times ${width} x ${inner} bf16`,
      (x, w) => x.matmul(w),
      () => [numbers([1, width], 1, half), numbers([width, inner], 2, half)],
      { tolerance: 0.02, bytes: 2 * width * inner },
    ),
    rowOf(
      "swiglu",
      `silu(a) b of ${s(8192)} x ${inner} bf16`,
      (a, b) => weft.silu(a).mul(b),
      () => [1, 2].map((salt) => numbers([s(8192), inner], salt, half)),
      { tolerance: 0.02, bytes: 6 * s(8192) * inner, peers: compiled },
    ),
    unaryRow("rotary", `rotary embedding of 4 x 32 x ${s(4096)} x 128 bf16`, [4, 32, s(4096), 128], rotated, {
      dtype: half,
      tolerance: 0.05,
      bytes: 4 * 4 * 32 * 128 * s(4096),
      peers: compiled,
    }),
  ];
}

export const moreRows = (s: Sizer): GeneralRow[] => [...arrays(s), ...models(s)];
