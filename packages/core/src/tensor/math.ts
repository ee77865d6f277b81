// Element-wise functions over tensors and numbers, with NumPy's names and broadcasting.
import {
  type BinaryFn,
  complexOf,
  type DType,
  DTypeError,
  isComplex,
  isHalf,
  isInexact,
  isUnsigned,
  kindOf,
  type Node,
  promote,
  realOf,
  toInexact,
  type UnaryFn,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkDType } from "./checks.js";
import {
  align,
  binaryOp,
  broadcastAll,
  commonDType,
  inexactNode,
  nodeAs,
  nodeOf,
  type TensorLike,
  wrap,
} from "./convert.js";
import { Tensor } from "./tensor.js";

/** A floating-point function: integers are converted to float32. */
const inexact =
  (name: string, fn: UnaryFn, complex = true) =>
  (x: TensorLike): Tensor => {
    const node = inexactNode(name, x);
    if (!complex && isComplex(node.dtype)) throw new DTypeError(`${name}: not defined for ${node.dtype}`);
    return wrap(build.unary(fn, node));
  };

/** A function that preserves the dtype. */
const keeping =
  (name: string, fn: UnaryFn) =>
  (x: TensorLike): Tensor =>
    wrap(build.unary(fn, nodeOf(name, x)));

/** A rounding function: identity on integers. */
const rounding =
  (name: string, fn: UnaryFn) =>
  (x: TensorLike): Tensor => {
    const node = nodeOf(name, x);
    if (isComplex(node.dtype)) throw new DTypeError(`${name}: not defined for ${node.dtype}`);
    return wrap(kindOf(node.dtype) === "float" ? build.unary(fn, node) : node);
  };

/** Elementwise negation. */
export function neg(x: TensorLike): Tensor {
  const node = nodeOf("neg", x);
  if (node.dtype === "bool") throw new DTypeError("neg: not defined for bool; use logicalNot, or cast to int32");
  return wrap(build.unary("neg", node));
}
/** Elementwise sign. */
export const sign = keeping("sign", "sign");
/** Elementwise floor. */
export const floor = rounding("floor", "floor");
/** Elementwise ceiling. */
export const ceil = rounding("ceil", "ceil");
const roundToWhole = rounding("round", "round");
/** Elementwise truncation toward zero. */
export const trunc = rounding("trunc", "trunc");
/** Elementwise square root. */
export const sqrt = inexact("sqrt", "sqrt");
/** Elementwise reciprocal square root. */
export const rsqrt = inexact("rsqrt", "rsqrt");
/** Elementwise reciprocal. */
export const reciprocal = inexact("reciprocal", "reciprocal");
/** Elementwise exponential. */
export const exp = inexact("exp", "exp");
/** Elementwise exp(x) - 1, accurate near 0. */
export const expm1 = inexact("expm1", "expm1");
/** Elementwise natural logarithm. */
export const log = inexact("log", "log");
/** Elementwise log(1 + x), accurate near 0. */
export const log1p = inexact("log1p", "log1p");
/** Elementwise sine. */
export const sin = inexact("sin", "sin");
/** Elementwise cosine. */
export const cos = inexact("cos", "cos");
/** Elementwise tangent. */
export const tan = inexact("tan", "tan");
/** Elementwise inverse sine. */
export const asin = inexact("asin", "asin");
/** Elementwise inverse cosine. */
export const acos = inexact("acos", "acos");
/** Elementwise inverse tangent. */
export const atan = inexact("atan", "atan");
/** Elementwise hyperbolic sine. */
export const sinh = inexact("sinh", "sinh");
/** Elementwise hyperbolic cosine. */
export const cosh = inexact("cosh", "cosh");
/** Elementwise hyperbolic tangent. */
export const tanh = inexact("tanh", "tanh");
/** Elementwise inverse hyperbolic sine. */
export const asinh = inexact("asinh", "asinh");
/** Elementwise inverse hyperbolic cosine. */
export const acosh = inexact("acosh", "acosh");
/** Elementwise inverse hyperbolic tangent. */
export const atanh = inexact("atanh", "atanh");
/** Elementwise error function. */
export const erf = inexact("erf", "erf", false);
/** Elementwise complementary error function 1 - erf(x), accurate where erf is close to 1. */
export const erfc = inexact("erfc", "erfc", false);

/** Elementwise absolute value, the modulus of complex numbers. */
export const abs = keeping("abs", "abs");
/** Elementwise square. */
export const square = (x: TensorLike): Tensor => mul(x, x);
/** Elementwise base-2 logarithm, exact for powers of 2. */
export const log2 = (x: TensorLike): Tensor => logarithm("log2", x, 2);
/** Elementwise base-10 logarithm, exact for powers of 10. */
export const log10 = (x: TensorLike): Tensor => logarithm("log10", x, 10);

