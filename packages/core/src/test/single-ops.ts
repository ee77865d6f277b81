// Single operations on random shapes, dtypes and edge values, as data that NumPy can run too. Every operation is one line: the
// function, the expression in NumPy, the kinds of its operands.
import type { DType, Tensor } from "../index.js";
import * as weft from "../index.js";
import { Dice } from "./dice.js";

/** Values where implementations differ: signed zeros, tails, overflow, denormal numbers, halves, infinities, NaN. */
const edges: Record<"float" | "int" | "uint", readonly number[]> = {
  float: [
    0,
    -0,
    1,
    -1,
    0.5,
    -0.5,
    1.5,
    2.5,
    -2.5,
    3,
    1e-7,
    -1e-7,
    20,
    -20,
    88,
    -104,
    1e5,
    -1e5,
    1e30,
    -1e30,
    1e-30,
    1e-40,
    Infinity,
    -Infinity,
    NaN,
  ],
  int: [0, 1, -1, 2, -2, 3, 7, -7, 100, -100, 127, -128, 2147483647, -2147483648],
  uint: [0, 1, 2, 3, 7, 100, 128, 255],
};

interface Operation {
  fn: (...operands: Tensor[]) => Tensor;
  np: string;
  /** Kinds of dtypes that the operation takes. */
  kinds: readonly ("float" | "int" | "uint")[];
  operands: 1 | 2;
  /** Multiplies the tolerance. */
  loose?: number;
  /** The result depends on the order of rounding: operands are small numbers, and the tolerance is absolute too. */
  ordered?: boolean;
}

/** Values whose sums and products hardly depend on their order. */
const small = [0, -0, 1, -1, 0.5, -0.5, 2.5, 3, Infinity, NaN];

const all = ["float", "int", "uint"] as const;
const float = ["float"] as const;
const unary = (fn: Operation["fn"], np: string, kinds: Operation["kinds"] = float, loose = 1): Operation => ({
  fn,
  np,
  kinds,
  operands: 1,
  loose,
});
const binary = (fn: Operation["fn"], np: string, kinds: Operation["kinds"] = all, loose = 1): Operation => ({
  fn,
  np,
  kinds,
  operands: 2,
  loose,
});
const ordered = (operation: Operation): Operation => ({ ...operation, ordered: true });
const signed = ["float", "int"] as const;

