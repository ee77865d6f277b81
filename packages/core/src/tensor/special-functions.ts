// The namespace `special`: special functions as in scipy.special, evaluated in float64. Functions that are also exported at the top
// (erf, gammaln, ...) are repeated here, so that the namespace is complete.
import { WeftError } from "../graph/index.js";
import type { TensorLike } from "./convert.js";
import { customVjp } from "./custom.js";
import {
  abs,
  equal,
  erfc,
  exp,
  expm1,
  isNaN,
  less,
  log,
  log1p,
  logicalAnd,
  logicalOr,
  maximum,
  mul,
  pow,
  round,
  sqrt,
  where,
} from "./math.js";
import { digamma, erfinv, gammaln, inDouble, inDoubles, logBeta, scaledBessel, unscaled } from "./special.js";
import type { Tensor } from "./tensor.js";

export { betainc, gammainc, gammaincc } from "./incomplete.js";
export { erf, erfc } from "./math.js";
export { logSoftmax, sigmoid as expit, softmax } from "./nnfunctions.js";
export { logsumexp } from "./reduce.js";
export { digamma, erfinv, gammaln, i0 } from "./special.js";

/** Elementwise log(p / (1 - p)): infinite at 0 and 1, NaN outside of [0, 1]. */
export const logit = inDouble("logit", (p) => log(p).sub(log1p(p.neg())));

/** Elementwise log(1 - exp(-x)) for x > 0, accurate near 0 and for large x. */
export const log1mexp = inDouble("log1mexp", (x) => {
  const isSmall = x.lessEqual(Math.LN2);
  // Each branch gets arguments for which it and its derivative are finite.
  const [near, far] = [where(isSmall, x, 1), where(isSmall, 1, x)];
  return where(isSmall, log(expm1(near.neg()).neg()), log1p(exp(far.neg()).neg()));
});

/** x times a logarithm, 0 where x is 0; its derivative in x is the logarithm, also at 0. */
const timesLog = (name: string, fn: (y: Tensor) => Tensor, inverse: (y: Tensor) => Tensor) =>
  inDoubles(
    name,
    customVjp(
      (x: Tensor, y: Tensor) => where(logicalAnd(equal(x, 0), isNaN(y).logicalNot()), 0, x.mul(fn(y))),
      ([x, y], _value, g) => [g.mul(fn(y)), g.mul(where(equal(x, 0), 0, x.mul(inverse(y))))],
    ) as (...operands: Tensor[]) => Tensor,
  );

/** Elementwise x log(y), 0 where x is 0, with broadcasting. */
export const xlogy: (x: TensorLike, y: TensorLike) => Tensor = timesLog("xlogy", log, (y) => y.reciprocal());
/** Elementwise x log(1 + y), 0 where x is 0, with broadcasting. */
export const xlog1py: (x: TensorLike, y: TensorLike) => Tensor = timesLog("xlog1py", log1p, (y) =>
  y.add(1).reciprocal(),
);

/** Elementwise entropy -x log(x): 0 at 0, -Infinity below. */
export const entr = inDouble("entr", (x) => {
  const positive = x.greater(0);
  const inside = where(positive, x, 1);
  const value = where(positive, inside.mul(log(inside)).neg(), where(equal(x, 0), 0, Number.NEGATIVE_INFINITY));
  return where(isNaN(x), x, value);
});

/** Elementwise relative entropy x log(x / y): 0 where x is 0 and y is not negative, infinite where it is not defined. */
export const relEntr: (x: TensorLike, y: TensorLike) => Tensor = inDoubles("relEntr", (x, y) => {
  const both = logicalAnd(x.greater(0), y.greater(0));
  const [a, b] = [where(both, x, 1), where(both, y, 1)];
  const edge = where(logicalAnd(equal(x, 0), y.greaterEqual(0)), 0, Number.POSITIVE_INFINITY);
  const ratio = a.div(b);
  const isNormal = logicalAnd(ratio.greater(1e-300), ratio.less(1e300));
  const logarithm = where(isNormal, log(where(isNormal, ratio, 1)), log(a).sub(log(b)));
  const value = where(both, a.mul(logarithm), edge);
  return where(logicalOr(isNaN(x), isNaN(y)), Number.NaN, value);
});

/** Elementwise x log(x / y) - x + y, the summand of the Kullback-Leibler divergence of unnormalized densities. */
export const klDiv = (x: TensorLike, y: TensorLike): Tensor => relEntr(x, y).sub(x).add(y);

/** Elementwise distribution function of the standard normal distribution. */
export const ndtr = inDouble("ndtr", (x) => erfc(x.mul(-Math.SQRT1_2)).mul(0.5));

