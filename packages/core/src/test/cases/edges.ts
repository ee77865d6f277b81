// Edge values of the element-wise functions, casts, reductions and orders: tails, overflow, denormal numbers, signed zeros, NaN,
// infinities, the ends of the integers, 2^53 + 1. Expected values come from mpmath and NumPy (testdata/edges.ts), rounded once.
import type { DType, Tensor } from "../../index.js";
import * as weft from "../../index.js";
import { anyDType, type Host } from "./case.js";

export interface Edge {
  name: string;
  dtype: DType;
  inputs: Host[];
  fn: (...inputs: Tensor[]) => Tensor | Tensor[];
  np: string;
  /** Units in the last place that a result may be off (of a complex number: of its size); 0 also compares signs of zeros. */
  ulps: number;
}

const host = (dtype: DType, data: readonly number[], perElement = 1): Host => ({
  shape: [data.length / perElement],
  dtype,
  data: [...data],
});

const { NaN: nan, POSITIVE_INFINITY: inf } = Number;
/** Every float dtype sees all of them, rounded: what is too large becomes infinity, what is too small 0. */
const values = [
  ...[0, -0, 1, -1, 0.5, -0.5, 1.5, -1.5, 2.5, -2.5, 3.7, 0.057, nan, inf, -inf, 1e-3, -1e-3, 8.5, -5.5, 11, -9.75],
  ...[12.5, -17.25, 20, -20, 26.5, -38, 80, 88, -88, 89, -100, -103, 104, 600, -700, 709.5, -740, -746, 1e-8, -1e-8],
  ...[1e-20, 1e-38, 1e-40, -1e-40, 1.4e-45, 5e-324, -1e-310, 1e10, 1e19, 1e25, -1e30, 3e38, 1e155, -1e200, 1.7e308],
  ...[65504, 2147483648, 6e-8, 0.999, 1.001, -0.999],
];
const floats: readonly DType[] = ["float16", "float32", "float64"];

/** Functions of one number and the units that they may be off: the argument of gelu is rounded before its tail is taken. */
const unary: Record<string, [fn: (x: Tensor) => Tensor, ulps: Partial<Record<DType, number>>]> = {
  neg: [weft.neg, {}],
  abs: [weft.abs, {}],
  sign: [weft.sign, {}],
  floor: [weft.floor, {}],
  ceil: [weft.ceil, {}],
  round: [weft.round, {}],
  trunc: [weft.trunc, {}],
  sqrt: [weft.sqrt, { float32: 1, float64: 1 }],
  rsqrt: [weft.rsqrt, { float32: 2, float64: 2 }],
  reciprocal: [weft.reciprocal, { float32: 1, float64: 1 }],
  exp: [weft.exp, { float32: 3, float64: 2 }],
  expm1: [weft.expm1, { float32: 3, float64: 2 }],
  log: [weft.log, { float32: 3, float64: 2 }],
  log1p: [weft.log1p, { float32: 3, float64: 2 }],
  log2: [weft.log2, { float32: 4, float64: 3 }],
  log10: [weft.log10, { float32: 4, float64: 3 }],
  asin: [weft.asin, { float32: 3, float64: 2 }],
  acos: [weft.acos, { float32: 3, float64: 2 }],
  atan: [weft.atan, { float32: 3, float64: 2 }],
  sinh: [weft.sinh, { float32: 3, float64: 3 }],
  cosh: [weft.cosh, { float32: 3, float64: 3 }],
  tanh: [weft.tanh, { float32: 3, float64: 2 }],
  erf: [weft.erf, { float32: 4, float64: 4 }],
  erfc: [weft.erfc, { float32: 5, float64: 12 }],
  sigmoid: [weft.sigmoid, { float32: 4, float64: 3 }],
  silu: [weft.silu, { float32: 5, float64: 5 }],
  softplus: [weft.softplus, { float32: 4, float64: 3 }],
  logSigmoid: [weft.logSigmoid, { float32: 4, float64: 3 }],
  gelu: [weft.gelu, { float32: 200, float64: 2000 }],
};

/** Half types round after every op of a composed function. */
const unitsOf = (units: Partial<Record<DType, number>>, dtype: DType): number =>
  Object.keys(units).length === 0 ? 0 : dtype === "float16" ? 3 : (units[dtype] ?? 0);

