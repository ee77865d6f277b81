// Random tensors of other distributions, composed of uniform and normal numbers: the same numbers on every device, up to the rounding
// of the functions that transform them.
import {
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  isFloat,
  isHalf,
  numel,
  type Shape,
  ShapeError,
  showValue,
  WeftError,
} from "../graph/index.js";
import { isTracing } from "../runtime/index.js";
import { checkShape } from "./checks.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { finfo } from "./dtypes.js";
import { matmul } from "./einsum.js";
import { take, topk } from "./indexing.js";
import { cholesky } from "./linalg.js";
import { add, cast, erf, erfc, exp, log, log1p, maximum, pow, sqrt, sub, tan, where } from "./math.js";
import { sigmoid, softmax } from "./nnfunctions.js";
import { type Key, key, nextKey, permutation, type RandomOptions, rand, randint, randn, splitKey } from "./random.js";
import { argmax } from "./reduce.js";
import { broadcastTo, unstack } from "./shape.js";
import { erfinv } from "./special.js";
import { erfcinv } from "./special-functions.js";
import { searchsorted } from "./statistics.js";
import type { Tensor } from "./tensor.js";

/** Names of {@link RandomOptions}, without and with the dtype. */
const keyNames = ["seed", "key"] as const;
const randomNames = ["dtype", ...keyNames] as const;

/** Independent keys for several draws of one call. */
function keysOf(options: RandomOptions, count: number): Key[] {
  const from = options.key ?? (options.seed === undefined ? nextKey() : key(options.seed));
  return unstack(splitKey(from, count), 0);
}

function positive(op: string, name: string, value: number): void {
  if (!(value > 0) || !Number.isFinite(value)) throw new WeftError(`${op}: ${name} is a positive number, got ${value}`);
}

const floatOf = ({ dtype = "float32" }: RandomOptions): DType => dtype;

/** Halves are drawn in float32 and rounded: their uniform numbers have 256 or 2048 values, too few for tails. */
function drawn<O extends RandomOptions>(options: O, body: (options: O) => Tensor): Tensor {
  const dtype = floatOf(options);
  return isHalf(dtype) ? cast(body({ ...options, dtype: "float32" }), dtype) : body(options);
}

/** Exponentially distributed numbers with mean 1 / rate. */
export function exponential(shape: Shape, options: RandomOptions & { rate?: number } = {}): Tensor {
  const { rate = 1, ...random } = checkOptions("exponential", options, [...randomNames, "rate"]);
  positive("exponential", "rate", rate);
  return drawn(random, (o) => log1p(rand(shape, o).neg()).neg().div(rate));
}

/** Numbers with the Gumbel distribution: -log(-log(u)) of uniform numbers u. */
export function gumbel(shape: Shape, options: RandomOptions & { loc?: number; scale?: number } = {}): Tensor {
  const { loc = 0, scale = 1, ...random } = checkOptions("gumbel", options, [...randomNames, "loc", "scale"]);
  positive("gumbel", "scale", scale);
  // Uniform numbers are multiples of 2^-24 (2^-53 in float64); half a step replaces 0.
  const least = floatOf(options) === "float64" ? 2 ** -54 : 2 ** -25;
  return drawn(random, (o) =>
    log(maximum(exponential(shape, o), least))
      .neg()
      .mul(scale)
      .add(loc),
  );
}

/** Numbers with the Laplace distribution (two exponential tails). */
export function laplace(shape: Shape, options: RandomOptions & { loc?: number; scale?: number } = {}): Tensor {
  const { loc = 0, scale = 1 } = checkOptions("laplace", options, [...randomNames, "loc", "scale"]);
  positive("laplace", "scale", scale);
  const [side, size] = keysOf(options, 2);
  return drawn({ dtype: options.dtype, key: size }, (o) => {
    const magnitude = exponential(shape, o);
    return where(rand(shape, { key: side }).less(0.5), magnitude.neg(), magnitude)
      .mul(scale)
      .add(loc);
  });
}

/** Standard deviations beyond which the share of a tail is not a normal number of float64. */
const maxTail = 37;

