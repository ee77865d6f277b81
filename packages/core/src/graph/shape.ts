// Arithmetic on shapes that every layer uses.

/** Sizes of the axes of a tensor. */
export type Shape = readonly number[];

export const numel = (shape: Shape): number => {
  let n = 1;
  for (const d of shape) n *= d;
  return n;
};

export const sameShape = (a: Shape, b: Shape): boolean => a.length === b.length && a.every((d, i) => d === b[i]);

export const showShape = (shape: Shape): string => `[${shape.join(", ")}]`;

/** Row-major strides in elements. */
export function stridesOf(shape: Shape): number[] {
  const strides = new Array<number>(shape.length);
  let step = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    strides[i] = step;
    step *= shape[i];
  }
  return strides;
}

/** The shape that two shapes broadcast to by NumPy's rule, or null. */
export function broadcastShapes(a: Shape, b: Shape): number[] | null {
  const rank = Math.max(a.length, b.length);
  const out = new Array<number>(rank);
  for (let i = 0; i < rank; i++) {
    const da = i < rank - a.length ? 1 : a[i - rank + a.length];
    const db = i < rank - b.length ? 1 : b[i - rank + b.length];
    if (da !== db && da !== 1 && db !== 1) return null;
    out[i] = da === 1 ? db : da;
  }
  return out;
}

export const range = (n: number): number[] => Array.from({ length: n }, (_, i) => i);

export function inversePermutation(axes: readonly number[]): number[] {
  const inverse = new Array<number>(axes.length);
  axes.forEach((axis, i) => {
    inverse[axis] = i;
  });
  return inverse;
}

export const withoutAxes = (shape: Shape, axes: readonly number[]): number[] =>
  shape.filter((_, i) => !axes.includes(i));

export const keepAxes = (shape: Shape, axes: readonly number[]): number[] =>
  shape.map((d, i) => (axes.includes(i) ? 1 : d));
