// Element-wise functions over tensors and numbers, with NumPy's names and broadcasting.
import {
  type BinaryFn,
  complexOf,
  type DType,
  DTypeError,
  isComplex,
  isInexact,
  kindOf,
  type Node,
  promote,
  realOf,
  toInexact,
  type UnaryFn,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { binaryOp, broadcastAll, commonDType, inexactNode, nodeAs, nodeOf, type TensorLike, wrap } from "./convert.js";
import { checkDType } from "./create.js";
import type { Tensor } from "./tensor.js";

/** A function whose result is a fraction: integers become float32 first. */
const inexact =
  (name: string, fn: UnaryFn, complex = true) =>
  (x: TensorLike): Tensor => {
    const node = inexactNode(name, x);
    if (!complex && isComplex(node.dtype)) throw new DTypeError(`${name}: not defined for ${node.dtype}`);
    return wrap(build.unary(fn, node));
  };

/** A function that keeps the dtype. */
const keeping =
  (name: string, fn: UnaryFn) =>
  (x: TensorLike): Tensor =>
    wrap(build.unary(fn, nodeOf(name, x)));

/** A rounding function: integers are whole already. */
const rounding =
  (name: string, fn: UnaryFn) =>
  (x: TensorLike): Tensor => {
    const node = nodeOf(name, x);
    if (isComplex(node.dtype)) throw new DTypeError(`${name}: not defined for ${node.dtype}`);
    return wrap(kindOf(node.dtype) === "float" ? build.unary(fn, node) : node);
  };

export function neg(x: TensorLike): Tensor {
  const node = nodeOf("neg", x);
  if (node.dtype === "bool") throw new DTypeError("neg: not defined for bool; use logicalNot, or cast to int32");
  return wrap(build.unary("neg", node));
}
export const sign = keeping("sign", "sign");
export const floor = rounding("floor", "floor");
export const ceil = rounding("ceil", "ceil");
/** Halves go to the even neighbor. */
export const round = rounding("round", "round");
export const trunc = rounding("trunc", "trunc");
export const sqrt = inexact("sqrt", "sqrt");
export const rsqrt = inexact("rsqrt", "rsqrt");
export const reciprocal = inexact("reciprocal", "reciprocal");
export const exp = inexact("exp", "exp");
export const expm1 = inexact("expm1", "expm1", false);
export const log = inexact("log", "log");
export const log1p = inexact("log1p", "log1p", false);
export const sin = inexact("sin", "sin");
export const cos = inexact("cos", "cos");
export const tan = inexact("tan", "tan", false);
export const asin = inexact("asin", "asin", false);
export const acos = inexact("acos", "acos", false);
export const atan = inexact("atan", "atan", false);
export const sinh = inexact("sinh", "sinh");
export const cosh = inexact("cosh", "cosh");
export const tanh = inexact("tanh", "tanh");
export const erf = inexact("erf", "erf", false);
/** 1 - erf(x), with all digits where erf is nearly 1. */
export const erfc = inexact("erfc", "erfc", false);

export const abs = keeping("abs", "abs");
export const square = (x: TensorLike): Tensor => mul(x, x);
export const log2 = (x: TensorLike): Tensor => mul(log(x), Math.LOG2E);
export const log10 = (x: TensorLike): Tensor => mul(log(x), Math.LOG10E);

export const isNaN = (x: TensorLike): Tensor => floatTest("isNaN", "isnan", x, 0);
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

export const real = (x: TensorLike): Tensor => wrap(build.real(nodeOf("real", x)));
export function imag(x: TensorLike): Tensor {
  const node = nodeOf("imag", x);
  return wrap(isComplex(node.dtype) ? build.unary("imag", node) : build.zerosLike(node));
}
export const conj = (x: TensorLike): Tensor => wrap(build.conj(nodeOf("conj", x)));
/** The phase in (-pi, pi]. */
export function angle(x: TensorLike): Tensor {
  const node = inexactNode("angle", x);
  if (isComplex(node.dtype)) return wrap(build.binary("atan2", build.imag(node), build.real(node)));
  return wrap(build.binary("atan2", build.zerosLike(node), node));
}
/** A complex tensor from its real and imaginary parts. */
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
    // bool + bool counts, as in NumPy's integer view of it.
    return binaryOp(name, fn, a, b, dtype === "bool" ? "int32" : dtype);
  };

export const add = arithmetic("add", "add");
export const sub = arithmetic("sub", "sub");
export const mul = arithmetic("mul", "mul");

/** True division: integers give float32. */
export const div = (a: TensorLike, b: TensorLike): Tensor =>
  binaryOp("div", "div", a, b, toInexact(commonDType("div", [a, b])));

