// Cases of whole numbers, bits and exponents, of patches and pixels of images, and of distances.
import * as weft from "../../index.js";
import { type Case, floats, integers, none, plain, singles } from "./case.js";

const signed = integers.filter((d) => !d.startsWith("u"));
const whole: Case["inputs"] = (s) => [s.exact([6], [0, 12, -18, 1, -127, 64]), s.exact([4], [0, -8, 6, 127])];
const images: Case["inputs"] = (s) => [s.any([2, 2, 4, 5])];
const patch = { kernel: [2, 3], stride: [2, 1], padding: [1, 0], dilation: [1, 2] } as const;

const numbers: Case[] = [
  plain("gcd: all pairs", signed, whole, (x, y) => weft.gcd(x.unsqueeze(1), y), "np.gcd(a[:, None], b)", none),
  plain(
    "lcm: all pairs",
    ["int32", "int64"],
    whole,
    (x, y) => weft.lcm(x.unsqueeze(1), y),
    "np.lcm(a[:, None], b)",
    none,
  ),
  plain("bitwiseCount: both signs", signed, whole, (x) => weft.bitwiseCount(x), "np.bitwise_count(a)", none),
  plain(
    "packBits: both orders, an axis",
    ["bool", "int32"],
    (s) => [s.exact([3, 3], [1, 0, 2, 0, 0, 1, 1, 1, 0])],
    (x) => [weft.packBits(x), weft.packBits(x, { order: "little" }), weft.packBits(x, { axis: 0 })],
    "(np.packbits(a != 0), np.packbits(a != 0, bitorder='little'), np.packbits(a != 0, axis=0))",
    { ...none, vmap: false },
  ),
  plain(
    "unpackBits: both orders, an axis",
    ["uint8"],
    (s) => [s.exact([2, 2], [129, 7, 255, 0])],
    (x) => [weft.unpackBits(x), weft.unpackBits(x, { order: "little" }), weft.unpackBits(x, { axis: 0 })],
    "(np.unpackbits(a), np.unpackbits(a, bitorder='little'), np.unpackbits(a, axis=0))",
    { ...none, vmap: false },
  ),
  plain(
    "unravelIndex: three axes",
    ["int32", "int64"],
    (s) => [s.exact([4], [0, 5, 23, 12])],
    (x) => weft.unravelIndex(x, [2, 3, 4]),
    "np.unravel_index(a, (2, 3, 4))",
    none,
  ),
  plain(
    "frexp: special values",
    floats,
    (s) => [s.exact([8], [0, -1, 0.5, 6.25, -0.0625, Infinity, NaN, 1024])],
    (x) => [weft.frexp(x).mantissa, weft.frexp(x).exponent],
    "np.frexp(a)",
    none,
  ),
  plain(
    "frexp: denormal and large numbers",
    ["float64"],
    (s) => [s.exact([5], [5e-324, -2.5e-310, 2.2250738585072014e-308, 1.7976931348623157e308, 1e-300])],
    (x) => [weft.frexp(x).mantissa, weft.frexp(x).exponent],
    "np.frexp(a)",
    none,
  ),
  plain(
    "ldexp: rounded once",
    ["float64"],
    (s) => [s.exact([6, 1], [1, -0.1, 5e-324, 1.7976931348623157e308, 1.5e-300, Infinity])],
    (x) => weft.ldexp(x, weft.tensor([0, 3, -1074, -60, 2000], { dtype: "int32" })),
    "np.ldexp(a, np.array([0, 3, -1074, -60, 2000]))",
    none,
  ),
  plain(
    "ldexp: gradient",
    singles,
    (s) => [s.nonzero([3])],
    (x) => weft.ldexp(x, 3),
    "a * 8",
    { grad2: false },
  ),
];

