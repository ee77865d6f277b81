// Functions whose result has a shape that depends on values: nonzero, boolean masks, unique elements, repetition by counts. They
// read the values that decide about the shape, so that they cannot be traced by jit, vmap or scan. The selected elements are
// gathered on the device and carry gradients.
import { DTypeError, isComplex, kindOf, range, ShapeError, showShape, WeftError } from "../graph/index.js";
import { checkArguments, nodeOf, resolveAxis, type TensorLike, updateNode, wrap } from "./convert.js";
import { cumsum } from "./cumulative.js";
import { take } from "./indexing.js";
import { where } from "./math.js";
import { indexTensor, nonzeroPositions, unravel } from "./positions.js";
import { expand, reshape } from "./shape.js";
import { Tensor } from "./tensor.js";

/** Indices (int32) of the nonzero elements in row-major order: one vector per axis. Reads the values. */
export function nonzero(x: TensorLike): Tensor[] {
  const t = wrap(nodeOf("nonzero", x));
  if (t.rank === 0) throw new ShapeError("nonzero: a scalar has no indices; use reshape([1]) first");
  return unravel(nonzeroPositions(t), t.shape).map((indices) => indexTensor(indices));
}

/** Indices (int32) of the nonzero elements in row-major order: one row per element, [count, rank]. Reads the values. */
export function argwhere(x: TensorLike): Tensor {
  const t = wrap(nodeOf("argwhere", x));
  const positions = nonzeroPositions(t);
  const columns = unravel(positions, t.shape);
  return indexTensor(
    positions.flatMap((_, i) => columns.map((column) => column[i])),
    [positions.length, t.rank],
  );
}

function checkMask(op: string, x: Tensor, condition: TensorLike): Tensor {
  const test = wrap(nodeOf(op, condition));
  if (test.dtype !== "bool")
    throw new DTypeError(`${op}: the condition is bool, got ${test.dtype}; compare (x.greater(0)) or cast it`);
  if (test.rank > x.rank || test.shape.some((d, i) => d !== x.shape[i]))
    throw new ShapeError(
      `${op}: the condition ${showShape(test.shape)} does not match the first axes of ${showShape(x.shape)}`,
    );
  return test;
}

/**
 * Elements where a condition holds, as `x[condition]` in NumPy: the condition has the shape of the first axes of x, which become one
 * axis. Reads the condition; use {@link where} inside jit.
 *
 * @example
 * ```ts
 * import { mask, tensor } from "@weft/core";
 *
 * const x = tensor([3, -1, 2]);
 * console.log(await mask(x, x.greater(0)).array()); // [3, 2]
 * ```
 */
export function mask(x: TensorLike, condition: TensorLike): Tensor {
  const t = wrap(nodeOf("mask", x));
  const test = checkMask("mask", t, condition);
  const rows = reshape(t, [test.size, ...t.shape.slice(test.rank)]);
  return take(rows, indexTensor(nonzeroPositions(test)), 0);
}

/**
 * Copy of x with other values where a condition holds, as `x[condition] = values` in NumPy: a number, or one row of values per
 * element that the condition selects, in their order. Values that need a wider dtype than x has are refused. Does not read values: it
 * can be traced.
 */
export function setMask(x: TensorLike, condition: TensorLike, values: TensorLike): Tensor {
  const t = wrap(nodeOf("setMask", x));
  const test = checkMask("setMask", t, condition);
  const inner = t.shape.slice(test.rank);
  const wide = expand(reshape(test, [...test.shape, ...inner.map(() => 1)]), t.shape);
  const given = wrap(updateNode("setMask", t, values));
  if (given.rank <= inner.length) return where(wide, given, t);
  const order = cumsum(reshape(test, [-1]), 0)
    .sub(1)
    .maximum(0)
    .cast("int32");
  const rows = reshape(take(given, order, 0), t.shape);
  return where(wide, rows, t);
}

/** Slices of an axis (by default of the flattened tensor) where a boolean vector is true. Reads the condition. */
export function compress(condition: TensorLike, x: TensorLike, axis?: number): Tensor {
  const t = wrap(nodeOf("compress", x));
  const source = axis === undefined ? reshape(t, [-1]) : t;
  const at = resolveAxis("compress", axis ?? 0, source.rank);
  const test = wrap(nodeOf("compress", condition));
  if (test.rank !== 1 || test.size > source.shape[at])
    throw new ShapeError(
      `compress: the condition is a vector of at most ${source.shape[at]} elements, got ${showShape(test.shape)}`,
    );
  return take(source, indexTensor(nonzeroPositions(test)), at);
}

/**
 * Repeats every element along an axis (by default of the flattened tensor): a number of times, or one count per element. A tensor
 * of counts is read.
 */
