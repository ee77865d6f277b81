// Matrices on a product space as their nonzero diagonals. A local operator has few of them, whatever the dimension of the whole
// space, and a product with a state reads shifted copies of it: no matrix is built, and every read is contiguous.
import { WeftError } from "@weft/core/internal/graph";
import { imag, real, type Tensor, take, tensor } from "@weft/core/internal/tensor";
import { Operator } from "./operator.js";

/** Real numbers per row: on the host, or a tensor [D] of traced values. */
export type RowValues = Float64Array | Tensor;

/** Entries (r, r + offset) of a matrix for every row r; null is zero. */
interface Diagonal {
  offset: number;
  re: RowValues | null;
  im: RowValues | null;
}

/** A square matrix as a sum of diagonals. */
export interface Diagonals {
  size: number;
  diagonals: readonly Diagonal[];
}

const isHost = (values: RowValues): values is Float64Array => values instanceof Float64Array;

function addValues(a: RowValues | null, b: RowValues | null): RowValues | null {
  if (a === null || b === null) return a ?? b;
  if (isHost(a) && isHost(b)) return a.map((x, k) => x + b[k]);
  const asTensor = (values: RowValues, like: RowValues): Tensor =>
    isHost(values) ? tensor(values, { dtype: "float64" }).cast((like as Tensor).dtype) : values;
  return asTensor(a, b).add(asTensor(b, a));
}

/** Sum of matrices of one size; diagonals with equal offsets are added, diagonals of zeros dropped. */
export function addDiagonals(size: number, parts: readonly Diagonals[]): Diagonals {
  const found = new Map<number, Diagonal>();
  for (const { diagonals } of parts)
    for (const { offset, re, im } of diagonals) {
      const known = found.get(offset) ?? { offset, re: null, im: null };
      found.set(offset, { offset, re: addValues(known.re, re), im: addValues(known.im, im) });
    }
  const dropZeros = (values: RowValues | null): RowValues | null =>
    values !== null && isHost(values) && values.every((x) => x === 0) ? null : values;
  const diagonals = [...found.values()]
    .map(({ offset, re, im }) => ({ offset, re: dropZeros(re), im: dropZeros(im) }))
    .filter(({ re, im }) => re !== null || im !== null)
    .sort((a, b) => a.offset - b.offset);
  return { size, diagonals };
}

/** The matrix times a complex number. */
export function scaleDiagonals({ size, diagonals }: Diagonals, factor: { re: number; im: number }): Diagonals {
  const times = (values: RowValues | null, by: number): RowValues | null =>
    values === null || by === 0 ? null : isHost(values) ? values.map((x) => x * by) : values.mul(by);
  return addDiagonals(size, [
    {
      size,
      diagonals: diagonals.map(({ offset, re, im }) => ({
        offset,
        re: addValues(times(re, factor.re), times(im, -factor.im)),
        im: addValues(times(re, factor.im), times(im, factor.re)),
      })),
    },
  ]);
}

/** Digits of a state's number on some sites, as one number; the first site is the slowest. */
interface Places {
  size: number;
  /** Number of levels of all sites together. */
  levels: number;
  /** Row of the local matrix, for each row of the whole space. */
  rows: Int32Array;
  /** Difference of the numbers of two states that differ on the sites only, by their local numbers. */
  distance(from: number, to: number): number;
}

function placesOf(dims: readonly number[], sites: readonly number[]): Places {
  const size = dims.reduce((a, b) => a * b, 1);
  const strides = dims.map((_, k) => dims.slice(k + 1).reduce((a, b) => a * b, 1));
  const levels = sites.reduce((product, s) => product * dims[s], 1);
  const starts = new Int32Array(levels);
  for (let local = 0; local < levels; local++) {
    let left = local;
    for (let k = sites.length - 1; k >= 0; k--) {
      starts[local] += (left % dims[sites[k]]) * strides[sites[k]];
      left = Math.floor(left / dims[sites[k]]);
    }
  }
  const rows = Int32Array.from({ length: size }, (_, r) =>
    sites.reduce((row, s) => row * dims[s] + (Math.floor(r / strides[s]) % dims[s]), 0),
  );
  return { size, levels, rows, distance: (from, to) => starts[to] - starts[from] };
}

/** A local operator on the whole space. */
export function localDiagonals(
  dims: readonly number[],
  sites: readonly number[],
  matrix: Operator | Tensor,
): Diagonals {
  const { size, levels, rows, distance } = placesOf(dims, sites);
  /** Entry of the local matrix in each of its rows, by offset. */
  const entries = new Map<number, Int32Array>();
  for (let i = 0; i < levels; i++)
    for (let j = 0; j < levels; j++) {
      const at = i * levels + j;
      if (matrix instanceof Operator && matrix.re[at] === 0 && matrix.im[at] === 0) continue;
      const offset = distance(i, j);
      if (!entries.has(offset)) entries.set(offset, new Int32Array(levels).fill(-1));
      entries.get(offset)![i] = at;
    }
  const spread = (of: Int32Array, values: Float64Array): Float64Array =>
    Float64Array.from(rows, (row) => (of[row] < 0 ? 0 : values[of[row]]));
  const diagonals = [...entries].map(([offset, of]): Diagonal => {
    if (matrix instanceof Operator) return { offset, re: spread(of, matrix.re), im: spread(of, matrix.im) };
    const index = tensor(
      Int32Array.from(rows, (row) => Math.max(0, of[row])),
      { dtype: "int32" },
    );
    const mask = tensor(
      Float64Array.from(rows, (row) => (of[row] < 0 ? 0 : 1)),
      { dtype: "float64" },
    );
    const values = take(matrix.reshape([levels * levels]), index, 0);
    return {
      offset,
      re: real(values).mul(mask.cast(real(values).dtype)),
      im: imag(values).mul(mask.cast(imag(values).dtype)),
    };
  });
  return addDiagonals(size, [{ size, diagonals }]);
}

/** Compressed sparse rows: `starts` [D + 1], `columns` and values per nonzero. */
interface SparseRows {
  starts: ArrayLike<number>;
  columns: ArrayLike<number>;
  re: ArrayLike<number>;
  im?: ArrayLike<number>;
}

/** A sparse matrix as diagonals. */
export function sparseDiagonals(size: number, { starts, columns, re, im }: SparseRows): Diagonals {
  if (starts.length !== size + 1 || starts[0] !== 0 || starts[size] !== columns.length || re.length !== columns.length)
    throw new WeftError(
      `sparse matrix: needs ${size + 1} starts from 0 to the ${columns.length} columns and as many values, ` +
        `got ${starts.length} starts from ${starts[0]} to ${starts[size]} and ${re.length} values`,
    );
  const found = new Map<number, { re: Float64Array; im: Float64Array }>();
  for (let r = 0; r < size; r++)
    for (let k = starts[r]; k < starts[r + 1]; k++) {
      const column = columns[k];
      if (!Number.isInteger(column) || column < 0 || column >= size)
        throw new WeftError(`sparse matrix: column ${column} in row ${r} is not in 0..${size - 1}`);
      const offset = column - r;
      if (!found.has(offset)) found.set(offset, { re: new Float64Array(size), im: new Float64Array(size) });
      const values = found.get(offset)!;
      values.re[r] += re[k];
      values.im[r] += im?.[k] ?? 0;
    }
  return addDiagonals(size, [{ size, diagonals: [...found].map(([offset, values]) => ({ offset, ...values })) }]);
}
