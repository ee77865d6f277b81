// Complex numbers and their elementary functions in double precision, with the usual branch cuts (those of C and NumPy).

export interface Complex {
  readonly re: number;
  readonly im: number;
}

export const complex = (re: number, im = 0): Complex => ({ re, im });
export const zero: Complex = complex(0);
export const one: Complex = complex(1);

export const add = (a: Complex, b: Complex): Complex => complex(a.re + b.re, a.im + b.im);
export const sub = (a: Complex, b: Complex): Complex => complex(a.re - b.re, a.im - b.im);
export const mul = (a: Complex, b: Complex): Complex => complex(a.re * b.re - a.im * b.im, a.re * b.im + a.im * b.re);
export const scale = (a: Complex, factor: number): Complex => complex(a.re * factor, a.im * factor);
export const neg = (a: Complex): Complex => complex(-a.re, -a.im);
export const conj = (a: Complex): Complex => complex(a.re, -a.im);
export const abs = (a: Complex): number => Math.hypot(a.re, a.im);
export const abs2 = (a: Complex): number => a.re * a.re + a.im * a.im;
export const angle = (a: Complex): number => Math.atan2(a.im, a.re);
export const polar = (radius: number, phase: number): Complex =>
  complex(radius * Math.cos(phase), radius * Math.sin(phase));
export const isNaNComplex = (a: Complex): boolean => Number.isNaN(a.re) || Number.isNaN(a.im);
export const isFiniteComplex = (a: Complex): boolean => Number.isFinite(a.re) && Number.isFinite(a.im);

const timesI = (a: Complex): Complex => complex(-a.im, a.re);
const timesMinusI = (a: Complex): Complex => complex(a.im, -a.re);
const oneMinus = (a: Complex): Complex => complex(1 - a.re, -a.im);
const onePlus = (a: Complex): Complex => complex(1 + a.re, a.im);

const isInfinite = (x: number): boolean => Math.abs(x) === Number.POSITIVE_INFINITY;
const hasInfinity = (a: Complex): boolean => isInfinite(a.re) || isInfinite(a.im);
const isMinus = (x: number): boolean => x < 0 || Object.is(x, -0);
/** A size with the sign of y; a NaN counts as positive. */
const signed = (size: number, y: number): number => (isMinus(y) ? -size : size);
const largest = (a: Complex): number => Math.max(Math.abs(a.re), Math.abs(a.im));

/** A power of two that brings a size to the middle of the range, where squares neither overflow nor lose digits. */
function scaleOf(size: number): number {
  if (size > 2 ** 500) return 2 ** -600;
  return size < 2 ** -500 ? 2 ** 600 : 1;
}

/** The direction of an infinite number, part by part. */
const box = (x: number): number => signed(isInfinite(x) ? 1 : 0, x);

/** Quotients whose plain formula is NaN: by zero (as NumPy has them), by infinity and of infinity (as C has them). */
function specialQuotient(a: Complex, b: Complex): Complex {
  if (b.re === 0 && b.im === 0) return complex(a.re / Math.abs(b.re), a.im / Math.abs(b.re));
  if (isFiniteComplex(a) && hasInfinity(b)) {
    const [x, y] = [box(b.re), box(b.im)];
    return complex(0 * (a.re * x + a.im * y), 0 * (a.im * x - a.re * y));
  }
  if (isFiniteComplex(b) && hasInfinity(a)) {
    const [x, y] = [box(a.re), box(a.im)];
    return scale(complex(x * b.re + y * b.im, y * b.re - x * b.im), Number.POSITIVE_INFINITY);
  }
  return complex(Number.NaN, Number.NaN);
}

/** Both operands are scaled, so that only a quotient out of range leaves it. */
export function div(a: Complex, b: Complex): Complex {
  const [s, t] = [scaleOf(largest(b)), scaleOf(largest(a))];
  const [p, q] = [scale(a, t), scale(b, s)];
  const size = abs2(q);
  const re = (p.re * q.re + p.im * q.im) / size;
  const im = (p.im * q.re - p.re * q.im) / size;
  if (Number.isNaN(re) && Number.isNaN(im)) return specialQuotient(a, b);
  const back = 1 / t;
  return s === back ? complex(re * s * back, im * s * back) : complex(re * (s * back), im * (s * back));
}

export const reciprocal = (a: Complex): Complex => div(one, a);

/** z / |z|, and 0 at 0. */
export function sign(a: Complex): Complex {
  const scaled = hasInfinity(a) ? complex(box(a.re), box(a.im)) : scale(a, scaleOf(largest(a)));
  const size = abs(scaled);
  return size === 0 ? zero : complex(scaled.re / size, scaled.im / size);
}

