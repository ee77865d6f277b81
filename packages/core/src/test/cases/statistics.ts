// Cases of order statistics, searches and histograms.

import type { Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { type Case, none, plain, reals, singles } from "./case.js";

const quantiles = ["linear", "lower", "higher", "midpoint", "nearest"] as const;
export const statistics: Case[] = [
  ...quantiles.map((method) =>
    plain(
      `quantile: ${method}`,
      singles,
      (s) => [s.distinct([4, 5])],
      (x) => [weft.quantile(x, 0.3, 0, { method }), weft.quantile(x, 0.5, undefined, { method, keepDims: true })],
      `(np.quantile(a, 0.3, 0, method="${method}"), np.quantile(a, 0.5, method="${method}", keepdims=True))`,
      { grad2: false },
    ),
  ),
  plain(
    "quantile: NaN",
    singles,
    (s) => [s.exact([2, 3], [1, NaN, 2, 3, 4, 5])],
    (x) => weft.quantile(x, 0.25, 1),
    "np.quantile(a, 0.25, 1)",
    none,
  ),
  plain(
    "median: axes",
    singles,
    (s) => [s.distinct([3, 2, 4])],
    (x) => [weft.median(x, [0, 2]), weft.median(x, -1, { keepDims: true })],
    "(np.median(a, (0, 2)), np.median(a, -1, keepdims=True))",
    { grad2: false },
  ),
  plain(
    "percentile: axes",
    singles,
    (s) => [s.distinct([3, 4])],
    (x) => weft.percentile(x, 80, 1),
    "np.percentile(a, 80, 1)",
    { grad2: false },
  ),
  plain(
    "searchsorted: both sides",
    reals,
    (s) => [s.exact([6], [0, 1, 1, 2, 4, 4]), s.exact([2, 4], [0, 1, 2, 3, 4, 5, 1, 4])],
    (a, b) => [weft.searchsorted(a, b), weft.searchsorted(a, b, { side: "right" })],
    "(np.searchsorted(a, b), np.searchsorted(a, b, 'right'))",
    { grad: false, vmap: false },
  ),
  plain(
    "searchsorted: NaN, infinities and a sorter",
    singles,
    (s) => [s.exact([5], [2, NaN, 0, Infinity, -1]), s.exact([5], [-Infinity, NaN, Infinity, 1, 2])],
    (a, b) => [
      weft.searchsorted(a, b, { sorter: weft.argsort(a) }),
      weft.searchsorted(weft.sort(a), b, { side: "right" }),
    ],
    "(np.searchsorted(a, b, sorter=np.argsort(a)), np.searchsorted(np.sort(a), b, 'right'))",
    { grad: false, vmap: false },
  ),
  plain(
    "searchsorted: no elements",
    ["float32"],
    (s) => [s.exact([0], []), s.any([3])],
    (a, b) => weft.searchsorted(a, b),
    "np.searchsorted(a, b)",
    { grad: false, vmap: false },
  ),
  plain(
    "bincount: counts and weights",
    ["int32", "uint8", "int64"],
    (s) => [s.exact([7], [0, 3, 1, 3, 3, 0, 5]), s.any([7], "float64")],
    (x, w) => [weft.bincount(x, { length: 7 }), weft.bincount(x, { length: 7, weights: w })],
    "(np.bincount(a, minlength=7), np.bincount(a, b, 7))",
    { grad: [1], vmap: false },
  ),
  plain(
    "histogram: equal bins",
    singles,
    (s) => [s.exact([8], [0, 0.3, 1, 1.7, 2, 2, -1, 5])],
    (x: Tensor) => Object.values(weft.histogram(x, 4, { range: [0, 2] })),
    "np.histogram(a, 4, (0, 2))",
    { grad: false, vmap: false },
  ),
  plain(
    "histogram2d: a grid of bins",
    singles,
    (s) => [s.exact([6], [0, 0.3, 1, 1.7, 2, 2]), s.exact([6], [1, -1, 0.5, 0, 3, 3])],
    (x: Tensor, y: Tensor) => Object.values(weft.histogram2d(x, y, 3, { xRange: [0, 1.7], yRange: [-1, 2] })),
    "np.histogram2d(a, b, 3, [[0, 1.7], [-1, 2]])",
    { grad: false, vmap: false },
  ),
  plain(
    "quantile: several",
    singles,
    (s) => [s.distinct([4, 5])],
    (x) => [weft.quantile(x, [0.1, 0.5, 0.75], 1), weft.percentile(x, [20, 100], 0, { keepDims: true })],
    "(np.quantile(a, [0.1, 0.5, 0.75], 1), np.percentile(a, [20, 100], 0, keepdims=True))",
  ),
];
