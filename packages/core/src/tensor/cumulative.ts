// Cumulative functions along an axis: sums, products, extrema and sums of exponentials of all elements up to each.
import { checkOptions, type DType, DTypeError, isComplex, isHalf, type Node, toInexact } from "../graph/index.js";
import { build } from "../ops/index.js";
import { nodeOf, resolveAxis, type TensorLike, wrap } from "./convert.js";
import { logaddexp } from "./elementwise.js";
import { counting } from "./reduce.js";
import type { Tensor } from "./tensor.js";

/** Options of {@link cumsum} and {@link cumprod}. */
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

/** Elements that one loop joins after each other. */
const serialElements = 16;

type Join = (a: Node, b: Node) => Node;

/**
 * What an associative function makes of all elements up to each: of runs of elements in one loop, which starts at the result of the runs
 * before. `start`: what the first run starts with, a slice of one element.
 */
function running(x: Node, axis: number, join: Join, start: Node): Node {
  const n = x.shape[axis];
  if (n <= 1) return x;
  const runs = Math.ceil(n / serialElements);
  const length = Math.min(n, serialElements);
  const sized = (...sizes: number[]): number[] => x.shape.toSpliced(axis, 1, ...sizes);
  // Only fills the last run.
  const rest = build.full(sized(runs * length - n), 1, x.dtype);
  const parts = build.reshape(runs * length === n ? x : build.concat([x, rest], axis), sized(runs, length));
  const elements = Array.from({ length }, (_, i) => build.sliceAxis(parts, axis + 1, i, i + 1));
  const joins = (first: Node | null): Node[] => {
    const made: Node[] = [];
    for (const element of elements) {
      const before = made.at(-1) ?? first;
      made.push(before === null ? element : join(before, element));
    }
    return made;
  };
  let starts: Node | null = null;
  if (runs > 1) {
    const through = running(build.reshape(joins(null).at(-1)!, sized(runs)), axis, join, start);
    starts = build.reshape(build.concat([start, build.sliceAxis(through, axis, 0, runs - 1)], axis), sized(runs, 1));
  }
  const joined = build.reshape(build.concat(joins(starts), axis + 1), sized(runs * length));
  return runs * length === n ? joined : build.sliceAxis(joined, axis, 0, n);
}

/** The neutral element in the shape of one slice. */
const neutral = (x: Node, axis: number, value: number): Node =>
  build.full(
    x.shape.map((d, i) => (i === axis ? 1 : d)),
    value,
    x.dtype,
  );

const runningProduct = (x: Node, axis: number): Node => running(x, axis, build.mul, neutral(x, axis, 1));

/** Cumulative product along an axis. Integers and bool are multiplied in int64, unsigned integers in uint64; both wrap. */
export function cumprod(x: TensorLike, axis = -1, options: CumulativeOptions = {}): Tensor {
  checkOptions("cumprod", options, ["dtype", "includeInitial"]);
  const { dtype, includeInitial } = options;
  const node = nodeOf("cumprod", x);
  const at = resolveAxis("cumprod", axis, node.shape.length);
  const counted = counting(node, dtype);
  const result = isHalf(counted.dtype)
    ? build.cast(runningProduct(build.cast(counted, "float32"), at), counted.dtype)
    : runningProduct(counted, at);
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
function runningExtremum(op: "cummax" | "cummin", x: TensorLike, axis: number, join: Join): Tensor {
  const node = nodeOf(op, x);
  if (isComplex(node.dtype)) throw new DTypeError(`${op}: complex numbers have no order; use abs() first`);
  const at = resolveAxis(op, axis, node.shape.length);
  if (node.shape[at] === 0) return wrap(node);
  // The first element changes nothing in its own run.
  return wrap(running(node, at, join, build.sliceAxis(node, at, 0, 1)));
}

/** Largest of all elements up to each along an axis. NaN propagates. */
export const cummax = (x: TensorLike, axis = -1): Tensor =>
  runningExtremum("cummax", x, axis, (a, b) => build.binary("max", a, b));

/** Smallest of all elements up to each along an axis. NaN propagates. */
export const cummin = (x: TensorLike, axis = -1): Tensor =>
  runningExtremum("cummin", x, axis, (a, b) => build.binary("min", a, b));

/** Logarithms of the cumulative sums of exponentials along an axis, evaluated without overflow. */
export function logcumsumexp(x: TensorLike, axis = -1): Tensor {
  const given = nodeOf("logcumsumexp", x);
  const dtype = toInexact(given.dtype);
  if (isComplex(dtype)) throw new DTypeError(`logcumsumexp: not defined for ${dtype}`);
  const at = resolveAxis("logcumsumexp", axis, given.shape.length);
  const node = build.cast(given, isHalf(dtype) ? "float32" : dtype);
  const join: Join = (a, b) => logaddexp(wrap(a), wrap(b)).node;
  return wrap(build.cast(running(node, at, join, neutral(node, at, Number.NEGATIVE_INFINITY)), dtype));
}