/** Normal numbers, mean 0 and standard deviation 1, that lie in [low, high]. */
export function truncatedNormal(low: number, high: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("truncatedNormal", options, randomNames);
  if (!(low < high)) throw new WeftError(`truncatedNormal: needs low < high, got ${low} and ${high}`);
  if (low > maxTail || high < -maxTail)
    throw new WeftError(`truncatedNormal: [${low}, ${high}] is more than ${maxTail} standard deviations from 0`);
  // In a tail erf is 1 to all digits: shares of erfc, which is small there, keep theirs.
  const [nearest, farthest, side] = high < 0 ? [-high, -low, -1] : [low, high, 1];
  const [share, inverse] = nearest > 0 ? [erfc, erfcinv] : [erf, erfinv];
  const bounds = share(tensor([nearest / Math.SQRT2, farthest / Math.SQRT2], { dtype: "float64" }));
  const [from, to] = unstack(bounds, 0);
  const uniform = rand(shape, { ...options, dtype: "float64" });
  const within = inverse(uniform.mul(to.sub(from)).add(from)).mul(side * Math.SQRT2);
  return cast(within.clip(low, high), floatOf(options));
}

/** Attempts per number. At least 95% of them are accepted, so that one number in 10^10 falls back to the mode. */
const attempts = 8;

/**
 * Numbers with the gamma distribution of a shape parameter (a number or a tensor that broadcasts) and scale 1, by the method of
 * Marsaglia and Tsang. Not differentiable in the parameter.
 */
export function gamma(concentration: TensorLike, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("gamma", options, randomNames);
  const { factor, logBoost } = gammaParts("gamma", concentration, shape, options);
  return cast(factor.mul(exp(logBoost)), floatOf(options));
}

/** Logarithms of such numbers, float64: small parameters give numbers that underflow. */
function logGamma(op: string, concentration: TensorLike, shape: Shape, options: RandomOptions): Tensor {
  const { factor, logBoost } = gammaParts(op, concentration, shape, options);
  return log(factor).add(logBoost);
}

/** Numbers with a gamma distribution as a product of float64 numbers; the second factor by its logarithm. */
function gammaParts(
  op: string,
  concentration: TensorLike,
  shape: Shape,
  options: RandomOptions,
): { factor: Tensor; logBoost: Tensor } {
  checkShape(op, shape);
  if (typeof concentration === "number") positive(op, "concentration", concentration);
  const [normals, uniforms, boosts] = keysOf(options, 3);
  const alpha = broadcastTo(cast(concentration, "float64"), shape);
  // Below 1 the number of alpha + 1 is multiplied by u^(1 / alpha).
  const isSmall = alpha.less(1);
  const d = where(isSmall, alpha.add(1), alpha).sub(1 / 3);
  const c = sqrt(d.mul(9)).reciprocal();
  const x = randn([attempts, ...shape], { key: normals, dtype: "float64" });
  const u = rand([attempts, ...shape], { key: uniforms, dtype: "float64" });
  const v = pow(x.mul(c).add(1), 3);
  const safe = where(v.greater(0), v, 1);
  const bound = x
    .mul(x)
    .mul(0.5)
    .add(d)
    .sub(d.mul(safe))
    .add(d.mul(log(safe)));
  const accepted = v.greater(0).logicalAnd(log(u).less(bound));
  const tries = unstack(where(accepted, safe, -1), 0);
  const first = tries.reduceRight<Tensor>((later, t) => where(t.greater(0), t, later), alpha.mul(0).add(1));
  const boost = log(rand(shape, { key: boosts, dtype: "float64" }).neg().add(1)).div(where(isSmall, alpha, 1));
  // There is no such distribution for other parameters.
  return { factor: where(alpha.greater(0), d.mul(first), Number.NaN), logBoost: where(isSmall, boost, 0) };
}

/** Numbers with the beta distribution of two parameters, in (0, 1). */
export function beta(a: TensorLike, b: TensorLike, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("beta", options, randomNames);
  const [left, right] = keysOf(options, 2).map((k, i) => logGamma("beta", i === 0 ? a : b, shape, { key: k }));
  return cast(sigmoid(left.sub(right)), floatOf(options));
}

/** Probability vectors with the Dirichlet distribution: parameters [n], result [...shape, n]. */
export function dirichlet(concentration: Tensor, shape: Shape = [], options: RandomOptions = {}): Tensor {
  checkOptions("dirichlet", options, randomNames);
  checkArguments("dirichlet", "tensor", { concentration });
  checkShape("dirichlet", shape);
  if (concentration.rank !== 1) throw new ShapeError("dirichlet: the parameters are a vector");
  const parts = logGamma("dirichlet", concentration, [...shape, concentration.size], options);
  return cast(softmax(parts), floatOf(options));
}

