// Cases of the functions that pick elements: basic and integer-array indexing, gather, scatter, sorting.
import * as weft from "../../index.js";
import { anyDType, type Case, floats, inexact, integers, numbers, reals } from "./case.js";

const basic: Case[] = [
  {
    name: "index: numbers and slices",
    dtypes: anyDType,
    inputs: (s) => [s.any([4, 5, 3])],
    fn: (x) => [
      x.index(1),
      x.index(-1, "1:4"),
      x.index(":", 2, "::2"),
      x.index("...", 0),
      x.index("-3:", "...", "-1:"),
    ],
    np: "(a[1], a[-1, 1:4], a[:, 2, ::2], a[..., 0], a[-3:, ..., -1:])",
  },
  {
    name: "index: backwards and empty",
    dtypes: inexact,
    inputs: (s) => [s.any([5, 4])],
    fn: (x) => [x.index("::-1"), x.index("4:0:-2", "::-3"), x.index("3:1"), x.index("1:4", "3::-1"), x.index("-9:9")],
    np: "(a[::-1], a[4:0:-2, ::-3], a[3:1], a[1:4, 3::-1], a[-9:9])",
  },
  {
    name: "index: new axes",
    dtypes: inexact,
    inputs: (s) => [s.any([2, 3])],
    fn: (x) => [weft.index(x, null), x.index(":", null, 1), x.index("...", null), x.index(0, null, "1:")],
    np: "(a[None], a[:, None, 1], a[..., None], a[0, None, 1:])",
  },
];

const arrays: Case[] = [
  {
    name: "index: one integer array",
    dtypes: anyDType,
    inputs: (s) => [s.any([5, 3]), s.indices([4], -5, 5)],
    fn: (x, i) => [x.index(i), x.index([0, 0, 2]), x.index(":", [2, -1, 0, 0])],
    np: "(a[b], a[[0, 0, 2]], a[:, [2, -1, 0, 0]])",
    vmap: false,
  },
  {
    name: "index: two arrays side by side",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 3, 2]), s.indices([2, 1], 0, 4), s.indices([3], 0, 3)],
    fn: (x, i, j) => [x.index(i, j), x.index(":", [0, 2], [1, 0])],
    np: "(a[b, c], a[:, [0, 2], [1, 0]])",
  },
  {
    name: "index: arrays apart move to the front",
    dtypes: inexact,
    inputs: (s) => [s.any([3, 4, 2]), s.indices([2], 0, 3), s.indices([2], 0, 2)],
    fn: (x, i, j) => [x.index(i, ":", j), x.index(i, "1:3", 0), x.index(1, "::2", j)],
    np: "(a[b, :, c], a[b, 1:3, 0], a[1, ::2, c])",
  },
  {
    name: "take: along an axis and flat",
    dtypes: numbers,
    inputs: (s) => [s.any([4, 3]), s.indices([2, 2], -4, 4)],
    fn: (x, i) => [weft.take(x, i, 0), x.take([2, 0, -1], 1), x.take([11, 0, 5])],
    np: "(np.take(a, b, 0), np.take(a, [2, 0, -1], 1), np.take(a, [11, 0, 5]))",
  },
  {
    name: "take: beyond the end is clamped, in the gradient too",
    dtypes: ["float32", "float64"],
    inputs: (s) => [s.any([3, 2])],
    fn: (x) => x.take([7, 1, -9], 0),
    np: "np.take(a, [2, 1, 0], 0)",
  },
  {
    name: "gather: along each axis",
    dtypes: anyDType,
    inputs: (s) => [s.any([3, 4]), s.indices([3, 2], 0, 4), s.indices([5, 4], -3, 3)],
    fn: (x, i, j) => [weft.gather(x, i), x.gather(j, 0)],
    np: "(np.take_along_axis(a, b, 1), np.take_along_axis(a, c, 0))",
  },
  {
    name: "scatterAdd: repeated indices add up",
    dtypes: numbers,
    inputs: (s) => [s.any([3, 4]), s.indices([3, 6], 0, 4), s.any([3, 6])],
    fn: (x, i, u) => weft.scatterAdd(x, i, u),
    np: "add_along(a, b, c, 1)",
  },
  {
    name: "scatterAdd: along the first axis, out of range",
    dtypes: inexact,
    inputs: (s) => [s.any([3, 2]), s.exact([4, 2], [0, 1, 2, 2, 5, 0, -1, 9], "int32"), s.any([4, 2])],
    fn: (x, i, u) => x.scatterAdd(i, u, 0),
    np: "add_along(a, b, c, 0)",
  },
  {
    name: "indexAdd: rows and columns",
    dtypes: numbers,
    inputs: (s) => [s.any([4, 3]), s.indices([5], 0, 4), s.any([5, 3]), s.any([4, 2])],
    fn: (x, i, rows, columns) => [
      weft.indexAdd(x, i, rows),
      weft.indexAdd(x, weft.tensor([2, 0], { dtype: "int32" }), columns, 1),
    ],
    np: "(add_rows(a, b, c), add_rows(a.T, [2, 0], d.T).T)",
  },
  {
    name: "oneHot: dtypes and classes out of range",
    dtypes: integers,
    inputs: (s) => [s.exact([2, 3], [0, 1, 2, 3, 4, 9])],
    fn: (c) => [weft.oneHot(c, 4), weft.oneHot(c, 4, { dtype: "int32" }), weft.oneHot(c, 4, { dtype: "bool" })],
    np: "(one_hot(a, 4).astype(np.float32), one_hot(a, 4).astype(np.int32), one_hot(a, 4) == 1)",
  },
];