/**
 * Logarithm with a whole base. log(x) / log(base) misses whole numbers by a rounding error, which floor turns into 1: the nearest
 * whole number n is taken out, and the rest is log(x / base^n).
 */
function logarithm(op: string, x: TensorLike, base: number): Tensor {
  const node = inexactNode(op, x);
  if (isHalf(node.dtype)) return cast(logarithm(op, cast(wrap(node), "float32"), base), node.dtype);
  const t = wrap(node);
  const natural = log(t);
  // Part by part: -Infinity times 0 would be NaN in the logarithm of 0.
  if (isComplex(node.dtype)) return complex(div(real(natural), Math.log(base)), div(imag(natural), Math.log(base)));
  const plain = div(natural, Math.log(base));
  const whole = roundToWhole(plain);
  // Powers beyond are not normal numbers; NaN and numbers without a logarithm are not within either.
  const isNear = less(abs(whole), (node.dtype === "float64" ? 307.5 : 37.5) / Math.log10(base));
  const exponent = where(isNear, whole, 0);
  const power = pow(cast(base, node.dtype), exponent);
  const rest = log1p(div(sub(where(isNear, t, 1), power), power));
  return where(isNear, add(exponent, div(rest, Math.log(base))), plain);
}

/** Elementwise test for NaN. */
export const isNaN = (x: TensorLike): Tensor => floatTest("isNaN", "isnan", x, 0);
/** Elementwise test for finite numbers. */
export const isFinite = (x: TensorLike): Tensor => floatTest("isFinite", "isfinite", x, 1);

function floatTest(name: string, fn: UnaryFn, x: TensorLike, whole: number): Tensor {
  const node = nodeOf(name, x);
  if (isComplex(node.dtype)) {
    const [re, im] = [build.unary("real", node), build.unary("imag", node)].map((part) => build.unary(fn, part));
    return wrap(build.binary(fn === "isnan" ? "or" : "and", re, im));
  }
  return wrap(kindOf(node.dtype) === "float" ? build.unary(fn, node) : build.full(node.shape, whole, "bool"));
}

// Complex numbers

/** Elementwise real part. */
export const real = (x: TensorLike): Tensor => wrap(build.real(nodeOf("real", x)));
/** Elementwise imaginary part. */
export function imag(x: TensorLike): Tensor {
  const node = nodeOf("imag", x);
  return wrap(isComplex(node.dtype) ? build.unary("imag", node) : build.zerosLike(node));
}
/** Elementwise complex conjugate. */
export const conj = (x: TensorLike): Tensor => wrap(build.conj(nodeOf("conj", x)));
/** Elementwise phase in (-pi, pi]. */
export function angle(x: TensorLike): Tensor {
  const node = inexactNode("angle", x);
  if (isComplex(node.dtype)) return wrap(build.binary("atan2", build.imag(node), build.real(node)));
  return wrap(build.binary("atan2", build.zerosLike(node), node));
}
/** Complex tensor from its real and imaginary parts. */
export function complex(re: TensorLike, im: TensorLike): Tensor {
  const common = commonDType("complex", [re, im]);
  if (isComplex(common))
    throw new DTypeError("complex: takes two real tensors; a part is complex already, use real(x)");
  const dtype = realOf(complexOf(toInexact(common)));
  return binaryOp("complex", "complex", re, im, dtype);
}

// Arithmetic

const arithmetic =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    // bool + bool gives an integer.
    return binaryOp(name, fn, a, b, dtype === "bool" ? "int32" : dtype);
  };

/** Elementwise sum, with broadcasting. */
export const add = arithmetic("add", "add");
/** Elementwise difference, with broadcasting. */
export const sub = arithmetic("sub", "sub");
/** Elementwise product, with broadcasting. */
export const mul = arithmetic("mul", "mul");

/** Elementwise true division, with broadcasting. Integers give float32. */
export const div = (a: TensorLike, b: TensorLike): Tensor =>
  binaryOp("div", "div", a, b, toInexact(commonDType("div", [a, b])));

const realOnly =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isComplex(dtype)) throw new DTypeError(`${name}: not defined for ${dtype}`);
    return binaryOp(name, fn, a, b, dtype === "bool" && (fn === "mod" || fn === "floordiv") ? "int32" : dtype);
  };

/** Elementwise remainder with the sign of the divisor, with broadcasting. Integers modulo 0 give 0. */
export const mod = realOnly("mod", "mod");
/** Elementwise maximum, with broadcasting. NaN propagates, and 0 is above -0. */
export const maximum = realOnly("maximum", "max");
/** Elementwise minimum, with broadcasting. NaN propagates, and -0 is below 0. */
export const minimum = realOnly("minimum", "min");

