// Random tensors: counter-based (threefry), keyed by seed and element index, so that the same seed gives the same
// numbers on every device and every number of devices.
import {
  checkOptions,
  type DType,
  DTypeError,
  fitsInteger,
  integerLimits,
  isFloat,
  kindOf,
  type Shape,
  WeftError,
} from "../graph/index.js";
import { build, composed, threefry2x32 } from "../ops/index.js";
import { dataNode, session } from "../runtime/index.js";
import { checkShape } from "./checks.js";
import { wrap } from "./convert.js";
import { Tensor } from "./tensor.js";
import { traceKey } from "./trace.js";

/** Random key: an int32 tensor of shape [2], or [..., 2] for a batch of keys. */
export type Key = Tensor;

/** Options of random tensors. */
export interface RandomOptions {
  /** Dtype of the elements. */
  dtype?: DType;
  /** Fixes the numbers. Without seed or key they come from the global generator (see manualSeed). */
  seed?: number;
  /** A key in place of a seed; see {@link key}. */
  key?: Key;
}

let globalSeed = Math.floor(Math.random() * 2 ** 32);
let globalCount = 0;

/** Seeds the global generator. The same calls then give the same numbers. */
export function manualSeed(seed: number): void {
  if (!Number.isSafeInteger(seed)) throw new WeftError(`manualSeed: the seed must be a whole number, got ${seed}`);
  globalSeed = seed;
  globalCount = 0;
}

const words = (seed: number): [number, number] => [seed >>> 0, Math.floor(seed / 2 ** 32) >>> 0];

function uploadKey(low: number, high: number): Tensor {
  const data = Int32Array.from([low | 0, high | 0]);
  return new Tensor(dataNode(session().upload({ shape: [2], dtype: "int32" }, data)));
}

/** Creates a random key from a seed, which may be any safe integer. */
export function key(seed: number): Key {
  if (!Number.isSafeInteger(seed)) throw new WeftError(`key: the seed must be a whole number, got ${seed}`);
  return uploadKey(...words(seed));
}

/** Returns a new key from the global generator. Inside jit, every call of the compiled function gets a new key. */
export function nextKey(): Key {
  const traced = traceKey();
  if (traced !== null) return traced;
  return uploadKey(...freshKeyWords());
}

/** The words of the next key of the global generator. */
export function freshKeyWords(): [number, number] {
  const [low, high] = words(globalSeed);
  const [a, b] = threefry2x32(low, high, globalCount++ >>> 0, 0x77656674);
  return [a, b];
}

/** Splits a key into `count` independent keys, of shape [count, 2]. */
export function splitKey(from: Key, count = 2): Key {
  checkShape("splitKey", [count]);
  checkKey("splitKey", from);
  return wrap(build.make("random", [from.node], { kind: "bits", shape: [count, 2], dtype: "int32" }));
}

function checkKey(op: string, given: Key): Key {
  if (!(given instanceof Tensor) || given.dtype !== "int32" || given.shape.at(-1) !== 2)
    throw new WeftError(`${op}: a key is an int32 tensor of shape [2]; make one with weft.key(seed)`);
  return given;
}

function keyFrom(options: RandomOptions): Tensor {
  if (options.key !== undefined) {
    return checkKey("random", options.key);
  }
  return options.seed === undefined ? nextKey() : key(options.seed);
}

function draw(op: string, kind: "uniform" | "normal", shape: Shape, options: RandomOptions): Tensor {
  checkShape(op, shape);
  const dtype = options.dtype ?? "float32";
  if (!isFloat(dtype)) throw new DTypeError(`${op}: makes float tensors, not ${dtype}; use randint for integers`);
  return wrap(build.make("random", [keyFrom(options).node], { kind, shape: [...shape], dtype }));
}

/**
 * x * scale + shift. Float32 and half types go through float64, where the product is exact: fused with the sum or not, on any
 * device, the result is the same.
 */
function affine(x: Tensor, scale: number, shift: number): Tensor {
  if (shift === 0) return scale === 1 ? x : x.mul(scale);
  if (scale === 1) return x.add(shift);
  if (x.dtype === "float64") return x.mul(scale).add(shift);
  return x.cast("float64").mul(Math.fround(scale)).add(shift).cast(x.dtype);
}

/** Uniform random numbers in [low, high), by default [0, 1). */
export function rand(shape: Shape, options: RandomOptions & { low?: number; high?: number } = {}): Tensor {
  checkOptions("rand", options, ["dtype", "seed", "key", "low", "high"]);
  const { low = 0, high = 1 } = options;
  const uniform = draw("rand", "uniform", shape, options);
  return affine(uniform, high - low, low);
}