export function sqrt(a: Complex): Complex {
  if (a.re === 0 && a.im === 0) return complex(0, a.im);
  if (isInfinite(a.im)) return complex(Number.POSITIVE_INFINITY, a.im);
  if (isInfinite(a.re)) {
    const rest = Number.isNaN(a.im) ? a.im : 0;
    return a.re > 0 ? complex(a.re, signed(rest, a.im)) : complex(rest, signed(Number.POSITIVE_INFINITY, a.im));
  }
  const size = largest(a);
  const k = size > 2 ** 500 ? 0.25 : size < 2 ** -500 ? 2 ** 600 : 1;
  const [x, y] = [Math.abs(a.re) * k, Math.abs(a.im) * k];
  const back = 1 / Math.sqrt(k);
  const long = Math.sqrt((x + Math.hypot(x, y)) / 2);
  const short = (y / (2 * long)) * back;
  return a.re >= 0 ? complex(long * back, signed(short, a.im)) : complex(short, signed(long * back, a.im));
}

/** k e^x times (re, im), where e^x itself may be out of range; the large part of it goes in before the rest. */
function grown(x: number, k: number, re: number, im: number): Complex {
  if (x < -700) {
    const half = Math.exp(x / 2);
    return complex(re * half * half * k, im * half * half * k);
  }
  let [rest, factor, parts] = [x, k, complex(re, im)];
  for (let i = 0; i < 2 && rest > 700; i++) {
    parts = scale(parts, Math.exp(700) * factor);
    factor = 1;
    rest -= 700;
  }
  return scale(parts, Math.exp(Math.min(rest, 700)) * factor);
}

export function exp(a: Complex): Complex {
  // On the real axis an infinite size must not turn the imaginary zero into NaN.
  if (a.im === 0) return complex(Math.exp(a.re), a.im);
  if (!Number.isFinite(a.im) && a.re === Number.NEGATIVE_INFINITY) return zero;
  if (!Number.isFinite(a.im) && a.re === Number.POSITIVE_INFINITY) return complex(a.re, Number.NaN);
  return grown(a.re, 1, Math.cos(a.im), Math.sin(a.im));
}

export function expm1(a: Complex): Complex {
  if (a.im === 0) return complex(Math.expm1(a.re), a.im);
  if (a.re > 700) return exp(a);
  const half = Math.sin(a.im / 2);
  return complex(Math.expm1(a.re) * Math.cos(a.im) - 2 * half * half, Math.exp(a.re) * Math.sin(a.im));
}

/** Near the unit circle from |z|^2 - 1, which is small; far from it from a scaled |z|. */
export function log(a: Complex): Complex {
  const [small, large] = [Math.abs(a.re), Math.abs(a.im)].sort((x, y) => x - y);
  if (large > 0.5 && large < 2) return complex(0.5 * Math.log1p((large - 1) * (large + 1) + small * small), angle(a));
  const k = scaleOf(large);
  return complex(Math.log(abs(scale(a, k))) - Math.log(k), angle(a));
}

export function log1p(a: Complex): Complex {
  const shifted = log(onePlus(a));
  return largest(a) < 0.5 ? complex(0.5 * Math.log1p(a.re * (2 + a.re) + a.im * a.im), shifted.im) : shifted;
}

export function sinh(a: Complex): Complex {
  if (a.im === 0) return complex(Math.sinh(a.re), a.im);
  if (!Number.isFinite(a.im)) return complex(a.re === 0 || isInfinite(a.re) ? a.re : Number.NaN, Number.NaN);
  const side = a.re < 0 ? -1 : 1;
  if (Math.abs(a.re) > 700) return grown(Math.abs(a.re), 0.5, side * Math.cos(a.im), Math.sin(a.im));
  return complex(Math.sinh(a.re) * Math.cos(a.im), Math.cosh(a.re) * Math.sin(a.im));
}

export function cosh(a: Complex): Complex {
  if (a.im === 0) return complex(Math.cosh(a.re), isMinus(a.re) ? -a.im : a.im);
  if (!Number.isFinite(a.im))
    return complex(isInfinite(a.re) ? Number.POSITIVE_INFINITY : Number.NaN, a.re === 0 ? 0 : Number.NaN);
  const side = a.re < 0 ? -1 : 1;
  if (Math.abs(a.re) > 700) return grown(Math.abs(a.re), 0.5, Math.cos(a.im), side * Math.sin(a.im));
  return complex(Math.cosh(a.re) * Math.cos(a.im), Math.sinh(a.re) * Math.sin(a.im));
}