const sorting: Case[] = [
  ...[0, 1, -1].map(
    (axis): Case => ({
      name: `sort: axis ${axis}`,
      dtypes: reals,
      inputs: (s) => [s.distinct([3, 4, 2])],
      fn: (x) => [weft.sort(x, axis), x.sort(axis, { descending: true })],
      np: `(np.sort(a, ${axis}), np.flip(np.sort(a, ${axis}), ${axis}))`,
    }),
  ),
  {
    name: "argsort: stable both ways",
    dtypes: ["bool", ...reals],
    inputs: (s) => [s.any([3, 9])],
    fn: (x) => [weft.argsort(x), x.argsort(0), x.argsort(-1, { descending: true })],
    np: "(np.argsort(a, stable=True), np.argsort(a, 0, stable=True), np.argsort(-a.astype(np.float64), stable=True))",
    grad: false,
  },
  {
    name: "sort: NaN last, infinities, ties",
    dtypes: floats,
    inputs: (s) => [s.exact([6], [2, NaN, -Infinity, 2, Infinity, -1])],
    fn: (x) => [x.sort(), x.argsort()],
    np: "(np.sort(a), np.argsort(a, stable=True))",
    grad: false,
  },
  {
    name: "partition: of a row",
    dtypes: reals,
    inputs: (s) => [s.any([3, 7])],
    fn: (x) => [weft.partition(x, 3).index(":", 3), weft.partition(x, -2, 0).index(-2)],
    np: "(np.partition(a, 3)[:, 3], np.partition(a, -2, 0)[-2])",
  },
  {
    name: "argpartition: of a row",
    dtypes: reals,
    inputs: (s) => [s.any([3, 7])],
    fn: (x) => x.gather(weft.argpartition(x, 3)).index(":", 3),
    np: "np.partition(a, 3)[:, 3]",
    grad: false,
  },
  {
    name: "topk: largest first",
    dtypes: reals,
    inputs: (s) => [s.distinct([3, 5])],
    fn: (x) => {
      const last = weft.topk(x, 2);
      const first = x.topk(2, 0);
      return [last.values, last.indices, first.values, first.indices];
    },
    np: "(np.flip(np.sort(a), 1)[:, :2], np.flip(np.argsort(a), 1)[:, :2], np.flip(np.sort(a, 0), 0)[:2], np.flip(np.argsort(a, 0), 0)[:2])",
  },
  {
    name: "sort: an axis of size 1 and nothing",
    dtypes: ["float32", "int32"],
    inputs: (s) => [s.any([3, 1]), s.any([0, 2])],
    fn: (x, y) => [x.sort(), y.sort(0), x.topk(0).values],
    np: "(a, b, a[:, :0])",
  },
];

export const indexing: Case[] = [...basic, ...arrays, ...sorting];
