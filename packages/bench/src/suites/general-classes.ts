// Rows of the general suite by classes of work, first part: other dtypes, odd sizes, strided operands, running and searching
// functions, scatter and gather of every shape. The peer is peers/torch_classes.py.
import * as weft from "@weft/core";
import { type Entry, entryRows, fused, gradients, layerEntries, loose, type Operand } from "./general-layers.js";
import type { GeneralRow, Sizer } from "./general-row.js";

const scans = (s: Sizer): Entry[] => {
  const [n, line, half] = [s(4096), s(1 << 24), s(1 << 22)];
  return [
    ["cummax", "running maximum of rows, f32", [[[n, n], "float32"]], (x) => weft.cummax(x)],
    ["cummin-columns", "running minimum of columns, f16", [[[n, n], "float16"]], (x) => weft.cummin(x, 0)],
    ["logcumsumexp", "running logsumexp of rows, f32", [[[n, n], "float32"]], (x) => weft.logcumsumexp(x)],
    ["cumsum-middle", "running sums of the middle axis, f32", [[[64, n, 64], "float32"]], (x) => weft.cumsum(x, 1)],
    ["cumsum-int", "running sums of ids, int64", [[[line], 1000]], (x) => weft.cumsum(x)],
    ["argsort-line", "places in order of a line, f32", [[[half], "float32"]], (x) => weft.argsort(x)],
    [
      "sort-rows-odd",
      "rows of 257 in falling order, f32",
      [[[s(65536), 257], "float32"]],
      (x) => weft.sort(x, -1, { descending: true }),
    ],
    ["sort-long", "order of int64", [[[half], 1 << 30]], (x) => weft.sort(x.cast("int64")).cast("float64")],
    [
      "searchsorted",
      "places of 2^22 numbers among 2^20, f32",
      [
        [[s(1 << 20)], "float32"],
        [[half], "float32"],
      ],
      (a, x) => weft.searchsorted(weft.cumsum(weft.abs(a)).mul(1e-6), x),
    ],
    [
      "nucleus",
      "softmax, order and running sums of 64 x 50304, f32",
      [[[64, s(50304)], "float32"]],
      (x) => weft.cumsum(weft.sort(weft.softmax(x.mul(8)), -1, { descending: true })),
    ],
    ["top-int", "top 16 of rows of 1000, int32", [[[s(16384), 1000], 1 << 30]], (x) => weft.topk(x, 16).values],
  ];
};

const scatters = (s: Sizer): Entry[] => {
  const [many, rows] = [s(1 << 22), s(1 << 18)];
  return [
    [
      "segment-sum",
      "sums of 2^18 rows of 64 in 1024 segments, f32",
      [
        [[rows, 64], "float32"],
        [[rows], 1024],
      ],
      (x, i) => weft.segmentReduce(x, i, 1024),
    ],
    [
      "segment-max",
      "maxima of 2^18 rows of 64 in 1024 segments, f32",
      [
        [[rows, 64], "float32"],
        [[rows], 1024],
      ],
      (x, i) => weft.segmentReduce(x, i, 1024, { mode: "max" }),
    ],
    [
      "scatter-max-int",
      "maximum of 2^22 int32 in 2^20 places",
      [
        [[s(1 << 20)], 1000],
        [[many], s(1 << 20)],
        [[many], 1000],
      ],
      (x, i, u) => weft.scatter(x, i, u, { mode: "max" }),
    ],
    [
      "scatter-max-few",
      "maximum of 2^22 f32 in 1000 places",
      [
        [[1000], "float32"],
        [[many], 1000],
        [[many], "float32"],
      ],
      (x, i, u) => weft.scatter(x, i, u, { mode: "max" }),
    ],
    [
      "scatter-prod",
      "product of 2^20 f32 in 2^20 places",
      [
        [[s(1 << 20)], "float32"],
        [[s(1 << 20)], s(1 << 20)],
        [[s(1 << 20)], "float32"],
      ],
      (x, i, u) => weft.scatter(x, i, u, { mode: "mul" }),
    ],
    [
      "scatter-set",
      "2^22 f32 stored at 2^22 places",
      [
        [[many], "float32"],
        [[many], "float32"],
      ],
      (x, u) => weft.scatter(x, weft.arange(0, x.size, 1, { dtype: "int32" }).mul(7).mod(x.size), u),
    ],
    [
      "embedding-small",
      "gradient of an embedding 1000 x 64, 2^20 ids",
      [
        [[1000, 64], "float32"],
        [[s(1 << 20)], 1000],
      ],
      gradients((w, i) => w.take(i, 0)),
    ],
    [
      "embedding-half",
      "gradient of an embedding 32000 x 1024 bf16, 8192 ids",
      [
        [[s(32000), s(1024)], "bfloat16"],
        [[s(8192)], s(32000)],
      ],
      gradients((w, i) => w.take(i, 0)),
      loose,
    ],
    [
      "gather-along",
      "elements of rows by their indices, f16",
      [
        [[s(4096), s(4096)], "float16"],
        [[s(4096), s(4096)], s(4096)],
      ],
      (x, i) => weft.gather(x, i, 1),
    ],
    [
      "gather-narrow",
      "2^22 rows of 4 f32",
      [
        [[s(1 << 20), 4], "float32"],
        [[many], s(1 << 20)],
      ],
      (x, i) => x.take(i, 0),
    ],
    [
      "gather-columns",
      "2048 columns of 8192, f32",
      [
        [[s(8192), s(8192)], "float32"],
        [[s(2048)], s(8192)],
      ],
      (x, i) => x.take(i, 1),
    ],
  ];
};

