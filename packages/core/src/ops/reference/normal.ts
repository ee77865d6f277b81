// Normal random numbers, the same on every device to the last bit. Logarithm and cosine of the Box-Muller transform are written
// as exactly rounded operations in a fixed order: sums, products, square roots, divisions, and fused multiply-adds wherever a
// product is added to something (the last one to zero), so that no compiler has anything
// left to fuse, here or in what follows. device/native/normal.h has the same formulas in C and CUDA.

const factorial = (n: number): number => (n < 2 ? 1 : n * factorial(n - 1));

/** Coefficients, highest power first, and constants of one precision. */
interface NormalFormula {
  /** log(1 + f): float32 in powers of f after f - f^2 / 2; float64 of 2 atanh(s), in powers of s^2. */
  log: readonly number[];
  /** ln 2 in two parts; products of the first with an exponent are exact. */
  ln2: readonly [high: number, low: number];
  /** sin(a) / a in powers of a^2, for |a| up to a quarter turn. */
  sin: readonly number[];
  turn: number;
}

const sineSeries = (terms: number): number[] =>
  Array.from({ length: terms }, (_, i) => (i % 2 === 0 ? 1 : -1) / factorial(2 * i + 1)).reverse();

const normal32Formula: NormalFormula = {
  // Chebyshev interpolant on [sqrt(1/2) - 1, sqrt(2) - 1].
  log: [
    -0.062028809284, 0.105326456624, -0.1064656129, 0.110375591908, -0.12450675003, 0.142865323895, -0.166680043401,
    0.200000099721, -0.249999902482, 0.333333332812,
  ].map(Math.fround),
  ln2: [Math.fround(0.693359375), Math.fround(-2.1219444e-4)],
  sin: sineSeries(7).map(Math.fround),
  turn: Math.fround(2 * Math.PI),
};

const normal64Formula: NormalFormula = {
  log: Array.from({ length: 12 }, (_, i) => 1 / (2 * i + 3)).reverse(),
  // The first part has 32 bits: exponents are below 2^11.
  ln2: [0.6931471803691238, 1.9082149292705877e-10],
  sin: sineSeries(12),
  turn: 2 * Math.PI,
};

const float = new Float32Array(1);
const floatBits = new Int32Array(float.buffer);
const double = new Float64Array(1);
/** Low word first on every machine that Node runs on. */
const doubleWords = new Int32Array(double.buffer);
const doubleBits = new BigInt64Array(double.buffer);

/** The sum of two numbers and what rounding took from it. */
function twoSum(a: number, b: number): [number, number] {
  const s = a + b;
  const t = s - a;
  return [s, a - (s - t) + (b - t)];
}

/** The sum rounded to odd: where it is not exact, the neighbor with an odd last bit. A second rounding is then harmless. */
function sumToOdd(a: number, b: number): number {
  const [s, rest] = twoSum(a, b);
  if (rest === 0) return s;
  double[0] = s;
  if ((doubleWords[0] & 1) === 1) return s;
  // One step toward what is missing: away from zero where the rest has the sign of the sum.
  const grows = rest > 0 === s > 0;
  doubleBits[0] += grows ? 1n : -1n;
  return double[0];
}

/** a * b + c for float32 numbers, rounded once: the product is exact in double precision. */
function fma32(a: number, b: number, c: number): number {
  return Math.fround(sumToOdd(a * b, c));
}

const splitter = 2 ** 27 + 1;
function halves(x: number): [number, number] {
  const t = splitter * x;
  const high = t - (t - x);
  return [high, x - high];
}

/** The same for float64 numbers of ordinary size (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums"). */
function fma64(a: number, b: number, c: number): number {
  const high = a * b;
  const [a1, a0] = halves(a);
  const [b1, b0] = halves(b);
  const low = a0 * b0 - (high - a1 * b1 - a0 * b1 - a1 * b0);
  const [t, tRest] = twoSum(c, low);
  const [v, vRest] = twoSum(high, t);
  return v + sumToOdd(tRest, vRest);
}

/** Standard normal from two words of random bits, float32. */
export function normal32(r0: number, r1: number): number {
  const { log, ln2, sin, turn } = normal32Formula;
  const round = Math.fround;
  float[0] = ((r0 >>> 8) + 1) * 2 ** -24;
  const e = (floatBits[0] - 0x3f3504f3) >> 23;
  floatBits[0] -= e << 23;
  const f = round(float[0] - 1);
  const p = log.reduce((sum, c) => fma32(sum, f, c));
  const square = round(f * f);
  let y = fma32(round(p * f), square, round(e * ln2[1]));
  y = round(fma32(-0.5, square, y) + f);
  y = fma32(e, ln2[0], y);
  const w = Math.abs((r1 >>> 8) * 2 ** -24 - 0.5) - 0.25;
  const a = round(w * turn);
  const s = round(a * a);
  const q = sin.reduce((sum, c) => fma32(sum, s, c));
  return fma32(round(Math.sqrt(round(-2 * y))), round(a * q), 0);
}

/** The same for float64. */
export function normal64(r0: number, r1: number): number {
  const { log, ln2, sin, turn } = normal64Formula;
  double[0] = (r0 + 1) * 2 ** -32;
  const e = (doubleWords[1] - 0x3fe6a09e) >> 20;
  doubleWords[1] -= e << 20;
  const f = double[0] - 1;
  const t = f / (f + 2);
  const z = t * t;
  const p = log.reduce((sum, c) => fma64(sum, z, c));
  const twice = t + t;
  let y = fma64(twice * z, p, e * ln2[1]);
  y = y + twice;
  y = fma64(e, ln2[0], y);
  const w = Math.abs(r1 * 2 ** -32 - 0.5) - 0.25;
  const a = w * turn;
  const s = a * a;
  const q = sin.reduce((sum, c) => fma64(sum, s, c));
  return fma64(Math.sqrt(-2 * y), a * q, 0);
}
