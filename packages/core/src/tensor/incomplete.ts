// Regularized incomplete gamma and beta functions: series and continued fractions as loops that end when all elements have converged.
import type { TensorLike } from "./convert.js";
import { zerosLike } from "./create.js";
import { customVjp } from "./custom.js";
import { scan } from "./mapping.js";
import {
  abs,
  equal,
  erfc,
  exp,
  isFinite,
  isNaN,
  log,
  log1p,
  logicalAnd,
  logicalOr,
  maximum,
  sqrt,
  where,
} from "./math.js";
import { any } from "./reduce.js";
import { digamma, gammaln, inDoubles, logBeta } from "./special.js";
import type { Tensor } from "./tensor.js";

/** Steps after which the loops end in any case; arguments below 2 * 10^4, or a tenth away from the mean, need fewer. */
const maxSteps = 2000;
const epsilon = 2 ** -53;
/** Replaces denominators that are 0 in continued fractions. */
const tiny = 1e-300;

/** Whether some element of the loop has not converged. */
const isOpen = (open: Tensor): Tensor => any(open);

/** x^a exp(-x) / gamma(a + 1), the factor of the series. */
const front = (a: Tensor, x: Tensor): Tensor =>
  exp(
    log(x)
      .mul(a)
      .sub(x)
      .sub(gammaln(a.add(1))),
  );

interface Series {
  term: Tensor;
  sum: Tensor;
  /** Derivative of the sum in a. */
  slope: Tensor;
  /** 1 / (a + 1) + ... + 1 / (a + n), with which the derivative of the n-th term is formed. */
  harmonic: Tensor;
  n: Tensor;
  open: Tensor;
}

/** Sum of x^n / ((a + 1) ... (a + n)), and its derivative in a. */
function gammaSeries(a: Tensor, x: Tensor): Series {
  const one = zerosLike(a).add(1);
  const start: Series = {
    term: one,
    sum: one,
    slope: zerosLike(a),
    harmonic: zerosLike(a),
    n: zerosLike(a),
    open: one.greater(0),
  };
  const step = (s: Series): [Series, null] => {
    const n = s.n.add(1);
    const term = s.term.mul(x).div(a.add(n));
    const harmonic = s.harmonic.add(a.add(n).reciprocal());
    const sum = s.sum.add(term);
    const open = logicalAnd(isFinite(sum), term.greater(sum.mul(epsilon)));
    return [{ term, sum, slope: s.slope.sub(term.mul(harmonic)), harmonic, n, open }, null];
  };
  return scan(step, start, null, { length: maxSteps, while: (s) => isOpen(s.open) })[0];
}

/** Continued fraction of the upper function for x > a + 1, by Lentz' method. */
function gammaFraction(a: Tensor, x: Tensor): Tensor {
  const b = x.add(1).sub(a);
  const d = b.reciprocal();
  const start = { b, c: zerosLike(a).add(1 / tiny), d, h: d, n: zerosLike(a), open: b.equal(b) };
  const [end] = scan(
    (s: typeof start): [typeof start, null] => {
      const n = s.n.add(1);
      const factor = n.mul(n.sub(a)).neg();
      const next = s.b.add(2);
      const safe = (v: Tensor): Tensor => where(abs(v).less(tiny), tiny, v);
      const dn = safe(factor.mul(s.d).add(next)).reciprocal();
      const c = safe(next.add(factor.div(s.c)));
      const change = dn.mul(c);
      const open = abs(change.sub(1)).greater(epsilon);
      return [{ b: next, c, d: dn, h: s.h.mul(change), n, open }, null];
    },
    start,
    null,
    { length: maxSteps, while: (s) => isOpen(s.open) },
  );
  return end.h.mul(exp(log(x).mul(a).sub(x).sub(gammaln(a))));
}