/**
 * Elementwise quotient rounded down, as // in Python: a = floorDivide(a, b) * b + mod(a, b) up to rounding. An integer divided
 * by 0 gives 0, a float gives a / b; the lowest integer divided by -1 wraps to itself.
 */
export const floorDivide = realOnly("floorDivide", "floordiv");

/**
 * Elementwise power, with broadcasting. Integers wrap. A negative number as the exponent of integers is refused; negative elements
 * of an integer tensor give the truncated quotient, which is 0 but for bases 1 and -1. Complex powers are exp(b log a), except for
 * integer exponents and base 0, as in NumPy.
 */
export function pow(a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("pow", [a, b]);
  if (!isInexact(dtype) && (typeof b === "number" || typeof b === "bigint") && b < 0)
    throw new DTypeError(`pow: ${dtype} to the power ${b} is not an integer; cast the base to float32 first`);
  if (!isComplex(dtype)) return binaryOp("pow", "pow", a, b, kindOf(dtype) === "bool" ? "int32" : dtype);
  if (typeof b === "number" && Number.isInteger(b) && Math.abs(b) <= 16) return integerPower(a, b, dtype);
  return binaryOp("pow", "pow", a, b, dtype);
}

function integerPower(a: TensorLike, exponent: number, dtype: DType): Tensor {
  // Invert first, because the power may overflow.
  const given = nodeAs("pow", a, dtype);
  const base = exponent < 0 ? build.unary("reciprocal", given) : given;
  let result: Node | null = null;
  let square = base;
  for (let n = Math.abs(exponent); n > 0; n >>= 1) {
    if (n & 1) result = result === null ? square : build.mul(result, square);
    if (n > 1) square = build.mul(square, square);
  }
  return wrap(result ?? build.fullLike(base, 1));
}

/** Elementwise angle of the point (x, y) in (-pi, pi], with broadcasting. */
export function atan2(y: TensorLike, x: TensorLike): Tensor {
  const dtype = toInexact(commonDType("atan2", [y, x]));
  if (isComplex(dtype))
    throw new DTypeError("atan2: not defined for complex tensors; angle(z) gives the angle of complex numbers");
  return binaryOp("atan2", "atan2", y, x, dtype);
}

// Comparisons

const isSigned = (dtype: DType): boolean => kindOf(dtype) === "int" && !isUnsigned(dtype);

/**
 * Compares a signed integer with uint64 exactly; their common dtype, float64, has too few digits. Null for other operands. Below 0
 * the signed operand is less than every number of the other side; otherwise both fit into uint64.
 */
function compareMixed(name: string, fn: BinaryFn, a: TensorLike, b: TensorLike): Tensor | null {
  if (!(a instanceof Tensor && b instanceof Tensor)) return null;
  const signed = isSigned(a.dtype) ? a : b;
  if (!isSigned(signed.dtype) || (signed === a ? b : a).dtype !== "uint64") return null;
  const [x, y, below] = align(name, [cast(a, "uint64"), cast(b, "uint64"), cast(less(signed, 0), "uint64")], "uint64");
  const negative = build.cast(below, "bool");
  const compared = build.binary(fn, x, y);
  const holdsBelow = fn === "ne" || (fn !== "eq" && signed === a);
  return wrap(
    holdsBelow ? build.binary("or", negative, compared) : build.binary("and", build.unary("not", negative), compared),
  );
}

const compare = (name: string, fn: BinaryFn, a: TensorLike, b: TensorLike): Tensor =>
  compareMixed(name, fn, a, b) ?? binaryOp(name, fn, a, b);

const ordering =
  (name: string, fn: BinaryFn, swap: boolean) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isComplex(dtype)) throw new DTypeError(`${name}: complex numbers have no order; compare abs(x) or real(x)`);
    return swap ? compare(name, fn, b, a) : compare(name, fn, a, b);
  };

/** Elementwise test a = b, with broadcasting. */
export const equal = (a: TensorLike, b: TensorLike): Tensor => compare("equal", "eq", a, b);
/** Elementwise test a != b, with broadcasting. */
export const notEqual = (a: TensorLike, b: TensorLike): Tensor => compare("notEqual", "ne", a, b);
/** Elementwise test a < b, with broadcasting. */
export const less = ordering("less", "lt", false);
/** Elementwise test a <= b, with broadcasting. */
export const lessEqual = ordering("lessEqual", "le", false);
/** Elementwise test a > b, with broadcasting. */
export const greater = ordering("greater", "lt", true);
/** Elementwise test a >= b, with broadcasting. */
export const greaterEqual = ordering("greaterEqual", "le", true);

// Logical functions (nonzero is true) and bitwise functions of integers.

const logical =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor =>
    binaryOp(name, fn, a, b, "bool");