/** Numbers with Student's t distribution. */
export function studentT(degrees: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("studentT", options, randomNames);
  positive("studentT", "degrees", degrees);
  const [normals, squares] = keysOf(options, 2);
  const spread = gamma(degrees / 2, shape, { key: squares, dtype: "float64" }).mul(2 / degrees);
  return cast(randn(shape, { key: normals, dtype: "float64" }).div(sqrt(spread)), floatOf(options));
}

/** log(n!) by Stirling's series; small ones exactly. */
function logFactorial(n: number): number {
  if (n < 32) return Math.log(Array.from({ length: n }, (_, i) => i + 1).reduce((a, b) => a * b, 1));
  return n * Math.log(n) - n + 0.5 * Math.log(2 * Math.PI * n) + 1 / (12 * n) - 1 / (360 * n ** 3);
}

/** Counts by inversion of their cumulative sum: the probability of `from`, and the ratio of each to the one before it. */
function countsBy(
  [from, to]: readonly [number, number],
  first: number,
  ratio: (k: number) => number,
  shape: Shape,
  options: Omit<RandomOptions, "dtype">,
): Tensor {
  const table: number[] = [];
  let [term, total] = [first, 0];
  for (let k = from; k <= to; k++) {
    total += term;
    table.push(total);
    term *= ratio(k + 1);
  }
  const uniform = rand(shape, { ...options, dtype: "float64" });
  return searchsorted(tensor(table, { dtype: "float64" }), uniform, { side: "right" })
    .add(from)
    .minimum(to);
}

/** Numbers of events (int32) with the Poisson distribution of a mean of at most 10^6, by inversion of its cumulative sum. */
export function poisson(rate: number, shape: Shape, options: Omit<RandomOptions, "dtype"> = {}): Tensor {
  checkOptions("poisson", options, keyNames);
  if (typeof rate !== "number" || !(rate >= 0 && rate <= 1e6))
    throw new WeftError(`poisson: rate is a number from 0 to 1000000, got ${showValue(rate)}`);
  const spread = 9 * Math.sqrt(rate) + 30;
  const from = Math.max(0, Math.floor(rate - spread));
  const first = Math.exp((rate === 0 ? 0 : from * Math.log(rate)) - rate - logFactorial(from));
  return countsBy([from, Math.ceil(rate + spread)], first, (k) => rate / k, shape, options);
}

/** Numbers of successes (int32) in `trials` trials (at most 10^6), each with the given probability, by inversion of the cumulative sum. */
export function binomial(
  trials: number,
  probability: number,
  shape: Shape,
  options: Omit<RandomOptions, "dtype"> = {},
): Tensor {
  checkOptions("binomial", options, keyNames);
  if (!Number.isInteger(trials) || trials < 0 || trials > 1e6)
    throw new WeftError(`binomial: trials is a whole number from 0 to 1000000, got ${showValue(trials)}`);
  if (typeof probability !== "number" || !(probability >= 0 && probability <= 1))
    throw new WeftError(`binomial: probability is a number between 0 and 1, got ${showValue(probability)}`);
  // Failures of the rarer kind are counted, so that no term is lost at the ends.
  if (probability > 0.5) return sub(trials, binomial(trials, 1 - probability, shape, options));
  const mean = trials * probability;
  const spread = 9 * Math.sqrt(mean) + 30;
  const [from, to] = [Math.max(0, Math.floor(mean - spread)), Math.min(trials, Math.ceil(mean + spread))];
  const ways = logFactorial(trials) - logFactorial(from) - logFactorial(trials - from);
  const chance = (from === 0 ? 0 : from * Math.log(probability)) + (trials - from) * Math.log1p(-probability);
  const odds = probability / (1 - probability);
  return countsBy([from, to], Math.exp(ways + chance), (k) => ((trials - k + 1) / k) * odds, shape, options);
}

/** Random class numbers (int32) with probabilities softmax(logits) along an axis, which is dropped. `shape` comes in front. */
export function categorical(
  logits: Tensor,
  options: Omit<RandomOptions, "dtype"> & { axis?: number; shape?: Shape } = {},
): Tensor {
  const { axis = -1, shape = [], ...random } = checkOptions("categorical", options, [...keyNames, "axis", "shape"]);
  checkArguments("categorical", "tensor", { logits });
  checkShape("categorical", shape);
  if (isComplex(logits.dtype)) throw new DTypeError(`categorical: logits are real numbers, got ${logits.dtype}`);
  const dtype = logits.dtype === "float64" ? "float64" : "float32";
  const noise = gumbel([...shape, ...logits.shape], { ...random, dtype });
  return argmax(add(cast(logits, dtype), noise), axis < 0 ? axis : axis + shape.length);
}

