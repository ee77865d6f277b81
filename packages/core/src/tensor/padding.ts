// Padding of axes: by a constant, by elements of the tensor itself (a gather over all axes at once) or by their mean.
import { checkOptions, isComplex, type Node, numel, range, ShapeError, showShape, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, nodeOf, type TensorLike, updateNode, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { take } from "./indexing.js";
import { max, mean, min } from "./reduce.js";
import { concat, expand } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Ways to pad; see {@link pad}. @inline */
type PadMode = "constant" | "edge" | "reflect" | "symmetric" | "wrap" | "mean" | "maximum" | "minimum" | "linearRamp";

/** Options of {@link pad}. @inline */
export interface PadOptions {
  /** Where the new elements come from; "constant" by default. */
  mode?: PadMode;
  /** Value of "constant", and the outer end of "linearRamp"; 0 by default. */
  value?: number;
}

const modulo = (i: number, n: number): number => ((i % n) + n) % n;

/** The element of an axis of n elements that stands at position i, which may be outside. */
const sources: Partial<Record<PadMode, (i: number, n: number) => number>> = {
  edge: (i, n) => Math.min(n - 1, Math.max(0, i)),
  wrap: modulo,
  reflect: (i, n) => {
    const at = n === 1 ? 0 : modulo(i, 2 * (n - 1));
    return at < n ? at : 2 * (n - 1) - at;
  },
  symmetric: (i, n) => {
    const at = modulo(i, 2 * n);
    return at < n ? at : 2 * n - 1 - at;
  },
};

/** The same by arithmetic of positions, at most one length of the axis outside. */
const nearSources: Partial<Record<PadMode, (i: Node, n: number) => Node>> = {
  edge: (i, n) => build.binary("min", build.binary("max", i, build.fullLike(i, 0)), build.fullLike(i, n - 1)),
  wrap: (i, n) => outside(i, n, build.shift(i, n), build.shift(i, -n)),
  reflect: (i, n) => outside(i, n, build.neg(i), build.shift(build.neg(i), 2 * (n - 1))),
  symmetric: (i, n) => outside(i, n, build.shift(build.neg(i), -1), build.shift(build.neg(i), 2 * n - 1)),
};
const outside = (i: Node, n: number, before: Node, after: Node): Node =>
  build.where(build.lt(i, build.fullLike(i, 0)), before, build.where(build.lt(i, build.fullLike(i, n)), i, after));

/** Axes that are padded by elements of the tensor, all in one pass; null where positions lie too far outside. */
function padNear(x: Tensor, amounts: readonly (readonly [number, number])[], mode: PadMode): Tensor | null {
  const source = nearSources[mode];
  const padded = amounts.flatMap((pair, axis) => (pair[0] + pair[1] > 0 ? [axis] : []));
  // A reflection has one element less to give than the axis has.
  const most = (n: number): number => (mode === "reflect" ? n - 1 : n);
  if (source === undefined || padded.some((axis) => Math.max(...amounts[axis]) > most(x.shape[axis]))) return null;
  const [first, end] = [Math.min(...padded), Math.max(...padded) + 1];
  const from = x.shape.slice(first, end);
  const to = from.map((n, i) => n + amounts[first + i][0] + amounts[first + i][1]);
  if (padded.length === 0 || numel(to) >= 2 ** 31 || numel(x.shape) === 0) return padded.length === 0 ? x : null;
  const places = from.map((n, i) => {
    const [before, after] = amounts[first + i];
    const at = build.shift(build.iota(to, i, "int32"), -before);
    return before + after === 0 ? at : source(at, n);
  });
  const flat = places.reduce((sum, at, i) => build.add(build.scale(sum, from[i]), at));
  const joined = build.reshape(x.node, [...x.shape.slice(0, first), numel(from), ...x.shape.slice(end)]);
  return wrap(build.gather(joined, flat, first, 0));
}

/** What stands before and after the elements of an axis, as [..., 1, ...]. */
const summaries: Partial<Record<PadMode, (x: Tensor, axis: number) => Tensor>> = {
  mean: (x, axis) => mean(x, axis, { keepDims: true }).cast(x.dtype),
  maximum: (x, axis) => max(x, axis, { keepDims: true }),
  minimum: (x, axis) => min(x, axis, { keepDims: true }),
};

function padAxis(x: Tensor, axis: number, before: number, after: number, mode: PadMode, value: number): Tensor {
  const n = x.shape[axis];
  if (before === 0 && after === 0) return x;
  if (n === 0)
    throw new ShapeError(`pad: axis ${axis} of ${showShape(x.shape)} has no elements to pad with by "${mode}"`);
  const source = sources[mode];
  if (source !== undefined)
    return take(
      x,
      range(before + n + after).map((i) => source(i - before, n)),
      axis,
    );
  const wide = (part: Tensor, size: number): Tensor => expand(part, x.shape.with(axis, size));
  const summary = summaries[mode];
  if (summary !== undefined) {
    const part = summary(x, axis);
    return concat([wide(part, before), x, wide(part, after)], axis);
  }
  const along = (weights: readonly number[]): Tensor =>
    tensor(Float64Array.from(weights), {
      shape: x.shape.map((_, i) => (i === axis ? weights.length : 1)),
      dtype: "float64",
    });
  const ramp = (edge: number, weights: readonly number[]): Tensor => {
    const end = take(x, [edge], axis);
    return end
      .sub(value)
      .cast(isComplex(x.dtype) ? "complex128" : "float64")
      .mul(along(weights))
      .add(value)
      .cast(x.dtype);
  };
  const rising = (size: number): number[] => range(size).map((i) => i / size);
  return concat([ramp(0, rising(before)), x, ramp(n - 1, rising(after).reverse())], axis);
}

function padConstant(x: Tensor, amounts: readonly (readonly [number, number])[], value: number): Tensor {
  const low = amounts.map(([before]) => before);
  const high = amounts.map(([, after]) => after);
  const padded = build.pad(x.node, low, high);
  if (value === 0) return wrap(padded);
  const inside = build.pad(build.full(x.shape, 1, "bool"), low, high);
  return wrap(build.where(inside, padded, build.fullLike(padded, value)));
}

/**
 * Pads axes: one [before, after] per axis. The last argument is the value (0 by default) or options: by "edge", "reflect" (without
 * the edge), "symmetric" (with it), "wrap", "mean", "maximum", "minimum" of the axis, or a "linearRamp" to the value.
 *
 * @example
 * ```ts
 * import { pad, tensor } from "@weft/core";
 *
 * const x = tensor([1, 2, 3]);
 * console.log(await pad(x, [[1, 2]]).array()); // [0, 1, 2, 3, 0, 0]
 * console.log(await pad(x, [[2, 2]], { mode: "reflect" }).array()); // [3, 2, 1, 2, 3, 2, 1]
 * ```
 */
export function pad(
  x: TensorLike,
  amounts: readonly (readonly [number, number])[],
  options: number | PadOptions = 0,
): Tensor {
  const { mode = "constant", value = 0 } =
    typeof options === "number" ? { value: options } : checkOptions("pad", options, ["mode", "value"]);
  if (typeof value !== "number") throw new WeftError(`pad: value is a number, got ${String(value)}`);
  if (mode !== "constant" && mode !== "linearRamp" && sources[mode] === undefined && summaries[mode] === undefined)
    throw new WeftError(
      `pad: the mode is one of constant, edge, reflect, symmetric, wrap, mean, maximum, minimum, linearRamp, got ${String(mode)}`,
    );
  const t = wrap(nodeOf("pad", x));
  checkArguments("pad", "array", { amounts });
  if (
    amounts.length !== t.rank ||
    amounts.some((pair) => !Array.isArray(pair) || pair.length !== 2) ||
    amounts.flat().some((n) => !Number.isInteger(n) || n < 0)
  )
    throw new ShapeError(`pad: ${showShape(t.shape)} needs one [before, after] of whole numbers >= 0 per axis`);
  updateNode("pad", t, value);
  if (mode === "constant") return padConstant(t, amounts, value);
  const near = padNear(t, amounts, mode);
  if (near !== null) return near;
  return amounts.reduce<Tensor>((y, [before, after], axis) => padAxis(y, axis, before, after, mode, value), t);
}
