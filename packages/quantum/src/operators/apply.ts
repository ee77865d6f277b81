// Products of diagonals with states, element by element on real and imaginary parts, so that a whole right-hand side is one loop
// and factors that are real or imaginary cost half.
import { complex, imag, real, type Tensor, tensor, zerosLike } from "@weft/core/internal/tensor";
import type { Diagonals, RowValues } from "./diagonals.js";

/** A complex tensor as two real ones; null is zero. */
export interface Planes {
  re: Tensor | null;
  im: Tensor | null;
}

/** A diagonal whose values are tensors [D]. */
interface TensorDiagonal extends Planes {
  offset: number;
}

/** Values of diagonals as tensors: those of the host are rows of one table, so that kernels have one argument for all. */
export function tensorDiagonals(sets: readonly Diagonals[], dtype: "float32" | "float64"): TensorDiagonal[][] {
  const size = sets[0]?.size ?? 0;
  const rows = new Map<Float64Array, number>();
  const values = sets.flatMap((set) => set.diagonals.flatMap(({ re, im }) => [re, im]));
  for (const given of values) if (given instanceof Float64Array && !rows.has(given)) rows.set(given, rows.size);
  const all = new Float64Array(rows.size * size);
  for (const [row, k] of rows) all.set(row, k * size);
  const table = rows.size === 0 ? null : tensor(all, { dtype: "float64", shape: [rows.size, size] }).cast(dtype);
  const asTensor = (given: RowValues | null): Tensor | null =>
    given === null ? null : given instanceof Float64Array ? table!.index(rows.get(given)!) : given.cast(dtype);
  return sets.map(({ diagonals }) =>
    diagonals.map(({ offset, re, im }) => ({ offset, re: asTensor(re), im: asTensor(im) })),
  );
}

/** Parts of a complex tensor. */
export const planesOf = (x: Tensor): { re: Tensor; im: Tensor } => ({ re: real(x), im: imag(x) });

/** The complex tensor of two parts, of which one is not zero. */
export function joinPlanes({ re, im }: Planes): Tensor {
  return complex(re ?? zerosLike(im!), im ?? zerosLike(re!));
}

/** x[i + offset] along an axis, with zeros beyond the ends. */
function shift(x: Tensor, axis: number, offset: number): Tensor {
  if (offset === 0) return x;
  const size = x.shape[axis];
  const start = x.shape.map((_, k) => (k === axis ? Math.max(0, offset) : 0));
  const stop = x.shape.map((d, k) => (k === axis ? Math.min(size, size + offset) : d));
  return x
    .slice(start, stop)
    .pad(x.shape.map((_, k) => (k === axis ? [Math.max(0, -offset), Math.max(0, offset)] : [0, 0])));
}

const product = (a: Tensor | null, b: Tensor | null): Tensor | null => (a === null || b === null ? null : a.mul(b));
const sum = (a: Tensor | null, b: Tensor | null): Tensor | null => (a === null ? b : b === null ? a : a.add(b));
const difference = (a: Tensor | null, b: Tensor | null): Tensor | null =>
  b === null ? a : a === null ? b.neg() : a.sub(b);

/** a + b of two complex tensors. */
export const addPlanes = (a: Planes, b: Planes): Planes => ({ re: sum(a.re, b.re), im: sum(a.im, b.im) });

/** x times a real tensor. */
export const scalePlanes = (x: Planes, by: Tensor): Planes => ({ re: product(x.re, by), im: product(x.im, by) });

/** a b, or conj(a) b. Signs become subtractions: a negated table would be stored once more. */
const multiply = (a: Planes, b: Planes, conjugate = false): Planes => ({
  re: (conjugate ? sum : difference)(product(a.re, b.re), product(a.im, b.im)),
  im: (conjugate ? difference : sum)(product(a.re, b.im), product(a.im, b.re)),
});

/** Values [D] along an axis of a tensor of some rank. */
function along({ re, im }: TensorDiagonal, axis: number, rank: number): Planes {
  const shaped = (values: Tensor | null): Tensor | null =>
    values?.reshape(Array.from({ length: rank }, (_, k) => (k === axis ? values.shape[0] : 1))) ?? null;
  return { re: shaped(re), im: shaped(im) };
}

const nothing: Planes = { re: null, im: null };
const shiftPlanes = (x: Planes, axis: number, offset: number): Planes => ({
  re: x.re === null ? null : shift(x.re, axis, offset),
  im: x.im === null ? null : shift(x.im, axis, offset),
});

/** A x, where the rows of x are its axis `axis`. */
export function applyLeft(a: readonly TensorDiagonal[], x: Planes, axis: number): Planes {
  const { rank } = (x.re ?? x.im)!;
  return a.reduce(
    (total, diagonal) => addPlanes(total, multiply(along(diagonal, axis, rank), shiftPlanes(x, axis, diagonal.offset))),
    nothing,
  );
}

/** A x + x A^H for a density matrix x. */
export function applyBothSides(a: readonly TensorDiagonal[], x: Planes): Planes {
  return a.reduce((total, diagonal) => {
    const rows = multiply(along(diagonal, 0, 2), shiftPlanes(x, 0, diagonal.offset));
    const columns = multiply(along(diagonal, 1, 2), shiftPlanes(x, 1, diagonal.offset), true);
    return addPlanes(addPlanes(total, rows), columns);
  }, nothing);
}

/** A x A^H for a density matrix x. */
export function sandwich(a: readonly TensorDiagonal[], x: Planes): Planes {
  return a.reduce((total, left) => {
    const moved = shiftPlanes(x, 0, left.offset);
    return a.reduce((inner, right) => {
      const rows = multiply(along(left, 0, 2), shiftPlanes(moved, 1, right.offset));
      return addPlanes(inner, multiply(along(right, 1, 2), rows, true));
    }, total);
  }, nothing);
}
