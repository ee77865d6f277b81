// Scatter with other functions than a sum, and reductions of segments. Only sums are ops of the graph; the others sort by index, so
// that the updates of one place become neighbors, and pick or combine them.
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
import { build } from "../ops/index.js";
import { checkArguments, nodeOf, resolveAxis, type TensorLike, updateNode, wrap } from "./convert.js";
import { onesLike, zeros } from "./create.js";
import { cumsum } from "./cumulative.js";
import { customVjp } from "./custom.js";
import { argsort, gather, scatterAdd } from "./indexing.js";
import { cast, equal, isNaN, less, logicalAnd, maximum, minimum, mul, where } from "./math.js";
import { pad } from "./padding.js";
import { concat, expand, moveAxis, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** What becomes of an element and the updates of its place. */
export type ScatterMode = "set" | "add" | "mul" | "min" | "max";

/** Options of {@link scatter}. */
export interface ScatterOptions {
  /** Axis that the indices count, the last by default. */
  axis?: number;
  /** "set" (the default): the last update replaces the element; otherwise elements and updates are combined. */
  mode?: ScatterMode;
}

/** Indices from the end count from there; those out of range drop their updates. */
function places(indices: Tensor, size: number): { at: Tensor; inside: Tensor } {
  const whole = wrap(build.toIndex(indices.node));
  const at = where(less(whole, 0), whole.add(size), whole);
  return { at, inside: logicalAnd(at.greaterEqual(0), at.less(size)) };
}

/** Number of updates per place, and the position behind the last one once updates are in the order of their places. */
function segments(at: Tensor, size: number): { count: Tensor; end: Tensor } {
  const shape = at.shape.with(-1, size);
  const count = scatterAdd(zeros(shape, { dtype: "int32" }), at, onesLike(at));
  return { count, end: cumsum(count, -1, { dtype: "int32" }) };
}

/** The last of every run of updates that `order` puts side by side; `fallback` where there is none. */
function lastOf(updates: Tensor, order: Tensor, at: Tensor, size: number, fallback: Tensor): Tensor {
  const { count, end } = segments(at, size);
  const found = gather(gather(updates, order), end.sub(1).maximum(0));
  return where(count.greater(0), found, fallback);
}

/** Stable order by place; updates of one place are in ascending order of `key`, if there is one. */
function orderBy(at: Tensor, key: Tensor | null): Tensor {
  if (key === null) return argsort(at);
  const first = argsort(key);
  return gather(first, argsort(gather(at, first)));
}

/** Largest (or smallest) of an element and its updates. NaN wins. */
function extreme(x: Tensor, at: Tensor, updates: Tensor, largest: boolean): Tensor {
  const size = x.shape[x.rank - 1];
  const order = orderBy(at, updates);
  const top = lastOf(updates, order, at, size, x);
  if (largest) return maximum(x, top);
  const { count, end } = segments(at, size);
  const first = gather(gather(updates, order), end.sub(count).minimum(updates.shape[updates.rank - 1] - 1));
  const least = where(count.greater(0), first, x);
  // NaN is sorted to the end of a run, where only the largest is looked at.
  return minimum(x, isInexact(x.dtype) ? where(isNaN(top), top, least) : least);
}

/** Elements and updates that are equal to the result share its cotangent evenly, as maxima do elsewhere. */
const extremeWithGradient = (largest: boolean) =>
  customVjp(
    (x: Tensor, at: Tensor, updates: Tensor) => extreme(x, at, updates, largest),
    ([x, at, updates], y, g) => {
      const [own, theirs] = [equal(x, y), equal(updates, gather(y, at))].map((hit) => cast(hit, g.dtype));
      const share = g.div(maximum(scatterAdd(own, at, theirs), 1));
      return [mul(own, share), null, mul(theirs, gather(share, at))];
    },
  );
const [minimumOf, maximumOf] = [extremeWithGradient(false), extremeWithGradient(true)];

/** Product of an element and its updates: products of runs by doubling, in log2(n) steps. */
function product(x: Tensor, at: Tensor, updates: Tensor): Tensor {
  const n = updates.shape[updates.rank - 1];
  const order = orderBy(at, null);
  const sorted = gather(at, order);
  let running = gather(updates, order);
  const front = (t: Tensor, by: number): Tensor =>
    pad(
      t.slice(
        t.shape.map(() => 0),
        t.shape.with(-1, n - by),
      ),
      t.shape.map((_, i): [number, number] => [i === t.rank - 1 ? by : 0, 0]),
    );
  for (let by = 1; by < n; by *= 2) {
    // Places are shifted by one, so that the zeros of the padding belong to none.
    const together = equal(front(sorted.add(1), by), sorted.add(1));
    running = where(together, mul(running, front(running, by)), running);
  }
  const { count, end } = segments(at, x.shape[x.rank - 1]);
  const total = gather(running, end.sub(1).maximum(0));
  return where(count.greater(0), mul(x, total), x);
}

const combine: Record<ScatterMode, (x: Tensor, at: Tensor, updates: Tensor) => Tensor> = {
  set: (x, at, updates) => lastOf(updates, orderBy(at, null), at, x.shape[x.rank - 1], x),
  add: (x, at, updates) => scatterAdd(x, at, updates),
  mul: product,
  min: (x, at, updates) => minimumOf(x, at, updates),
  max: (x, at, updates) => maximumOf(x, at, updates),
};

/**
 * Copy of x with updates at indices along an axis: out[i][indices[i][j]] = updates[i][j], or the sum, product, minimum or maximum of
 * the element and all its updates. Updates at indices out of range are dropped; those that need a wider dtype than x has are refused.
 *
 * @example
 * ```ts
 * import { scatter, tensor, zeros } from "@weft/core";
 *
 * const at = tensor([3, 0, 3], { dtype: "int32" });
 * console.log(await scatter(zeros([4]), at, tensor([1, 2, 5])).array()); // [2, 0, 0, 5]
 * console.log(await scatter(zeros([4]), at, tensor([1, 2, 5]), { mode: "add" }).array()); // [2, 0, 0, 6]
 * ```
 */
export function scatter(x: TensorLike, indices: Tensor, updates: TensorLike, options: ScatterOptions = {}): Tensor {
  checkOptions("scatter", options, ["axis", "mode"]);
  const { axis = -1, mode = "set" } = options;
  if (!Object.hasOwn(combine, mode))
    throw new WeftError(`scatter: the mode is one of ${Object.keys(combine).join(", ")}, got ${String(mode)}`);
  const t = wrap(nodeOf("scatter", x));
  checkArguments("scatter", "tensor", { indices });
  if (kindOf(indices.dtype) !== "int")
    throw new DTypeError(`scatter: indices are integers, got ${indices.dtype}; use cast("int32")`);
  if (isComplex(t.dtype) && (mode === "min" || mode === "max"))
    throw new DTypeError(`scatter: complex numbers have no order, so that "${mode}" is not defined`);
  const at = resolveAxis("scatter", axis, t.rank);
  if (indices.rank !== t.rank || indices.shape.some((d, i) => i !== at && d !== t.shape[i]))
    throw new ShapeError(
      `scatter: indices ${showShape(indices.shape)} must match ${showShape(t.shape)} in every axis but ${at}; expand them first`,
    );
  const given = expand(wrap(updateNode("scatter", t, updates)), indices.shape);
  if (indices.size === 0 || t.size === 0) return t;
  const [rows, index, values] = [t, indices, given].map((part) => moveAxis(part, at, -1));
  const size = rows.shape[rows.rank - 1];
  const { at: place, inside } = places(index, size);
  // One more place takes the updates that are dropped.
  const padded = concat([rows, zeros(rows.shape.with(-1, 1), { dtype: rows.dtype })], -1);
  const result = combine[mode](padded, where(inside, place, size).cast("int32"), values);
  const cut = result.slice(
    result.shape.map(() => 0),
    result.shape.with(-1, size),
  );
  return moveAxis(cut, -1, at);
}

/** Options of {@link segmentReduce}. */
export interface SegmentOptions {
  /** "add" (the default), "mul", "min" or "max". */
  mode?: Exclude<ScatterMode, "set">;
}

const neutral = { add: 0, mul: 1, min: Number.POSITIVE_INFINITY, max: Number.NEGATIVE_INFINITY };

/**
 * Reduces the rows of x (slices along axis 0) by segment: row i of the result combines the rows whose id is i. Segments without rows
 * have the neutral element: 0, 1 or an infinity. Ids out of range are dropped.
 */
export function segmentReduce(x: Tensor, ids: Tensor, count: number, options: SegmentOptions = {}): Tensor {
  checkArguments("segmentReduce", "tensor", { x, ids });
  const { mode = "add" } = checkOptions("segmentReduce", options, ["mode"]);
  if (!Object.hasOwn(neutral, mode))
    throw new WeftError(`segmentReduce: the mode is one of ${Object.keys(neutral).join(", ")}, got ${String(mode)}`);
  if (!isInexact(x.dtype) && (mode === "min" || mode === "max"))
    throw new DTypeError(
      `segmentReduce: "${mode}" of an empty segment is infinite, which ${x.dtype} cannot be; cast to a float`,
    );
  if (ids.rank !== 1 || x.rank < 1 || ids.size !== x.shape[0])
    throw new ShapeError(`segmentReduce: ${showShape(x.shape)} needs one id per row, got ids ${showShape(ids.shape)}`);
  const start = zeros([count, ...x.shape.slice(1)], { dtype: x.dtype }).add(neutral[mode]);
  const at = expand(reshape(ids, [ids.size, ...x.shape.slice(1).map(() => 1)]), x.shape);
  return scatter(start.cast(x.dtype), where(less(at, 0), count, at), x, { axis: 0, mode });
}