const unaryEdges: Edge[] = floats.flatMap((dtype) =>
  Object.entries(unary).map(([name, [fn, units]]) => ({
    name: `${name} (${dtype})`,
    dtype,
    inputs: [host(dtype, values)],
    fn,
    np: `precise("${name}", a)`,
    ulps: unitsOf(units, dtype),
  })),
);

type Binary = (a: Tensor, b: Tensor) => Tensor;
const pairs = (list: readonly number[]): [number[], number[]] => [
  list.flatMap((a) => list.map(() => a)),
  list.flatMap(() => list),
];
const operands = [0, -0, 1, -1, 3, -7, 0.1, -0.3, 2.5, nan, inf, -inf, 1e-40, 1e30, 1e-6, 40000];
const comparisons: Record<string, [Binary, string]> = {
  equal: [weft.equal, "a == b"],
  notEqual: [weft.notEqual, "a != b"],
  less: [weft.less, "a < b"],
  lessEqual: [weft.lessEqual, "a <= b"],
  greater: [weft.greater, "a > b"],
  greaterEqual: [weft.greaterEqual, "a >= b"],
};
const arithmetic: Record<string, [Binary, string]> = {
  ...comparisons,
  add: [weft.add, "a + b"],
  sub: [weft.sub, "a - b"],
  mul: [weft.mul, "a * b"],
  mod: [weft.mod, "np.mod(a, b)"],
  floorDivide: [weft.floorDivide, "np.floor_divide(a, b)"],
};
// maximum and minimum of two zeros may return either.
const extrema: Record<string, [Binary, string]> = {
  maximum: [weft.maximum, "np.maximum(a, b)"],
  minimum: [weft.minimum, "np.minimum(a, b)"],
};
const rounded: Record<string, [Binary, string]> = {
  ...extrema,
  pow: [weft.pow, "np.power(a, b)"],
  atan2: [weft.atan2, "np.arctan2(a, b)"],
};

const binaryEdges = (dtype: DType, list: readonly number[], table: typeof arithmetic, ulps: number): Edge[] =>
  Object.entries(table).map(([name, [fn, np]]) => {
    const [a, b] = pairs(list);
    return { name: `${name} (${dtype})`, dtype, inputs: [host(dtype, a), host(dtype, b)], fn, np, ulps };
  });

const bitwise: Record<string, [Binary, string]> = {
  bitwiseAnd: [weft.bitwiseAnd, "a & b"],
  bitwiseOr: [weft.bitwiseOr, "a | b"],
  bitwiseXor: [weft.bitwiseXor, "a ^ b"],
  power: [(a, b) => a.pow(b.mod(5)), "np.power(a, np.mod(b, 5))"],
};
const whole = [0, 1, -1, 2, 7, -7, 255, 65536, -12345, 2147483647, -2147483648, -2147483647];
const bytes = [0, 1, 2, 7, 100, 128, 200, 255];
/** Edge values of the integer dtypes that hold them as doubles. */
const integerValues = {
  int8: [0, 1, -1, 2, 7, -7, 100, 127, -128, -127],
  uint8: bytes,
  int16: [0, 1, -1, 7, -7, 255, 256, -12345, 32767, -32768, -32767],
  uint16: [0, 1, 2, 7, 255, 256, 40000, 65535],
  int32: whole,
  uint32: [0, 1, 2, 7, 65536, 2147483647, 2147483648, 4294967295, 123456789],
} satisfies Partial<Record<DType, readonly number[]>>;

/** 64-bit integers in two halves: a constant of a test is a double, which has not all digits. */
const join = (high: Tensor, low: Tensor): Tensor => high.mul(2 ** 32).add(low);
const split = (x: Tensor): Tensor[] => [x.floorDivide(2 ** 32), x.mod(2 ** 32)];
const highs = [0, 0, -1, -1, 2 ** 21, 2 ** 21, -(2 ** 31), 2 ** 31 - 1, 2 ** 31 - 1, -(2 ** 31), 12345, 2 ** 21];
const lows = [0, 1, 2 ** 32 - 1, 0, 0, 1, 0, 2 ** 32 - 1, 2 ** 32 - 2, 1, 678, 1];
const big = ["int64", "uint64"] as const;
const highsOf = (dtype: DType): number[] => (dtype === "int64" ? highs : highs.map((x) => (x + 2 ** 32) % 2 ** 32));