const pixels: Case[] = [
  plain(
    "pixelShuffle: channels to pixels",
    singles,
    (s) => [s.any([2, 8, 2, 3])],
    (x) => weft.pixelShuffle(x, 2),
    "a.reshape(2, 2, 2, 2, 2, 3).transpose(0, 1, 4, 2, 5, 3).reshape(2, 2, 4, 6)",
  ),
  plain(
    "pixelUnshuffle: pixels to channels",
    singles,
    (s) => [s.any([2, 4, 6])],
    (x) => weft.pixelUnshuffle(x, 2),
    "a.reshape(2, 2, 2, 3, 2).transpose(0, 2, 4, 1, 3).reshape(8, 2, 3)",
  ),
  plain(
    "unfold: stride, padding and dilation",
    singles,
    images,
    (x) => weft.unfold(x, patch),
    "np.pad(a, ((0, 0), (0, 0), (1, 1), (0, 0)))[:, :, [[0, 2, 4], [1, 3, 5]], :][..., [[0], [2], [4]]].transpose(0, 1, 2, 4, 3, 5).reshape(2, 12, 3)",
    { vmap: false },
  ),
  plain(
    "fold: sums of overlapping patches",
    singles,
    (s) => [s.any([1, 8, 6])],
    (x) => weft.fold(x, [3, 4], { kernel: 2 }),
    "fold(a, 2, 3, 4)",
    { vmap: false },
  ),
  ...(["zeros", "border", "reflection"] as const).flatMap((padding) =>
    [true, false].map((alignCorners) =>
      plain(
        `gridSample: ${padding}${alignCorners ? ", corners aligned" : ""}`,
        singles,
        (s) => [
          s.any([2, 2, 4, 5]),
          s.exact([2, 1, 3, 2], [-1.63, 0.31, 0.17, -0.42, 0.93, 1.77, 0.05, 0.11, -0.71, -1.34, 2.9, 0.6]),
        ],
        (x, grid) => [
          weft.gridSample(x, grid, { padding, alignCorners }),
          weft.gridSample(x, grid, { padding, alignCorners, mode: "nearest" }),
        ],
        `(grid_sample(a, b, "${padding}", ${alignCorners ? "True" : "False"}, False), grid_sample(a, b, "${padding}", ${alignCorners ? "True" : "False"}, True))`,
        { loose: 8, vmap: false, grad2: false },
      ),
    ),
  ),
  plain(
    "embeddingBag: rows of ids, three modes, padding",
    singles,
    (s) => [s.any([5, 4])],
    (table) => {
      const ids = weft.tensor([[0, 2, 2], [1, 4, 0], [3, 3, 3]], { dtype: "int32" }); // biome-ignore format: a table
      return [
        ...(["sum", "mean", "max"] as const).map((mode) => weft.embeddingBag(ids, table, { mode })),
        weft.embeddingBag(ids, table, { paddingIndex: 3 }),
      ];
    },
    "(lambda r: (r.sum(1), r.mean(1), r.max(1), r.mean(1) * np.array([[1], [1], [0]], a.dtype)))" +
      "(a[[[0, 2, 2], [1, 4, 0], [3, 3, 3]]])",
    { grad2: false },
  ),
  plain(
    "embeddingBag: offsets with an empty bag, weights",
    singles,
    (s) => [s.any([5, 4]), s.any([4])],
    (table, weights) => {
      const ids = weft.tensor([0, 2, 2, 4], { dtype: "int64" });
      const offsets = weft.tensor([0, 3, 3], { dtype: "int64" });
      return weft.embeddingBag(ids, table, { mode: "sum", offsets, weights });
    },
    "np.stack([(a[[0, 2, 2]] * b[:3, None]).sum(0), 0 * a[0], a[4] * b[3]])",
    { vmap: false },
  ),
  plain(
    "maxPoolIndices2d: places in images",
    singles,
    (s) => [s.any([1, 2, 4, 6])],
    (x) => weft.maxPoolIndices2d(x, { kernel: 2 }),
    "max_unpool2d(a)[0]",
    { ...none, vmap: false },
  ),
  plain(
    "maxUnpool2d: of maxPoolIndices2d",
    singles,
    (s) => [s.any([1, 2, 4, 6])],
    (x) => weft.maxUnpool2d(weft.maxPool2d(x, { kernel: 2 }), weft.maxPoolIndices2d(x, { kernel: 2 }), { kernel: 2 }),
    "max_unpool2d(a)[1]",
    { vmap: false, grad2: false },
  ),
  plain(
    "cdist: several orders",
    singles,
    (s) => [s.any([4, 3]), s.nonzero([2, 3])],
    (x, y) => [2, 1, Infinity, 3].map((order) => weft.cdist(x, y, { order })),
    "[np.linalg.norm(a[:, None] - b, o, axis=-1) for o in (2, 1, np.inf, 3)]",
    { loose: 8, grad2: false },
  ),
];

export const patches: readonly Case[] = [...numbers, ...pixels];
