// Constants in the representation of their dtype: rounded, truncated or saturated, as a cast of the value would be.
import { type DType, integerLimits, isComplex, kindOf } from "./dtype.js";
import { bfloat16Bits, bfloat16Value, float16Bits, float16Value } from "./half.js";
import type { Scalar } from "./op.js";

/** Whether a whole number lies in the range of an integer dtype; true for every other dtype. */
export function fitsInteger(value: number, dtype: DType): boolean {
  if (kindOf(dtype) !== "int") return true;
  const { low, high } = integerLimits(dtype);
  return value >= low && value <= high;
}

function storedInteger(value: number, dtype: DType): number {
  const { low, high } = integerLimits(dtype);
  return Number.isNaN(value) ? 0 : Math.min(Number(high), Math.max(Number(low), Math.trunc(value))) + 0;
}

const roundings: Partial<Record<DType, (x: number) => number>> = {
  float16: (x) => float16Value(float16Bits(x)),
  bfloat16: (x) => bfloat16Value(bfloat16Bits(x)),
  float32: Math.fround,
  complex64: Math.fround,
};

/** The value that a constant of this dtype has. */
export function storedScalar(value: Scalar, dtype: DType): Scalar {
  const round = roundings[dtype] ?? ((x: number) => x);
  if (isComplex(dtype)) {
    if (typeof value === "number") return round(value);
    return { re: round(value.re), im: round(value.im) };
  }
  const isZero = typeof value === "number" ? value === 0 : value.re === 0 && value.im === 0;
  const re = typeof value === "number" ? value : value.re;
  if (kindOf(dtype) === "bool") return Number(!isZero);
  return kindOf(dtype) === "int" ? storedInteger(re, dtype) : round(re);
}