const realOnly =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isComplex(dtype)) throw new DTypeError(`${name}: not defined for ${dtype}`);
    return binaryOp(name, fn, a, b, dtype === "bool" && (fn === "mod" || fn === "floordiv") ? "int32" : dtype);
  };

/** The remainder with the sign of the divisor; 0 where an integer is divided by 0. */
export const mod = realOnly("mod", "mod");
export const maximum = realOnly("maximum", "max");
export const minimum = realOnly("minimum", "min");

/**
 * The quotient rounded down, as Python's //: a = floorDivide(a, b) * b + mod(a, b) up to rounding. An integer divided by 0
 * gives 0, a float what a / b gives; the lowest integer divided by -1 wraps to itself.
 */
export const floorDivide = realOnly("floorDivide", "floordiv");

/** a to the power b. Integers wrap; complex powers are exp(b log a), except for whole exponents and base 0, as in NumPy. */
export function pow(a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("pow", [a, b]);
  if (!isComplex(dtype)) return binaryOp("pow", "pow", a, b, kindOf(dtype) === "bool" ? "int32" : dtype);
  if (typeof b === "number" && Number.isInteger(b) && Math.abs(b) <= 16) return integerPower(a, b, dtype);
  return binaryOp("pow", "pow", a, b, dtype);
}

function integerPower(a: TensorLike, exponent: number, dtype: DType): Tensor {
  // The inverse first: a power that overflows would leave nothing to invert.
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

export function atan2(y: TensorLike, x: TensorLike): Tensor {
  const dtype = toInexact(commonDType("atan2", [y, x]));
  if (isComplex(dtype)) throw new DTypeError("atan2: not defined for complex tensors");
  return binaryOp("atan2", "atan2", y, x, dtype);
}

// Comparisons

const ordering =
  (name: string, fn: BinaryFn, swap: boolean) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isComplex(dtype)) throw new DTypeError(`${name}: complex numbers have no order; compare abs(x) or real(x)`);
    return swap ? binaryOp(name, fn, b, a, dtype) : binaryOp(name, fn, a, b, dtype);
  };

export const equal = (a: TensorLike, b: TensorLike): Tensor => binaryOp("equal", "eq", a, b);
export const notEqual = (a: TensorLike, b: TensorLike): Tensor => binaryOp("notEqual", "ne", a, b);
export const less = ordering("less", "lt", false);
export const lessEqual = ordering("lessEqual", "le", false);
export const greater = ordering("greater", "lt", true);
export const greaterEqual = ordering("greaterEqual", "le", true);

// Logic on truth (anything but zero is true), and on the bits of integers.

const logical =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor =>
    binaryOp(name, fn, a, b, "bool");

export const logicalAnd = logical("logicalAnd", "and");
export const logicalOr = logical("logicalOr", "or");
export const logicalXor = logical("logicalXor", "xor");

const bitwise =
  (name: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const dtype = commonDType(name, [a, b]);
    if (isInexact(dtype))
      throw new DTypeError(`${name}: needs integers or bool, got ${dtype}; use ${name.replace("bitwise", "logical")}`);
    return binaryOp(name, fn, a, b, dtype);
  };

export const bitwiseAnd = bitwise("bitwiseAnd", "and");
export const bitwiseOr = bitwise("bitwiseOr", "or");
export const bitwiseXor = bitwise("bitwiseXor", "xor");
export const logicalNot = (x: TensorLike): Tensor => wrap(build.unary("not", nodeAs("logicalNot", x, "bool")));

/** Where the condition holds the first value, elsewhere the second; all three broadcast. */
export function where(condition: TensorLike, a: TensorLike, b: TensorLike): Tensor {
  const dtype = commonDType("where", [a, b]);
  const values = [nodeAs("where", a, dtype), nodeAs("where", b, dtype)];
  const test = nodeAs("where", condition, "bool");
  const shape = broadcastAll("where", [test.shape, values[0].shape, values[1].shape]);
  const [c, x, y] = [test, ...values].map((node) => build.expandTo(node, shape));
  return wrap(build.where(c, x, y));
}

/** Limits values to [low, high]; either may be null. */
export function clip(x: TensorLike, low: TensorLike | null, high: TensorLike | null): Tensor {
  let result = wrap(nodeOf("clip", x));
  if (low !== null) result = maximum(result, low);
  if (high !== null) result = minimum(result, high);
  return result;
}

/** Converts; complex to real keeps the real part, float to integer truncates. */
export function cast(x: TensorLike, dtype: DType): Tensor {
  checkDType("cast", dtype);
  return wrap(nodeAs("cast", x, dtype));
}

/** The dtype in which these operands would meet. */
export const resultType = (...operands: TensorLike[]): DType => commonDType("resultType", operands);
export const promoteTypes = promote;