const wideTable = Object.entries({ ...arithmetic, ...extrema, ...bitwise });
const wideCases = big.flatMap((dtype) => wideTable.map((row) => [dtype, ...row] as const));
const wideBinary: Edge[] = wideCases.map(([dtype, name, [fn, np]]) => {
  const [[ah, bh], [al, bl]] = [pairs(highsOf(dtype)), pairs(lows)];
  const isTest = name in comparisons;
  return {
    name: `${name} (${dtype})`,
    dtype,
    inputs: [ah, al, bh, bl].map((data) => host(dtype, data)),
    fn: (a, b, c, d) => {
      const result = fn(join(a, b), join(c, d));
      return isTest ? result : split(result);
    },
    np: `(lambda a, b: ${isTest ? np : `halves(${np})`})(a * 2**32 + b, c * 2**32 + d)`,
    ulps: 0,
  };
});

/** One tensor of 64-bit integers; the functions give such integers or positions. */
const wideOrder: Edge[] = big.map((dtype) => {
  const low = dtype === "int64" ? -5 : 5;
  return {
    name: `sort, max, sum and their like (${dtype})`,
    fn: (a: Tensor, b: Tensor) => {
      const x = join(a, b);
      const descending = { descending: true };
      return [
        ...[x.sort(), x.sort(0, descending), weft.topk(x, 4).values, x.max(), x.min(), x.sum()].flatMap(split),
        ...[x.prod(), x.cumsum(0), x.abs(), x.neg(), x.clip(low, 2 ** 52), weft.where(x.less(9), x, 7)].flatMap(split),
        ...[
          x.argsort(),
          x.argmax(),
          x.argmin(),
          x.cast("float64"),
          x.cast("float32"),
          x.cast("int32"),
          x.cast("uint8"),
          x.cast("int16"),
          x.cast("uint32"),
        ],
        ...split(x.reshape([3, 4]).matmul(x.reshape([4, 3]))),
      ];
    },
    np:
      "(lambda x: (*halves(np.sort(x)), *halves(np.sort(x)[::-1]), *halves(np.sort(x)[::-1][:4]), *halves(x.max()), " +
      "*halves(x.min()), *halves(x.sum()), *halves(x.prod()), *halves(x.cumsum()), *halves(np.abs(x)), *halves(-x), " +
      `*halves(np.clip(x, ${low}, 2**52)), *halves(np.where(x < 9, x, 7)), np.argsort(x, kind='stable'), x.argmax(), x.argmin(), ` +
      "x.astype(np.float64), x.astype(np.float32), x.astype(np.int32), x.astype(np.uint8), x.astype(np.int16), x.astype(np.uint32), " +
      "*halves(x.reshape(3, 4) @ x.reshape(4, 3))))(a * 2**32 + b)",
    dtype,
    inputs: [host(dtype, highsOf(dtype)), host(dtype, lows)],
    ulps: 0,
  };
});

const unsorted = [3, nan, -0, inf, 0, -inf, nan, 1e-40, -7, 3];
const orders: Edge[] = floats.map((dtype) => ({
  name: `order with NaN (${dtype})`,
  dtype,
  inputs: [host(dtype, unsorted)],
  fn: (x) => [
    ...[x.sort(), x.sort(0, { descending: true }), x.argsort(), weft.topk(x, 3).values, x.max(), x.min(), x.argmax()],
    ...[x.argmin(), x.reshape([5, 2]).max(0), x.reshape([5, 2]).min(1), x.reshape([2, 5]).argmin(0)],
  ],
  np:
    "(np.sort(a), np.sort(a)[::-1], np.argsort(a, kind='stable'), np.sort(a)[::-1][:3], a.max(), a.min(), a.argmax(), a.argmin(), " +
    "a.reshape(5, 2).max(0), a.reshape(5, 2).min(1), a.reshape(2, 5).argmin(0))",
  ulps: 1,
}));

const sums: Edge[] = (
  [
    ["bool", Array.from({ length: 70_000 }, (_, i) => Number(i % 3 !== 0))],
    ["uint8", Array.from({ length: 70_000 }, (_, i) => 255 - (i % 2))],
    ["int32", [2147483647, 2147483647, -5, 2147483647, 2147483647, 2147483647]],
    ["int32", [-2147483648, -2147483648, -2147483648, 3]],
    ["int8", Array.from({ length: 600 }, (_, i) => 127 - (i % 3))],
    ["uint16", Array.from({ length: 600 }, (_, i) => 65535 - (i % 3))],
    ["uint32", [4294967295, 4294967295, 4294967294, 1]],
  ] as [DType, number[]][]
).map(([dtype, data], i) => ({
  name: `sums ${i} (${dtype})`,
  dtype,
  inputs: [host(dtype, data)],
  fn: (x) => [x.sum(), x.cumsum(0).index(-1), x.index(":3").prod(), x.mean(), x.reshape([2, -1]).sum(0).index(0)],
  np: "(a.sum(), a.cumsum()[-1], a[:3].prod(), a.mean().astype(np.float32), a.reshape(2, -1).sum(0)[0])",
  ulps: 1,
}));

