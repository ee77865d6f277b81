// Functions that move elements: reshape, permute, concatenate, split, repeat.
import { checkOptions, numel, promote, range, type Shape, ShapeError, showShape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkShape } from "./checks.js";
import { broadcastAll, checkArguments, nodeOf, resolveAxes, resolveAxis, type TensorLike, wrap } from "./convert.js";
import type { Tensor } from "./tensor.js";

/**
 * Same elements in the same order with another shape. One size may be -1.
 *
 * @example
 * ```ts
 * import { arange, reshape } from "@weft/core";
 *
 * console.log(await reshape(arange(6), [2, -1]).array()); // [[0, 1, 2], [3, 4, 5]]
 * ```
 */
export function reshape(x: TensorLike, shape: Shape): Tensor {
  if (!Array.isArray(shape))
    throw new ShapeError(`reshape: takes the shape as one array, such as reshape([2, -1]), got ${String(shape)}`);
  const node = nodeOf("reshape", x);
  const total = numel(node.shape);
  const open = shape.filter((d) => d === -1).length;
  const rest = numel(shape.filter((d) => d !== -1));
  const filled =
    open === 1 && rest > 0 && total % rest === 0 ? shape.map((d) => (d === -1 ? total / rest : d)) : [...shape];
  if (open > 1 || filled.some((d) => d < 0 || !Number.isInteger(d)) || numel(filled) !== total)
    throw new ShapeError(
      `reshape: ${showShape(node.shape)} (${total} elements) cannot become ${showShape(shape)}` +
        (open > 1 ? "; at most one size may be -1" : ` (${open === 1 ? `a multiple of ${rest}` : rest} elements)`),
    );
  return wrap(build.reshape(node, filled));
}

/** Permutes the axes: axis i of the result is axis order[i] of x. */
export function permute(x: TensorLike, order: readonly number[]): Tensor {
  if (!Array.isArray(order))
    throw new ShapeError(`permute: takes the order as one array, such as permute([1, 0]), got ${String(order)}`);
  const node = nodeOf("permute", x);
  const rank = node.shape.length;
  const axes = order.map((a) => resolveAxis("permute", a, rank));
  if (axes.length !== rank || new Set(axes).size !== rank)
    throw new ShapeError(`permute: [${order.join(", ")}] does not name each of the ${rank} axes once`);
  return wrap(build.permute(node, axes));
}

/** Swaps two axes, by default the last two. */
export function transpose(x: TensorLike, a = -2, b = -1): Tensor {
  const node = nodeOf("transpose", x);
  const rank = node.shape.length;
  if (rank < 2 && a === -2 && b === -1) return wrap(node);
  const axes = range(rank);
  const [i, j] = [resolveAxis("transpose", a, rank), resolveAxis("transpose", b, rank)];
  [axes[i], axes[j]] = [axes[j], axes[i]];
  return wrap(build.permute(node, axes));
}

/** Moves one axis, or several, to other positions; the other axes keep their order. */
export function moveAxis(x: TensorLike, from: number | readonly number[], to: number | readonly number[]): Tensor {
  const node = nodeOf("moveAxis", x);
  const rank = node.shape.length;
  const [sources, targets] = [from, to].map((axes) => {
    const given = typeof axes === "number" ? [axes] : axes;
    checkArguments("moveAxis", "array", { axes: given });
    const list = given.map((axis) => resolveAxis("moveAxis", axis, rank));
    if (new Set(list).size !== list.length) throw new ShapeError(`moveAxis: [${list.join(", ")}] names one axis twice`);
    return list;
  });
  if (sources.length !== targets.length)
    throw new ShapeError(`moveAxis: ${sources.length} axes cannot move to ${targets.length} positions`);
  const rest = range(rank).filter((axis) => !sources.includes(axis));
  const order = range(rank).map((at) => (targets.includes(at) ? sources[targets.indexOf(at)] : rest.shift()!));
  return wrap(build.permute(node, order));
}

