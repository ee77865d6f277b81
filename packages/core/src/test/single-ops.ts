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
  ordered(unary((x) => weft.mean(x, 0), "np.mean(a, 0)", float, 16)),
  ordered(unary((x) => weft.variance(x, -1), "np.var(a, -1)", float, 64)),
  ordered(unary((x) => weft.nanmean(x, -1), "np.nanmean(a, -1)", float, 16)),
  ordered(unary((x) => weft.nanvar(x, 0), "np.nanvar(a, 0)", float, 64)),
  ordered(unary((x) => weft.nanprod(x, -1), "np.nanprod(a, -1)", float, 16)),
  ordered(unary((x) => weft.cumprod(x, 0), "np.cumprod(a, 0)", signed, 16)),
  ordered(unary((x) => weft.trapezoid(x), "np.trapezoid(a)", float, 16)),
  unary((x) => weft.median(x, -1), "np.median(a, -1)", float, 4),
  unary((x) => weft.quantile(x, 0.3, 0, { method: "lower" }), "np.quantile(a, 0.3, 0, method='lower')"),
  unary((x) => weft.quantile(x, 0.7, -1, { method: "nearest" }), "np.quantile(a, 0.7, -1, method='nearest')"),
  unary((x) => weft.nanmedian(x, -1), "np.nanmedian(a, -1)", float, 4),
  unary((x) => weft.ptp(x, 0), "np.ptp(a, 0)", ["float", "uint"]),
  unary((x) => weft.sort(x, 0, { descending: true }), "np.flip(np.sort(a, 0), 0)", ["int", "uint"]),
  unary((x) => weft.topk(x, 2).values, "np.flip(np.sort(a, -1), -1)[:, :2]", ["int", "uint"]),
  unary((x) => weft.tril(x, 1), "np.tril(a, 1)", all),
  unary((x) => weft.triu(x, -1), "np.triu(a, -1)", all),
  unary((x) => weft.diagonal(x, { offset: 1 }), "np.diagonal(a, 1)", all),
  unary((x) => weft.roll(x, 2, 0), "np.roll(a, 2, 0)", all),
  unary((x) => weft.tile(x, [2, 1]), "np.tile(a, (2, 1))", all),
  unary((x) => weft.repeat(x, 2, 1), "np.repeat(a, 2, 1)", all),
  unary(
    (x) => weft.isIn(x, weft.tensor([0, 1, 3, 100]).cast(x.dtype)),
    "np.isin(a, np.array([0, 1, 3, 100], a.dtype))",
    all,
  ),
  unary(
    (x) => weft.searchsorted(weft.tensor([0, 1, 3, 100]).cast(x.dtype), x, { side: "right" }),
    "np.searchsorted(np.array([0, 1, 3, 100], a.dtype), a, 'right')",
    all,
  ),
  unary(
    (x) => weft.digitize(x, weft.tensor([0, 1, 3, 100]).cast(x.dtype)),
    "np.digitize(a, np.array([0, 1, 3, 100], a.dtype))",
    all,
  ),
  unary((x) => weft.clip(x, 1, 7), "np.clip(a, 1, 7)", all),
  unary((x) => weft.isInf(x), "np.isinf(a)"),
  unary((x) => weft.sinc(x.clip(-20, 20)), "np.sinc(np.clip(a, -20, 20))", float, 64),
  unary((x) => weft.degrees(x), "np.degrees(a)", float, 4),
  unary((x) => weft.special.i1(x.clip(-80, 80)), "special.i1(np.clip(a, -80, 80))", float, 64),
  unary((x) => weft.gammaln(x.abs().clip(2.5, 1e5)), "special.gammaln(np.clip(np.abs(a), 2.5, 1e5))", float, 64),
  unary(
    (x) => weft.special.log1mexp(x.abs()),
    "np.where(np.abs(a) > 0.5, np.log1p(-np.exp(-np.abs(a))), np.log(-np.expm1(-np.abs(a))))",
    float,
    16,
  ),
  unary((x) => weft.softmax(x.clip(-1e30, 1e30)), "special.softmax(np.clip(a, -1e30, 1e30), -1)", float, 16),
  ordered(unary((x) => weft.logSoftmax(x), "special.log_softmax(a, -1)", float, 64)),
  unary((x) => weft.lexsort([x, x.neg()]), "np.lexsort([a, -a])", ["int"]),
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
  binary(weft.logicalAnd, "np.logical_and(a, b)"),
  binary(weft.logicalXor, "np.logical_xor(a, b)"),
  binary(weft.notEqual, "a != b"),
  binary(weft.bitwiseAnd, "a & b", ["int", "uint"]),
  binary(weft.logaddexp2, "np.logaddexp2(a, b)", float, 8),
  binary(weft.special.xlog1py, "special.xlog1py(a, b)", float, 8),
  binary((a, b) => weft.arrayEqual(a, b, { equalNaN: true }), "np.array_equal(a, b, equal_nan=True)", ["float"]),
];

const dtypesOf: Record<"float" | "int" | "uint", readonly DType[]> = {
  float: ["float32", "float64"],
  int: ["int32", "int64", "int8", "int16"],
  uint: ["uint8", "uint16", "uint32"],
};

/** One call: an operation, a dtype, and operands with their shapes. Shapes broadcast, have sizes of 1 and 0, and rank 2. */
export interface OpCall {
  operation: Operation;
  /** Dtypes of the operands, which may differ. */
  dtypes: DType[];
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
export function randomCall(seed: number): OpCall {
  const dice = new Dice(seed);
  const operation = dice.pick(operations);
  const kind = dice.pick(operation.kinds);
  const dtype = dice.pick(dtypesOf[kind]);
  // The second operand may have another dtype of its kind, or the other kind of integers.
  const others = kind === "float" ? dtypesOf.float : operation.kinds.flatMap((k) => (k === "float" ? [] : dtypesOf[k]));
  const dtypes = operation.operands === 1 ? [dtype] : [dtype, dice.chance(50) ? dtype : dice.pick(others)];
  const values =
    kind === "float" && operation.ordered ? small : edges[kind].filter((x) => dtypes.every((d) => fits(x, d)));
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
  return { operation, dtypes, operands };
}

const printed = (x: number): string =>
  Object.is(x, -0) ? "-0.0" : Number.isNaN(x) ? "nan" : Math.abs(x) === Infinity ? `${x < 0 ? "-" : ""}inf` : String(x);

/** A Python program that prints the answers of NumPy and SciPy as one list. */
export const pythonOfCalls = (calls: readonly OpCall[]): string =>
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
    "    out.append([list(r.shape), str(r.dtype), [str(x) if r.dtype.kind in 'iu' else repr(float(x)) for x in flat]])",
    ...calls.flatMap(({ operation, dtypes, operands }) => [
      ...operands.map(
        ({ shape, data }, i) =>
          `${"ab"[i]} = np.array([${data.map(printed).join(",")}]).astype(np.${dtypes[i]}).reshape([${shape.join(",")}])`,
      ),
      `show(${operation.np})`,
    ]),
    "print(json.dumps(out))",
  ].join("\n");
