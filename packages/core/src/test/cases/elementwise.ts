// Cases of the element-wise functions: arithmetic with broadcasting and promotion, comparisons, functions of one argument.

import type { DType, Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { anyDType, type Case, complexes, floats, inexact, integers, numbers, reals } from "./case.js";

type Unary = (x: Tensor) => Tensor;
type Binary = (a: Tensor, b: Tensor) => Tensor;

/** Shapes that broadcasting must get right: equal, scalars, ones, new axes, nothing at all. */
const shapePairs: [string, number[], number[]][] = [
  ["equal shapes", [3, 4], [3, 4]],
  ["scalar and matrix", [], [2, 3]],
  ["row and column", [1, 4], [3, 1]],
  ["new axes", [2, 1, 3], [4, 1]],
  ["no elements", [0, 3], [1, 3]],
  ["two scalars", [], []],
];

function binaryCases(
  name: string,
  fn: Binary,
  np: string,
  dtypes: readonly DType[],
  extra: Partial<Case> = {},
): Case[] {
  return shapePairs.map(([what, a, b]) => ({
    name: `${name}: ${what}`,
    dtypes,
    inputs: (s) => [s.any(a), s.nonzero(b)],
    fn,
    np,
    ...extra,
  }));
}

const boolish: readonly DType[] = ["bool", "int32", "float32"];

const arithmetic: Case[] = [
  ...binaryCases("add", weft.add, "a + b", numbers),
  ...binaryCases("sub", weft.sub, "a - b", numbers),
  ...binaryCases("mul", weft.mul, "a * b", numbers),
  ...binaryCases("div", weft.div, "a / b", inexact),
  ...binaryCases("mod", weft.mod, "np.mod(a, b)", reals),
  ...binaryCases("floorDivide", weft.floorDivide, "np.floor_divide(a, b)", [...integers, "float32", "float64"], {
    grad: false,
  }),
  ...binaryCases("atan2", weft.atan2, "np.arctan2(a, b)", floats),
  ...binaryCases("maximum", weft.maximum, "np.maximum(a, b)", reals),
  ...binaryCases("minimum", weft.minimum, "np.minimum(a, b)", reals),
  ...binaryCases("equal", weft.equal, "a == b", anyDType, { grad: false }),
  ...binaryCases("notEqual", weft.notEqual, "a != b", anyDType, { grad: false }),
  ...binaryCases("less", weft.less, "a < b", reals, { grad: false }),
  ...binaryCases("lessEqual", weft.lessEqual, "a <= b", reals, { grad: false }),
  ...binaryCases("greater", weft.greater, "a > b", reals, { grad: false }),
  ...binaryCases("greaterEqual", weft.greaterEqual, "a >= b", reals, { grad: false }),
  ...binaryCases("logicalAnd", weft.logicalAnd, "np.logical_and(a, b)", boolish, { grad: false }),
  ...binaryCases("logicalOr", weft.logicalOr, "np.logical_or(a, b)", boolish, { grad: false }),
  ...binaryCases("logicalXor", weft.logicalXor, "np.logical_xor(a, b)", boolish, { grad: false }),
  ...binaryCases("bitwiseAnd", weft.bitwiseAnd, "a & b", ["bool", ...integers], { grad: false }),
  ...binaryCases("bitwiseOr", weft.bitwiseOr, "a | b", ["bool", ...integers], { grad: false }),
  ...binaryCases("bitwiseXor", weft.bitwiseXor, "a ^ b", ["bool", ...integers], { grad: false }),
  {
    name: "add: booleans count",
    dtypes: ["bool"],
    inputs: (s) => [s.any([7]), s.any([7])],
    fn: weft.add,
    np: "a.astype(np.int32) + b",
  },
  {
    name: "equal: equal elements, infinities and NaN",
    dtypes: floats,
    inputs: (s) => [s.exact([5], [1, Infinity, NaN, -0, 2]), s.exact([5], [1, Infinity, NaN, 0, -2])],
    fn: (a, b) => [a.equal(b), a.notEqual(b), a.lessEqual(b)],
    np: "(a == b, a != b, a <= b)",
    grad: false,
  },
  {
    name: "maximum: NaN wins",
    dtypes: floats,
    inputs: (s) => [s.exact([4], [NaN, 1, -Infinity, 3]), s.exact([4], [1, NaN, 2, Infinity])],
    fn: (a, b) => [a.maximum(b), a.minimum(b)],
    np: "(np.maximum(a, b), np.minimum(a, b))",
    grad: false,
  },
  {
    name: "mod: signs of both operands",
    dtypes: ["int32", "int64", "float32", "float64"],
    inputs: (s) => [s.exact([6], [7, -7, 7, -7, 6, -6]), s.exact([6], [3, 3, -3, -3, 3, -3])],
    fn: (a, b) => [a.mod(b), a.floorDivide(b)],
    np: "(np.mod(a, b), np.floor_divide(a, b))",
    grad: false,
  },
  {
    name: "floorDivide: beyond the digits of float32",
    dtypes: ["int32", "int64"],
    inputs: (s) => [s.exact([3], [2147483647, -2147483647, 123456789]), s.exact([3], [1, 2, 7])],
    fn: weft.floorDivide,
    np: "np.floor_divide(a, b)",
  },
  {
    name: "pow: positive base",
    dtypes: floats,
    inputs: (s) => [s.between(0.4, 2, [3, 4]), s.between(-2, 2, [4])],
    fn: weft.pow,
    np: "a ** b",
    loose: 4,
  },
  {
    name: "pow: whole exponents of any base",
    dtypes: inexact,
    inputs: (s) => [s.nonzero([2, 3])],
    fn: (a) => [0, 1, 2, 3, 4, 5, -1, -2, -3].map((n) => a.pow(n)),
    np: "tuple(a ** n for n in [0, 1, 2, 3, 4, 5, -1, -2, -3])",
    loose: 30,
  },
  {
    name: "pow: square roots",
    dtypes: floats,
    inputs: (s) => [s.between(0.5, 3, [5])],
    fn: (a) => [a.pow(0.5), a.pow(-0.5), a.pow(1.5)],
    np: "(a ** 0.5, a ** -0.5, a ** 1.5)",
    loose: 4,
  },
  {
    name: "pow: integers",
    dtypes: ["int32", "int64"],
    inputs: (s) => [s.exact([5], [2, -3, 0, 7, 1]), s.exact([5], [10, 3, 0, 2, 5])],
    fn: weft.pow,
    np: "a ** b",
  },
  {
    name: "pow: complex exponents",
    dtypes: complexes,
    inputs: (s) => [s.between(0.4, 1.5, [2, 3]), s.any([3])],
    fn: weft.pow,
    np: "a ** b",
    loose: 10,
  },
  {
    name: "complex: from parts",
    dtypes: ["float32", "float64"],
    inputs: (s) => [s.any([2, 3]), s.any([3])],
    fn: weft.complex,
    np: "a + 1j * b",
  },
];

/** Name, function, NumPy's expression, dtypes, and where to look: a range for the inputs. */
const unary: [string, Unary, string, readonly DType[], [number, number]?][] = [
  ["neg", weft.neg, "-a", numbers],
  ["abs", weft.abs, "np.abs(a)", numbers],
  ["sign", weft.sign, "np.sign(a)", numbers],
  ["floor", weft.floor, "np.floor(a)", reals],
  ["ceil", weft.ceil, "np.ceil(a)", reals],
  ["round", weft.round, "np.round(a)", reals],
  ["trunc", weft.trunc, "np.trunc(a)", reals],
  ["square", weft.square, "a * a", numbers],
  ["sqrt", weft.sqrt, "np.sqrt(a)", inexact, [0.2, 4]],
  ["rsqrt", weft.rsqrt, "1 / np.sqrt(a)", inexact, [0.2, 4]],
  ["reciprocal", weft.reciprocal, "1 / a", inexact, [0.3, 3]],
  ["exp", weft.exp, "np.exp(a)", inexact],
  ["expm1", weft.expm1, "np.expm1(a)", floats],
  ["log", weft.log, "np.log(a)", inexact, [0.1, 4]],
  ["log1p", weft.log1p, "np.log1p(a)", floats, [-0.8, 3]],
  ["log2", weft.log2, "np.log2(a)", floats, [0.1, 4]],
  ["log10", weft.log10, "np.log10(a)", floats, [0.1, 4]],
  ["sin", weft.sin, "np.sin(a)", inexact],
  ["cos", weft.cos, "np.cos(a)", inexact],
  ["tan", weft.tan, "np.tan(a)", floats, [-1.2, 1.2]],
  ["asin", weft.asin, "np.arcsin(a)", floats, [-0.9, 0.9]],
  ["acos", weft.acos, "np.arccos(a)", floats, [-0.9, 0.9]],
  ["atan", weft.atan, "np.arctan(a)", floats],
  ["sinh", weft.sinh, "np.sinh(a)", inexact],
  ["cosh", weft.cosh, "np.cosh(a)", inexact],
  ["tanh", weft.tanh, "np.tanh(a)", inexact, [-1.4, 1.4]],
  ["erf", weft.erf, "special.erf(a)", floats],
  ["erfc", weft.erfc, "special.erfc(a)", floats],
  ["angle", weft.angle, "np.angle(a)", [...complexes, "float32", "float64"], [0.2, 2]],
  ["real", weft.real, "np.real(a)", inexact],
  ["imag", weft.imag, "np.imag(a)", inexact],
  ["conj", weft.conj, "np.conj(a)", inexact],
  ["isNaN", weft.isNaN, "np.isnan(a)", anyDType],
  ["isFinite", weft.isFinite, "np.isfinite(a)", anyDType],
  ["logicalNot", weft.logicalNot, "np.logical_not(a)", anyDType],
];

/** Second derivatives that are zero almost everywhere, or jump. */
const flat = new Set(["floor", "ceil", "round", "trunc", "isNaN", "isFinite", "logicalNot"]);

const unaryCases: Case[] = unary.flatMap(([name, fn, np, dtypes, range]) =>
  [[2, 3], [], [1], [0, 2]].map((shape) => ({
    name: `${name}: ${shape.length === 0 ? "scalar" : `[${shape}]`}`,
    dtypes,
    inputs: (s) => [range === undefined ? s.nonzero(shape) : s.between(range[0], range[1], shape)],
    fn,
    np,
    grad: flat.has(name) ? (false as const) : undefined,
    loose: 4,
  })),
);

const special: Case[] = [
  {
    name: "exp: far ends",
    dtypes: ["float32", "float64"],
    inputs: (s) => [s.exact([7], [-Infinity, -80, -1e-9, 0, 80, Infinity, NaN])],
    fn: (x) => [x.exp(), x.tanh(), x.erf(), x.sigmoid(), x.abs().sqrt()],
    np: "(np.exp(a), np.tanh(a), special.erf(a), special.expit(a), np.sqrt(np.abs(a)))",
    grad: false,
    loose: 4,
  },
  {
    name: "log: zero and negative numbers",
    dtypes: ["float32", "float64"],
    inputs: (s) => [s.exact([4], [0, -1, Infinity, 1])],
    fn: (x) => [x.log(), x.sqrt(), x.reciprocal(), x.log1p(), x.rsqrt()],
    np: "(np.log(a), np.sqrt(a), 1 / a, np.log1p(a), 1 / np.sqrt(a))",
    grad: false,
  },
  {
    name: "round: halves go to even",
    dtypes: floats,
    inputs: (s) => [s.exact([8], [-2.5, -1.5, -0.5, 0.5, 1.5, 2.5, 3.5, -3.5])],
    fn: (x) => [x.round(), x.floor(), x.ceil(), x.trunc()],
    np: "(np.round(a), np.floor(a), np.ceil(a), np.trunc(a))",
    grad: false,
  },
  {
    name: "abs: zero and the branch cut of complex functions",
    dtypes: complexes,
    inputs: (s) => [s.exact([4], [-1, 0, -2, 1e-3, 0, 1, 3, -4])],
    fn: (x) => [x.abs(), x.sqrt(), x.log(), x.angle()],
    np: "(np.abs(a), np.sqrt(a), np.log(a), np.angle(a))",
    grad: false,
  },
  {
    name: "isNaN: complex parts",
    dtypes: complexes,
    inputs: (s) => [s.exact([3], [NaN, 0, 1, NaN, Infinity, 2])],
    fn: (x) => [x.isNaN(), x.isFinite()],
    np: "(np.isnan(a), np.isfinite(a))",
    grad: false,
  },
  {
    name: "clip: both bounds",
    dtypes: reals,
    inputs: (s) => [s.distinct([3, 4])],
    fn: (x) => x.clip(0, 1),
    np: "np.clip(a, 0, 1)",
  },
  {
    name: "clip: one bound, a tensor",
    dtypes: floats,
    inputs: (s) => [s.distinct([3, 4]), s.between(-0.2, 0.2, [4])],
    fn: (x, low) => [x.clip(low, null), x.clip(null, low)],
    np: "(np.maximum(a, b), np.minimum(a, b))",
  },
  {
    name: "where: three shapes",
    dtypes: anyDType,
    inputs: (s) => [s.any([3, 1], "bool"), s.any([4]), s.any([2, 1, 1])],
    fn: (c, a, b) => weft.where(c, a, b),
    np: "np.where(a, b, c)",
  },
  {
    name: "where: beside numbers",
    dtypes: floats,
    inputs: (s) => [s.any([5])],
    fn: (x) => [weft.where(x.greater(0), x, 0), weft.where(x.greater(0), 1, x), x.where(x.less(0), 2)],
    np: "(np.where(a > 0, a, 0), np.where(a > 0, 1, a), np.where(a < 0, a, 2))",
  },
  {
    name: "add: numbers beside a tensor keep its dtype",
    dtypes: numbers,
    inputs: (s) => [s.any([2, 2])],
    fn: (x) => [x.add(2), x.mul(3), weft.sub(1, x)],
    np: "(a + 2, a * 3, 1 - a)",
  },
  {
    name: "mul: a complex number beside a tensor",
    dtypes: inexact,
    inputs: (s) => [s.any([3])],
    fn: (x) => x.mul({ re: 0.5, im: -1 }),
    np: "a * (0.5 - 1j)",
  },
  {
    name: "stopGradient: the value passes",
    dtypes: inexact,
    inputs: (s) => [s.any([3])],
    fn: (x) => weft.stopGradient(x).mul(x),
    np: "a * a",
    grad: false,
  },
];

/** Two dtypes that meet, and the one in which they do. */
const meetings: [DType, DType, DType][] = [
  ["bool", "int32", "int32"],
  ["uint8", "int32", "int32"],
  ["int32", "int64", "int64"],
  ["int64", "float16", "float16"],
  ["int64", "float32", "float32"],
  ["float16", "bfloat16", "float32"],
  ["bfloat16", "float32", "float32"],
  ["float32", "float64", "float64"],
  ["float64", "complex64", "complex128"],
  ["int32", "complex64", "complex64"],
  ["complex64", "complex128", "complex128"],
  ["bool", "float64", "float64"],
];

const promotion: Case[] = meetings.map(([left, right, together]) => ({
  name: `add: ${left} meets ${right}`,
  dtypes: [left],
  inputs: (s) => [s.eighths([2, 3]), s.eighths([3], right)],
  fn: (a, b) => {
    const sum = a.add(b);
    if (sum.dtype !== together) throw new Error(`${left} + ${right} is ${sum.dtype}, expected ${together}`);
    return [sum, b.mul(a)];
  },
  np: "(a + b, b * a)",
  grad: false,
}));

const casts: Case[] = anyDType.map((to) => ({
  name: `cast: to ${to}`,
  dtypes: anyDType,
  inputs: (s) => [to === "uint8" ? s.between(0, 9, [2, 3]) : s.any([2, 3])],
  fn: (x) => x.cast(to),
  // Gradients of a rounded result are rounded too: finite differences only see the wide ones.
  grad: to === "float64" || to === "complex128" ? undefined : false,
}));

export const elementwise: Case[] = [...arithmetic, ...unaryCases, ...special, ...promotion, ...casts];
