// Windows over the axes of a tensor: a gather whose indices are known on the host.
import { checkOptions, range, ShapeError, showShape } from "../graph/index.js";
import { perAxis } from "./conv.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { take } from "./indexing.js";
import { reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link slidingWindow}. */
export interface SlidingWindowOptions {
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
    const starts = range(count).flatMap((at) => range(n).map((k) => at * strides[i] + k));
    const picked = take(t, starts, lead + i);
    // [..., count * n, ...] -> [..., count, ..., n]: the elements of a window become the last axis.
    const shape = picked.shape;
    const apart = reshape(picked, [...shape.slice(0, lead + i), count, n, ...shape.slice(lead + i + 1)]);
    const order = range(apart.rank).filter((axis) => axis !== lead + i + 1);
    t = apart.permute([...order, lead + i + 1]);
  });
  return t;
}
