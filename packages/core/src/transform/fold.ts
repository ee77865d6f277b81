// Constant folding where all devices agree: integers with wraparound, and operations that IEEE 754 rounds correctly. Returns null
// if the device must compute: library functions, results that are not finite, and integers that a constant cannot hold.
import {
  type BinaryFn,
  type DType,
  isBig,
  isComplex,
  isHalf,
  kindOf,
  type Scalar,
  type UnaryFn,
  wrapInteger,
} from "../graph/index.js";

interface Pair {
  re: number;
  im: number;
}
const pair = (value: Scalar): Pair => (typeof value === "number" ? { re: value, im: 0 } : value);

const isSingle = (dtype: DType): boolean => dtype === "float32" || dtype === "complex64";
/** One rounding of a double to single precision is that of the single operation, for + - * / and the square root. */
const rounded = (x: number, dtype: DType): number => (isSingle(dtype) ? Math.fround(x) : x);

const realUnary: Partial<Record<UnaryFn, (x: number, dtype: DType) => number>> = {
  neg: (x) => -x,
  abs: Math.abs,
  sqrt: Math.sqrt,
  // Devices round twice too.
  rsqrt: (x, dtype) => 1 / rounded(Math.sqrt(x), dtype),
  reciprocal: (x) => 1 / x,
  sign: (x) => Math.sign(x) + 0,
  real: (x) => x,
  conj: (x) => x,
};

const integerUnary: Partial<Record<UnaryFn, (x: bigint) => bigint>> = {
  neg: (x) => -x,
  abs: (x) => (x < 0n ? -x : x),
  sign: (x) => (x > 0n ? 1n : x < 0n ? -1n : 0n),
  real: (x) => x,
  conj: (x) => x,
};

const complexUnary: Partial<Record<UnaryFn, (z: Pair) => Scalar>> = {
  neg: (z) => ({ re: -z.re, im: -z.im }),
  conj: (z) => ({ re: z.re, im: -z.im }),
  real: (z) => z.re,
  imag: (z) => z.im,
};

const realBinary: Partial<Record<BinaryFn, (a: number, b: number) => number>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  div: (a, b) => a / b,
  max: Math.max,
  min: Math.min,
  eq: (a, b) => Number(a === b),
  ne: (a, b) => Number(a !== b),
  lt: (a, b) => Number(a < b),
  le: (a, b) => Number(a <= b),
};

const truth = (x: boolean): bigint => (x ? 1n : 0n);
const integerBinary: Partial<Record<BinaryFn, (a: bigint, b: bigint) => bigint>> = {
  add: (a, b) => a + b,
  sub: (a, b) => a - b,
  mul: (a, b) => a * b,
  max: (a, b) => (a > b ? a : b),
  min: (a, b) => (a < b ? a : b),
  eq: (a, b) => truth(a === b),
  ne: (a, b) => truth(a !== b),
  lt: (a, b) => truth(a < b),
  le: (a, b) => truth(a <= b),
};

/** Parts of a product that is the same in every order and with every contraction, because nothing is rounded; else null. */
function exactProduct(a: Pair, b: Pair): Pair | null {
  const terms = [a.re * b.re, a.im * b.im, a.re * b.im, a.im * b.re];
  const product = { re: terms[0] - terms[1], im: terms[2] + terms[3] };
  return [...terms, product.re, product.im].every((x) => Math.fround(x) === x) ? product : null;
}

const complexBinary: Partial<Record<BinaryFn, (a: Pair, b: Pair) => Pair | null>> = {
  add: (a, b) => ({ re: a.re + b.re, im: a.im + b.im }),
  sub: (a, b) => ({ re: a.re - b.re, im: a.im - b.im }),
  mul: exactProduct,
};

/** An integer as its dtype wraps it; null where a constant, which is a double, has not all its digits. */
function wrapped(x: bigint, dtype: DType): number | null {
  const fits = wrapInteger(x, dtype);
  return Number.isSafeInteger(Number(fits)) ? Number(fits) : null;
}

function settle(value: number, dtype: DType): number | null {
  return Number.isFinite(value) ? rounded(value, dtype) : null;
}

function settleScalar(value: Scalar | null, dtype: DType): Scalar | null {
  if (value === null) return null;
  if (typeof value === "number") return settle(value, dtype);
  const re = settle(value.re, dtype);
  const im = settle(value.im, dtype);
  return re === null || im === null ? null : { re, im };
}

const isWhole = (x: Scalar): x is number => typeof x === "number" && Number.isSafeInteger(x);

export function foldUnary(fn: UnaryFn, value: Scalar, dtype: DType): Scalar | null {
  // Half types are computed in float and rounded when they are stored: constants are not rounded in between.
  if (isHalf(dtype) || dtype === "bool") return null;
  if (isComplex(dtype)) return settleScalar(complexUnary[fn]?.(pair(value)) ?? null, dtype);
  if (kindOf(dtype) === "int") {
    const rule = integerUnary[fn];
    return rule === undefined || !isWhole(value) ? null : wrapped(rule(BigInt(value)), dtype);
  }
  return typeof value === "number" ? settleScalar(realUnary[fn]?.(value, dtype) ?? null, dtype) : null;
}

export function foldBinary(fn: BinaryFn, a: Scalar, b: Scalar, dtype: DType): Scalar | null {
  if (isHalf(dtype) || dtype === "bool") return null;
  if (fn === "complex") return typeof a === "number" && typeof b === "number" ? { re: a, im: b } : null;
  if (isComplex(dtype)) return settleScalar(complexBinary[fn]?.(pair(a), pair(b)) ?? null, dtype);
  if (kindOf(dtype) === "int") {
    const rule = integerBinary[fn];
    return rule === undefined || !isWhole(a) || !isWhole(b) ? null : wrapped(rule(BigInt(a), BigInt(b)), dtype);
  }
  if (typeof a !== "number" || typeof b !== "number") return null;
  return settleScalar(realBinary[fn]?.(a, b) ?? null, dtype);
}

/** A real constant in another dtype; complex ones and what is not finite are left to the device. */
export function foldCast(value: Scalar, from: DType, to: DType): Scalar | null {
  if (typeof value !== "number" || isComplex(from) || isHalf(to) || !Number.isFinite(value)) return null;
  if (kindOf(to) === "bool") return Number(value !== 0);
  if (kindOf(to) !== "int") return rounded(value, to);
  if (kindOf(from) === "float") {
    // Conversions saturate, as constants do; the ends of 64-bit integers are not safe integers.
    const whole = Math.trunc(value) + 0;
    return !isBig(to) || Number.isSafeInteger(whole) ? whole : null;
  }
  return isWhole(value) ? wrapped(BigInt(value), to) : null;
}

/** The sum of `count` equal numbers; null where rounding on the way matters. */
export function foldSum(value: Scalar, count: number, dtype: DType): Scalar | null {
  if (typeof value !== "number" || isHalf(dtype) || isComplex(dtype) || dtype === "bool") return null;
  if (kindOf(dtype) === "int") return isWhole(value) ? wrapped(BigInt(value) * BigInt(count), dtype) : null;
  // Exact in single precision at the end, and so on the way there, as all partial sums are smaller multiples of one number.
  const total = value * count;
  const bits = (x: number): boolean => Math.fround(x) === x && Number.isFinite(x);
  return bits(value) && bits(total) && count < 2 ** 24 && bits(value * (count - 1)) ? total + 0 : null;
}