/** Broadcasts to a shape; -1 keeps a size. */
export function expand(x: TensorLike, shape: Shape): Tensor {
  const node = nodeOf("expand", x);
  checkArguments("expand", "array", { shape });
  const lead = shape.length - node.shape.length;
  const filled = shape.map((d, i) => (d === -1 && i >= lead ? node.shape[i - lead] : d));
  checkShape("expand", filled);
  const fits = lead >= 0 && node.shape.every((d, i) => d === 1 || d === filled[i + lead]);
  if (!fits)
    throw new ShapeError(
      `expand: ${showShape(node.shape)} does not grow to ${showShape(shape)}; only sizes of 1 grow, new axes come in front`,
    );
  return wrap(build.expandTo(node, filled));
}

/** Same as {@link expand}. */
export const broadcastTo = expand;

/** Removes axes of size 1: all of them, or the given ones. */
export function squeeze(x: TensorLike, axes?: number | readonly number[]): Tensor {
  const node = nodeOf("squeeze", x);
  const chosen =
    axes === undefined
      ? range(node.shape.length).filter((i) => node.shape[i] === 1)
      : resolveAxes("squeeze", axes, node.shape.length);
  const wrong = chosen.find((a) => node.shape[a] !== 1);
  if (wrong !== undefined)
    throw new ShapeError(`squeeze: axis ${wrong} of ${showShape(node.shape)} has size ${node.shape[wrong]}, not 1`);
  return wrap(
    build.reshape(
      node,
      node.shape.filter((_, i) => !chosen.includes(i)),
    ),
  );
}

/** Inserts an axis of size 1. */
export function unsqueeze(x: TensorLike, axis: number): Tensor {
  const node = nodeOf("unsqueeze", x);
  const at = resolveAxis("unsqueeze", axis, node.shape.length + 1);
  return wrap(build.reshape(node, [...node.shape.slice(0, at), 1, ...node.shape.slice(at)]));
}

/** Merges the axes from `start` to `end`, by default all, into one. */
export function flatten(x: TensorLike, start = 0, end = -1): Tensor {
  const node = nodeOf("flatten", x);
  const rank = node.shape.length;
  if (rank === 0) return wrap(build.reshape(node, [1]));
  const [from, to] = [resolveAxis("flatten", start, rank), resolveAxis("flatten", end, rank)];
  if (from > to) throw new ShapeError(`flatten: axis ${start} comes after axis ${end}`);
  return wrap(
    build.reshape(node, [
      ...node.shape.slice(0, from),
      numel(node.shape.slice(from, to + 1)),
      ...node.shape.slice(to + 1),
    ]),
  );
}

/** Reverses the order of the elements along axes, by default along all axes. */
export function flip(x: TensorLike, axes?: number | readonly number[]): Tensor {
  const node = nodeOf("flip", x);
  return wrap(build.flip(node, resolveAxes("flip", axes, node.shape.length)));
}

/**
 * Concatenates tensors along an axis; null flattens them first.
 *
 * @example
 * ```ts
 * import { concat, tensor } from "@weft/core";
 *
 * console.log(await concat([tensor([1, 2]), tensor([3])]).array()); // [1, 2, 3]
 * ```
 */
export function concat(parts: readonly TensorLike[], axis: number | null = 0): Tensor {
  checkArguments("concat", "array", { parts });
  if (parts.length === 0) throw new ShapeError("concat: needs at least one tensor");
  if (axis === null)
    return concat(
      parts.map((part) => reshape(part, [-1])),
      0,
    );
  const nodes = parts.map((part) => nodeOf("concat", part));
  const rank = nodes[0].shape.length;
  const at = resolveAxis("concat", axis, rank);
  for (const node of nodes) {
    if (node.shape.length !== rank || node.shape.some((d, i) => i !== at && d !== nodes[0].shape[i]))
      throw new ShapeError(
        `concat: ${nodes.map((n) => showShape(n.shape)).join(", ")} differ in more than axis ${at}; use stack to join along a new axis`,
      );
  }
  const dtype = nodes.map((n) => n.dtype).reduce(promote);
  return wrap(
    build.concat(
      nodes.map((n) => build.cast(n, dtype)),
      at,
    ),
  );
}

