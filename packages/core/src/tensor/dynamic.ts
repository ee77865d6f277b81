// Slices whose position is a value of the program: a window that moves through a tensor, and a cache that is updated in place.
import { DTypeError, type Node, type Shape, ShapeError, showShape, showValue } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, nodeAs, wrap } from "./convert.js";
import { Tensor } from "./tensor.js";

/** Start of a slice along every axis: numbers, or int32 tensors without dimensions. @inline */
type SliceStart = readonly (number | Tensor)[];

function startNodes(op: string, start: SliceStart, rank: number): Node[] {
  if (!Array.isArray(start))
    throw new ShapeError(`${op}: start is an array with one entry per axis, got ${showValue(start)}`);
  if (start.length !== rank)
    throw new ShapeError(`${op}: start has ${start.length} entries for a tensor with ${rank} axes; give one per axis`);
  return start.map((at, axis) => {
    if (at instanceof Tensor && (at.dtype !== "int32" || at.shape.length !== 0))
      throw new DTypeError(`${op}: start ${axis} must be one int32, got ${at.dtype} ${showShape(at.shape)}`);
    if (typeof at === "number" && !Number.isInteger(at))
      throw new ShapeError(`${op}: start ${axis} must be a whole number, got ${at}`);
    return nodeAs(op, at, "int32");
  });
}

/** Sizes of a slice, which must fit; the axes that it does not cover completely are listed. */
function partialAxes(op: string, what: string, shape: Shape, sizes: Shape): number[] {
  checkArguments(op, "array", { sizes });
  const fits = sizes.length === shape.length && sizes.every((d, i) => Number.isInteger(d) && d >= 0 && d <= shape[i]);
  if (!fits) throw new ShapeError(`${op}: ${what} ${showShape(sizes)} does not fit a tensor ${showShape(shape)}`);
  return shape.flatMap((d, axis) => (sizes[axis] === d ? [] : [axis]));
}

/**
 * A window of fixed size at a position that the program computes. The start is clamped so that the window lies inside.
 *
 * @param start - One entry per axis: a number, or an int32 tensor without dimensions.
 * @param sizes - Size of the window along every axis.
 * @example
 * ```ts
 * import { arange, dynamicSlice, tensor } from "@weft/core";
 *
 * const at = tensor(3, { dtype: "int32" });
 * console.log(await dynamicSlice(arange(10), [at], [4]).array()); // [3, 4, 5, 6]
 * ```
 */
export function dynamicSlice(x: Tensor, start: SliceStart, sizes: Shape): Tensor {
  checkArguments("dynamicSlice", "tensor", { x });
  const at = startNodes("dynamicSlice", start, x.shape.length);
  const axes = partialAxes("dynamicSlice", "a window", x.shape, sizes);
  return wrap(axes.reduce((node, axis) => build.sliceAt(node, at[axis], sizes[axis], axis, 0), x.node));
}

/**
 * A tensor with a window of it replaced, at a position that the program computes. The start is clamped so that the update lies
 * inside. Inside a program, and for donated arguments of `jit`, only the update is written if the old value is not used again.
 *
 * @param update - The new values of the window, with the dtype of x.
 * @param start - One entry per axis: a number, or an int32 tensor without dimensions.
 * @example
 * ```ts
 * import { dynamicUpdateSlice, tensor, zeros } from "@weft/core";
 *
 * const at = tensor(2, { dtype: "int32" });
 * console.log(await dynamicUpdateSlice(zeros([5]), tensor([7, 8]), [at]).array()); // [0, 0, 7, 8, 0]
 * ```
 */
export function dynamicUpdateSlice(x: Tensor, update: Tensor, start: SliceStart): Tensor {
  checkArguments("dynamicUpdateSlice", "tensor", { x, update });
  const at = startNodes("dynamicUpdateSlice", start, x.shape.length);
  const axes = partialAxes("dynamicUpdateSlice", "an update", x.shape, update.shape);
  if (update.dtype !== x.dtype)
    throw new DTypeError(`dynamicUpdateSlice: the update is ${update.dtype}, the tensor ${x.dtype}; cast one of them`);
  const sizes = update.shape;
  const write = (base: Node, [axis, ...rest]: readonly number[]): Node => {
    if (axis === undefined) return update.node;
    const window = rest.length === 0 ? update.node : write(build.sliceAt(base, at[axis], sizes[axis], axis, 0), rest);
    return build.updateSlice(base, at[axis], window, axis, 0);
  };
  return wrap(write(x.node, axes));
}
