// Pooling over one to three spatial axes, one axis after the other. Of equal elements the first one is the maximum, also for gradients.
import { checkOptions, isFloat, type Node, range, ShapeError, showShape, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { type PerAxis, perAxis } from "./conv.js";
import { checkArguments, wrap } from "./convert.js";
import { take } from "./indexing.js";
import { firstSpatial, type Window, windowsOf } from "./pool-windows.js";
import type { Tensor } from "./tensor.js";

/** Options of the pooling functions. @inline */
export interface PoolOptions {
  /** Size of the window. */
  kernel: PerAxis;
  /** Step between windows, the size of the window by default. */
  stride?: PerAxis;
  /** Elements around the input that do not count for maxima and are zero for means; at most half of the window. */
  padding?: PerAxis | readonly (readonly [number, number])[];
  /** Step between the elements of a window; of maxima only. */
  dilation?: PerAxis;
  /** Round the number of windows up instead of down: the last one may reach beyond the padding. */
  ceilMode?: boolean;
  /** Channels are the last axis instead of the second. */
  channelsLast?: boolean;
}

/** Options of the mean pooling functions. @inline */
interface AvgPoolOptions extends Omit<PoolOptions, "dilation"> {
  /** Divide by the whole window with its padding (default), or by the elements of the input in it. */
  countIncludePad?: boolean;
}

function checkInput(op: string, x: Tensor, spatial: number, channelsLast = false): Node {
  checkArguments(op, "tensor", { x });
  if (x.shape.length !== spatial + 2)
    throw new ShapeError(
      `${op}: needs ${spatial + 2} axes ([batch, ${channelsLast ? "..., channels" : "channels, ..."}]), got ${showShape(x.shape)}`,
    );
  if (!isFloat(x.dtype)) throw new WeftError(`${op}: needs floating-point numbers, got ${x.dtype}; use cast`);
  return x.node;
}

const poolNames = ["kernel", "stride", "padding", "ceilMode", "channelsLast"] as const;

type Combine = (left: Node, right: Node) => Node;
const firstMax: Combine = (left, right) => {
  const isLarger = build.binary("or", build.lt(left, right), build.unary("isnan", right));
  return build.where(isLarger, right, left);
};

/** Every window of k elements, at every position; windows are joined from smaller ones, so that the number of ops grows slowly. */
function joined(x: Node, axis: number, k: number, dilation: number, combine: Combine, overlap: boolean): Node {
  if (k === 1) return x;
  const half = Math.ceil(k / 2);
  const left = joined(x, axis, half, dilation, combine, overlap);
  // Maxima may count elements twice; sums may not.
  const right = overlap || half === k - half ? left : joined(x, axis, k - half, dilation, combine, overlap);
  const from = overlap ? dilation * (k - half) : dilation * half;
  const length = x.shape[axis] - dilation * (k - 1);
  return combine(build.sliceAxis(left, axis, 0, length), build.sliceAxis(right, axis, from, from + length));
}

/** What is taken of windows: how two parts are combined, and how a whole line is. */
interface Pooling {
  fill: number;
  combine: Combine;
  /** Whether elements may be counted twice. */
  overlap: boolean;
  /** Over the last axis. */
  line: (x: Node) => Node;
}

const sums: Pooling = { fill: 0, combine: build.add, overlap: false, line: (x) => build.sum(x, [x.shape.length - 1]) };

const maxima: Pooling = {
  fill: Number.NEGATIVE_INFINITY,
  combine: firstMax,
  overlap: true,
  // Through the position: the gradient belongs to the first of equal elements.
  line: (x) => {
    const last = x.shape.length - 1;
    const at = build.make("argreduce", [x], { fn: "argmax", axis: last });
    const found = build.gather(x, build.reshape(at, [...at.shape, 1]), last, last);
    return build.reshape(found, at.shape);
  },
};

/** Windows of this size that lie side by side are reduced as lines; shorter ones are joined inside one loop. */
const longWindow = 16;
/** Windows with steps of up to this size are joined element by element, at the positions that count only. */
const shortWindow = 8;

/** Element k of every window of a padded input, for each k. */
function elements(padded: Node, { axis, kernel, stride, dilation, out }: Window): Node[] {
  const one = padded.shape.map(() => 1);
  if (stride === kernel && dilation === 1) {
    // Side by side: gradients are put together without a test of the position.
    const split = [...padded.shape.slice(0, axis), out, kernel, ...padded.shape.slice(axis + 1)];
    const windows = build.reshape(padded, split);
    const shape = padded.shape.with(axis, out);
    return range(kernel).map((k) => build.reshape(build.sliceAxis(windows, axis + 1, k, k + 1), shape));
  }
  return range(kernel).map((k) => {
    const first = padded.shape.map(() => 0).with(axis, k * dilation);
    const stop = padded.shape.with(axis, k * dilation + (out - 1) * stride + 1);
    return build.slice(padded, first, stop, one.with(axis, stride));
  });
}

/** All of a list combined, neighbors first. */
function combined(parts: readonly Node[], combine: Combine): Node {
  if (parts.length === 1) return parts[0];
  const half = Math.ceil(parts.length / 2);
  return combine(combined(parts.slice(0, half), combine), combined(parts.slice(half), combine));
}

/** Windows along one axis of an input with `fill` around it. */
function pooled(x: Node, w: Window, { fill, combine, overlap, line }: Pooling): Node {
  if (w.kernel >= longWindow && w.stride === w.kernel && w.dilation === 1 && w.low === 0 && w.out * w.kernel <= w.n) {
    const cut = build.sliceAxis(x, w.axis, 0, w.out * w.kernel);
    const split = [...x.shape.slice(0, w.axis), w.out, w.kernel, ...x.shape.slice(w.axis + 1)];
    return line(build.moveAxis(build.reshape(cut, split), w.axis + 1, split.length - 1));
  }
  const needed = (w.out - 1) * w.stride + w.dilation * (w.kernel - 1) + 1;
  const around = (size: number): Node[] => (size <= 0 ? [] : [build.full(x.shape.with(w.axis, size), fill, x.dtype)]);
  const parts = [...around(w.low), x, ...around(needed - w.n - w.low)];
  const padded = build.sliceAxis(build.concat(parts, w.axis), w.axis, 0, needed);
  if (w.stride > 1 && w.kernel <= shortWindow) return combined(elements(padded, w), combine);
  const every = joined(padded, w.axis, w.kernel, w.dilation, combine, overlap);
  const start = every.shape.map(() => 0);
  const stop = every.shape.with(w.axis, (w.out - 1) * w.stride + 1);
  return build.slice(every, start, stop, every.shape.map(() => 1).with(w.axis, w.stride));
}

function maxPool(op: string, x: Tensor, spatial: number, options: PoolOptions): Tensor {
  checkOptions(op, options, [...poolNames, "dilation"]);
  const node = checkInput(op, x, spatial, options.channelsLast);
  // The last axis first: of equal elements, the first in row-major order is chosen.
  const windows = windowsOf(op, node, spatial, options).reverse();
  return wrap(windows.reduce((y, w) => pooled(y, w, maxima), node));
}

/** 1 / number of elements that each window counts, along its axis. */
function reciprocalCounts(like: Node, { axis, n, kernel, stride, low, high, out }: Window, withPadding: boolean): Node {
  const counts = range(out).map((o) => {
    const start = o * stride - low;
    return withPadding
      ? Math.min(start + kernel, n + high) - start
      : Math.max(1, Math.min(start + kernel, n) - Math.max(0, start));
  });
  if (counts.every((c) => c === counts[0])) return build.fullLike(like, 1 / counts[0]);
  // Counts differ at the ends only: as constants chosen by position.
  const position = build.iota(like.shape, axis, "int32");
  return counts.reduce<Node>(
    (scale, count, o) => {
      if (count === kernel) return scale;
      return build.where(build.eq(position, build.fullLike(position, o)), build.fullLike(like, 1 / count), scale);
    },
    build.fullLike(like, 1 / kernel),
  );
}

function avgPool(op: string, x: Tensor, spatial: number, options: AvgPoolOptions): Tensor {
  const { countIncludePad = true, ...rest } = checkOptions(op, options, [...poolNames, "countIncludePad"]);
  const node = checkInput(op, x, spatial, options.channelsLast);
  const result = windowsOf(op, node, spatial, rest).reduce(
    (y, w) => {
      const total = pooled(y, w, sums);
      return build.mul(total, reciprocalCounts(total, w, countIncludePad));
    },
    build.cast(node, node.dtype === "float64" ? "float64" : "float32"),
  );
  return wrap(build.cast(result, node.dtype));
}

/** 1D maxima of x [batch, channels, length] over windows, as torch.nn.functional.max_pool1d. */
export const maxPool1d = (x: Tensor, options: PoolOptions): Tensor => maxPool("maxPool1d", x, 1, options);

/**
 * 2D maxima of x [batch, channels, height, width] over windows.
 *
 * @example
 * ```ts
 * import { maxPool2d, tensor } from "@weft/core";
 *
 * console.log(await maxPool2d(tensor([[[[1, 2], [3, 4]]]]), { kernel: 2 }).item()); // 4
 * ```
 */
export const maxPool2d = (x: Tensor, options: PoolOptions): Tensor => maxPool("maxPool2d", x, 2, options);

/** 3D maxima of x [batch, channels, depth, height, width] over windows. */
export const maxPool3d = (x: Tensor, options: PoolOptions): Tensor => maxPool("maxPool3d", x, 3, options);

/** 1D means of x [batch, channels, length] over windows. */
export const avgPool1d = (x: Tensor, options: AvgPoolOptions): Tensor => avgPool("avgPool1d", x, 1, options);

/** 2D means of x [batch, channels, height, width] over windows. */
export const avgPool2d = (x: Tensor, options: AvgPoolOptions): Tensor => avgPool("avgPool2d", x, 2, options);

/** 3D means of x [batch, channels, depth, height, width] over windows. */
export const avgPool3d = (x: Tensor, options: AvgPoolOptions): Tensor => avgPool("avgPool3d", x, 3, options);

/** Windows that divide an axis of n into `out` parts, which may overlap by one element. */
const parts = (n: number, out: number): { start: number; stop: number }[] =>
  range(out).map((i) => ({ start: Math.floor((i * n) / out), stop: Math.ceil(((i + 1) * n) / out) }));

/** Along one axis: element j of every window, the last one again where a window has fewer. */
function adaptive(x: Tensor, axis: number, out: number, mean: boolean): Tensor {
  const n = x.shape[axis];
  if (n === out) return x;
  if (n % out === 0) {
    const kernel = n / out;
    const even = { axis, n, kernel, stride: kernel, dilation: 1, low: 0, high: 0, out };
    const result = pooled(x.node, even, mean ? sums : maxima);
    return wrap(mean ? build.scale(result, 1 / kernel) : result);
  }
  const windows = parts(n, out);
  const longest = Math.max(...windows.map(({ start, stop }) => stop - start));
  const elements = range(longest).map((j) => {
    const at = windows.map(({ start, stop }) => Math.min(start + j, stop - 1));
    return take(x, at, axis).node;
  });
  if (!mean) return wrap(elements.reduce(firstMax));
  const position = build.iota(elements[0].shape, axis, "int32");
  const zero = build.zerosLike(elements[0]);
  const terms = elements.map((element, j) => {
    const short = windows.flatMap(({ start, stop }, o) => (stop - start <= j ? [o] : []));
    return short.reduce<Node>(
      (value, o) => build.where(build.eq(position, build.fullLike(position, o)), zero, value),
      element,
    );
  });
  const scale = windows.reduce<Node>(
    (value, { start, stop }, o) =>
      build.where(build.eq(position, build.fullLike(position, o)), build.fullLike(zero, 1 / (stop - start)), value),
    build.fullLike(zero, 1),
  );
  return wrap(build.mul(terms.reduce(build.add), scale));
}

function adaptivePool(
  op: string,
  x: Tensor,
  spatial: number,
  size: PerAxis,
  options: AdaptivePoolOptions,
  mean: boolean,
): Tensor {
  checkOptions(op, options, ["channelsLast"]);
  const { channelsLast = false } = options;
  const node = checkInput(op, x, spatial, channelsLast);
  const sizes = perAxis(op, "size", size, spatial, 1);
  const first = firstSpatial(channelsLast);
  if (node.shape.slice(first, first + spatial).includes(0))
    throw new ShapeError(`${op}: the input ${showShape(node.shape)} is empty`);
  const wide = mean ? build.cast(node, node.dtype === "float64" ? "float64" : "float32") : node;
  const result = range(spatial)
    .reverse()
    .reduce((y, i) => adaptive(y, first + i, sizes[i], mean), wrap(wide));
  return wrap(build.cast(result.node, node.dtype));
}

/** Options of the adaptive pooling functions. @inline */
interface AdaptivePoolOptions {
  /** Channels are the last axis instead of the second. */
  channelsLast?: boolean;
}

/** 1D means over as many windows as `size` says, which cover the input evenly. */
export const adaptiveAvgPool1d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveAvgPool1d", x, 1, size, options, true);

/** 2D means over as many windows as `size` says, which cover the input evenly. */
export const adaptiveAvgPool2d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveAvgPool2d", x, 2, size, options, true);

/** 3D means over as many windows as `size` says, which cover the input evenly. */
export const adaptiveAvgPool3d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveAvgPool3d", x, 3, size, options, true);

/** 1D maxima over as many windows as `size` says, which cover the input evenly. */
export const adaptiveMaxPool1d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveMaxPool1d", x, 1, size, options, false);

/** 2D maxima over as many windows as `size` says, which cover the input evenly. */
export const adaptiveMaxPool2d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveMaxPool2d", x, 2, size, options, false);

/** 3D maxima over as many windows as `size` says, which cover the input evenly. */
export const adaptiveMaxPool3d = (x: Tensor, size: PerAxis, options: AdaptivePoolOptions = {}): Tensor =>
  adaptivePool("adaptiveMaxPool3d", x, 3, size, options, false);