/**
 * Normally distributed random numbers, by default with mean 0 and standard deviation 1.
 *
 * @example
 * ```ts
 * import { key, randn } from "@weft/core";
 *
 * const x = randn([1000], { key: key(7) });
 * console.log(Math.abs(await x.mean().item()) < 0.2); // true
 * const same = randn([1000], { key: key(7) });
 * console.log(await x.equal(same).all().item()); // 1
 * ```
 */
export function randn(shape: Shape, options: RandomOptions & { mean?: number; std?: number } = {}): Tensor {
  checkOptions("randn", options, ["dtype", "seed", "key", "mean", "std"]);
  const { mean = 0, std = 1 } = options;
  return affine(draw("randn", "normal", shape, options), std, mean);
}

/** Uniform random integers in [low, high), int32 by default. Bigints give the whole range of 64-bit dtypes. */
export function randint(
  low: number | bigint,
  high: number | bigint,
  shape: Shape,
  options: RandomOptions = {},
): Tensor {
  checkOptions("randint", options, ["dtype", "seed", "key"]);
  const { dtype = "int32" } = options;
  if (dtype !== "int32" || typeof low !== "number" || typeof high !== "number")
    return wideRandint(low, high, shape, { ...options, dtype });
  if (!Number.isInteger(low) || !Number.isInteger(high) || high <= low || !fitsInteger(low, "int32") || high > 2 ** 31)
    throw new WeftError(`randint: needs whole numbers low < high within int32, got ${low} and ${high}`);
  const uniform = draw("randint", "uniform", shape, { ...options, dtype: "float64" });
  return uniform
    .mul(high - low)
    .floor()
    .add(low)
    .cast("int32");
}

/** Integers of any dtype: 64 random bits modulo the size of the range, a bias of at most range / 2^64. */
function wideRandint(
  low: number | bigint,
  high: number | bigint,
  shape: Shape,
  options: RandomOptions & { dtype: DType },
): Tensor {
  const { dtype } = options;
  if (kindOf(dtype) !== "int") throw new DTypeError(`randint: makes integers, not ${dtype}; use rand for floats`);
  const limits = integerLimits(dtype);
  const isWhole = [low, high].every((x) => typeof x === "bigint" || Number.isSafeInteger(x));
  if (!isWhole || low >= high || low < limits.low || high > limits.high + 1n)
    throw new WeftError(`randint: needs whole numbers low < high within ${dtype}, got ${low} and ${high}`);
  checkShape("randint", shape);
  const bits = build.make("random", [keyFrom(options).node], { kind: "bits", shape: [2, ...shape], dtype: "int32" });
  const words = build.cast(build.cast(bits, "uint32"), "uint64");
  const [upper, lower] = [0, 1].map((i) => build.reshape(build.sliceAxis(words, 0, i, i + 1), shape));
  const number = wrap(build.add(build.mul(upper, build.full(shape, 2 ** 32, "uint64")), lower));
  const range = BigInt(high) - BigInt(low);
  const drawn = range === 2n ** 64n ? number : number.mod(range);
  // Sums wrap, so that negative numbers come out right.
  return drawn.add(BigInt.asUintN(64, BigInt(low))).cast(dtype);
}

/** Random booleans that are true with the given probability. */
export function bernoulli(probability: number, shape: Shape, options: Omit<RandomOptions, "dtype"> = {}): Tensor {
  checkOptions("bernoulli", options, ["seed", "key"]);
  if (!(probability >= 0 && probability <= 1))
    throw new WeftError(`bernoulli: probability ${probability} is not in [0, 1]`);
  return draw("bernoulli", "uniform", shape, { ...options, dtype: "float32" }).less(probability);
}

/** Random dropout mask: true with probability 1 - rate, rounded to 2^-16. `shape` is the shape per key. */
export function dropoutMask(shape: Shape, rate: number, from: Key): Tensor {
  checkShape("dropout", shape);
  checkKey("dropout", from);
  return wrap(composed.dropoutMask(shape, rate, from.node));
}

/** Random permutation of the integers 0 to n-1, int32. */
export function permutation(n: number, options: Omit<RandomOptions, "dtype"> = {}): Tensor {
  checkOptions("permutation", options, ["seed", "key"]);
  checkShape("permutation", [n]);
  const order = draw("permutation", "uniform", [n], { ...options, dtype: "float64" });
  return wrap(build.make("argsort", [order.node], { descending: false }));
}