export const operations: readonly Operation[] = [
  unary((x) => weft.exp(x), "np.exp(a)", float, 4),
  unary((x) => weft.expm1(x), "np.expm1(a)", float, 4),
  unary((x) => weft.exp2(x), "np.exp2(a)", float, 4),
  unary((x) => weft.log(x), "np.log(a)", float, 4),
  unary((x) => weft.log1p(x), "np.log1p(a)", float, 4),
  unary((x) => weft.log2(x), "np.log2(a)", float, 8),
  unary((x) => weft.log10(x), "np.log10(a)", float, 8),
  unary((x) => weft.sqrt(x), "np.sqrt(a)"),
  unary((x) => weft.cbrt(x), "np.cbrt(a)", float, 2),
  unary((x) => weft.reciprocal(x), "1 / a"),
  unary((x) => weft.sinh(x), "np.sinh(a)", float, 8),
  unary((x) => weft.cosh(x), "np.cosh(a)", float, 8),
  unary((x) => weft.tanh(x), "np.tanh(a)", float, 4),
  unary((x) => weft.asinh(x), "np.arcsinh(a)", float, 8),
  unary((x) => weft.acosh(x), "np.arccosh(a)", float, 8),
  unary((x) => weft.atanh(x), "np.arctanh(a)", float, 8),
  unary((x) => weft.atan(x), "np.arctan(a)", float, 4),
  unary((x) => weft.asin(x), "np.arcsin(a)", float, 4),
  unary((x) => weft.acos(x), "np.arccos(a)", float, 4),
  unary((x) => weft.floor(x), "np.floor(a)"),
  unary((x) => weft.ceil(x), "np.ceil(a)"),
  unary((x) => weft.trunc(x), "np.trunc(a)"),
  unary((x) => weft.round(x), "np.round(a)"),
  unary((x) => weft.sign(x), "np.sign(a)", all),
  unary((x) => weft.abs(x), "np.abs(a)", all),
  unary((x) => weft.neg(x), "-a", signed),
  unary((x) => weft.square(x), "a * a", all),
  unary((x) => weft.signbit(x), "np.signbit(a)"),
  unary((x) => weft.isFinite(x), "np.isfinite(a)"),
  unary((x) => weft.nanToNum(x, { posinf: 9, neginf: -9 }), "np.nan_to_num(a, posinf=9, neginf=-9)"),
  unary((x) => weft.modf(x).fraction, "np.modf(a)[0]"),
  unary((x) => weft.sigmoid(x), "special.expit(a)", float, 4),
  unary((x) => weft.erf(x), "special.erf(a)", float, 4),
  unary((x) => weft.special.entr(x), "special.entr(a)", float, 4),
  unary((x) => weft.special.ndtr(x), "special.ndtr(a)", float, 32),
  unary((x) => weft.special.logNdtr(x), "special.log_ndtr(a)", float, 64),
  ordered(unary((x) => weft.sum(x, -1), "np.sum(a, -1, dtype=a.dtype if a.dtype.kind == 'f' else None)", all, 16)),
  ordered(unary((x) => weft.prod(x, -1), "np.prod(a, -1)", signed, 16)),
  unary((x) => weft.max(x, -1), "np.max(a, -1)", all),
  unary((x) => weft.min(x, 0), "np.min(a, 0)", all),
  unary((x) => weft.argmax(x, -1), "np.argmax(a, -1)", all),
  unary((x) => weft.argmin(x, 0), "np.argmin(a, 0)", all),
  unary((x) => weft.sort(x, -1), "np.sort(a, -1)", all),
  unary((x) => weft.argsort(x, 0), "np.argsort(a, 0, kind='stable')", all),
  ordered(unary((x) => weft.cumsum(x, -1), "np.cumsum(a, -1)", all, 16)),
  unary((x) => weft.nanmax(x, -1), "np.fmax.reduce(a, -1)"),
  unary((x) => weft.nanmin(x, -1), "np.fmin.reduce(a, -1)"),
  ordered(unary((x) => weft.nansum(x, -1), "np.nansum(a, -1)", float, 16)),
  ordered(unary((x) => weft.logsumexp(x, -1), "np.logaddexp.reduce(a, -1)", float, 16)),
  unary((x) => weft.diff(x, -1), "np.diff(a)", all),
  unary((x) => weft.flip(x), "np.flip(a)", all),
  unary((x) => weft.rot90(x), "np.rot90(a)", all),
  unary(
    (x) =>
      weft.pad(
        x,
        [
          [1, 2],
          [2, 1],
        ],
        { mode: "reflect" },
      ),
    "np.pad(a, [(1, 2), (2, 1)], 'reflect')",
    all,
  ),
  unary((x) => weft.any(x, 0), "np.any(a, 0)", all),
  unary((x) => weft.all(x, -1), "np.all(a, -1)", all),
  unary((x) => weft.countNonzero(x, -1), "np.count_nonzero(a, -1)", all),
  binary(weft.add, "a + b"),
  binary(weft.sub, "a - b"),
  binary(weft.mul, "a * b"),
  binary(weft.div, "a / b", float),
  binary(weft.floorDivide, "np.floor_divide(a, b)", all),
  binary(weft.mod, "np.mod(a, b)", all),
  binary(weft.fmod, "np.fmod(a, b)", all),
  binary(weft.pow, "np.power(a, b)", float, 8),
  binary(weft.maximum, "np.maximum(a, b)"),
  binary(weft.minimum, "np.minimum(a, b)"),
  binary(weft.fmax, "np.fmax(a, b)"),
  binary(weft.fmin, "np.fmin(a, b)"),
  binary(weft.atan2, "np.arctan2(a, b)", float, 4),
  binary(weft.hypot, "np.hypot(a, b)", float, 4),
  binary(weft.copysign, "np.copysign(a, b)", float),
  binary(weft.logaddexp, "np.logaddexp(a, b)", float, 8),
  binary(weft.heaviside, "np.heaviside(a, b)", float),
  binary(weft.nextafter, "np.nextafter(a, b)", float),
  binary(weft.equal, "a == b"),
  binary(weft.less, "a < b"),
  binary(weft.lessEqual, "a <= b"),
  binary(weft.bitwiseXor, "a ^ b", ["int", "uint"]),
  binary(weft.leftShift, "np.left_shift(a, b)", ["uint"]),
  binary(weft.rightShift, "np.right_shift(a, b)", ["uint"]),
  binary(weft.special.xlogy, "special.xlogy(a, b)", float, 4),
  binary((a, b) => weft.isClose(a, b, { equalNaN: true }), "np.isclose(a, b, equal_nan=True)"),
  binary((a, b) => weft.where(a.greater(b), a, b), "np.where(a > b, a, b)"),
];