/** Coefficients of powers of eta, in the terms 1, 1 / a and 1 / a^2 of Temme's expansion. */
const temme = [
  [-1 / 3, 1 / 12, -2 / 135, 1 / 864, 1 / 2835, -139 / 777600, 1 / 25515, -571 / 261273600, -281 / 151559100],
  [-1 / 540, -1 / 288, 1 / 378, -77 / 77760, 1 / 4860],
  [25 / 6048, -139 / 51840],
];

/** Lower and upper function for large a and x beside a, where series and fraction converge slowly: Temme's uniform expansion. */
function gammaNear(a: Tensor, x: Tensor): { lower: Tensor; upper: Tensor } {
  const distance = x.sub(a).div(a);
  const half = maximum(distance.sub(log1p(distance)), 0);
  const eta = sqrt(half.mul(2)).mul(distance.sign());
  const powers = (list: readonly number[]): Tensor =>
    list.reduceRight<Tensor>((sum, c) => sum.mul(eta).add(c), zerosLike(a));
  const series = temme.reduceRight<Tensor>((sum, list) => sum.div(a).add(powers(list)), zerosLike(a));
  const rest = exp(half.mul(a).neg())
    .mul(series)
    .div(sqrt(a.mul(2 * Math.PI)));
  const scaled = eta.mul(sqrt(a.mul(0.5)));
  return { lower: erfc(scaled.neg()).mul(0.5).sub(rest), upper: erfc(scaled).mul(0.5).add(rest) };
}

/** Lower and upper function for a > 0 and finite x > 0. */
function gammaPair(a: Tensor, x: Tensor): { lower: Tensor; upper: Tensor } {
  const isNear = logicalAnd(a.greater(2e4), abs(x.sub(a)).less(a.mul(0.1)));
  const near = gammaNear(where(isNear, a, 3e4), where(isNear, x, 3e4));
  const far = gammaFar(where(isNear, 1, a), where(isNear, 1, x));
  return { lower: where(isNear, near.lower, far.lower), upper: where(isNear, near.upper, far.upper) };
}

function gammaFar(a: Tensor, x: Tensor): { lower: Tensor; upper: Tensor } {
  const isSeries = x.less(a.add(1));
  const series = front(a, where(isSeries, x, a)).mul(gammaSeries(a, where(isSeries, x, a)).sum);
  const fraction = gammaFraction(where(isSeries, 1, a), where(isSeries, 3, x));
  return {
    lower: where(isSeries, series, fraction.neg().add(1)),
    upper: where(isSeries, series.neg().add(1), fraction),
  };
}

/** Values at the edges: 0 at x = 0 and 1 at infinity; NaN outside. */
function gammaValue(a: Tensor, x: Tensor, upper: boolean): Tensor {
  const inside = logicalAnd(logicalAnd(a.greater(0), isFinite(a)), logicalAnd(x.greater(0), isFinite(x)));
  const pair = gammaPair(where(inside, a, 1), where(inside, x, 1));
  const [atZero, atInfinity] = upper ? [1, 0] : [0, 1];
  const edge = where(equal(x, 0), atZero, where(equal(x, Number.POSITIVE_INFINITY), atInfinity, Number.NaN));
  const wrong = logicalOr(logicalOr(isNaN(a), isNaN(x)), a.lessEqual(0));
  return where(inside, upper ? pair.upper : pair.lower, where(wrong, Number.NaN, edge));
}

/** Derivatives of the lower function in a and x. */
function gammaSlopes(a: Tensor, x: Tensor): { inA: Tensor; inX: Tensor } {
  const inside = logicalAnd(a.greater(0), logicalAnd(x.greater(0), isFinite(x)));
  const [p, y] = [where(inside, a, 1), where(inside, x, 1)];
  const { sum, slope } = gammaSeries(p, y);
  const inA = front(p, y).mul(sum.mul(log(y).sub(digamma(p.add(1)))).add(slope));
  const inX = exp(log(y).mul(p.sub(1)).sub(y).sub(gammaln(p)));
  return { inA: where(inside, inA, 0), inX: where(inside, inX, 0) };
}

