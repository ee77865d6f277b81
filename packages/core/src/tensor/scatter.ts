// Scatter with other functions than a sum, and reductions of segments. Most are ops of the graph; the others sort by index, so that
// the updates of one place become neighbors, and pick or combine them.
import {
  bytesOf,
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  isHalf,
  isInexact,
  kindOf,
  type Node,
  type ScanFn,
  ShapeError,
  showShape,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkArguments, nodeOf, resolveAxis, type TensorLike, updateNode, wrap } from "./convert.js";
import { onesLike, zeros } from "./create.js";
import { cumsum } from "./cumulative.js";
import { argsort, gather, scatterAdd } from "./indexing.js";
import { equal, less, logicalAnd, mul, where } from "./math.js";
import { pad } from "./padding.js";
import { concat, expand, moveAxis, reshape } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** What becomes of an element and the updates of its place. @inline */
type ScatterMode = "set" | "add" | "mul" | "min" | "max";

/** Options of {@link scatter}. @inline */
interface ScatterOptions {
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

/** Product, largest or smallest of the elements of x and the updates at their indices along an axis; NaN wins. */
function reduced(x: Tensor, at: Node, updates: Tensor, attrs: { axis: number; batch: number; fn: ScanFn }): Tensor {
  // Devices take numbers of four or eight bytes; wider ones hold the narrow ones exactly.
  const wide = isHalf(x.dtype) ? "float32" : bytesOf(x.dtype) < 4 ? "int32" : x.dtype;
  const [base, values] = [x, updates].map(({ node }) => build.cast(node, wide));
  return wrap(build.cast(build.scatterReduce(base, at, values, attrs), x.dtype));
}

/** Product of a complex element and its updates: products of runs by doubling, in log2(n) steps. */
function complexProduct(x: Tensor, at: Tensor, updates: Tensor): Tensor {
  const n = updates.shape[updates.rank - 1];
  const order = argsort(at);
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

/** Along the last axis, in which every row has its own indices. */
const reducedRows =
  (fn: ScanFn) =>
  (x: Tensor, at: Tensor, updates: Tensor): Tensor =>
    reduced(x, at.node, updates, { axis: x.rank - 1, batch: x.rank - 1, fn });

interface Combination {
  combine(x: Tensor, at: Tensor, updates: Tensor): Tensor;
  /** Updates out of range need a place; otherwise `combine` drops them. */
  keepsAll: boolean;
}

const modes: Record<ScatterMode, Combination> = {
  set: { combine: (x, at, updates) => lastOf(updates, argsort(at), at, x.shape[x.rank - 1], x), keepsAll: true },
  add: { combine: (x, at, updates) => scatterAdd(x, at, updates), keepsAll: false },
  mul: { combine: reducedRows("prod"), keepsAll: false },
  min: { combine: reducedRows("min"), keepsAll: false },
  max: { combine: reducedRows("max"), keepsAll: false },
};

const complexProducts: Combination = { combine: complexProduct, keepsAll: true };

/** Indices are integers, and only numbers with an order have extremes. */
function checkDTypes(op: string, name: string, indices: Tensor, dtype: DType, mode: ScatterMode): void {
  if (kindOf(indices.dtype) !== "int")
    throw new DTypeError(`${op}: ${name} are integers, got ${indices.dtype}; use cast("int32")`);
  if (isComplex(dtype) && (mode === "min" || mode === "max"))
    throw new DTypeError(`${op}: complex numbers have no order, so that "${mode}" is not defined`);
}

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
  if (!Object.hasOwn(modes, mode))
    throw new WeftError(`scatter: the mode is one of ${Object.keys(modes).join(", ")}, got ${String(mode)}`);
  const t = wrap(nodeOf("scatter", x));
  checkArguments("scatter", "tensor", { indices });
  checkDTypes("scatter", "indices", indices, t.dtype, mode);
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
  const { combine, keepsAll } = isComplex(t.dtype) && mode === "mul" ? complexProducts : modes[mode];
  const target = where(inside, place, size).cast("int32");
  if (!keepsAll) return moveAxis(combine(rows, target, values), -1, at);
  // One more place takes the updates that are dropped.
  const padded = concat([rows, zeros(rows.shape.with(-1, 1), { dtype: rows.dtype })], -1);
  const result = combine(padded, target, values);
  const cut = result.slice(
    result.shape.map(() => 0),
    result.shape.with(-1, size),
  );
  return moveAxis(cut, -1, at);
}

/** Options of {@link segmentReduce}. @inline */
interface SegmentOptions {
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
  checkDTypes("segmentReduce", "ids", ids, x.dtype, mode);
  if (!isInexact(x.dtype) && (mode === "min" || mode === "max"))
    throw new DTypeError(
      `segmentReduce: "${mode}" of an empty segment is infinite, which ${x.dtype} cannot be; cast to a float`,
    );
  if (ids.rank !== 1 || x.rank < 1 || ids.size !== x.shape[0])
    throw new ShapeError(`segmentReduce: ${showShape(x.shape)} needs one id per row, got ids ${showShape(ids.shape)}`);
  const start = zeros([count, ...x.shape.slice(1)], { dtype: x.dtype }).add(neutral[mode]);
  if (mode !== "mul" || !isComplex(x.dtype)) {
    // Whole rows; ids out of range, negative ones too, drop theirs.
    const rows = build.toIndex(ids.node);
    const [base, attrs] = [start.cast(x.dtype), { axis: 0, batch: 0 }];
    if (x.size === 0 || count === 0) return base;
    if (mode === "add") return wrap(build.scatterAdd(base.node, rows, x.node, attrs.axis, attrs.batch));
    return reduced(base, rows, x, { ...attrs, fn: mode === "mul" ? "prod" : mode });
  }
  const at = expand(reshape(ids, [ids.size, ...x.shape.slice(1).map(() => 1)]), x.shape);
  return scatter(start.cast(x.dtype), where(less(at, 0), count, at), x, { axis: 0, mode });
}
