// Arithmetic on constants at compile time; null where the answer is left to the device (because its rounding or its
// special cases matter).
import { type BinaryFn, type DType, isComplex, kindOf, type Scalar, type UnaryFn } from "../graph/index.js";

interface Pair {
  re: number;
  im: number;
}
const pair = (value: Scalar): Pair => (typeof value === "number" ? { re: value, im: 0 } : value);

const realUnary: Partial<Record<UnaryFn, (x: number) => number>> = {
  neg: (x) => -x,
  abs: Math.abs,
  sqrt: Math.sqrt,
  rsqrt: (x) => 1 / Math.sqrt(x),
  reciprocal: (x) => 1 / x,
  exp: Math.exp,
  log: Math.log,
  sin: Math.sin,
  cos: Math.cos,
  sign: Math.sign,
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

const complexBinary: Partial<Record<BinaryFn, (a: Pair, b: Pair) => Pair>> = {
  add: (a, b) => ({ re: a.re + b.re, im: a.im + b.im }),
  sub: (a, b) => ({ re: a.re - b.re, im: a.im - b.im }),
  mul: (a, b) => ({ re: a.re * b.re - a.im * b.im, im: a.re * b.im + a.im * b.re }),
};

const foldable = (dtype: DType): boolean =>
  dtype === "float32" || dtype === "float64" || dtype === "int32" || dtype === "bool" || isComplex(dtype);

/** Rounds to the dtype; null where an integer left its range or a number is not finite. */
function settle(value: number, dtype: DType): number | null {
  if (!Number.isFinite(value)) return null;
  if (kindOf(dtype) === "int") return Number.isInteger(value) && Math.abs(value) < 2 ** 31 ? value : null;
  return dtype === "float32" || dtype === "complex64" ? Math.fround(value) : value;
}

function settleScalar(value: Scalar, dtype: DType): Scalar | null {
  if (typeof value === "number") return settle(value, dtype);
  const re = settle(value.re, dtype);
  const im = settle(value.im, dtype);
  return re === null || im === null ? null : { re, im };
}

export function foldUnary(fn: UnaryFn, value: Scalar, dtype: DType): Scalar | null {
  if (!foldable(dtype)) return null;
  if (isComplex(dtype)) {
    const rule = complexUnary[fn];
    return rule === undefined ? null : settleScalar(rule(pair(value)), dtype);
  }
  const rule = realUnary[fn];
  return rule === undefined || typeof value !== "number" ? null : settleScalar(rule(value), dtype);
}

export function foldBinary(fn: BinaryFn, a: Scalar, b: Scalar, dtype: DType): Scalar | null {
  if (!foldable(dtype)) return null;
  if (fn === "complex") return typeof a === "number" && typeof b === "number" ? { re: a, im: b } : null;
  if (isComplex(dtype)) {
    const rule = complexBinary[fn];
    return rule === undefined ? null : settleScalar(rule(pair(a), pair(b)), dtype);
  }
  const rule = realBinary[fn];
  if (rule === undefined || typeof a !== "number" || typeof b !== "number" || dtype === "bool") return null;
  return settleScalar(rule(a, b), dtype);
}