const incompleteGamma = (name: string, upper: boolean): ((a: TensorLike, x: TensorLike) => Tensor) =>
  inDoubles(
    name,
    customVjp(
      (a: Tensor, x: Tensor) => gammaValue(a, x, upper),
      ([a, x], _y, g) => {
        const { inA, inX } = gammaSlopes(a, x);
        const sign = upper ? -1 : 1;
        return [g.mul(inA).mul(sign), g.mul(inX).mul(sign)];
      },
    ) as (...operands: Tensor[]) => Tensor,
  );

/** Elementwise regularized lower incomplete gamma function P(a, x), with broadcasting. */
export const gammainc = incompleteGamma("gammainc", false);
/** Elementwise regularized upper incomplete gamma function Q(a, x) = 1 - P(a, x), accurate where it is small; with broadcasting. */
export const gammaincc = incompleteGamma("gammaincc", true);

/** Continued fraction of the incomplete beta function for x < (a + 1) / (a + b + 2). */
function betaFraction(a: Tensor, b: Tensor, x: Tensor): Tensor {
  const safe = (v: Tensor): Tensor => where(abs(v).less(tiny), tiny, v);
  const total = a.add(b);
  const d = safe(total.mul(x).div(a.add(1)).neg().add(1)).reciprocal();
  const start = { c: zerosLike(a).add(1), d, h: d, n: zerosLike(a), change: zerosLike(a), open: d.equal(d) };
  const [end] = scan(
    (s: typeof start): [typeof start, null] => {
      const n = s.n.add(1);
      const twice = a.add(n.mul(2));
      const even = n.mul(b.sub(n)).mul(x).div(twice.sub(1).mul(twice));
      const d1 = safe(even.mul(s.d).add(1)).reciprocal();
      const c1 = safe(even.div(s.c).add(1));
      const odd = a
        .add(n)
        .mul(total.add(n))
        .mul(x)
        .div(twice.mul(twice.add(1)))
        .neg();
      const d2 = safe(odd.mul(d1).add(1)).reciprocal();
      const c2 = safe(odd.div(c1).add(1));
      const change = d2.mul(c2);
      const open = abs(change.sub(1)).greater(2 * epsilon);
      return [{ c: c2, d: d2, h: s.h.mul(d1).mul(c1).mul(change), n, change, open }, null];
    },
    start,
    null,
    { length: maxSteps / 4, while: (s) => isOpen(s.open) },
  );
  // Parameters of many millions would need more steps: no value rather than a wrong one.
  return where(abs(end.change.sub(1)).less(1e-9), end.h, Number.NaN);
}

/**
 * Elementwise regularized incomplete beta function of a, b > 0 and x in [0, 1], with broadcasting; NaN elsewhere, and where its continued
 * fraction does not converge (a and b of many millions, x beside the mean).
 */
export const betainc: (a: TensorLike, b: TensorLike, x: TensorLike) => Tensor = inDoubles("betainc", (a, b, x) => {
  const valid = logicalAnd(logicalAnd(a.greater(0), b.greater(0)), logicalAnd(x.greaterEqual(0), x.lessEqual(1)));
  const inside = logicalAnd(valid, logicalAnd(x.greater(0), x.less(1)));
  const [p, q, y] = [where(inside, a, 1), where(inside, b, 1), where(inside, x, 0.5)];
  // The fraction converges below the mean; above it the function of 1 - x is used.
  const isUpper = y.greater(p.add(1).div(p.add(q).add(2)));
  const [first, second] = [where(isUpper, q, p), where(isUpper, p, q)];
  const at = where(isUpper, y.neg().add(1), y);
  const scale = exp(log(at).mul(first).add(log1p(at.neg()).mul(second)).sub(logBeta(p, q)));
  const part = scale.mul(betaFraction(first, second, at)).div(first);
  const value = where(isUpper, part.neg().add(1), part);
  return where(inside, value, where(valid, equal(x, 1).cast("float64"), Number.NaN));
});
