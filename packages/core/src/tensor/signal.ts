// The namespace `signal`: convolution and correlation of vectors, and windows.
import {
  checkOptions,
  DTypeError,
  isComplex,
  isInexact,
  kindOf,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { conv1d } from "./conv.js";
import { commonDType, nodeAs, type TensorLike, wrap } from "./convert.js";
import { type CreateOptions, tensor } from "./create.js";
import { matmul } from "./einsum.js";
import { conj } from "./math.js";
import { pad } from "./padding.js";
import { flip, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";
import { slidingWindow } from "./windows.js";

/** Which part of a convolution is returned. @inline */
type ConvolutionMode = "full" | "same" | "valid";

/** Options of {@link convolve} and {@link correlate}. @inline */
interface ConvolutionOptions {
  /**
   * "full": every overlap, n + m - 1 elements. "same": the middle of it, as many as the longer vector has. "valid": only overlaps
   * of the whole shorter vector.
   */
  mode?: ConvolutionMode;
}

function operands(op: string, a: TensorLike, b: TensorLike, mode: ConvolutionMode): Tensor[] {
  if (mode !== "full" && mode !== "same" && mode !== "valid")
    throw new WeftError(`${op}: mode is "full", "same" or "valid", got ${String(mode)}`);
  const common = commonDType(op, [a, b]);
  const dtype = common === "bool" ? "int32" : common;
  const vectors = [a, b].map((x) => wrap(nodeAs(op, x, dtype)));
  for (const x of vectors) {
    if (x.rank !== 1 || x.size === 0)
      throw new ShapeError(
        `${op}: needs two vectors with elements, got shape ${showShape(x.shape)}; use vmap for rows`,
      );
  }
  return vectors;
}

/** Sums of products of the shorter vector with every part of the longer one, in which `before` zeros come first. */
function slide(long: Tensor, short: Tensor, before: number, after: number): Tensor {
  const padded = pad(long, [[before, after]]);
  // Library products need floats; integers are exact in a product of windows.
  if (!isInexact(long.dtype)) return matmul(slidingWindow(padded, [short.size]), short);
  return reshape(conv1d(reshape(padded, [1, 1, -1]), reshape(short, [1, 1, -1])), [-1]);
}

/** The correlation of a vector with a kernel that is not longer, in a mode. */
function correlated(long: Tensor, short: Tensor, mode: ConvolutionMode): Tensor {
  const m = short.size;
  const before = mode === "valid" ? 0 : mode === "full" ? m - 1 : Math.floor(m / 2);
  return slide(long, short, before, mode === "same" ? m - 1 - before : before);
}

/**
 * Convolution of two vectors, as numpy.convolve.
 *
 * @example
 * ```ts
 * import { signal, tensor } from "@weft/core";
 *
 * console.log(await signal.convolve(tensor([1, 2, 3]), tensor([0, 1, 0.5])).array()); // [0, 1, 2.5, 4, 1.5]
 * ```
 */
export function convolve(a: TensorLike, b: TensorLike, options: ConvolutionOptions = {}): Tensor {
  const { mode = "full" } = checkOptions("convolve", options, ["mode"]);
  const [x, y] = operands("convolve", a, b, mode);
  const [long, short] = x.size >= y.size ? [x, y] : [y, x];
  return correlated(long, flip(short), mode);
}

/** Correlation of two vectors, sums of a[n + k] conj(b[n]), as numpy.correlate. The mode is "valid" by default. */
export function correlate(a: TensorLike, b: TensorLike, options: ConvolutionOptions = {}): Tensor {
  const { mode = "valid" } = checkOptions("correlate", options, ["mode"]);
  const [x, y] = operands("correlate", a, b, mode);
  if (x.size >= y.size) return correlated(x, conj(y), mode);
  // With the longer vector second, the order of the result turns round.
  return flip(correlated(conj(y), x, mode));
}

/** A window of n samples, computed in float64 on the host. */
function windowOf(op: string, n: number, at: (i: number, n: number) => number, options: CreateOptions): Tensor {
  const { dtype = "float32" } = checkOptions(op, options, ["dtype"]);
  if (!Number.isInteger(n) || n < 0) throw new WeftError(`${op}: the size is a whole number >= 0, got ${n}`);
  if (kindOf(dtype) !== "float" && !isComplex(dtype))
    throw new DTypeError(`${op}: needs a floating-point dtype, got ${dtype}`);
  // A list: a typed array of a complex dtype would be taken as pairs of parts.
  return tensor(
    Array.from({ length: n }, (_, i) => (n === 1 ? 1 : at(i, n - 1))),
    { dtype },
  );
}

const wave = (i: number, last: number, times: number): number => Math.cos((2 * Math.PI * times * i) / last);

/** Bartlett (triangular) window of n samples; the first and the last are 0. */
export const bartlett = (n: number, options: CreateOptions = {}): Tensor =>
  windowOf("bartlett", n, (i, last) => 1 - Math.abs((2 * i) / last - 1), options);
/** Blackman window of n samples. */
export const blackman = (n: number, options: CreateOptions = {}): Tensor =>
  windowOf("blackman", n, (i, last) => 0.42 - 0.5 * wave(i, last, 1) + 0.08 * wave(i, last, 2), options);
/** Hamming window of n samples. */
export const hamming = (n: number, options: CreateOptions = {}): Tensor =>
  windowOf("hamming", n, (i, last) => 0.54 - 0.46 * wave(i, last, 1), options);
/** Hann window of n samples. */
export const hann = (n: number, options: CreateOptions = {}): Tensor =>
  windowOf("hann", n, (i, last) => 0.5 - 0.5 * wave(i, last, 1), options);

/** Modified Bessel function of order 0 on the host: its power series, whose terms are all positive. */
function besselI0(x: number): number {
  let [sum, term] = [1, 1];
  for (let k = 1; term > sum * 1e-17; k++) {
    term *= (x / (2 * k)) ** 2;
    sum += term;
  }
  return sum;
}

/** Kaiser window of n samples. A larger `beta` (up to 700) lowers the side lobes and widens the main one. */
export function kaiser(n: number, beta: number, options: CreateOptions = {}): Tensor {
  if (!(Math.abs(beta) <= 700)) throw new WeftError(`kaiser: beta is a number between -700 and 700, got ${beta}`);
  const scale = besselI0(beta);
  const at = (i: number, last: number): number => besselI0(beta * Math.sqrt(1 - ((2 * i) / last - 1) ** 2)) / scale;
  return windowOf("kaiser", n, at, options);
}
