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

/** Smith's division: no overflow in the middle; division by zero gives infinities like the real one. */
export function div(a: Complex, b: Complex): Complex {
  if (b.re === 0 && b.im === 0) return complex(a.re / Math.abs(b.re), a.im / Math.abs(b.re));
  if (Math.abs(b.re) >= Math.abs(b.im)) {
    const ratio = b.im / b.re;
    const scaled = b.re + b.im * ratio;
    return complex((a.re + a.im * ratio) / scaled, (a.im - a.re * ratio) / scaled);
  }
  const ratio = b.re / b.im;
  const scaled = b.re * ratio + b.im;
  return complex((a.re * ratio + a.im) / scaled, (a.im * ratio - a.re) / scaled);
}

export const reciprocal = (a: Complex): Complex => div(one, a);

/** z / |z|, and 0 at 0. */
export function sign(a: Complex): Complex {
  const size = abs(a);
  return size === 0 ? zero : complex(a.re / size, a.im / size);
}

export function sqrt(a: Complex): Complex {
  if (a.re === 0 && a.im === 0) return complex(0, a.im);
  const half = Math.sqrt((Math.abs(a.re) + abs(a)) / 2);
  if (a.re >= 0) return complex(half, a.im / (2 * half));
  const upper = a.im < 0 || Object.is(a.im, -0) ? -half : half;
  return complex(Math.abs(a.im) / (2 * half), upper);
}

export function exp(a: Complex): Complex {
  const size = Math.exp(a.re);
  // On the real axis an infinite size must not turn the imaginary zero into NaN.
  return a.im === 0 ? complex(size, a.im) : polar(size, a.im);
}

export function expm1(a: Complex): Complex {
  if (a.im === 0) return complex(Math.expm1(a.re), a.im);
  const half = Math.sin(a.im / 2);
  return complex(Math.expm1(a.re) * Math.cos(a.im) - 2 * half * half, Math.exp(a.re) * Math.sin(a.im));
}

export const log = (a: Complex): Complex => complex(Math.log(abs(a)), angle(a));

export function log1p(a: Complex): Complex {
  const shifted = onePlus(a);
  // |1 + z|^2 - 1 without cancellation, where z is small.
  const re = abs(a) < 0.5 ? 0.5 * Math.log1p(a.re * (2 + a.re) + a.im * a.im) : Math.log(abs(shifted));
  return complex(re, angle(shifted));
}

export const sinh = (a: Complex): Complex =>
  complex(Math.sinh(a.re) * Math.cos(a.im), Math.cosh(a.re) * Math.sin(a.im));
export const cosh = (a: Complex): Complex =>
  complex(Math.cosh(a.re) * Math.cos(a.im), Math.sinh(a.re) * Math.sin(a.im));

export function tanh(a: Complex): Complex {
  if (Math.abs(a.re) > 20) {
    return complex(Math.sign(a.re), 4 * Math.sin(a.im) * Math.cos(a.im) * Math.exp(-2 * Math.abs(a.re)));
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
  const low = sqrt(oneMinus(a));
  const high = sqrt(onePlus(a));
  return complex(Math.atan2(a.re, mul(low, high).re), Math.asinh(mul(conj(low), high).im));
}

export function acos(a: Complex): Complex {
  const low = sqrt(oneMinus(a));
  const high = sqrt(onePlus(a));
  return complex(2 * Math.atan2(low.re, high.re), Math.asinh(mul(conj(high), low).im));
}

function atanh(a: Complex): Complex {
  const away = (1 - a.re) * (1 - a.re) + a.im * a.im;
  return complex(
    0.25 * Math.log1p((4 * a.re) / away),
    0.5 * Math.atan2(2 * a.im, (1 - a.re) * (1 + a.re) - a.im * a.im),
  );
}

export const atan = (a: Complex): Complex => timesMinusI(atanh(timesI(a)));

/** Whole powers by multiplication (exact for small Gaussian integers), others by exp(b log a). */
export function pow(a: Complex, b: Complex): Complex {
  if (b.re === 0 && b.im === 0) return one;
  if (a.re === 0 && a.im === 0) return b.re > 0 ? zero : complex(Number.NaN, Number.NaN);
  if (b.im === 0 && Number.isInteger(b.re) && Math.abs(b.re) <= 64) {
    let product = one;
    for (let i = 0; i < Math.abs(b.re); i++) product = mul(product, a);
    return b.re < 0 ? reciprocal(product) : product;
  }
  return exp(mul(b, log(a)));
}