/** Elementwise logical AND, with broadcasting. */
export const logicalAnd = logical("logicalAnd", "and");
/** Elementwise logical OR, with broadcasting. */
export const logicalOr = logical("logicalOr", "or");
/** Elementwise logical XOR, with broadcasting. */
export const logicalXor = logical("logicalXor", "xor");

const bitwise =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isInexact(dtype))
      throw new DTypeError(`${name}: needs integers or bool, got ${dtype}; use ${name.replace("bitwise", "logical")}`);
    return binaryOp(name, fn, a, b, dtype);
  };

/** Elementwise bitwise AND of integers, with broadcasting. */
export const bitwiseAnd = bitwise("bitwiseAnd", "and");
/** Elementwise bitwise OR of integers, with broadcasting. */
export const bitwiseOr = bitwise("bitwiseOr", "or");
/** Elementwise bitwise XOR of integers, with broadcasting. */
export const bitwiseXor = bitwise("bitwiseXor", "xor");
/** Elementwise logical NOT. */
export const logicalNot = (x: TensorLike): Tensor => wrap(build.unary("not", nodeAs("logicalNot", x, "bool")));

/**
 * Selects `a` where the condition holds and `b` elsewhere; the three operands broadcast.
 *
 * @example
 * ```ts
 * import { tensor, where } from "@weft/core";
 *
 * const x = tensor([-1, 2, -3]);
 * console.log(await where(x.less(0), 0, x).array()); // [0, 2, 0]
 * ```
 */
export function where(condition: TensorLike, a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("where", [a, b]);
  const values = [nodeAs("where", a, dtype), nodeAs("where", b, dtype)];
  const test = nodeAs("where", condition, "bool");
  const shape = broadcastAll("where", [test.shape, values[0].shape, values[1].shape]);
  const [c, x, y] = [test, ...values].map((node) => build.expandTo(node, shape));
  return wrap(build.where(c, x, y));
}

/**
 * Elementwise rounding to a number of decimals, by default 0: to the nearest multiple of 10^-decimals, halves to the even one.
 * Integers change only with negative decimals; complex numbers are rounded part by part.
 */
export function round(x: TensorLike, decimals = 0): Tensor {
  if (!Number.isInteger(decimals)) throw new WeftError(`round: decimals is a whole number, got ${decimals}`);
  const t = wrap(nodeOf("round", x));
  if (isComplex(t.dtype)) return complex(round(real(t), decimals), round(imag(t), decimals));
  if (decimals === 0) return roundToWhole(t);
  const scale = 10 ** Math.abs(decimals);
  if (kindOf(t.dtype) === "float") {
    const scaled = decimals > 0 ? mul(t, scale) : div(t, scale);
    const rounded = roundToWhole(scaled);
    const result = decimals > 0 ? div(rounded, scale) : mul(rounded, scale);
    // Numbers so large that the scaled one overflows have no decimals.
    return where(isFinite(scaled), result, t);
  }
  if (decimals > 0 || t.dtype === "bool") return t;
  const step = wrap(nodeAs("round", scale, t.dtype));
  const low = floorDivide(t, step);
  const rest = sub(t, mul(low, step));
  const half = scale / 2;
  const isOdd = notEqual(mod(low, 2), 0);
  const up = logicalOr(less(half, rest), logicalAnd(equal(rest, half), isOdd));
  return cast(mul(where(up, add(low, 1), low), step), t.dtype);
}

/** Limits values to [low, high]. Either bound may be null. */
export function clip(x: TensorLike, low: TensorLike | null, high: TensorLike | null): Tensor {
  let result = wrap(nodeOf("clip", x));
  if (low !== null) result = maximum(result, low);
  if (high !== null) result = minimum(result, high);
  return result;
}

/** Converts to another dtype. Complex to real keeps the real part, float to integer truncates. */
export function cast(x: TensorLike, dtype: DType): Tensor {
  checkDType("cast", dtype);
  return wrap(nodeAs("cast", x, dtype));
}

/** The dtype to which these operands and dtypes are promoted. */
export function resultType(...operands: (TensorLike | DType)[]): DType {
  const isName = (x: TensorLike | DType): x is DType => typeof x === "string";
  if (operands.length === 0) throw new WeftError("resultType: needs one tensor or dtype at least");
  for (const name of operands.filter(isName)) checkDType("resultType", name);
  return commonDType(
    "resultType",
    operands.map((x) => (isName(x) ? new Tensor(build.constant(0, x)) : x)),
  );
}
/** The dtype to which two dtypes are promoted. */
export function promoteTypes(a: DType, b: DType): DType {
  for (const dtype of [a, b]) checkDType("promoteTypes", dtype);
  return promote(a, b);
}