/** Options of {@link choice}. @inline */
interface ChoiceOptions extends Omit<RandomOptions, "dtype"> {
  /** Whether elements may be chosen more than once; true by default. */
  replace?: boolean;
  /** Probabilities of the elements; equal by default. */
  p?: Tensor;
}

/** Throws unless p has a probability per element, and enough that are not 0. Values are checked where they can be read. */
function checkProbabilities(p: Tensor, size: number, least: number): void {
  checkArguments("choice", "tensor", { p });
  if (p.rank !== 1 || p.size !== size)
    throw new ShapeError(`choice: p has one probability for each of the ${size} elements, got shape [${p.shape}]`);
  if (isComplex(p.dtype)) throw new DTypeError(`choice: p has probabilities, got ${p.dtype}`);
  if (isTracing()) return;
  const values = Array.from(p.dataSync() as ArrayLike<number | bigint>, Number);
  const bad = values.find((x) => !(x >= 0));
  if (bad !== undefined) throw new WeftError(`choice: p has probabilities, which are at least 0, got ${bad}`);
  const total = values.reduce((sum, x) => sum + x, 0);
  const rounding = isFloat(p.dtype) ? finfo(p.dtype).eps : 0;
  if (!(Math.abs(total - 1) <= Math.max(1.5e-8, Math.sqrt(rounding))))
    throw new WeftError(`choice: the probabilities p add up to ${total}; divide them by their sum`);
  const possible = values.filter((x) => x > 0).length;
  if (possible < least)
    throw new WeftError(`choice: ${least} different elements, but only ${possible} have a probability above 0`);
}

/**
 * Random elements of axis 0 of a tensor, or of 0, 1, ..., n - 1: as many as the shape asks for. Probabilities p that are negative,
 * NaN or do not add up to 1 are refused, except inside a traced function, where they have no value yet.
 */
export function choice(from: Tensor | number, shape: Shape, options: ChoiceOptions = {}): Tensor {
  const { replace = true, p, ...random } = checkOptions("choice", options, [...keyNames, "replace", "p"]);
  checkShape("choice", shape);
  if (typeof from !== "number") checkArguments("choice", "tensor", { from });
  const size = typeof from === "number" ? from : from.shape[0];
  const count = numel(shape);
  if (size === undefined || !Number.isInteger(size) || (size < 1 && count > 0))
    throw new ShapeError(`choice: needs a tensor with elements or a whole number >= 1, got ${String(size)}`);
  if (!replace && count > size) throw new ShapeError(`choice: ${count} different elements of ${size} do not exist`);
  if (p !== undefined) checkProbabilities(p, size, replace ? 0 : count);
  const chosen = (): Tensor => {
    if (replace) return p === undefined ? randint(0, size, shape, random) : categorical(log(p), { shape, ...random });
    if (p === undefined) return permutation(size, random).index(`:${count}`).reshape(shape);
    // The largest sums of log p and Gumbel noise are a draw without replacement.
    const noisy = log(p).add(gumbel([size], { ...random, dtype: p.dtype === "float64" ? "float64" : "float32" }));
    return topk(noisy, count, 0).indices.reshape(shape);
  };
  return typeof from === "number" ? chosen() : take(from, chosen(), 0);
}

/** The slices of a tensor along an axis in random order. */
export function shuffle(x: TensorLike, axis = 0, options: Omit<RandomOptions, "dtype"> = {}): Tensor {
  checkOptions("shuffle", options, keyNames);
  const t = wrap(nodeOf("shuffle", x));
  if (t.rank === 0) throw new ShapeError("shuffle: needs a tensor with at least one axis, got a scalar");
  return take(t, permutation(t.shape.at(axis) ?? 0, options), axis);
}

/** Options of distributions with a location and a scale. @inline */
interface LocationOptions extends RandomOptions {
  /** Location, 0 by default. */
  loc?: number;
  /** Scale, 1 by default. */
  scale?: number;
}

