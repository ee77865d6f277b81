// Merges the batch axes of a matrix product into as few dimensions as possible.

export interface BatchDim {
  size: number;
  a: number;
  b: number;
  c: number;
}

/** Batch axes merged into as few dimensions as their strides allow. */
export function mergeBatch(
  shape: readonly number[],
  a: readonly number[],
  b: readonly number[],
  c: readonly number[],
): BatchDim[] {
  const dims: BatchDim[] = [];
  shape.forEach((size, i) => {
    if (size === 1) return;
    const next = { size, a: a[i], b: b[i], c: c[i] };
    const last = dims[dims.length - 1];
    const joins =
      last !== undefined && last.a === next.a * size && last.b === next.b * size && last.c === next.c * size;
    if (joins) dims[dims.length - 1] = { ...next, size: last.size * size };
    else dims.push(next);
  });
  return dims;
}