const layouts = (s: Sizer): Entry[] => {
  const n = s(8192);
  return [
    ["flip", "columns in reverse, f32", [[[n, n], "float32"]], (x) => weft.flip(x, 1)],
    ["tile", "3 x 3 tiles of 2048 x 2048, f32", [[[s(2048), s(2048)], "float32"]], (x) => weft.tile(x, [3, 3])],
    [
      "repeat",
      "each row of 4096 x 2048 four times, f16",
      [[[s(4096), s(2048)], "float16"]],
      (x) => weft.repeat(x, 4, 0),
    ],
    [
      "interleave",
      "four 8192 x 2048 interleaved, f32",
      [1, 2, 3, 4].map((): Operand => [[n, s(2048)], "float32"]),
      (...x) => weft.stack(x, -1).reshape([n, -1]),
    ],
    [
      "outer",
      "outer product of 16384 and 8192, f32",
      [
        [[s(16384)], "float32"],
        [[n], "float32"],
      ],
      (a, b) => weft.outer(a, b),
    ],
    [
      "strided-sum",
      "sum over every second row, 64 x 4096 x 256 f32",
      [[[64, s(4096), 256], "float32"]],
      (x) => x.index(":", "::2").sum(1),
    ],
    [
      "permuted-mean",
      "mean of a permuted axis, 128 x 512 x 512 f32",
      [[[128, s(512), s(512)], "float32"]],
      (x) => x.permute([2, 0, 1]).mean(-1),
    ],
    [
      "complex-chain",
      "exp and abs of 2^24 c64",
      [
        [[s(1 << 24)], "float32"],
        [[s(1 << 24)], "float32"],
      ],
      (a, b) => weft.abs(weft.exp(weft.complex(a, b))),
    ],
    [
      "double-chain",
      "sin x + exp x of 2^24 f64",
      [[[s(1 << 24)], "float64"]],
      (x) => weft.sin(x).add(weft.exp(x)),
      fused,
    ],
    [
      "int-chain",
      "(3 x + 7) mod 1000 of 2^24 int32",
      [[[s(1 << 24)], 1 << 20]],
      (x) => x.mul(3).add(7).mod(1000),
      fused,
    ],
    [
      "byte-any",
      "any of rows, 8192 x 8192 bool",
      [[[n, n], "float16"]],
      (x) => weft.any(x.greater(0.999), -1).cast("float32"),
      fused,
    ],
    [
      "transpose-4",
      "0213 of 64 x 128 x 16 x 128 bf16",
      [[[64, s(128), 16, s(128)], "bfloat16"]],
      (x) => x.permute([0, 2, 1, 3]).add(0),
      { ...loose, fused: true },
    ],
    [
      "transpose-bytes",
      "transpose of 8192 x 8192 int8",
      [[[n, n], 100]],
      (x) => x.cast("int8").transpose().add(1).cast("float32"),
      fused,
    ],
  ];
};

export const classRows = (s: Sizer): GeneralRow[] =>
  [scans, scatters, layouts, layerEntries].flatMap((rows) => entryRows(rows(s)));