/** Stacks tensors of one shape along a new axis. */
export function stack(parts: readonly TensorLike[], axis = 0): Tensor {
  checkArguments("stack", "array", { parts });
  if (parts.length === 0) throw new ShapeError("stack: needs at least one tensor");
  const first = nodeOf("stack", parts[0]).shape;
  for (const part of parts) {
    const { shape } = nodeOf("stack", part);
    if (showShape(shape) !== showShape(first))
      throw new ShapeError(`stack: shapes ${showShape(first)} and ${showShape(shape)} differ; all must be equal`);
  }
  return concat(
    parts.map((part) => unsqueeze(part, axis)),
    axis,
  );
}

/** Splits along an axis into a number of equal pieces, or into pieces of the given sizes. */
export function split(x: TensorLike, pieces: number | readonly number[], axis = 0): Tensor[] {
  const node = nodeOf("split", x);
  const at = resolveAxis("split", axis, node.shape.length);
  const size = node.shape[at];
  if (
    typeof pieces === "number" &&
    !(Number.isInteger(pieces) && pieces >= 1 && pieces < 2 ** 24 && size % pieces === 0)
  )
    throw new ShapeError(
      `split: ${size} elements along axis ${at} do not divide into ${pieces} equal pieces; give their sizes`,
    );
  const sizes = typeof pieces === "number" ? new Array<number>(pieces).fill(size / pieces) : pieces;
  checkArguments("split", "array", { pieces: sizes });
  if (sizes.some((n) => !Number.isInteger(n) || n < 0) || sizes.reduce((a, b) => a + b, 0) !== size)
    throw new ShapeError(`split: sizes ${sizes.join(" + ")} do not add up to ${size}, the size of axis ${at}`);
  let from = 0;
  return sizes.map((n) => {
    from += n;
    return wrap(build.sliceAxis(node, at, from - n, from));
  });
}

/** Repeats the whole tensor along each axis. */
export function tile(x: TensorLike, repeats: readonly number[]): Tensor {
  const node = nodeOf("tile", x);
  checkShape("tile (repeats)", repeats);
  const rank = Math.max(node.shape.length, repeats.length);
  const shape = [...new Array<number>(rank - node.shape.length).fill(1), ...node.shape];
  const times = [...new Array<number>(rank - repeats.length).fill(1), ...repeats];
  const spread = build.reshape(
    node,
    shape.flatMap((d) => [1, d]),
  );
  const grown = build.expand(
    spread,
    shape.flatMap((d, i) => [times[i], d]),
  );
  return wrap(
    build.reshape(
      grown,
      shape.map((d, i) => d * times[i]),
    ),
  );
}

/** Shifts elements cyclically along an axis, along several, or (null, the default) in the order of the flattened tensor. */
export function roll(
  x: TensorLike,
  shift: number | readonly number[],
  axis: number | readonly number[] | null = null,
): Tensor {
  const node = nodeOf("roll", x);
  if (axis === null) return reshape(roll(reshape(x, [-1]), shift, 0), node.shape);
  if (typeof axis !== "number" || typeof shift !== "number") {
    const axes = typeof axis === "number" ? [axis] : axis;
    const shifts = typeof shift === "number" ? Array.from(axes, () => shift) : shift;
    checkArguments("roll", "array", { shift: shifts, axis: axes });
    if (axes.length !== shifts.length)
      throw new ShapeError(`roll: ${shifts.length} shifts for ${axes.length} axes; give one shift per axis`);
    return axes.reduce<Tensor>((t, a, i) => roll(t, shifts[i], a), wrap(node));
  }
  const at = resolveAxis("roll", axis, node.shape.length);
  if (!Number.isInteger(shift)) throw new ShapeError(`roll: the shift must be a whole number, got ${shift}`);
  const size = node.shape[at];
  const by = size === 0 ? 0 : ((shift % size) + size) % size;
  if (by === 0) return wrap(node);
  return wrap(build.concat([build.sliceAxis(node, at, size - by, size), build.sliceAxis(node, at, 0, size - by)], at));
}