export function tanh(a: Complex): Complex {
  if (a.im === 0) return complex(Math.tanh(a.re), a.im);
  if (a.re === 0) return complex(a.re, Math.tan(a.im));
  if (!Number.isFinite(a.im) && !isInfinite(a.re)) return complex(Number.NaN, Number.NaN);
  if (Math.abs(a.re) > 20) {
    const turn = Number.isFinite(a.im) ? 4 * Math.sin(a.im) * Math.cos(a.im) : 0;
    return complex(Math.sign(a.re), turn * Math.exp(-2 * Math.abs(a.re)));
  }
  const t = Math.tan(a.im);
  const s = Math.sinh(a.re);
  const grow = 1 + t * t;
  const scaled = 1 + grow * s * s;
  return complex((grow * Math.sqrt(1 + s * s) * s) / scaled, t / scaled);
}

export const sin = (a: Complex): Complex => timesMinusI(sinh(timesI(a)));
export const cos = (a: Complex): Complex => cosh(timesI(a));
export const tan = (a: Complex): Complex => timesMinusI(tanh(timesI(a)));

// Inverse functions by Kahan's formulas ("Branch cuts for complex elementary functions"), which keep the sides of cuts.
export function asin(a: Complex): Complex {
  if (hasInfinity(a)) return complex(Math.atan2(a.re, Math.abs(a.im)), signed(Number.POSITIVE_INFINITY, a.im));
  if (isNaNComplex(a)) return complex(a.re === 0 ? a.re : Number.NaN, Number.NaN);
  const low = sqrt(oneMinus(a));
  const high = sqrt(onePlus(a));
  return complex(Math.atan2(a.re, mul(low, high).re), Math.asinh(mul(conj(low), high).im));
}

export function acos(a: Complex): Complex {
  if (hasInfinity(a)) return complex(Math.atan2(Math.abs(a.im), a.re), -signed(Number.POSITIVE_INFINITY, a.im));
  if (isNaNComplex(a)) return complex(a.re === 0 ? Math.PI / 2 : Number.NaN, Number.NaN);
  const low = sqrt(oneMinus(a));
  const high = sqrt(onePlus(a));
  return complex(2 * Math.atan2(low.re, high.re), Math.asinh(mul(conj(high), low).im));
}

export function atanh(a: Complex): Complex {
  const quarter = signed(Math.PI / 2, a.im);
  if (hasInfinity(a)) return complex(signed(0, a.re), Number.isNaN(a.im) ? Number.NaN : quarter);
  if (isNaNComplex(a)) return complex(a.re === 0 ? a.re : Number.NaN, Number.NaN);
  // The square is out of range: 1/z is all that is left of the series.
  if (largest(a) > 2 ** 500) {
    const inverse = reciprocal(a);
    return complex(signed(Math.abs(inverse.re), a.re), quarter + inverse.im);
  }
  // Near the poles, where the square vanishes first.
  if (Math.hypot(1 - Math.abs(a.re), a.im) < 1e-3)
    return complex(
      0.5 * (Math.log(Math.hypot(1 + a.re, a.im)) - Math.log(Math.hypot(1 - a.re, a.im))),
      0.5 * Math.atan2(2 * a.im, (1 - a.re) * (1 + a.re) - a.im * a.im),
    );
  const away = (1 - a.re) * (1 - a.re) + a.im * a.im;
  return complex(
    0.25 * Math.log1p((4 * a.re) / away),
    0.5 * Math.atan2(2 * a.im, (1 - a.re) * (1 + a.re) - a.im * a.im),
  );
}

export const asinh = (a: Complex): Complex => timesMinusI(asin(timesI(a)));

export function acosh(a: Complex): Complex {
  if (hasInfinity(a)) return complex(Number.POSITIVE_INFINITY, angle(a));
  if (isNaNComplex(a)) return complex(Number.NaN, a.re === 0 ? Math.PI / 2 : Number.NaN);
  const low = sqrt(neg(oneMinus(a)));
  const high = sqrt(onePlus(a));
  return complex(Math.asinh(mul(conj(low), high).re), 2 * Math.atan2(low.im, high.re));
}

export const atan = (a: Complex): Complex => timesMinusI(atanh(timesI(a)));

/** Whole powers by multiplication (exact for small Gaussian integers), others by exp(b log a). */
export function pow(a: Complex, b: Complex): Complex {
  if (b.re === 0 && b.im === 0) return one;
  if (a.re === 0 && a.im === 0) return b.re > 0 ? zero : complex(Number.NaN, Number.NaN);
  if (b.im === 0 && Number.isInteger(b.re) && Math.abs(b.re) <= 64) {
    let square = b.re < 0 ? reciprocal(a) : a;
    let product = one;
    for (let n = Math.abs(b.re); n > 0; n >>= 1) {
      if (n & 1) product = mul(product, square);
      if (n > 1) square = mul(square, square);
    }
    return product;
  }
  return exp(mul(b, log(a)));
}
