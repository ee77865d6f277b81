// Special functions, composed of elementary ones and evaluated in float64: the inverse error function, the logarithm of the gamma
// function and its derivative, and a Bessel function. Their gradients are given, because those of the approximations are not exact.
import { DTypeError, isComplex, toInexact } from "../graph/index.js";
import { commonDType, nodeOf, type TensorLike, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { customVjp } from "./custom.js";
import { abs, cast, erf, erfc, exp, isNaN, log, log1p, maximum, minimum, sin, sqrt, tan, where } from "./math.js";
import { broadcastTensors } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Applies a real function in float64 and returns the dtype of the operand, float32 for integers. */
export const inDouble =
  (op: string, fn: (x: Tensor) => Tensor) =>
  (x: TensorLike): Tensor => {
    const node = nodeOf(op, x);
    const dtype = toInexact(node.dtype);
    if (isComplex(dtype)) throw new DTypeError(`${op}: not defined for ${dtype}`);
    return cast(fn(cast(wrap(node), "float64")), dtype);
  };

/** The same for a function of several operands, which broadcast. */
export const inDoubles =
  (op: string, fn: (...operands: Tensor[]) => Tensor) =>
  (...operands: TensorLike[]): Tensor => {
    const dtype = toInexact(commonDType(op, operands));
    if (isComplex(dtype)) throw new DTypeError(`${op}: not defined for ${dtype}`);
    return cast(fn(...broadcastTensors(...operands.map((x) => cast(x, "float64")))), dtype);
  };

const half = Math.sqrt(Math.PI) / 2;

/** A first guess (Winitzki), then Halley's method; near 1 with the complement, which has digits there. */
function inverseErf(x: Tensor): Tensor {
  const size = abs(x);
  const inside = where(size.less(1), size, 0.5);
  const l = log(inside.mul(inside).neg().add(1));
  const a = l.mul(0.5).add(2 / (Math.PI * 0.147));
  let y = sqrt(sqrt(a.mul(a).sub(l.div(0.147))).sub(a));
  for (let i = 0; i < 3; i++) {
    const error = where(inside.less(0.5), erf(y).sub(inside), inside.neg().add(1).sub(erfc(y)));
    const step = error.mul(exp(y.mul(y))).mul(half);
    y = y.sub(step.div(y.mul(step).add(1)));
  }
  const magnitude = where(size.less(1), y, where(size.equal(1), Number.POSITIVE_INFINITY, Number.NaN));
  return where(x.less(0), magnitude.neg(), where(x.equal(0), x, magnitude));
}

/** Elementwise inverse of {@link erf}: infinite at -1 and 1, NaN beyond. */
export const erfinv = inDouble(
  "erfinv",
  customVjp(inverseErf, (_args: [Tensor], y, g) => [g.mul(exp(y.mul(y)).mul(half))]),
);

/** Coefficients of Lanczos' approximation with g = 7 and nine terms. */
const lanczos = [
  0.99999999999980993, 676.5203681218851, -1259.1392167224028, 771.32342877765313, -176.61502916214059,
  12.507343278686905, -0.13857109526572012, 9.9843695780195716e-6, 1.5056327351493116e-7,
];

/** log |gamma(x)|: Lanczos' formula for x >= 0.5, by reflection elsewhere. */
function logGamma(x: Tensor): Tensor {
  const low = x.less(0.5);
  const z = where(low, x.neg(), x.sub(1));
  const series = lanczos.slice(1).reduce<Tensor>(
    (sum, c, i) =>
      sum.add(
        z
          .add(i + 1)
          .reciprocal()
          .mul(c),
      ),
    z.mul(0).add(lanczos[0]),
  );
  const t = z.add(7.5);
  const direct = log(t)
    .mul(z.add(0.5))
    .sub(t)
    .add(log(series))
    .add(Math.log(2 * Math.PI) / 2);
  // The distance to the nearest whole number keeps the digits of the sine for large |x| and beside poles.
  const wave = abs(sin(x.sub(x.round()).mul(Math.PI)));
  const reflected = log(wave).neg().add(Math.log(Math.PI)).sub(direct);
  const result = where(low, reflected, direct);
  const isPole = x.lessEqual(0).logicalAnd(x.equal(x.floor()));
  return where(isPole.logicalOr(x.equal(Number.POSITIVE_INFINITY)), Number.POSITIVE_INFINITY, result);
}

/** Coefficients of 1 / x^2, 1 / x^4, ... in the asymptotic series of the digamma function. */
const digammaSeries = [-1 / 12, 1 / 120, -1 / 252, 1 / 240, -1 / 132, 691 / 32760, -1 / 12];

/** Coefficients of 1 / x, 1 / x^3, ... in the logarithm of gamma(x) over Stirling's formula. */
const stirling = [1 / 12, -1 / 360, 1 / 1260, -1 / 1680, 1 / 1188, -691 / 360360, 1 / 156];
const stirlingRest = (x: Tensor): Tensor => {
  const inverse = x.reciprocal();
  const square = inverse.mul(inverse);
  return stirling.reduceRight<Tensor>((sum, c) => sum.mul(square).add(c), inverse.mul(0)).mul(inverse);
};

/**
 * log |gamma(a) gamma(b) / gamma(a + b)|. From 10 on, the large terms of the logarithms are subtracted by hand: their difference has few
 * digits.
 */
export const logBeta = customVjp(
  (a: Tensor, b: Tensor): Tensor => {
    const [low, high] = [minimum(a, b), maximum(a, b)];
    const inside = low.greater(0).logicalAnd(high.greaterEqual(10)).logicalAnd(high.less(Infinity));
    const [p, q] = [where(inside, low, 1), where(inside, high, 10)];
    // Halves keep the sum of the largest numbers finite.
    const share = p.mul(0.5).div(p.mul(0.5).add(q.mul(0.5)));
    const log1 = log1p(share.neg());
    const rest = stirlingRest(q).sub(stirlingRest(p.add(q)));
    const isSmall = p.less(10);
    const small = logGamma(where(isSmall, p, 1))
      .add(rest)
      .add(p)
      .sub(p.mul(log(p.mul(0.5).add(q.mul(0.5))).add(Math.LN2)))
      .add(q.sub(0.5).mul(log1));
    const large = where(isSmall, 10, p);
    const both = stirlingRest(large)
      .add(rest)
      .add(Math.log(2 * Math.PI) / 2)
      .sub(log(q).mul(0.5))
      .add(large.sub(0.5).mul(log(share)))
      .add(q.mul(log1));
    const direct = logGamma(a)
      .add(logGamma(b))
      .sub(logGamma(a.add(b)));
    const atZero = low
      .equal(0)
      .logicalOr(a.equal(0))
      .logicalOr(b.equal(0))
      .logicalAnd(isNaN(a.add(b)).logicalNot());
    const edge = where(atZero, Infinity, where(low.greater(0).logicalAnd(high.equal(Infinity)), -Infinity, direct));
    return where(inside, where(isSmall, small, both), edge);
  },
  ([a, b], _y, g): [Tensor, Tensor] => {
    const whole = psi(a.add(b));
    return [g.mul(psi(a).sub(whole)), g.mul(psi(b).sub(whole))];
  },
);

/** Derivative of log |gamma(x)|: the asymptotic series after eight steps up, by reflection below 0.5. */
function psi(x: Tensor): Tensor {
  const low = x.less(0.5);
  const start = where(low, x.neg().add(1), x);
  let sum = start.reciprocal().neg();
  for (let i = 1; i < 8; i++) sum = sum.sub(start.add(i).reciprocal());
  const z = start.add(8);
  const inverse = z.mul(z).reciprocal();
  const series = digammaSeries.reduceRight<Tensor>((p, c) => p.add(c).mul(inverse), inverse.mul(0));
  const direct = sum.add(log(z)).sub(z.reciprocal().mul(0.5)).add(series);
  const fraction = where(low, x.sub(x.round()), 0.25);
  const reflected = direct.sub(tan(fraction.mul(Math.PI)).reciprocal().mul(Math.PI));
  const result = where(low, reflected, direct);
  // At the poles -1, -2, ... the two sides have different signs; zeros have a side.
  const pole = where(x.equal(0), x.reciprocal().neg(), Number.NaN);
  return where(x.lessEqual(0).logicalAnd(x.equal(x.floor())), pole, result);
}

/** Elementwise derivative of {@link gammaln}; infinite at 0 and -0, NaN at -1, -2, ... */
export const digamma = inDouble("digamma", psi);

/** Elementwise logarithm of |gamma(x)|; infinite at 0, -1, -2, ... */
export const gammaln = inDouble(
  "gammaln",
  customVjp(logGamma, ([x]: [Tensor], _y, g) => [g.mul(psi(x))]),
);

/** Angles of the 129 nodes of the trapezoidal rule on a half turn, and their weights. */
const nodes = Array.from({ length: 129 }, (_, i) => (Math.PI * i) / 128);
const weights = nodes.map((_, i) => (i === 0 || i === 128 ? 1 : 2) / 256);

/** Coefficients of 1 / x, 1 / x^2, ... in the asymptotic series of exp(-x) I(x) sqrt(2 pi x) of an order. */
function besselSeries(order: 0 | 1): number[] {
  const series = [1];
  for (let k = 1; k <= 8; k++) series.push((series[k - 1] * -(4 * order * order - (2 * k - 1) ** 2)) / (8 * k));
  return series;
}

/** 1 / (k! (k + 1)!), the coefficients of (x / 2)^(2 k) in 2 I1(x) / x. */
const powerSeries = Array.from({ length: 9 }, () => 1);
for (let k = 1; k < powerSeries.length; k++) powerSeries[k] = powerSeries[k - 1] / (k * (k + 1));

/** exp(-|x|) times the modified Bessel function: the mean of cos(order t) exp(x cos t), which the rule integrates exactly up to 500. */
export function scaledBessel(x: Tensor, order: 0 | 1): Tensor {
  const size = abs(x);
  const isLarge = size.greater(500);
  const inner = where(isLarge, 0, size).unsqueeze(-1);
  const constants = (values: number[]): Tensor => tensor(Float64Array.from(values));
  const parts = exp(inner.mul(constants(nodes.map((t) => Math.cos(t) - 1))));
  const mean = parts.mul(constants(weights.map((w, i) => w * Math.cos(order * nodes[i])))).sum(-1);
  const outer = where(isLarge, size, 1000);
  const inverse = outer.reciprocal();
  const series = besselSeries(order).reduceRight<Tensor>((sum, c) => sum.mul(inverse).add(c), inverse.mul(0));
  const result = where(isLarge, series.div(sqrt(outer).mul(Math.sqrt(2 * Math.PI))), mean);
  if (order === 0) return result;
  // Near 0, where the mean is a small difference of large terms, the power series has all digits.
  const near = size.less(1);
  const small = where(near, size, 0);
  const quarter = small.mul(small).mul(0.25);
  const power = powerSeries.reduceRight<Tensor>((sum, c) => sum.mul(quarter).add(c), quarter.mul(0));
  const odd = where(near, power.mul(small).mul(0.5).mul(exp(small.neg())), result);
  return where(x.less(0), odd.neg(), odd);
}

/** A scaled value times exp(|x|), as two factors: the exponential overflows before the product. From 1000 on the product is infinite. */
export function unscaled(scaled: Tensor, x: Tensor): Tensor {
  const size = abs(x);
  const isInfinite = size.greater(1000);
  const half = exp(where(isInfinite, 0, size).mul(0.5));
  return where(isInfinite, where(scaled.less(0), -Infinity, Infinity), scaled.mul(half).mul(half));
}

/** Elementwise modified Bessel function of the first kind of order 0. */
export const i0 = inDouble(
  "i0",
  customVjp(
    (x: Tensor) => unscaled(scaledBessel(x, 0), x),
    ([x]: [Tensor], _y, g) => [g.mul(unscaled(scaledBessel(x, 1), x))],
  ),
);
