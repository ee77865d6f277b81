// Windows over the axes of a tensor: a gather whose indices are known on the host.
import {
  checkOptions,
  DTypeError,
  isComplex,
  isInexact,
  range,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { perAxis } from "./conv.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { iinfo } from "./dtypes.js";
import { bitwiseNot } from "./elementwise.js";
import { cast } from "./math.js";
import { pad } from "./padding.js";
import { max, min, prod, sum } from "./reduce.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link slidingWindow}. @inline */
interface SlidingWindowOptions {
  /** Distance between windows, for all axes or per axis; 1 by default. */
  stride?: number | readonly number[];
}

/**
 * All windows of a size over the last axes, as numpy.lib.stride_tricks.sliding_window_view: the axes of the windows come last.
 *
 * @example
 * ```ts
 * import { arange, slidingWindow } from "@weft/core";
 *
 * console.log(await slidingWindow(arange(4), [2]).array()); // [[0, 1], [1, 2], [2, 3]]
 * ```
 */
export function slidingWindow(x: TensorLike, size: readonly number[], options: SlidingWindowOptions = {}): Tensor {
  const { stride = 1 } = checkOptions("slidingWindow", options, ["stride"]);
  let t = wrap(nodeOf("slidingWindow", x));
  checkArguments("slidingWindow", "array", { size });
  const strides = perAxis("slidingWindow", "stride", stride, size.length, 1);
  const lead = t.rank - size.length;
  if (lead < 0 || size.some((n, i) => !Number.isInteger(n) || n < 1 || n > t.shape[lead + i]))
    throw new ShapeError(
      `slidingWindow: windows [${size.join(", ")}] do not fit into the last axes of ${showShape(t.shape)}`,
    );
  size.forEach((n, i) => {
    const count = Math.floor((t.shape[lead + i] - n) / strides[i]) + 1;
    // Positions instead of numbers: compilers turn the gather into a view.
    const [row, column] = [0, 1].map((axis) => build.iota([count, n], axis, "int32"));
    const apart = wrap(build.gather(t.node, build.add(build.scale(row, strides[i]), column), lead + i, 0));
    const order = range(apart.rank).filter((axis) => axis !== lead + i + 1);
    t = apart.permute([...order, lead + i + 1]);
  });
  return t;
}

/** Options of {@link reduceWindow}. @inline */
interface ReduceWindowOptions extends SlidingWindowOptions {
  /** Elements before and after every axis, [before, after] per axis, that do not count. */
  padding?: readonly (readonly [number, number])[];
}

const windowReductions = { sum, prod, max, min } as const;

/**
 * Reduces every window of a size over the last axes, as jax.lax.reduce_window with its four usual functions. Padding is neutral.
 *
 * @example
 * ```ts
 * import { arange, reduceWindow } from "@weft/core";
 *
 * console.log(await reduceWindow(arange(5), [3], "sum").array()); // [3, 6, 9]
 * ```
 */
export function reduceWindow(
  x: TensorLike,
  size: readonly number[],
  fn: keyof typeof windowReductions,
  options: ReduceWindowOptions = {},
): Tensor {
  const { stride, padding } = checkOptions("reduceWindow", options, ["stride", "padding"]);
  if (!Object.hasOwn(windowReductions, fn))
    throw new WeftError(`reduceWindow: fn is ${Object.keys(windowReductions).join(", ")}, got ${showValue(fn)}`);
  checkArguments("reduceWindow", "array", { size });
  if (padding !== undefined) checkArguments("reduceWindow", "array", { padding });
  const t = wrap(nodeOf("reduceWindow", x));
  const isExtreme = fn === "max" || fn === "min";
  if (isExtreme && (isComplex(t.dtype) || t.dtype === "bool"))
    throw new DTypeError(`reduceWindow: ${fn} is not defined for ${t.dtype}`);
  // The highest 64-bit integers are no JavaScript numbers; inverted bits reverse the order.
  if (fn === "min" && !isInexact(t.dtype)) return bitwiseNot(reduceWindow(bitwiseNot(t), size, "max", options));
  const lowest = isInexact(t.dtype) || !isExtreme ? -Infinity : Number(iinfo(t.dtype).min);
  const value = { sum: 0, prod: 1, max: lowest, min: Infinity }[fn];
  const lead = range(t.rank - size.length).map((): [number, number] => [0, 0]);
  const padded = padding === undefined ? t : pad(t, [...lead, ...padding], value);
  const windows = slidingWindow(padded, size, stride === undefined ? {} : { stride });
  return cast(windowReductions[fn](windows, range(windows.rank).slice(-size.length)), t.dtype);
}
