// Element-wise functions of the Python Array API standard beyond arithmetic: bits, signs, neighbors, functions of two numbers.
import {
  type BinaryFn,
  bytesOf,
  checkOptions,
  DTypeError,
  isComplex,
  isHalf,
  isInexact,
  kindOf,
  type Node,
  toInexact,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { align, commonDType, nodeOf, type TensorLike, wrap } from "./convert.js";
import { isFinite, isNaN, logicalAnd, logicalNot, logicalOr, where } from "./math.js";
import type { Tensor } from "./tensor.js";

/** Operands of a function of real floating-point numbers. */
function realPair(op: string, a: TensorLike, b: TensorLike): Node[] {
  const dtype = toInexact(commonDType(op, [a, b]));
  if (isComplex(dtype)) throw new DTypeError(`${op}: not defined for ${dtype}; take real(x), imag(x) or abs(x) first`);
  return align(op, [a, b], dtype);
}

const ofPair =
  (op: string, fn: BinaryFn) =>
  (a: TensorLike, b: TensorLike): Tensor => {
    const [x, y] = realPair(op, a, b);
    return wrap(build.binary(fn, x, y));
  };

/** Elementwise sqrt(a^2 + b^2) without overflow, with broadcasting. Infinite if one operand is infinite, even with NaN. */
export const hypot = ofPair("hypot", "hypot");
/** Elementwise magnitude of a with the sign of b, with broadcasting. The sign of zeros counts. */
export const copysign = ofPair("copysign", "copysign");

/** Elementwise next number of the dtype after a in the direction of b, with broadcasting; float32 and float64. */
export function nextafter(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = realPair("nextafter", a, b);
  if (isHalf(x.dtype)) throw new DTypeError(`nextafter: not defined for ${x.dtype}; use cast("float32")`);
  return wrap(build.binary("nextafter", x, y));
}

/** Elementwise log(exp(a) + exp(b)) without overflow, with broadcasting. */
export function logaddexp(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = realPair("logaddexp", a, b);
  // The difference of equal infinities is taken as 0.
  const equal = logicalAnd(wrap(build.eq(x, y)), logicalNot(isFinite(wrap(x)))).node;
  const apart = build.sub(build.where(equal, build.zerosLike(x), x), build.where(equal, build.zerosLike(y), y));
  // One-sided choices instead of maximum and abs: both sides of a tie then have the same second derivative, which is not 0.
  const below = build.lt(apart, build.zerosLike(apart));
  const top = build.where(below, y, x);
  const smaller = build.unary("exp", build.where(below, apart, build.neg(apart)));
  const result = build.add(top, build.unary("log1p", smaller));
  // Comparisons with NaN are false, so that it is looked for.
  return where(isNaN(wrap(apart)), wrap(build.add(x, y)), wrap(result));
}

/** Elementwise test for infinite numbers; a complex number is infinite if one of its parts is. */
export function isInf(x: TensorLike): Tensor {
  const node = nodeOf("isInf", x);
  if (!isComplex(node.dtype)) return logicalNot(logicalOr(isFinite(x), isNaN(x)));
  return logicalOr(isInf(wrap(build.real(node))), isInf(wrap(build.imag(node))));
}

/** Elementwise test of the sign bit: true for negative numbers and -0. Integers have the bit of their sign. */
export function signbit(x: TensorLike): Tensor {
  const node = nodeOf("signbit", x);
  if (isComplex(node.dtype)) throw new DTypeError(`signbit: not defined for ${node.dtype}; use real(x) or imag(x)`);
  if (kindOf(node.dtype) === "float") return wrap(build.unary("signbit", node));
  return wrap(
    kindOf(node.dtype) === "bool" ? build.full(node.shape, 0, "bool") : build.lt(node, build.zerosLike(node)),
  );
}

/** The operand unchanged. Not defined for bool. */
export function positive(x: TensorLike): Tensor {
  const node = nodeOf("positive", x);
  if (node.dtype === "bool") throw new DTypeError("positive: not defined for bool; use cast");
  return wrap(node);
}

/** Values that replace NaN and infinities. @inline */
interface NanToNumOptions {
  /** Replaces NaN; 0 by default. */
  nan?: number;
  /** Replaces positive infinity; the largest number of the dtype by default. */
  posinf?: number;
  /** Replaces negative infinity; the smallest number of the dtype by default. */
  neginf?: number;
}

/** Replaces NaN by 0 and infinities by the largest numbers of the dtype, or by the given numbers. */
export function nanToNum(x: TensorLike, options: NanToNumOptions = {}): Tensor {
  const { nan = 0, posinf, neginf } = checkOptions("nanToNum", options, ["nan", "posinf", "neginf"]);
  const node = nodeOf("nanToNum", x);
  if (!isInexact(node.dtype)) return wrap(node);
  if (isComplex(node.dtype)) {
    const [re, im] = [build.real(node), build.imag(node)].map(
      (part) => nanToNum(wrap(part), { nan, posinf, neginf }).node,
    );
    return wrap(build.toComplex(re, im));
  }
  const largest = {
    8: Number.MAX_VALUE,
    4: 2 ** 128 - 2 ** 104,
    2: node.dtype === "float16" ? 65504 : 2 ** 128 - 2 ** 120,
  };
  const top = largest[bytesOf(node.dtype) as 2];
  const t = wrap(node);
  const infinite = where(
    t.greater(0),
    wrap(build.fullLike(node, posinf ?? top)),
    wrap(build.fullLike(node, neginf ?? -top)),
  );
  return where(isNaN(t), nan, where(isFinite(t), t, infinite));
}

/** Operands of a function of the bits of integers. */
function integerPair(op: string, a: TensorLike, b: TensorLike): Node[] {
  const dtype = commonDType(op, [a, b]);
  if (kindOf(dtype) !== "int") throw new DTypeError(`${op}: needs integers, got ${dtype}; use cast("int32")`);
  return align(op, [a, b], dtype);
}

/** Elementwise a * 2^b of integers, with broadcasting. Bits that leave the dtype are lost; a negative b gives 0. */
export function leftShift(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = integerPair("leftShift", a, b);
  return wrap(build.binary("lshift", x, y));
}

/** Elementwise floor(a / 2^b) of integers, with broadcasting. A negative b gives 0, or -1 for negative numbers. */
export function rightShift(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = integerPair("rightShift", a, b);
  return wrap(build.binary("rshift", x, y));
}

/** Elementwise inversion of all bits of integers; NOT for bool. */
export function bitwiseNot(x: TensorLike): Tensor {
  const node = nodeOf("bitwiseNot", x);
  if (isInexact(node.dtype))
    throw new DTypeError(`bitwiseNot: needs integers or bool, got ${node.dtype}; use logicalNot`);
  return wrap(build.unary("not", node));
}
