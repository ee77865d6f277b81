// Boxes of row-major arrays as bytes: offsets, strides, and copies between a dense box and its position in the whole
// array.

export function denseStrides(sizes: readonly number[], element: number): number[] {
  const strides = new Array<number>(sizes.length);
  let step = element;
  for (let i = sizes.length - 1; i >= 0; i--) {
    strides[i] = step;
    step *= sizes[i];
  }
  return strides;
}

/** A box of an array: byte offset, sizes, and the byte strides of the array. */
export interface ArrayPart {
  offset: number;
  sizes: readonly number[];
  strides: readonly number[];
  element: number;
}

/** Visits every contiguous run of bytes: its offset in the dense box and in the array, and its length. */
function eachRun(
  { offset, sizes, strides, element }: ArrayPart,
  visit: (dense: number, whole: number, bytes: number) => void,
): void {
  const total = sizes.reduce((n, size) => n * size, element);
  if (total === 0) return;
  const dense = denseStrides(sizes, element);
  let axis = sizes.length;
  while (axis > 0 && (strides[axis - 1] === dense[axis - 1] || sizes[axis - 1] === 1)) axis--;
  const run = axis === 0 ? total : dense[axis - 1];
  const index = new Array<number>(axis).fill(0);
  for (let at = 0; at < total; at += run) {
    let to = offset;
    for (let i = 0; i < axis; i++) to += index[i] * strides[i];
    visit(at, to, run);
    for (let i = axis - 1; i >= 0 && ++index[i] === sizes[i]; i--) index[i] = 0;
  }
}

/** Copies a dense box to its position in the array. */
export function putPart(from: Uint8Array, into: Uint8Array, part: ArrayPart): void {
  eachRun(part, (dense, whole, bytes) => into.set(from.subarray(dense, dense + bytes), whole));
}

/** Copies a box of the array to dense bytes. */
export function takePart(from: Uint8Array, part: ArrayPart): Uint8Array {
  const out = new Uint8Array(part.sizes.reduce((n, size) => n * size, part.element));
  eachRun(part, (dense, whole, bytes) => out.set(from.subarray(whole, whole + bytes), dense));
  return out;
}
