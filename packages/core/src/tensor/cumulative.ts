// Cumulative functions along an axis: sums, products, extrema, sums of exponentials and any associative function of all elements up to each.
import {
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  isHalf,
  type Node,
  ShapeError,
  sameShape,
  showShape,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { running } from "../transform/index.js";
import { checkArguments, nodeOf, resolveAxis, type TensorLike, wrap } from "./convert.js";
import { logaddexp } from "./elementwise.js";
import { counting } from "./reduce.js";
import { concat, stack } from "./shape.js";
import type { Tensor } from "./tensor.js";
import { flattenTree } from "./tree.js";

/** Options of {@link cumsum} and {@link cumprod}. @inline */
export interface CumulativeOptions {
  /** Dtype of the result, to which elements are converted first. */
  dtype?: DType;
  /** Starts with the sum or product of no elements, so that the axis grows by one. */
  includeInitial?: boolean;
}

/** Puts the neutral element in front of a cumulative sum or product. */
function withInitial(result: Node, axis: number, neutral: number, include = false): Node {
  if (!include) return result;
  const shape = result.shape.map((d, i) => (i === axis ? 1 : d));
  return build.concat([build.full(shape, neutral, result.dtype), result], axis);
}

/** Cumulative product along an axis. Integers and bool are multiplied in int64, unsigned integers in uint64; both wrap. */
export function cumprod(x: TensorLike, axis = -1, options: CumulativeOptions = {}): Tensor {
  checkOptions("cumprod", options, ["dtype", "includeInitial"]);
  const { dtype, includeInitial } = options;
  const node = nodeOf("cumprod", x);
  const at = resolveAxis("cumprod", axis, node.shape.length);
  const counted = counting(node, dtype);
  const result = isHalf(counted.dtype)
    ? build.cast(running.product(build.cast(counted, "float32"), at), counted.dtype)
    : running.product(counted, at);
  return wrap(withInitial(result, at, 1, includeInitial));
}

/** Cumulative sum along an axis. Integers and bool are summed in int64, unsigned integers in uint64; both wrap. */
export function cumsum(x: TensorLike, axis = -1, options: CumulativeOptions = {}): Tensor {
  checkOptions("cumsum", options, ["dtype", "includeInitial"]);
  const { dtype, includeInitial } = options;
  const node = nodeOf("cumsum", x);
  const at = resolveAxis("cumsum", axis, node.shape.length);
  return wrap(withInitial(build.cumsum(counting(node, dtype), at), at, 0, includeInitial));
}

/** The extrema of all elements up to each. */
function runningExtremum(op: "cummax" | "cummin", x: TensorLike, axis: number): Tensor {
  const node = nodeOf(op, x);
  if (isComplex(node.dtype)) throw new DTypeError(`${op}: complex numbers have no order; use abs() first`);
  const at = resolveAxis(op, axis, node.shape.length);
  if (node.shape[at] === 0) return wrap(node);
  return wrap(running.extremum(node, at, op === "cummax" ? "max" : "min"));
}

/** Largest of all elements up to each along an axis. NaN propagates. */
export const cummax = (x: TensorLike, axis = -1): Tensor => runningExtremum("cummax", x, axis);

/** Smallest of all elements up to each along an axis. NaN propagates. */
export const cummin = (x: TensorLike, axis = -1): Tensor => runningExtremum("cummin", x, axis);

/** Logarithms of the cumulative sums of exponentials along an axis, evaluated without overflow. */
export function logcumsumexp(x: TensorLike, axis = -1): Tensor {
  const given = nodeOf("logcumsumexp", x);
  const dtype = toInexact(given.dtype);
  if (isComplex(dtype)) throw new DTypeError(`logcumsumexp: not defined for ${dtype}`);
  const at = resolveAxis("logcumsumexp", axis, given.shape.length);
  const node = build.cast(given, isHalf(dtype) ? "float32" : dtype);
  const join = (a: Node, b: Node): Node => logaddexp(wrap(a), wrap(b)).node;
  const start = running.neutral(node, at, Number.NEGATIVE_INFINITY);
  return wrap(build.cast(running.of(node, at, join, start), dtype));
}

/**
 * What an associative function of two slices makes of all slices up to each along an axis, as jax.lax.associative_scan: the function
 * gets many slices at once, in two tensors or two trees of tensors, and combines them element by element. It is called about
 * 2 log2(n) times, on n / 2, n / 4, ... slices. `reverse` goes from the last slice to the first.
 *
 * @example
 * ```ts
 * import { arange, associativeScan } from "@weft/core";
 *
 * console.log(await associativeScan((a, b) => a.add(b), arange(5)).array()); // [0, 1, 3, 6, 10]
 * ```
 */
export function associativeScan<T>(
  fn: (a: T, b: T) => T,
  elements: T,
  options: { axis?: number; reverse?: boolean } = {},
): T {
  checkArguments("associativeScan", "function", { fn });
  const { axis = 0, reverse = false } = checkOptions("associativeScan", options, ["axis", "reverse"]);
  const { leaves, def } = flattenTree(elements);
  if (leaves.length === 0) throw new WeftError("associativeScan: there are no tensors among the elements");
  const at = resolveAxis("associativeScan", axis, leaves[0].rank);
  const n = leaves[0].shape[at];
  const other = leaves.find(({ shape }) => shape[at] !== n);
  if (other !== undefined)
    throw new ShapeError(
      `associativeScan: tensors ${showShape(leaves[0].shape)} and ${showShape(other.shape)} differ along axis ${at}`,
    );
  const turned = (all: readonly Tensor[]): Tensor[] => (reverse ? all.map((t) => t.flip([at])) : [...all]);
  const join = (a: readonly Tensor[], b: readonly Tensor[]): Tensor[] => {
    const [first, second] = [a, b].map((all) => def.rebuild([...all]) as T);
    const joined = flattenTree(fn(first, second)).leaves;
    joined.forEach((t, i) => {
      if (!sameShape(t.shape, a[i]?.shape ?? []))
        throw new ShapeError(
          `associativeScan: the function made ${showShape(t.shape)} of slices ${showShape(a[i]?.shape ?? [])}; they must agree`,
        );
    });
    return joined;
  };
  return def.rebuild(turned(scanned(turned(leaves), at, join))) as T;
}

/** The recursion of {@link associativeScan}: neighbors are joined, scanned, and give the elements between them. */
function scanned(
  all: readonly Tensor[],
  axis: number,
  join: (a: readonly Tensor[], b: readonly Tensor[]) => Tensor[],
): Tensor[] {
  const n = all[0].shape[axis];
  if (n < 2) return [...all];
  const part = (t: Tensor, from: number, to: number, step: number): Tensor =>
    t.slice(
      t.shape.map((_, i) => (i === axis ? from : 0)),
      t.shape.map((d, i) => (i === axis ? to : d)),
      t.shape.map((_, i) => (i === axis ? step : 1)),
    );
  const half = Math.floor(n / 2);
  const every = (from: number, to: number): Tensor[] => all.map((t) => part(t, from, to, 2));
  const odd = scanned(join(every(0, 2 * half), every(1, 2 * half)), axis, join);
  const between = Math.ceil(n / 2) - 1;
  const first = all.map((t) => part(t, 0, 1, 1));
  const even =
    between === 0
      ? first
      : join(
          odd.map((t) => part(t, 0, between, 1)),
          every(2, n),
        ).map((t, i) => concat([first[i], t], axis));
  // Even and odd places in turns: the even ones have one more at most.
  return even.map((t, i) => {
    const fill = t.shape[axis] > half ? concat([odd[i], part(t, 0, 1, 1)], axis) : odd[i];
    const pairs = stack([t, fill], axis + 1);
    return part(pairs.reshape(t.shape.toSpliced(axis, 1, 2 * t.shape[axis])), 0, n, 1);
  });
}