/** Slices every axis: start, start + step, ... below stop. Negative positions count from the end. */
export function slice(
  x: TensorLike,
  start: readonly number[],
  stop: readonly number[],
  step?: readonly number[],
): Tensor {
  const node = nodeOf("slice", x);
  checkArguments("slice", "array", { start, stop, ...(step !== undefined && { step }) });
  if (
    start.length !== node.shape.length ||
    stop.length !== start.length ||
    (step !== undefined && step.length !== start.length)
  )
    throw new ShapeError(`slice: give one start and one stop per axis of ${showShape(node.shape)}`);
  if ([...start, ...stop].some((at) => !Number.isInteger(at)))
    throw new ShapeError(`slice: positions are whole numbers, got [${start.join(", ")}] to [${stop.join(", ")}]`);
  if (step?.some((s) => !Number.isInteger(s) || s < 1))
    throw new ShapeError(
      `slice: steps are whole numbers >= 1, got [${step.join(", ")}]; use flip for the other direction`,
    );
  const clampTo = (at: number, size: number): number => Math.min(size, Math.max(0, at < 0 ? at + size : at));
  const from = start.map((s, i) => clampTo(s, node.shape[i]));
  const to = stop.map((s, i) => Math.max(from[i], clampTo(s, node.shape[i])));
  return wrap(build.slice(node, from, to, step));
}

/** Broadcasts tensors to their common shape. */
export function broadcastTensors(...tensors: TensorLike[]): Tensor[] {
  const nodes = tensors.map((t) => nodeOf("broadcastTensors", t));
  const shape = broadcastAll(
    "broadcastTensors",
    nodes.map((n) => n.shape),
  );
  return nodes.map((n) => wrap(build.expandTo(n, shape)));
}

/** The slices of a tensor along an axis, without that axis. */
export function unstack(x: TensorLike, axis = 0): Tensor[] {
  const node = nodeOf("unstack", x);
  const at = resolveAxis("unstack", axis, node.shape.length);
  const shape = node.shape.filter((_, i) => i !== at);
  return range(node.shape[at]).map((i) => wrap(build.reshape(build.sliceAxis(node, at, i, i + 1), shape)));
}

/** Options of {@link meshgrid}. @inline */
interface MeshgridOptions {
  /** "xy" (the default): the first vector varies along axis 1, the second along axis 0. "ij": vector i varies along axis i. */
  indexing?: "xy" | "ij";
}

/** Coordinates of a grid: one tensor per vector, all of the shape of the grid. */
export function meshgrid(vectors: readonly TensorLike[], options: MeshgridOptions = {}): Tensor[] {
  const { indexing = "xy" } = checkOptions("meshgrid", options, ["indexing"]);
  if (indexing !== "xy" && indexing !== "ij")
    throw new ShapeError(`meshgrid: indexing is "xy" or "ij", got ${String(indexing)}`);
  checkArguments("meshgrid", "array", { vectors });
  const nodes = vectors.map((v) => nodeOf("meshgrid", v));
  const wrong = nodes.find((node) => node.shape.length > 1);
  if (wrong !== undefined) throw new ShapeError(`meshgrid: needs vectors, got shape ${showShape(wrong.shape)}`);
  const place = (i: number): number => (indexing === "xy" && i < 2 && nodes.length > 1 ? 1 - i : i);
  const sizes = nodes.map((node) => numel(node.shape));
  const shape = range(nodes.length).map((axis) => sizes[place(axis)]);
  return nodes.map((node, i) => {
    const alone = shape.map((_, axis) => (axis === place(i) ? sizes[i] : 1));
    return wrap(build.expand(build.reshape(node, alone), shape));
  });
}