/** Uniform numbers in (0, 1): half a step of the generator replaces 0, so that logarithms are finite. */
const openUniform = (shape: Shape, options: RandomOptions): Tensor =>
  maximum(rand(shape, options), floatOf(options) === "float64" ? 2 ** -54 : 2 ** -25);

/** A distribution by the inverse of its distribution function. */
const byInverse =
  (op: string, inverse: (u: Tensor) => Tensor) =>
  (shape: Shape, options: LocationOptions = {}): Tensor => {
    const { loc = 0, scale = 1, ...random } = checkOptions(op, options, [...randomNames, "loc", "scale"]);
    positive(op, "scale", scale);
    return drawn(random, (o) => inverse(openUniform(shape, o)).mul(scale).add(loc));
  };

/** Numbers with the Cauchy distribution. */
export const cauchy = byInverse("cauchy", (u) => tan(u.sub(0.5).mul(Math.PI)));
/** Numbers with the logistic distribution. */
export const logistic = byInverse("logistic", (u) => log(u).sub(log1p(u.neg())));
/** Numbers with the Rayleigh distribution. */
export const rayleigh = byInverse("rayleigh", (u) => sqrt(log(u).mul(-2)));

/** Numbers whose logarithm is normally distributed with the given mean and standard deviation. */
export const logNormal = (shape: Shape, options: RandomOptions & { mean?: number; std?: number } = {}): Tensor =>
  drawn(checkOptions("logNormal", options, [...randomNames, "mean", "std"]), (o) => exp(randn(shape, o)));

/** Numbers with the Pareto distribution of an exponent, all at least 1. */
export function pareto(exponent: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("pareto", options, randomNames);
  positive("pareto", "exponent", exponent);
  return drawn(options, (o) => exp(exponential(shape, o).div(exponent)));
}

/** Numbers with the Weibull distribution of a shape parameter and scale 1. */
export function weibull(concentration: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("weibull", options, randomNames);
  positive("weibull", "concentration", concentration);
  return drawn(options, (o) => pow(exponential(shape, o), 1 / concentration));
}

/** Numbers of trials (int32, 1 or more) up to the first success, each with the given probability. */
export function geometric(probability: number, shape: Shape, options: Omit<RandomOptions, "dtype"> = {}): Tensor {
  checkOptions("geometric", options, keyNames);
  checkShape("geometric", shape);
  if (!(probability > 0 && probability <= 1))
    throw new WeftError(`geometric: the probability is in (0, 1], got ${probability}`);
  if (probability === 1) return tensor(1, { dtype: "int32" }).expand(shape);
  const u = openUniform(shape, { ...options, dtype: "float64" });
  return cast(
    log(u)
      .div(Math.log1p(-probability))
      .floor()
      .add(1)
      .minimum(2 ** 31 - 1),
    "int32",
  );
}

/** Numbers with the triangular distribution between low and high, whose density is greatest at `mode`. */
export function triangular(low: number, mode: number, high: number, shape: Shape, options: RandomOptions = {}): Tensor {
  checkOptions("triangular", options, randomNames);
  if (!(low <= mode && mode <= high && low < high))
    throw new WeftError(`triangular: needs low <= mode <= high and low < high, got ${low}, ${mode} and ${high}`);
  const width = high - low;
  return drawn(options, (o) => {
    const u = rand(shape, o);
    const rising = sqrt(u.mul(width * (mode - low))).add(low);
    const falling = sqrt(
      u
        .neg()
        .add(1)
        .mul(width * (high - mode)),
    );
    return where(u.less((mode - low) / width), rising, falling.neg().add(high));
  });
}

/** Normal vectors [...shape, n] with a mean [n] and a covariance matrix [n, n]. */
export function multivariateNormal(
  mean: Tensor,
  covariance: Tensor,
  shape: Shape = [],
  options: RandomOptions = {},
): Tensor {
  checkOptions("multivariateNormal", options, randomNames);
  checkArguments("multivariateNormal", "tensor", { mean, covariance });
  checkShape("multivariateNormal", shape);
  const [n] = mean.shape;
  if (mean.rank !== 1 || covariance.rank !== 2 || covariance.shape.some((d) => d !== n))
    throw new ShapeError(
      `multivariateNormal: needs a mean [n] and a covariance [n, n], got ${mean.shape.join(" x ")} and ${covariance.shape.join(" x ")}`,
    );
  const normal = randn([...shape, n], { dtype: mean.dtype, ...options });
  return matmul(normal, cholesky(covariance).transpose()).add(mean);
}
