// Real functions that JavaScript lacks or defines otherwise than C and NumPy do. All in double precision.
import { type DType, roundEven } from "../../graph/index.js";

/** Halves to even; results of zero keep the sign of x. */
export function roundToEven(x: number): number {
  const rounded = roundEven(x);
  return rounded === 0 && (x < 0 || Object.is(x, -0)) ? -0 : rounded;
}

/** x^y as in C: 1^y and (+-1)^inf are 1, where JavaScript says NaN. */
export function realPower(x: number, y: number): number {
  if (x === 1) return 1;
  if (x === -1 && Math.abs(y) === Number.POSITIVE_INFINITY) return 1;
  return x ** y;
}

/** Remainder with the sign of the divisor. */
export function floorMod(x: number, y: number): number {
  const rest = x % y;
  if (rest === 0) return y < 0 || Object.is(y, -0) ? -0 : 0;
  return rest < 0 !== y < 0 ? rest + y : rest;
}

export const copySign = (x: number, y: number): number => Math.abs(x) * (y < 0 || Object.is(y, -0) ? -1 : 1);

const single = new Float32Array(1);
const singleBits = new Int32Array(single.buffer);
const double = new Float64Array(1);
const doubleBits = new BigInt64Array(double.buffer);

/** The next number of a float dtype after x in the direction of y. */
export const nextAfter =
  (dtype: DType) =>
  (x: number, y: number): number => {
    if (Number.isNaN(x) || Number.isNaN(y)) return Number.NaN;
    if (x === y) return y;
    const isDouble = dtype === "float64";
    if (x === 0) return (y < 0 ? -1 : 1) * (isDouble ? 2 ** -1074 : 2 ** -149);
    // Bits of floats of one sign are in the order of their magnitudes.
    const step = x > 0 === y > x ? 1 : -1;
    if (isDouble) {
      double[0] = x;
      doubleBits[0] += BigInt(step);
      return double[0];
    }
    single[0] = x;
    singleBits[0] += step;
    return single[0];
  };

/** Shifts by a negative number, or by more bits than the dtype has, leave no bit of x: 0, or -1 for a negative x shifted right. */
export const shiftLeft = (x: bigint, y: bigint): bigint => (y < 0n || y >= 64n ? 0n : x << y);
export const shiftRight = (x: bigint, y: bigint): bigint => (y < 0n || y >= 64n ? (x < 0n ? -1n : 0n) : x >> y);

// Math.max and Math.min do not take big integers.
export function maxInteger(x: bigint, y: bigint): bigint {
  if (x > y) return x;
  return y;
}
export function minInteger(x: bigint, y: bigint): bigint {
  if (x < y) return x;
  return y;
}

/** Integer remainder with the sign of the divisor; 0 where the divisor is 0. */
export function modInteger(x: bigint, y: bigint): bigint {
  if (y === 0n) return 0n;
  const rest = x % y;
  return rest !== 0n && rest < 0n !== y < 0n ? rest + y : rest;
}

/** Integer power; a negative exponent gives the truncated quotient (0 but for bases 1 and -1), and 0 for base 0. */
export function powInteger(x: bigint, y: bigint): bigint {
  if (y < 0n) return x === 1n ? 1n : x === -1n ? (y % 2n === 0n ? 1n : -1n) : 0n;
  // Results are taken modulo 2^64 at most, so the partial products need no more than that.
  let result = 1n;
  let base = x;
  for (let rest = y; rest > 0n; rest >>= 1n) {
    if (rest & 1n) result = BigInt.asIntN(64, result * base);
    base = BigInt.asIntN(64, base * base);
  }
  return result;
}

/** The quotient rounded down, from the exact remainder: the rounded quotient of 1 and 0.1 is 10, but 0.1 is more than a tenth. */
export function floorQuotient(x: number, y: number): number {
  if (y === 0) return x / y;
  const rest = x % y;
  const quotient = (x - rest) / y - (rest !== 0 && rest < 0 !== y < 0 ? 1 : 0);
  if (quotient === 0) return x / y < 0 || Object.is(x / y, -0) ? -0 : 0;
  const whole = Math.floor(quotient);
  return quotient - whole > 0.5 ? whole + 1 : whole;
}

/** Integer quotient rounded down; 0 where the divisor is 0. */
export function floorDivideInteger(x: bigint, y: bigint): bigint {
  return y === 0n ? 0n : (x - modInteger(x, y)) / y;
}

/** exp(-x^2); the rounding error of the square is made good, else the tail would lose digits. */
function gaussian(x: number): number {
  const high = Math.fround(x);
  return Math.exp(-high * high) * Math.exp(-(x - high) * (x + high));
}

/** The tail of erfc by its continued fraction, from the last term to the first; x >= 0.5. */
function erfcTail(x: number): number {
  if (x > 28) return 0;
  let fraction = x;
  for (let n = Math.ceil(60 + 400 / (x * x)); n > 0; n--) fraction = x + n / 2 / fraction;
  return gaussian(x) / (fraction * Math.sqrt(Math.PI));
}

/** 2/sqrt(pi) e^(-x^2) sum 2^n x^(2n+1) / (2n+1)!!: positive terms, which cancel nothing. */
function erfSeries(x: number): number {
  let term = x;
  let sum = x;
  for (let n = 1; Math.abs(term) > 1e-18 * Math.abs(sum); n++) {
    term *= (2 * x * x) / (2 * n + 1);
    sum += term;
  }
  return (2 / Math.sqrt(Math.PI)) * gaussian(x) * sum;
}

export function realErf(x: number): number {
  if (Math.abs(x) < 0.5 || Number.isNaN(x)) return erfSeries(x);
  return Math.sign(x) * (1 - erfcTail(Math.abs(x)));
}

export function realErfc(x: number): number {
  if (Math.abs(x) < 0.5 || Number.isNaN(x)) return 1 - erfSeries(x);
  return x > 0 ? erfcTail(x) : 2 - erfcTail(-x);
}
