// Fourier transforms, as numpy.fft and the fft extension of the Array API: any length and any axes, real and complex, with gradients.
import {
  checkOptions,
  type DType,
  isComplex,
  isHalf,
  type Node,
  numel,
  range,
  realOf,
  type Shape,
  ShapeError,
  showShape,
  showValue,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { arange, type CreateOptions } from "./create.js";
import { concat, roll } from "./shape.js";
import type { Tensor } from "./tensor.js";

/**
 * Scale of a transform: "backward" divides the inverse by the number of points, "forward" divides the forward transform, "ortho" divides
 * both by its square root.
 *
 * @inline
 */
type FftNorm = "backward" | "ortho" | "forward";

/** Options of the one-dimensional transforms. @inline */
interface FftOptions {
  /** Length of the transformed axis of the input, which is cut or padded with zeros; of the result for irfft and hfft. */
  n?: number;
  /** The axis, the last by default. */
  axis?: number;
  /** Where the scale is applied, "backward" by default. */
  norm?: FftNorm;
}

/** Options of the transforms over several axes. @inline */
interface FftnOptions {
  /** Lengths of the transformed axes, as {@link FftOptions.n} for each. */
  sizes?: readonly number[];
  /** The axes: all by default, or the last ones if sizes are given. */
  axes?: readonly number[];
  /** Where the scale is applied, "backward" by default. */
  norm?: FftNorm;
}

const floatOf = (dtype: DType): DType => (isHalf(dtype) ? "float32" : toInexact(dtype));

function axisOf(op: string, axis: number, shape: Shape): number {
  const at = axis < 0 ? axis + shape.length : axis;
  if (!Number.isInteger(axis) || at < 0 || at >= shape.length)
    throw new ShapeError(`${op}: axis ${axis} is not one of ${showShape(shape)}`);
  return at;
}

function checkLength(op: string, n: number): void {
  if (!Number.isInteger(n) || n < 1 || n >= 2 ** 31)
    throw new ShapeError(`${op}: a transform needs a length of at least 1, got ${n}`);
}

/** Factor of a transform over `points` points. */
function scaleOf(op: string, norm: FftNorm, points: number, inverse: boolean): number {
  if (norm === "ortho") return 1 / Math.sqrt(points);
  if (norm !== "backward" && norm !== "forward")
    throw new WeftError(`${op}: norm must be "backward", "ortho" or "forward", got ${showValue(norm)}`);
  return (norm === "backward") === inverse ? 1 / points : 1;
}

/** Cuts an axis or pads it with zeros. */
function fit(x: Node, axis: number, size: number): Node {
  const now = x.shape[axis];
  if (now >= size) return build.sliceAxis(x, axis, 0, size);
  const none = x.shape.map(() => 0);
  return build.pad(x, none, none.with(axis, size - now));
}

interface Transform {
  kind: "c2c" | "r2c" | "c2r";
  inverse: boolean;
  /** Transformed axes; half spectra are along the last of them. */
  axes: readonly number[];
  /** Their lengths; of the result for c2r. */
  sizes: readonly number[];
}

/** The transform with its axes moved to the end and back, at most three at a time. */
function transform(x: Node, { kind, inverse, axes, sizes }: Transform): Node {
  const rank = x.shape.length;
  const kept = range(rank).filter((axis) => !axes.includes(axis));
  const order = [...kept, ...axes];
  let node = build.permute(x, order);
  const first = rank - axes.length;
  sizes.forEach((size, i) => {
    const isHalf = kind === "c2r" && i === sizes.length - 1;
    node = fit(node, first + i, isHalf ? Math.floor(size / 2) + 1 : size);
  });
  const last = sizes[sizes.length - 1];
  // Beyond three axes, the outer ones are transformed apart: before the inner ones on the way back, after them on the way there.
  const outer = range(Math.max(0, axes.length - 3)).map((i) => first + i);
  const apart = (y: Node): Node => {
    let done = y;
    for (const axis of outer) {
      const moved = build.moveAxis(done, axis, rank - 1);
      const size = moved.shape[rank - 1];
      const line = build.make("fft", [moved], { kind: "c2c", inverse, axes: 1, size });
      done = build.moveAxis(line, rank - 1, axis);
    }
    return done;
  };
  const attrs = { kind, inverse, axes: Math.min(3, axes.length), size: last };
  node = kind === "c2r" ? build.make("fft", [apart(node)], attrs) : apart(build.make("fft", [node], attrs));
  const back = order.map((_, axis) => order.indexOf(axis));
  return build.permute(node, back);
}

const scaled = (x: Node, factor: number): Tensor => wrap(factor === 1 ? x : build.scale(x, factor));

function complexNode(op: string, x: TensorLike): Node {
  const node = nodeOf(op, x);
  const dtype = floatOf(node.dtype);
  return build.cast(node, isComplex(dtype) ? dtype : dtype === "float64" ? "complex128" : "complex64");
}

function realNode(op: string, x: TensorLike): Node {
  const node = nodeOf(op, x);
  if (isComplex(node.dtype))
    throw new WeftError(`${op}: needs real numbers, got ${node.dtype}; use fft, or real(x) to drop imaginary parts`);
  return build.cast(node, floatOf(node.dtype));
}

/** Axes and lengths of a transform of several axes. */
function several(op: string, x: Node, options: FftnOptions, half: boolean): { axes: number[]; sizes: number[] } {
  checkOptions(op, options, ["sizes", "axes", "norm"]);
  const { sizes, axes } = options;
  const rank = x.shape.length;
  const chosen = axes ?? (sizes === undefined ? range(rank) : range(rank).slice(rank - sizes.length));
  const at = chosen.map((axis) => axisOf(op, axis, x.shape));
  if (at.length === 0 || new Set(at).size !== at.length || (sizes !== undefined && sizes.length !== at.length))
    throw new ShapeError(
      `${op}: needs one size per axis and different axes, got axes [${chosen}]${sizes ? ` and sizes [${sizes}]` : ""} for ${showShape(x.shape)}`,
    );
  const found =
    sizes?.slice() ?? at.map((axis, i) => (half && i === at.length - 1 ? 2 * (x.shape[axis] - 1) : x.shape[axis]));
  for (const size of found) checkLength(op, size);
  return { axes: at, sizes: found };
}

function complexTransform(op: string, x: TensorLike, options: FftnOptions, inverse: boolean): Tensor {
  const node = complexNode(op, x);
  const where = several(op, node, options, false);
  const factor = scaleOf(op, options.norm ?? "backward", numel(where.sizes), inverse);
  return scaled(transform(node, { kind: "c2c", inverse, ...where }), factor);
}

function one(options: FftOptions): FftnOptions {
  checkOptions("fft", options, ["n", "axis", "norm"]);
  const { n, axis = -1, norm } = options;
  return { axes: [axis], ...(n === undefined ? {} : { sizes: [n] }), ...(norm === undefined ? {} : { norm }) };
}

/**
 * Discrete Fourier transform along one axis: element k is the sum of x[j] exp(-2 pi i j k / n).
 *
 * @example
 * ```ts
 * import { fft, tensor } from "@weft/core";
 *
 * console.log(await fft(tensor([1, 0, 0, 0])).real().array()); // [1, 1, 1, 1]
 * ```
 */
export const fft = (x: TensorLike, options: FftOptions = {}): Tensor => complexTransform("fft", x, one(options), false);

/** Inverse of {@link fft}. */
export const ifft = (x: TensorLike, options: FftOptions = {}): Tensor =>
  complexTransform("ifft", x, one(options), true);

/** Discrete Fourier transform over several axes, all by default. */
export const fftn = (x: TensorLike, options: FftnOptions = {}): Tensor => complexTransform("fftn", x, options, false);

/** Inverse of {@link fftn}. */
export const ifftn = (x: TensorLike, options: FftnOptions = {}): Tensor => complexTransform("ifftn", x, options, true);

/** Discrete Fourier transform over two axes, the last two by default. */
export const fft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  complexTransform("fft2", x, { axes: [-2, -1], ...options }, false);

/** Inverse of {@link fft2}. */
export const ifft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  complexTransform("ifft2", x, { axes: [-2, -1], ...options }, true);

function realTransform(op: string, x: TensorLike, options: FftnOptions): Tensor {
  const node = realNode(op, x);
  const where = several(op, node, options, false);
  const factor = scaleOf(op, options.norm ?? "backward", numel(where.sizes), false);
  return scaled(transform(node, { kind: "r2c", inverse: false, ...where }), factor);
}

function hermitianTransform(op: string, x: TensorLike, options: FftnOptions): Tensor {
  const node = complexNode(op, x);
  const where = several(op, node, options, true);
  const factor = scaleOf(op, options.norm ?? "backward", numel(where.sizes), true);
  return scaled(transform(node, { kind: "c2r", inverse: true, ...where }), factor);
}

/** Fourier transform of real numbers along one axis: the first n / 2 + 1 numbers, of which the others are conjugates. */
export const rfft = (x: TensorLike, options: FftOptions = {}): Tensor => realTransform("rfft", x, one(options));

/** Inverse of {@link rfft}; `n` is the length of the result, 2 (m - 1) for an axis of m by default. */
export const irfft = (x: TensorLike, options: FftOptions = {}): Tensor => hermitianTransform("irfft", x, one(options));

/** Fourier transform of real numbers over several axes; the last of them gives n / 2 + 1 numbers. */
export const rfftn = (x: TensorLike, options: FftnOptions = {}): Tensor => realTransform("rfftn", x, options);

/** Inverse of {@link rfftn}. */
export const irfftn = (x: TensorLike, options: FftnOptions = {}): Tensor => hermitianTransform("irfftn", x, options);

/** Fourier transform of real numbers over two axes, the last two by default. */
export const rfft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  realTransform("rfft2", x, { axes: [-2, -1], ...options });

/** Inverse of {@link rfft2}. */
export const irfft2 = (x: TensorLike, options: FftnOptions = {}): Tensor =>
  hermitianTransform("irfft2", x, { axes: [-2, -1], ...options });

const opposite: Record<FftNorm, FftNorm> = { backward: "forward", forward: "backward", ortho: "ortho" };
function flipped(op: string, options: FftOptions): FftOptions {
  const { norm = "backward", ...rest } = checkOptions(op, options, ["n", "axis", "norm"]);
  return { ...rest, norm: opposite[norm] ?? norm };
}

/** Fourier transform of numbers with Hermitian symmetry, of which the first n / 2 + 1 are given: the result is real. */
export const hfft = (x: TensorLike, options: FftOptions = {}): Tensor =>
  hermitianTransform("hfft", wrap(build.conj(complexNode("hfft", x))), one(flipped("hfft", options)));

/** Inverse of {@link hfft}. */
export const ihfft = (x: TensorLike, options: FftOptions = {}): Tensor =>
  wrap(build.conj(realTransform("ihfft", x, one(flipped("ihfft", options))).node));

function checkFrequencies(op: string, n: number, spacing: number): void {
  checkLength(op, n);
  if (!Number.isFinite(spacing) || spacing === 0)
    throw new WeftError(`${op}: the sample spacing must be a number other than 0, got ${spacing}`);
}

/** Frequencies of the elements of an {@link fft} of length n: [0, 1, ..., -2, -1] / (n spacing). */
export function fftfreq(n: number, spacing = 1, options: CreateOptions = {}): Tensor {
  checkOptions("fftfreq", options, ["dtype"]);
  checkFrequencies("fftfreq", n, spacing);
  const half = Math.ceil(n / 2);
  const counts = concat([arange(0, half, 1, options), arange(half - n, 0, 1, options)]);
  return wrap(build.scale(build.cast(counts.node, realOf(floatOf(counts.dtype))), 1 / (n * spacing)));
}

/** Frequencies of the elements of an {@link rfft} of length n: [0, 1, ..., n / 2] / (n spacing). */
export function rfftfreq(n: number, spacing = 1, options: CreateOptions = {}): Tensor {
  checkOptions("rfftfreq", options, ["dtype"]);
  checkFrequencies("rfftfreq", n, spacing);
  const counts = arange(0, Math.floor(n / 2) + 1, 1, options);
  return wrap(build.scale(build.cast(counts.node, realOf(floatOf(counts.dtype))), 1 / (n * spacing)));
}

function shifted(op: string, x: TensorLike, axes: number | readonly number[] | undefined, by: (n: number) => number) {
  const t = wrap(nodeOf(op, x));
  const chosen = axes === undefined ? range(t.shape.length) : typeof axes === "number" ? [axes] : axes;
  checkArguments(op, "array", { axes: chosen });
  return chosen.reduce((y, axis) => {
    const at = axisOf(op, axis, t.shape);
    return t.shape[at] === 0 ? y : roll(y, by(t.shape[at]), at);
  }, t);
}

/** Moves the zero frequency to the middle of the given axes, all by default. */
export const fftshift = (x: TensorLike, axes?: number | readonly number[]): Tensor =>
  shifted("fftshift", x, axes, (n) => Math.floor(n / 2));

/** Inverse of {@link fftshift}. */
export const ifftshift = (x: TensorLike, axes?: number | readonly number[]): Tensor =>
  shifted("ifftshift", x, axes, (n) => -Math.floor(n / 2));
