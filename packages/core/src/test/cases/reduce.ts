// Cases of the reductions: every choice of axes, with and without keepDims, ties, zeros and empty axes.

import type { DType, Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { anyDType, type Case, complexes, floats, inexact, numbers, reals, singles } from "./case.js";

type Axes = number | number[] | undefined;
type Reduction = (x: Tensor, axes?: Axes, options?: { keepDims?: boolean }) => Tensor;

const axisChoices: [string, number[], Axes, boolean][] = [
  ["everything", [2, 3, 4], undefined, false],
  ["axis 0", [2, 3, 4], 0, false],
  ["axis 1, kept", [2, 3, 4], 1, true],
  ["axis -1", [2, 3, 4], -1, false],
  ["axes 0 and 2", [2, 3, 4], [0, 2], false],
  ["axes 1 and -1, kept", [2, 3, 4], [-1, 1], true],
  ["all axes, kept", [2, 3], [0, 1], true],
  ["no axes", [2, 3], [], false],
  ["axis of size 1", [3, 1], 1, false],
  ["scalar", [], undefined, false],
];
const emptyChoices: [string, number[], Axes, boolean][] = [
  ["nothing to reduce", [3, 0], 1, false],
  ["no results", [0, 3], 1, false],
];

const pythonAxes = (axes: Axes): string => {
  if (axes === undefined) return "None";
  return typeof axes === "number" ? String(axes) : `(${axes.map((a) => `${a},`).join("")})`;
};

function reductionCases(
  name: string,
  fn: Reduction,
  np: (args: string) => string,
  dtypes: readonly DType[],
  options: { distinct?: boolean; empty?: boolean } & Partial<Case> = {},
): Case[] {
  const { distinct, empty = true, ...extra } = options;
  return [...axisChoices, ...(empty ? emptyChoices : [])].map(([what, shape, axes, keepDims]) => ({
    name: `${name}: ${what}`,
    dtypes,
    inputs: (s) => [distinct ? s.distinct(shape) : s.any(shape)],
    fn: (x) => fn(x, axes, { keepDims }),
    np: np(`axis=${pythonAxes(axes)}, keepdims=${keepDims ? "True" : "False"}`),
    ...extra,
    // 0 / 0 is NaN, and so is its slope.
    ...(what === "nothing to reduce" && (name === "mean" || name === "variance") ? { grad: false as const } : {}),
  }));
}

const plain: Case[] = [
  ...reductionCases("sum", weft.sum, (args) => `np.sum(a, ${args})`, anyDType),
  ...reductionCases("prod", weft.prod, (args) => `np.prod(a, ${args})`, numbers, { loose: 4 }),
  ...reductionCases("mean", weft.mean, (args) => `np.mean(a, ${args})`, inexact),
  ...reductionCases("max", weft.max, (args) => `np.max(a, ${args})`, reals, { distinct: true, empty: false }),
  ...reductionCases("min", weft.min, (args) => `np.min(a, ${args})`, reals, { distinct: true, empty: false }),
  ...reductionCases("any", weft.any, (args) => `np.any(a, ${args})`, anyDType, { grad: false }),
  ...reductionCases("all", weft.all, (args) => `np.all(a, ${args})`, anyDType, { grad: false }),
  ...reductionCases("variance", weft.variance, (args) => `np.var(a, ${args})`, inexact, { loose: 8 }),
  ...reductionCases("std", weft.std, (args) => `np.std(a, ${args})`, inexact, { loose: 8, grad: false }),
  ...reductionCases("logsumexp", weft.logsumexp, (args) => `special.logsumexp(a, ${args})`, floats, { empty: false }),
  ...reductionCases("norm", weft.norm, (args) => `np.sqrt(np.sum(np.abs(a) ** 2, ${args}))`, inexact, {
    empty: false,
    loose: 4,
  }),
];

const along: Case[] = [0, 1, -1].flatMap(
  (axis) =>
    [
      {
        name: `argmax: axis ${axis}`,
        dtypes: reals,
        inputs: (s) => [s.any([3, 4, 2])],
        fn: (x) => [weft.argmax(x, axis), weft.argmin(x, axis), x.argmax(axis, { keepDims: true })],
        np: `(np.argmax(a, ${axis}), np.argmin(a, ${axis}), np.argmax(a, ${axis}, keepdims=True))`,
        grad: false,
      },
      {
        name: `cumsum: axis ${axis}`,
        dtypes: ["bool", ...numbers],
        inputs: (s) => [s.any([3, 2, 4])],
        fn: (x) => weft.cumsum(x, axis),
        np: `np.cumsum(a, ${axis})`,
        loose: 4,
      },
      {
        name: `cummax: axis ${axis}`,
        dtypes: reals,
        inputs: (s) => [s.any([3, 2, 40])],
        fn: (x) => [weft.cummax(x, axis), weft.cummin(x, axis)],
        np: `(np.maximum.accumulate(a, ${axis}), np.minimum.accumulate(a, ${axis}))`,
        grad: axis === 1 ? [0] : false,
      },
      {
        name: `logcumsumexp: axis ${axis}`,
        dtypes: floats,
        inputs: (s) => [s.any([3, 2, 20])],
        fn: (x) => weft.logcumsumexp(x, axis),
        np: `np.logaddexp.accumulate(a, ${axis})`,
        loose: 4,
      },
    ] satisfies Case[],
);

const special: Case[] = [
  {
    name: "argmax: of everything",
    dtypes: reals,
    inputs: (s) => [s.any([3, 4])],
    fn: (x) => [x.argmax(), weft.argmin(x), x.argmax(undefined, { keepDims: true })],
    np: "(np.argmax(a), np.argmin(a), np.argmax(a, keepdims=True))",
    grad: false,
  },
  {
    name: "argmin: ties give the first, NaN wins",
    dtypes: singles,
    inputs: (s) => [s.exact([3, 3], [1, 1, 0, 0, 2, 0, NaN, 1, NaN])],
    fn: (x) => [x.argmin(1), x.argmax(1), x.argmin(0)],
    np: "(np.argmin(a, 1), np.argmax(a, 1), np.argmin(a, 0))",
    grad: false,
  },
  {
    name: "max: ties share the gradient",
    dtypes: singles,
    inputs: (s) => [s.exact([2, 3], [1, 3, 3, 2, 2, 2])],
    fn: (x) => [x.max(1), x.min(0)],
    np: "(np.max(a, 1), np.min(a, 0))",
    grad: false,
  },
  {
    name: "max: NaN and infinities",
    dtypes: floats,
    inputs: (s) => [s.exact([2, 3], [1, NaN, 3, -Infinity, 2, Infinity])],
    fn: (x) => [x.max(1), x.min(1), x.sum(0)],
    np: "(np.max(a, 1), np.min(a, 1), np.sum(a, 0))",
    grad: false,
  },
  {
    name: "cummin: NaN and infinities",
    dtypes: singles,
    inputs: (s) => [s.exact([2, 4], [-Infinity, 1, NaN, 3, -Infinity, -Infinity, 2, Infinity])],
    fn: (x) => [weft.cummax(x, 1), weft.cummin(x, 1), weft.logcumsumexp(x, 1)],
    np: "(np.maximum.accumulate(a, 1), np.minimum.accumulate(a, 1), np.logaddexp.accumulate(a, 1))",
    grad: false,
  },
  {
    name: "sum: small integers do not wrap",
    dtypes: ["uint8"],
    inputs: (s) => [s.between(100, 255, [40])],
    fn: (x) => [x.sum(), x.cumsum()],
    np: "(np.sum(a.astype(np.int32)), np.cumsum(a.astype(np.int32)))",
  },
  {
    name: "sum: a long axis",
    dtypes: ["float32", "float64", "int32", "complex64"],
    inputs: (s) => [s.any([3, 1500])],
    fn: (x) => [x.sum(1), x.sum(0).reshape([1500]).sum(), x.sum()],
    np: "(np.sum(a, 1), np.sum(a), np.sum(a))",
    grad: false,
    loose: 20,
  },
  {
    name: "prod: one zero, two zeros, none",
    dtypes: [...singles, ...complexes],
    inputs: (s) => [s.exact([3, 4], [1, 0, 3, 2, 0, 2, 0, 4, 1, 2, 0.5, 3])],
    fn: (x) => x.prod(1),
    np: "np.prod(a, 1)",
  },
  {
    name: "prod: zeros over two axes",
    dtypes: singles,
    inputs: (s) => [s.exact([2, 2, 3], [1, 0, 3, 2, 5, 2, 0, 4, 1, 0, 0.5, 3])],
    fn: (x) => x.prod([0, 2], { keepDims: true }),
    np: "np.prod(a, (0, 2), keepdims=True)",
  },
  {
    name: "variance: the unbiased estimate",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 3])],
    fn: (x) => [x.var(0, { correction: 1 }), x.var([0, 1], { correction: 1, keepDims: true })],
    np: "(np.var(a, 0, ddof=1), np.var(a, (0, 1), ddof=1, keepdims=True))",
    loose: 4,
  },
  {
    name: "std: away from zero",
    dtypes: inexact,
    inputs: (s) => [s.any([4, 3])],
    fn: (x) => [x.std(0), x.std(undefined, { correction: 1 })],
    np: "(np.std(a, 0), np.std(a, ddof=1))",
    loose: 4,
  },
  {
    name: "logsumexp: large numbers and empty exponentials",
    dtypes: singles,
    inputs: (s) => [s.exact([3, 2], [1000, 1001, -Infinity, -Infinity, Infinity, 0])],
    fn: (x) => x.logsumexp(1),
    np: "special.logsumexp(a, axis=1)",
    grad: false,
  },
  {
    name: "norm: orders",
    dtypes: [...singles, ...complexes],
    inputs: (s) => [s.distinct([3, 4], s.dtype.startsWith("complex") ? "float64" : s.dtype)],
    fn: (x) => [x.norm(1, { order: 1 }), x.norm(0, { order: "max" }), x.norm([0, 1], { keepDims: true })],
    np: "(np.abs(a).sum(1), np.abs(a).max(0), np.sqrt((np.abs(a) ** 2).sum(keepdims=True)))",
  },
  {
    name: "mean: integers become float32",
    dtypes: ["bool", "int32", "uint8"],
    inputs: (s) => [s.any([3, 4])],
    fn: (x) => x.mean(0),
    np: "np.mean(a, 0).astype(np.float32)",
  },
];

export const reductions: Case[] = [...plain, ...along, ...special];
