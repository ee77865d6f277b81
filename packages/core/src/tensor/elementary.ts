// Element-wise functions of NumPy beyond the Array API standard: other roots and powers, remainders, angles, comparison within a
// tolerance. All are composed of ops, so that gradients and vmap come with them.
import { checkOptions, DTypeError, isComplex, isInexact, sameShape, toInexact, WeftError } from "../graph/index.js";
import { checkArguments, commonDType, nodeAs, nodeOf, type TensorLike, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { customVjp } from "./custom.js";
import { copysign, isInf, logaddexp } from "./elementwise.js";
import {
  abs,
  cast,
  complex,
  equal,
  exp,
  greaterEqual,
  isFinite,
  isNaN,
  less,
  lessEqual,
  logicalAnd,
  logicalOr,
  mod,
  mul,
  notEqual,
  pow,
  sin,
  square,
  sub,
  trunc,
  where,
} from "./math.js";
import { all, stopGradient } from "./reduce.js";
import { broadcastTensors } from "./shape.js";
import { inDouble } from "./special.js";
import type { Tensor } from "./tensor.js";

/** The operand as a tensor of a real floating-point dtype. */
function realFloat(op: string, x: TensorLike): Tensor {
  const node = nodeOf(op, x);
  if (isComplex(node.dtype)) throw new DTypeError(`${op}: not defined for ${node.dtype}`);
  return cast(wrap(node), toInexact(node.dtype));
}

/** Elementwise 2^x. */
export const exp2 = (x: TensorLike): Tensor => {
  const node = nodeOf("exp2", x);
  const exponent = cast(wrap(node), toInexact(node.dtype));
  if (!isComplex(node.dtype)) return pow(2, exponent);
  // Part by part: a complex product would turn infinite parts into NaN. In double precision: the rounded product is an argument
  // of exp, whose relative error grows with its size.
  const [re, im] = [exponent.real(), exponent.imag()].map((part) => cast(part, "float64").mul(Math.LN2));
  return cast(exp(complex(re, im)), node.dtype);
};

/** Elementwise a + weight (b - a), with broadcasting: a at weight 0, b at weight 1. */
export function lerp(a: TensorLike, b: TensorLike, weight: TensorLike): Tensor {
  const dtype = toInexact(commonDType("lerp", [a, b, weight]));
  const [x, y, w] = [a, b, weight].map((t) => cast(t, dtype));
  const span = y.sub(x);
  if (isComplex(dtype)) return x.add(w.mul(span));
  // From the nearer end, so that both ends are met exactly.
  return where(less(w, 0.5), x.add(w.mul(span)), y.sub(span.mul(w.neg().add(1))));
}

/** Elementwise log2(2^a + 2^b) without overflow, with broadcasting. */
export function logaddexp2(a: TensorLike, b: TensorLike): Tensor {
  // In the dtype of the result: products in a narrower one lose digits.
  const dtype = toInexact(commonDType("logaddexp2", [a, b]));
  const [x, y] = [a, b].map((operand) => cast(operand, dtype).mul(Math.LN2));
  return logaddexp(x, y).mul(Math.LOG2E);
}

/** The power with one step of Newton's method; zeros and infinities are their own roots. */
function realCbrt(x: Tensor): Tensor {
  const ordinary = logicalAnd(isFinite(x), notEqual(x, 0));
  const safe = where(ordinary, x, 1);
  const y = copysign(pow(abs(safe), 1 / 3), safe);
  const better = y.sub(y.sub(safe.div(y.mul(y))).div(3));
  return where(ordinary, better, x);
}

/** Elementwise real cube root, also of negative numbers. The derivative at 0 is infinite. */
export const cbrt = inDouble(
  "cbrt",
  customVjp(realCbrt, (_args: [Tensor], y, g) => [g.mul(square(y.reciprocal())).div(3)]),
);

/** Coefficients of (pi x)^2, (pi x)^4, ... in the series of sinc. */
const sincSeries = [-1 / 6, 1 / 120, -1 / 5040, 1 / 362880, -1 / 39916800];

/** Elementwise sin(pi x) / (pi x), which is 1 at 0. */
export function sinc(x: TensorLike): Tensor {
  const node = nodeOf("sinc", x);
  const p = mul(cast(wrap(node), toInexact(node.dtype)), Math.PI);
  // The quotient has no second derivative at 0; the series, which is exact to rounding there, has.
  const isSmall = less(abs(p), 0.25);
  const [near, far] = [where(isSmall, p, 0), where(isSmall, 1, p)];
  const squared = square(near);
  const series = sincSeries.reduceRight<Tensor>((sum, c) => sum.add(c).mul(squared), squared.mul(0)).add(1);
  return where(isSmall, series, sin(far).div(far));
}

/** Elementwise step function: 0 below 0, `atZero` at 0, 1 above, NaN for NaN; with broadcasting. */
export function heaviside(x: TensorLike, atZero: TensorLike): Tensor {
  const dtype = toInexact(commonDType("heaviside", [x, atZero]));
  const [t, middle] = [x, atZero].map((operand) => cast(operand, dtype));
  const step = where(less(t, 0), 0, where(equal(t, 0), middle, 1));
  return where(isNaN(t), t, step);
}

/** Elementwise remainder with the sign of the dividend, as % in C and JavaScript, with broadcasting. Integers modulo 0 give 0. */
export function fmod(a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("fmod", [a, b]);
  if (isComplex(dtype)) throw new DTypeError(`fmod: not defined for ${dtype}; take real(x), imag(x) or abs(x) first`);
  const [x, y] = [a, b].map((operand) => wrap(nodeAs("fmod", operand, dtype === "bool" ? "int32" : dtype)));
  if (isInexact(dtype)) {
    // Multiplied by its sign, and not abs(x): the derivative at 0 is 1 too.
    const sign = stopGradient(copysign(1, x));
    return mul(mod(mul(x, sign), abs(y)), sign);
  }
  const r = mod(x, y);
  const turned = logicalAnd(notEqual(r, 0), notEqual(less(r, 0), less(x, 0)));
  return where(turned, sub(r, y), r);
}

const ignoringNaN =
  (isBetter: (a: TensorLike, b: TensorLike) => Tensor) =>
  (a: TensorLike, b: TensorLike): Tensor =>
    where(logicalOr(isBetter(a, b), isNaN(b)), a, b);

/** Elementwise maximum, with broadcasting. Where one operand is NaN, the other one. */
export const fmax = ignoringNaN(greaterEqual);
/** Elementwise minimum, with broadcasting. Where one operand is NaN, the other one. */
export const fmin = ignoringNaN(lessEqual);

/** Whole and fractional parts of numbers; both have the sign of the number. */
export interface Parts {
  /** What is left, between -1 and 1. */
  fraction: Tensor;
  /** The number rounded toward zero. */
  whole: Tensor;
}

/** Elementwise fractional and whole parts, both with the sign of the number. */
export function modf(x: TensorLike): Parts {
  const t = realFloat("modf", x);
  const whole = trunc(t);
  return { fraction: copysign(where(isInf(t), 0, sub(t, whole)), t), whole };
}

/** Elementwise conversion from degrees to radians. */
export const radians = (x: TensorLike): Tensor => mul(realFloat("radians", x), Math.PI / 180);
/** Elementwise conversion from radians to degrees. */
export const degrees = (x: TensorLike): Tensor => mul(realFloat("degrees", x), 180 / Math.PI);

/** Elementwise test for positive infinity. */
export const isPosInf = (x: TensorLike): Tensor => equal(realFloat("isPosInf", x), Number.POSITIVE_INFINITY);
/** Elementwise test for negative infinity. */
export const isNegInf = (x: TensorLike): Tensor => equal(realFloat("isNegInf", x), Number.NEGATIVE_INFINITY);

/** Tolerances of {@link isClose} and {@link allClose}. @inline */
interface Tolerances {
  /** Relative to the second operand; 1e-5 by default. */
  rtol?: number;
  /** Absolute; 1e-8 by default. */
  atol?: number;
  /** Whether NaN is close to NaN; false by default. */
  equalNaN?: boolean;
}

/** Elementwise test |a - b| <= atol + rtol |b|, with broadcasting. Infinities are close if they are equal. */
export function isClose(a: TensorLike, b: TensorLike, options: Tolerances = {}): Tensor {
  const known = ["rtol", "atol", "equalNaN"] as const;
  const { rtol = 1e-5, atol = 1e-8, equalNaN = false } = checkOptions("isClose", options, known);
  const dtype = commonDType("isClose", [a, b]);
  // Integers that differ a little do so exactly in float64 up to 2^53.
  const inner = isInexact(dtype) ? dtype : "float64";
  const [x, y] = [a, b].map((operand) => cast(operand, inner));
  const finite = logicalAnd(isFinite(x), isFinite(y));
  const near = lessEqual(abs(sub(x, y)), abs(y).mul(rtol).add(atol));
  const close = where(finite, near, equal(x, y));
  return equalNaN ? logicalOr(close, logicalAnd(isNaN(x), isNaN(y))) : close;
}

/** Whether all elements of two tensors are close, a bool scalar; see {@link isClose}. */
export const allClose = (a: TensorLike, b: TensorLike, options: Tolerances = {}): Tensor => all(isClose(a, b, options));

/** Whether two tensors have one shape and equal elements, a bool scalar. */
export function arrayEqual(a: TensorLike, b: TensorLike, options: { equalNaN?: boolean } = {}): Tensor {
  const { equalNaN = false } = checkOptions("arrayEqual", options, ["equalNaN"]);
  const [x, y] = [wrap(nodeOf("arrayEqual", a)), wrap(nodeOf("arrayEqual", b))];
  if (!sameShape(x.shape, y.shape)) return tensor(false);
  const same = equal(x, y);
  return all(equalNaN ? logicalOr(same, logicalAnd(isNaN(x), isNaN(y))) : same);
}

/**
 * The first choice whose condition holds, element by element; `otherwise` where none does. All operands broadcast.
 *
 * @example
 * ```ts
 * import { select, tensor } from "@weft/core";
 *
 * const x = tensor([1, 2, 3, 4]);
 * console.log(await select([x.less(2), x.greater(3)], [x, x.mul(10)], -1).array()); // [1, -1, -1, 40]
 * ```
 */
export function select(
  conditions: readonly TensorLike[],
  choices: readonly TensorLike[],
  otherwise: TensorLike = 0,
): Tensor {
  checkArguments("select", "array", { conditions, choices });
  if (conditions.length !== choices.length || conditions.length === 0)
    throw new WeftError(
      `select: needs as many choices as conditions, one at least, got ${conditions.length} conditions and ${choices.length} choices`,
    );
  const dtype = commonDType("select", [...choices, otherwise]);
  const values = broadcastTensors(...[...choices, otherwise].map((x) => wrap(nodeAs("select", x, dtype))));
  const last = values.pop()!;
  return conditions.reduceRight<Tensor>((result, condition, i) => where(condition, values[i], result), last);
}