/** Coefficients of 1 / x^2, 1 / x^4, ... in the asymptotic series of Mills' ratio times x. */
const mills = [-1, 3, -15, 105, -945, 10395, -135135, 2027025];

/** Elementwise logarithm of {@link ndtr}, accurate in both tails. */
export const logNdtr = inDouble(
  "logNdtr",
  customVjp(
    (x: Tensor): Tensor => {
      const isFar = less(x, -15);
      const [near, far] = [where(isFar, 0, x), where(isFar, x, -20)];
      const inverse = far.mul(far).reciprocal();
      const series = mills.reduceRight<Tensor>((sum, c) => sum.add(c).mul(inverse), inverse.mul(0));
      const tail = far
        .mul(far.mul(-0.5))
        .sub(log(far.neg()))
        .sub(Math.log(2 * Math.PI) / 2)
        .add(log1p(series));
      const isUpper = near.greater(0);
      const upper = log1p(erfc(where(isUpper, near, 0).mul(Math.SQRT1_2)).mul(-0.5));
      const lower = log(erfc(where(isUpper, 0, near).mul(-Math.SQRT1_2)).mul(0.5));
      return where(isFar, tail, where(isUpper, upper, lower));
    },
    ([x]: [Tensor], y, g) => [g.mul(exp(x.mul(x).mul(-0.5).sub(y)).mul(1 / Math.sqrt(2 * Math.PI)))],
  ),
);

/** Elementwise inverse of erfc: infinite at 0 and 2, NaN outside. */
export const erfcinv = inDouble(
  "erfcinv",
  customVjp(
    (q: Tensor): Tensor => {
      // Below 1e-3 by Newton's method on the logarithm, which has digits where 1 - q has none.
      const size = where(q.greater(1), q.neg().add(2), q);
      const isTail = logicalAnd(size.greater(0), size.less(1e-3));
      const inner = erfinv(where(isTail, 0.5, size).neg().add(1));
      const p = where(isTail, size, 1e-4);
      const wanted = log(p);
      let y = sqrt(wanted.neg().sub(log(wanted.neg().mul(Math.PI)).mul(0.5)));
      for (let i = 0; i < 5; i++) {
        const value = maximum(erfc(y), 5e-324);
        const slope = exp(y.mul(y).neg())
          .mul(-2 / Math.sqrt(Math.PI))
          .div(value);
        y = y.sub(log(value).sub(wanted).div(slope));
      }
      const magnitude = where(isTail, y, inner);
      const inside = where(size.less(0), Number.NaN, magnitude);
      return where(q.greater(1), inside.neg(), inside);
    },
    (_args: [Tensor], y, g) => [g.mul(exp(y.mul(y)).mul(-Math.sqrt(Math.PI) / 2))],
  ),
);

/** Elementwise inverse of {@link ndtr}: infinite at 0 and 1, NaN outside. */
export const ndtri = inDouble("ndtri", (p) => erfcinv(p.mul(2)).mul(-Math.SQRT2));

/** Elementwise gamma function; infinite at 0 and -0, NaN at -1, -2, ... */
export const gamma = inDouble(
  "gamma",
  customVjp(
    (x: Tensor): Tensor => {
      const magnitude = exp(gammaln(x));
      const isPole = logicalAnd(x.lessEqual(0), equal(x, x.floor()));
      const isNegative = logicalAnd(x.less(0), x.floor().mod(2).notEqual(0));
      // Whole numbers have whole results, exactly as long as they fit.
      const whole = logicalAnd(equal(x, x.floor()), x.less(19));
      const value = where(whole, round(magnitude), magnitude);
      const pole = where(equal(x, 0), x.reciprocal(), Number.NaN);
      return where(isPole, pole, where(isNegative, value.neg(), value));
    },
    ([x]: [Tensor], y, g) => [g.mul(y).mul(digamma(x))],
  ),
);

/** Elementwise factorial, the gamma function at x + 1. */
export const factorial = (x: TensorLike): Tensor => gamma(mul(x, 1).add(1));

/** Elementwise logarithm of the beta function gamma(a) gamma(b) / gamma(a + b), with broadcasting. */
export const betaln: (a: TensorLike, b: TensorLike) => Tensor = inDoubles(
  "betaln",
  logBeta as (...operands: Tensor[]) => Tensor,
);

/** Elementwise number of ways to choose k of n, also of numbers that are not whole; with broadcasting. */
export const binom: (n: TensorLike, k: TensorLike) => Tensor = inDoubles("binom", (n, k) => {
  const value = exp(
    logBeta(n.sub(k).add(1), k.add(1))
      .add(log(abs(n.add(1))))
      .neg(),
  );
  const isWhole = logicalAnd(equal(n, n.floor()), equal(k, k.floor()));
  const exact = where(logicalAnd(isWhole, value.less(2 ** 50)), round(value), value);
  return where(logicalAnd(isWhole, logicalOr(k.less(0), k.greater(n))), 0, exact);
});