const dtypesOf: Record<"float" | "int" | "uint", readonly DType[]> = {
  float: ["float32", "float64"],
  int: ["int32", "int64", "int8"],
  uint: ["uint8", "uint16"],
};

/** One call: an operation, a dtype, and operands with their shapes. Shapes broadcast, have sizes of 1 and 0, and rank 2. */
export interface Call {
  operation: Operation;
  dtype: DType;
  operands: { shape: number[]; data: number[] }[];
}

/** Whether a whole number is in the range of a dtype. */
function fits(value: number, dtype: DType): boolean {
  if (dtype.startsWith("float")) return true;
  const bits = Number(dtype.replace(/\D/g, ""));
  return dtype.startsWith("u")
    ? value >= 0 && value < 2 ** bits
    : value >= -(2 ** (bits - 1)) && value < 2 ** (bits - 1);
}

/** Random call number `seed`. Reductions of no elements differ between libraries, so that only operations of two operands get them. */
export function randomCall(seed: number): Call {
  const dice = new Dice(seed);
  const operation = dice.pick(operations);
  const kind = dice.pick(operation.kinds);
  const dtype = dice.pick(dtypesOf[kind]);
  const values = kind === "float" && operation.ordered ? small : edges[kind].filter((x) => fits(x, dtype));
  const [rows, columns] = [3 + dice.below(3), dice.pick([3, 4, 5, 17])];
  const shapes =
    operation.operands === 1
      ? [[rows, columns]]
      : dice.pick([
          [
            [rows, columns],
            [rows, columns],
          ],
          [[rows, columns], [columns]],
          [
            [rows, 1],
            [1, columns],
          ],
          [[rows, columns], []],
          [[0, columns], [1]],
        ]);
  const draw = (): number =>
    dice.chance(70) ? dice.pick(values) : kind === "float" ? dice.below(2000) / 100 - 10 : dice.below(20);
  const operands = shapes.map((shape) => ({
    shape,
    data: Array.from({ length: shape.reduce((n, d) => n * d, 1) }, draw),
  }));
  return { operation, dtype, operands };
}

const printed = (x: number): string =>
  Object.is(x, -0) ? "-0.0" : Number.isNaN(x) ? "nan" : Math.abs(x) === Infinity ? `${x < 0 ? "-" : ""}inf` : String(x);

/** A Python program that prints the answers of NumPy and SciPy as one list. */
export const pythonOfCalls = (calls: readonly Call[]): string =>
  [
    "import json, warnings, numpy as np",
    "from scipy import special",
    "warnings.simplefilter('ignore')",
    "np.seterr(all='ignore')",
    "inf, nan = np.inf, np.nan",
    "out = []",
    "def show(r):",
    "    r = np.asarray(r)",
    "    flat = r.astype(np.float64).reshape(-1) if r.dtype.kind == 'f' else r.reshape(-1)",
    "    out.append([list(r.shape), [str(x) if r.dtype.kind in 'iu' else repr(float(x)) for x in flat]])",
    ...calls.flatMap(({ operation, dtype, operands }) => [
      ...operands.map(
        ({ shape, data }, i) =>
          `${"ab"[i]} = np.array([${data.map(printed).join(",")}]).astype(np.${dtype}).reshape([${shape.join(",")}])`,
      ),
      `show(${operation.np})`,
    ]),
    "print(json.dumps(out))",
  ].join("\n");
