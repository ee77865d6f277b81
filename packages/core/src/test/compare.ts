// Comparing results: tensors as plain numbers, and closeness that knows NaN, infinities and complex numbers.
import assert from "node:assert/strict";
import type { DType, Tensor } from "../index.js";

/** A result on the host; complex numbers as interleaved pairs. */
export interface Result {
  dtype: DType;
  shape: readonly number[];
  data: number[];
}

export const isComplexDType = (dtype: DType): boolean => dtype === "complex64" || dtype === "complex128";
export const isInexactDType = (dtype: DType): boolean => dtype.includes("float") || isComplexDType(dtype);

export const toResult = (t: Tensor): Result => ({
  dtype: t.dtype,
  shape: t.shape,
  data: Array.from(t.dataSync() as ArrayLike<number | bigint>, Number),
});

/** Relative and absolute tolerance in units that one rounding of the dtype explains. */
const tolerances: Record<DType, number> = {
  bool: 0,
  int8: 0,
  uint8: 0,
  int16: 0,
  uint16: 0,
  int32: 0,
  uint32: 0,
  int64: 0,
  uint64: 0,
  float16: 2e-3,
  bfloat16: 1.6e-2,
  float32: 2e-6,
  float64: 1e-13,
  complex64: 3e-6,
  complex128: 2e-13,
};
export const toleranceOf = (dtype: DType): number => tolerances[dtype];

export interface Closeness {
  rtol?: number;
  atol?: number;
  name?: string;
}

const same = (a: number, b: number): boolean => a === b || (Number.isNaN(a) && Number.isNaN(b));

/** What is wrong between two results, or null. The size of an error is measured on the complex number, not its parts. */
export function difference(actual: Result, expected: Result, { rtol, atol }: Closeness = {}): string | null {
  if (actual.dtype !== expected.dtype) return `dtype ${actual.dtype}, expected ${expected.dtype}`;
  if (String(actual.shape) !== String(expected.shape) || actual.shape.length !== expected.shape.length)
    return `shape [${actual.shape}], expected [${expected.shape}]`;
  const relative = rtol ?? toleranceOf(expected.dtype);
  const absolute = atol ?? relative;
  const parts = isComplexDType(expected.dtype) ? 2 : 1;
  if (actual.data.length !== expected.data.length)
    return `${actual.data.length} numbers, expected ${expected.data.length}`;
  for (let i = 0; i < expected.data.length; i += parts) {
    const a = actual.data.slice(i, i + parts);
    const e = expected.data.slice(i, i + parts);
    if (a.every((x, k) => same(x, e[k]))) continue;
    const error = Math.hypot(...a.map((x, k) => (same(x, e[k]) ? 0 : x - e[k])));
    const size = Math.hypot(...e.map((x) => (Number.isFinite(x) ? x : 0)));
    // Negated, so that NaN on one side only counts as an error.
    if (!(error <= absolute + relative * size))
      return `element ${i / parts} of [${expected.shape}] is ${a.join(" + i ")}, expected ${e.join(" + i ")} (off by ${error.toExponential(2)})`;
  }
  return null;
}

type Comparable = Tensor | Result | readonly number[] | number;

function asResult(x: Comparable, like?: Result): Result {
  if (typeof x === "number") return asResult([x], like);
  if (Array.isArray(x)) return { dtype: like?.dtype ?? "float64", shape: like?.shape ?? [x.length], data: x };
  return "node" in x ? toResult(x as Tensor) : (x as Result);
}

/** Fails unless two tensors (or a tensor and plain numbers) agree; NaN equals NaN, infinities must agree exactly. */
export function assertClose(actual: Comparable, expected: Comparable, options: Closeness = {}): void {
  const a = asResult(actual);
  const problem = difference(a, asResult(expected, a), options);
  assert.equal(problem, null, `${options.name === undefined ? "" : `${options.name}: `}${problem}`);
}

/** The real inner product: sum of Re(conj(a) b) over all results. */
export function inner(a: readonly Result[], b: readonly Result[]): number {
  let total = 0;
  a.forEach((result, i) => {
    result.data.forEach((x, k) => {
      total += x * b[i].data[k];
    });
  });
  return total;
}
