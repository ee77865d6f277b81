// Tensors of points and powers: logarithmic ranges, triangles of ones, Vandermonde matrices, tensors put together of blocks.
import { checkOptions, range, ShapeError, showShape, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { checkCount, checkDType, checkShape } from "./checks.js";
import { checkArguments, nodeOf, type TensorLike, wrap } from "./convert.js";
import { type CreateOptions, tensor } from "./create.js";
import { cumprod } from "./cumulative.js";
import { concat, flip, reshape, transpose } from "./shape.js";
import { Tensor } from "./tensor.js";

/** Options of {@link logspace} and {@link geomspace}. @inline */
interface LogarithmicOptions extends CreateOptions {
  /** Whether the last number is included; true by default. */
  endpoint?: boolean;
}

/** Checks the ends and the number of elements of a sequence. */
function checkSequence(op: string, start: number, stop: number, count: number): void {
  checkArguments(op, "number", { start, stop });
  checkCount(op, count);
}

/** Numbers of a formula on the host; whole numbers are cut off for integer dtypes, as NumPy does. */
function numbersOf(
  op: string,
  count: number,
  dtype: CreateOptions["dtype"] = "float32",
  at: (i: number) => number,
): Tensor {
  checkDType(op, dtype);
  return tensor(Float64Array.from({ length: count }, (_, i) => at(i))).cast(dtype);
}

/** `count` numbers base^start, ..., base^stop whose exponents are evenly spaced. */
export function logspace(
  start: number,
  stop: number,
  count: number,
  options: LogarithmicOptions & { base?: number } = {},
): Tensor {
  const { endpoint = true, base = 10, dtype } = checkOptions("logspace", options, ["endpoint", "base", "dtype"]);
  checkSequence("logspace", start, stop, count);
  const last = endpoint ? count - 1 : count;
  const step = last > 0 ? (stop - start) / last : 0;
  return numbersOf("logspace", count, dtype, (i) => base ** (i === last ? stop : start + i * step));
}

/** `count` numbers from start to stop with equal ratios. Both have one sign and are not 0. */
export function geomspace(start: number, stop: number, count: number, options: LogarithmicOptions = {}): Tensor {
  const { endpoint = true, dtype } = checkOptions("geomspace", options, ["endpoint", "dtype"]);
  checkSequence("geomspace", start, stop, count);
  if (!(start * stop > 0))
    throw new WeftError(`geomspace: start and stop have one sign and are not 0, got ${start} and ${stop}`);
  const last = endpoint ? count - 1 : count;
  const ratio = stop / start;
  // A ratio that overflows is divided between two factors.
  const inner = (i: number): number =>
    Number.isFinite(ratio) && ratio > 0 ? start * ratio ** (i / last) : start ** (1 - i / last) * stop ** (i / last);
  return numbersOf("geomspace", count, dtype, (i) => (i === 0 ? start : i === last ? stop : inner(i)));
}

/** Options of {@link tri}. @inline */
interface TriOptions extends CreateOptions {
  /** Number of columns; that of the rows by default. */
  columns?: number;
  /** Last diagonal of ones: 0 is the main one, 1 the one above it. */
  k?: number;
}

/** Lower triangle of ones: [n, columns] with ones on and below diagonal `k`. */
export function tri(n: number, options: TriOptions = {}): Tensor {
  const { columns = n, k = 0, dtype = "float32" } = checkOptions("tri", options, ["columns", "k", "dtype"]);
  checkShape("tri", [n, columns]);
  checkDType("tri", dtype);
  if (!Number.isInteger(k)) throw new ShapeError(`tri: k is the number of a diagonal, a whole number, got ${k}`);
  const [row, column] = [build.iota([n, columns], 0, "int32"), build.iota([n, columns], 1, "int32")];
  return wrap(build.cast(build.le(column, build.shift(row, k)), dtype));
}

/** Options of {@link vander}. @inline */
interface VanderOptions {
  /** Number of powers; as many as elements by default. */
  columns?: number;
  /** x^0 comes first; false by default. */
  increasing?: boolean;
}

/** Vandermonde matrix: the powers of every element of a vector in a row, the highest first unless `increasing`. Integers give 64 bits. */
export function vander(x: TensorLike, options: VanderOptions = {}): Tensor {
  const { columns, increasing = false } = checkOptions("vander", options, ["columns", "increasing"]);
  const t = wrap(nodeOf("vander", x));
  if (t.rank !== 1) throw new ShapeError(`vander: needs a vector, got shape ${showShape(t.shape)}`);
  const n = columns ?? t.size;
  checkShape("vander (columns)", [n]);
  const column = reshape(t, [t.size, 1]);
  const ones = wrap(build.full([t.size, 1], 1, t.dtype));
  const factors = [ones, ...range(n - 1).map(() => column)].slice(0, n);
  const powers = n === 0 ? cumprod(ones, 1).slice([0, 0], [t.size, 0]) : cumprod(concat(factors, 1), 1);
  return increasing ? powers : flip(powers, 1);
}

/** Nested lists of tensors. */
type Blocks = TensorLike | readonly Blocks[];

/**
 * Tensor put together of blocks, as numpy.block: the innermost lists are joined along the last axis, the next ones along the one before.
 */
export function block(blocks: Blocks): Tensor {
  const depthOf = (item: Blocks): number => (Array.isArray(item) ? 1 + Math.max(0, ...item.map(depthOf)) : 0);
  const rankOf = (item: Blocks): number =>
    Array.isArray(item) ? Math.max(0, ...item.map(rankOf)) : item instanceof Tensor ? item.rank : 0;
  const depth = depthOf(blocks);
  const rank = Math.max(depth, rankOf(blocks));
  const build1 = (item: Blocks, level: number): Tensor => {
    if (!Array.isArray(item)) {
      if (level !== depth) throw new ShapeError("block: all blocks are at one depth of the nested lists");
      const t = wrap(nodeOf("block", item as TensorLike));
      return reshape(t, [...new Array<number>(rank - t.rank).fill(1), ...t.shape]);
    }
    if (item.length === 0) throw new ShapeError("block: a list of blocks is empty; give at least one tensor in each");
    return concat(
      item.map((part) => build1(part, level + 1)),
      rank - depth + level,
    );
  };
  return build1(blocks, 0);
}

/** Rotates by 90 degrees, `times` times, in the plane of two axes, from the first toward the second. */
export function rot90(x: TensorLike, times = 1, axes: readonly [number, number] = [0, 1]): Tensor {
  const t = wrap(nodeOf("rot90", x));
  checkArguments("rot90", "array", { axes });
  if (!Number.isInteger(times)) throw new WeftError(`rot90: times is a whole number, got ${times}`);
  const [a, b] = axes.map((axis) => (axis < 0 ? axis + t.rank : axis));
  if (axes.length !== 2 || t.rank < 2 || a === b || [a, b].some((axis) => !(axis >= 0 && axis < t.rank)))
    throw new ShapeError(`rot90: needs two axes of ${showShape(t.shape)}, got [${axes.join(", ")}]`);
  const turns: ((y: Tensor) => Tensor)[] = [
    (y) => y,
    (y) => transpose(flip(y, b), a, b),
    (y) => flip(y, [a, b]),
    (y) => flip(transpose(y, a, b), b),
  ];
  return turns[((times % 4) + 4) % 4](t);
}