export function repeat(x: TensorLike, repeats: number | readonly number[] | Tensor, axis?: number): Tensor {
  const t = wrap(nodeOf("repeat", x));
  const source = axis === undefined ? reshape(t, [-1]) : t;
  const at = resolveAxis("repeat", axis ?? 0, source.rank);
  const size = source.shape[at];
  const given = repeats instanceof Tensor ? Array.from(repeats.dataSync() as ArrayLike<number>, Number) : repeats;
  const list = typeof given === "number" ? [given] : ArrayBuffer.isView(given) ? Array.from(given) : given;
  checkArguments("repeat", "array", { repeats: list });
  const counts = [...list];
  if (counts.some((n) => !Number.isInteger(n) || n < 0) || (counts.length !== 1 && counts.length !== size))
    throw new ShapeError(`repeat: give one whole number >= 0, or one for each of the ${size} elements of axis ${at}`);
  if (counts.length === 1) {
    const [n] = counts;
    const wide = [...source.shape.slice(0, at + 1), 1, ...source.shape.slice(at + 1)];
    const grown = expand(reshape(source, wide), wide.with(at + 1, n));
    return reshape(grown, source.shape.with(at, size * n));
  }
  return take(source, indexTensor(range(size).flatMap((i) => new Array<number>(counts[i]).fill(i))), at);
}

/** Groups of equal elements in sorted order. */
interface Groups {
  /** Position of the first element of every group. */
  first: number[];
  counts: number[];
  /** Group of every element. */
  inverse: number[];
}

/** NaNs are different from each other, as in the Array API standard; zeros of both signs are equal. */
function groupsOf(op: string, t: Tensor): Groups {
  const data = t.dataSync() as ArrayLike<number | bigint>;
  const parts = isComplex(t.dtype) ? 2 : 1;
  const isNaNAt = (i: number): boolean =>
    kindOf(t.dtype) !== "int" && range(parts).some((k) => Number.isNaN(data[parts * i + k]));
  const compare = (i: number, j: number): number => {
    const [a, b] = [isNaNAt(i), isNaNAt(j)];
    if (a || b) return Number(a) - Number(b);
    for (let k = 0; k < parts; k++) {
      const [x, y] = [data[parts * i + k], data[parts * j + k]];
      if (x !== y) return x < y ? -1 : 1;
    }
    return 0;
  };
  if (t.size >= 2 ** 31) throw new WeftError(`${op}: ${t.size} elements are more than int32 can index`);
  const order = range(t.size).sort((i, j) => compare(i, j) || i - j);
  const groups: Groups = { first: [], counts: [], inverse: new Array<number>(t.size) };
  order.forEach((at, i) => {
    const isNew = i === 0 || isNaNAt(at) || compare(order[i - 1], at) !== 0;
    if (isNew) {
      groups.first.push(at);
      groups.counts.push(0);
    }
    groups.counts[groups.counts.length - 1]++;
    groups.inverse[at] = groups.first.length - 1;
  });
  return groups;
}

/** Unique elements of a tensor; see {@link uniqueAll}. */
export interface UniqueElements {
  /** Unique elements, sorted. */
  values: Tensor;
  /** Position of the first occurrence of each in the flattened tensor, int32. */
  indices: Tensor;
  /** Which unique element each element is: int32, of the shape of the tensor. */
  inverseIndices: Tensor;
  /** Occurrences of each, int32. */
  counts: Tensor;
}

/** Unique elements in sorted order, with their positions, counts and the inverse mapping. NaNs are all different. Reads the values. */
export function uniqueAll(x: TensorLike): UniqueElements {
  const t = wrap(nodeOf("uniqueAll", x));
  const { first, counts, inverse } = groupsOf("uniqueAll", t);
  const indices = indexTensor(first);
  return {
    values: take(reshape(t, [-1]), indices, 0),
    indices,
    inverseIndices: indexTensor(inverse, t.shape),
    counts: indexTensor(counts),
  };
}

/** Unique elements in sorted order. NaNs are all different. Reads the values. */
export const uniqueValues = (x: TensorLike): Tensor => uniqueAll(x).values;

/** Unique elements in sorted order, and how often each occurs. Reads the values. */
export function uniqueCounts(x: TensorLike): Pick<UniqueElements, "values" | "counts"> {
  const { values, counts } = uniqueAll(x);
  return { values, counts };
}

/** Unique elements in sorted order, and which of them each element is. Reads the values. */
export function uniqueInverse(x: TensorLike): Pick<UniqueElements, "values" | "inverseIndices"> {
  const { values, inverseIndices } = uniqueAll(x);
  return { values, inverseIndices };
}