/** Elementwise logarithm of the multivariate gamma function of dimension d. */
export function multigammaln(x: TensorLike, d: number): Tensor {
  if (!Number.isInteger(d) || d < 1)
    throw new WeftError(`multigammaln: the dimension is a whole number >= 1, got ${d}`);
  return inDouble("multigammaln", (a) => {
    let sum = gammaln(a).add((d * (d - 1) * Math.log(Math.PI)) / 4);
    for (let i = 1; i < d; i++) sum = sum.add(gammaln(a.sub(i / 2)));
    return sum;
  })(x);
}

/** B(2k) / (2k)! of the Bernoulli numbers, for the formula of Euler and Maclaurin. */
const bernoulli = [
  1 / 12,
  -1 / 720,
  1 / 30240,
  -1 / 1209600,
  1 / 47900160,
  -691 / 1307674368000,
  1 / 74724249600,
  -3617 / 10670622842880000,
];

/** Sum over k >= 0 of (q + k)^-s: ten terms, then the formula of Euler and Maclaurin. */
function hurwitz(s: Tensor, q: Tensor): Tensor {
  let sum = pow(q, s.neg());
  for (let k = 1; k < 10; k++) sum = sum.add(pow(q.add(k), s.neg()));
  const end = q.add(10);
  const power = pow(end, s.neg());
  sum = sum.add(power.mul(end).div(s.sub(1))).add(power.mul(0.5));
  let factor = s.mul(power).div(end);
  bernoulli.forEach((b, i) => {
    sum = sum.add(factor.mul(b));
    const next = s.add(2 * i + 1).mul(s.add(2 * i + 2));
    factor = factor.mul(next).div(end.mul(end));
  });
  return sum;
}

/** Elementwise Hurwitz zeta function, the sum over k >= 0 of (q + k)^-s; q is 1 by default. Needs s > 1 and q > 0, otherwise NaN. */
export function zeta(s: TensorLike, q: TensorLike = 1): Tensor {
  return inDoubles("zeta", (x, y) => {
    const inside = logicalAnd(x.greater(1), y.greater(0));
    const value = hurwitz(where(inside, x, 2), where(inside, y, 1));
    return where(inside, value, where(equal(x, 1), Number.POSITIVE_INFINITY, Number.NaN));
  })(s, q);
}

/** Elementwise n-th derivative of the {@link digamma} function for x > 0; n is a whole number. */
export function polygamma(n: number, x: TensorLike): Tensor {
  if (!Number.isInteger(n) || n < 0 || n > 100)
    throw new WeftError(`polygamma: the order is a whole number from 0 to 100, got ${n}`);
  if (n === 0) return digamma(x);
  let factorialN = 1;
  for (let k = 2; k <= n; k++) factorialN *= k;
  return inDouble("polygamma", (t) => zeta(n + 1, t).mul(n % 2 === 1 ? factorialN : -factorialN))(x);
}

/** Elementwise exp(-|x|) times the modified Bessel function of order 0. */
export const i0e = inDouble(
  "i0e",
  customVjp(
    (x: Tensor) => scaledBessel(x, 0),
    ([x]: [Tensor], y, g) => [g.mul(scaledBessel(x, 1).sub(y.mul(x.sign())))],
  ),
);

/** I1'(x) = I0(x) - I1(x) / x, which is 1/2 at 0. */
const slopeOfI1 = (x: Tensor, zeroth: Tensor, first: Tensor): Tensor => {
  const isSmall = less(abs(x), 1e-5);
  return zeroth.sub(where(isSmall, zeroth.mul(0.5), first.div(where(isSmall, 1, x))));
};

/** Elementwise modified Bessel function of the first kind of order 1. */
export const i1 = inDouble(
  "i1",
  customVjp(
    (x: Tensor) => unscaled(scaledBessel(x, 1), x),
    ([x]: [Tensor], _y, g) => [g.mul(unscaled(slopeOfI1(x, scaledBessel(x, 0), scaledBessel(x, 1)), x))],
  ),
);

/** Elementwise exp(-|x|) times the modified Bessel function of order 1. */
export const i1e = inDouble(
  "i1e",
  customVjp(
    (x: Tensor) => scaledBessel(x, 1),
    ([x]: [Tensor], y, g) => [g.mul(slopeOfI1(x, scaledBessel(x, 0), y).sub(y.mul(x.sign())))],
  ),
);