const castable: Record<DType, readonly number[]> = {
  bool: [0, 1],
  ...integerValues,
  int64: [...whole, 2 ** 40 + 5, -(2 ** 40), 2 ** 52 + 1],
  uint64: [...integerValues.uint32, 2 ** 40 + 5, 2 ** 52 + 1, 2 ** 63, 2 ** 64 - 2 ** 11],
  float16: values,
  bfloat16: [],
  float32: [...values, -0.5, 255.9, 256, -1.9, 300, 2147483520, -3e9, 1e18],
  float64: [...values, -0.5, 255.9, 256, -1.9, 2147483647.5, -2147483648.9, 2049.0000001, 65519.999, 9.3e18, 1e18],
  complex64: [1.5, 2, nan, 1, -3e9, 0, 0, 1, 1e-45, 0, 300, -1],
  complex128: [1.5, 2, nan, 1, -3e9, 0, 0, 1, 1e-45, 0, 300, -1, 1e300, 1],
};

const casts: Edge[] = anyDType.flatMap((from) =>
  anyDType
    .filter((to) => castable[from].length > 0 && to !== "bfloat16")
    .map((to) => ({
      name: `cast to ${to} (${from})`,
      dtype: from,
      inputs: [host(from, castable[from], from.startsWith("complex") ? 2 : 1)],
      fn: (x) => x.cast(to),
      np: `converted(a, "${to}")`,
      ulps: 0,
    })),
);

const parts = [0, 1, -1, 0.5, -0.3, 1e-40, 1e-25, 3e-5, 10, -30, 89.5, -89.5, 150, 1e5, -1e19, 2e19, 1e25, 3e38];
const far = [...parts, 1e-310, -1e-200, 1e-160, 710.2, -745, -1e155, 1e200, 1.7e308];
const complexUnary: Record<string, (z: Tensor) => Tensor> = {
  ...{ abs: weft.abs, sign: weft.sign, sqrt: weft.sqrt, rsqrt: weft.rsqrt, reciprocal: weft.reciprocal, exp: weft.exp },
  ...{ log: weft.log, sin: weft.sin, cos: weft.cos, sinh: weft.sinh, cosh: weft.cosh, tanh: weft.tanh },
};

const complexEdges: Edge[] = (
  [
    ["complex64", parts],
    ["complex128", far],
  ] as [DType, number[]][]
).flatMap(([dtype, list]) => {
  const [re, im] = pairs(list);
  const numbers = re.flatMap((x, i) => [x, im[i]]);
  const shuffled = re.flatMap((_, i) => {
    const k = (i * 7919 + 13) % re.length;
    return [re[k], im[k]];
  });
  return [
    ...Object.entries(complexUnary).map(([name, fn]) => ({
      name: `${name} (${dtype})`,
      dtype,
      inputs: [host(dtype, numbers, 2)],
      fn,
      np: `precise_complex("${name}", a)`,
      ulps: 8,
    })),
    {
      name: `div (${dtype})`,
      dtype,
      inputs: [host(dtype, numbers, 2), host(dtype, shuffled, 2)],
      fn: weft.div,
      np: "precise_quotient(a, b)",
      ulps: 8,
    },
  ];
});

export const edges: readonly Edge[] = [
  ...unaryEdges,
  ...floats.flatMap((dtype) => [
    ...binaryEdges(dtype, operands, arithmetic, 0),
    ...binaryEdges(dtype, operands, { div: [weft.div, "a / b"] }, 1),
    ...binaryEdges(dtype, operands, rounded, 4),
  ]),
  ...Object.entries(integerValues).flatMap(([dtype, list]) =>
    binaryEdges(dtype as DType, list, { ...arithmetic, ...extrema, ...bitwise }, 0),
  ),
  ...wideBinary,
  ...wideOrder,
  ...orders,
  ...sums,
  ...casts,
  ...complexEdges,
];
