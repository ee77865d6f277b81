// The operands of fused attention, which the kernels of several devices read in place: their sizes, and where they lie in memory.
import type { Strided } from "../compile/index.js";
import { type AttentionKernel, type DType, type Node, numel, type Shape } from "../graph/index.js";
import { differentiableOperands } from "../ops/index.js";

/** Length, heads and size of queries and of keys; everything before is the batch. */
export interface AttentionShape {
  batch: number;
  heads: number;
  /** Heads of keys and values. */
  shared: number;
  queries: number;
  keys: number;
  size: number;
  dtype: DType;
}

export const attentionOf = (node: Node): AttentionKernel | null =>
  node.op === "custom" ? ((node as Node<"custom">).attrs.kernel ?? null) : null;

export function attentionShape(node: Node, kernel: AttentionKernel): AttentionShape {
  const [first, second] = node.inputs;
  const tail = kernel.packed ? 4 : 3;
  const [heads, size] = first.shape.slice(-2);
  const queries = first.shape[first.shape.length - tail];
  return {
    batch: numel(first.shape.slice(0, -tail)),
    heads,
    shared: kernel.packed ? heads : second.shape[second.shape.length - 2],
    queries,
    keys: kernel.packed ? queries : second.shape[second.shape.length - 3],
    size,
    dtype: first.dtype,
  };
}

/** Whether a backward pass stores the gradient of an added mask. */
export const givesMaskGradient = (kernel: AttentionKernel): boolean =>
  kernel.gradient && differentiableOperands(kernel) > (kernel.packed ? 1 : 3);

/** Where element [b, h, row, 0] of an operand lies: strides in elements. */
export interface AttentionPlace {
  batch: number;
  row: number;
  head: number;
  offset: number;
}

/** The batch axes of an operand as one stride; null where they are none. */
export function mergedBatch(shape: Shape, strides: readonly number[]): number | null {
  let [stride, span] = [0, 1];
  for (let i = shape.length - 1; i >= 0; i--) {
    if (shape[i] === 1) continue;
    if (span === 1) stride = strides[i];
    else if (strides[i] !== stride * span) return null;
    span *= shape[i];
  }
  return stride;
}

/** Queries, keys, values and the like: [...batch, length, heads, size], or a part of [...batch, length, 3, heads, size]. */
function placeOf({ strides, offset }: Strided, shape: Shape, part: number | null): AttentionPlace | null {
  const tail = part === null ? 3 : 4;
  const n = shape.length;
  const batch = mergedBatch(shape.slice(0, n - tail), strides);
  if (batch === null || (strides[n - 1] !== 1 && shape[n - 1] > 1)) return null;
  return {
    batch,
    row: strides[n - tail],
    head: strides[n - 2],
    offset: offset + (part === null ? 0 : part * strides[n - 3]),
  };
}

const contiguous = (shape: Shape): number[] => {
  const strides = shape.map(() => 1);
  for (let i = shape.length - 2; i >= 0; i--) strides[i] = strides[i + 1] * shape[i + 1];
  return strides;
};
const ownMemory = (shape: Shape): Strided => ({ node: null as never, strides: contiguous(shape), offset: 0 });

/** An operand of a fused kernel must lie so that a batch, a row and a head have one stride each. */
export function fitsAttention(kernel: AttentionKernel, index: number, strided: Strided, shape: Shape): boolean {
  const tensors = kernel.packed ? 1 : 3;
  if (index < tensors) return placeOf(strided, shape, kernel.packed ? 0 : null) !== null;
  const hasMask = kernel.mask !== "none";
  if (hasMask && kernel.mask !== "segments" && index === tensors)
    return mergedBatch(shape.slice(0, -3), strided.strides) !== null;
  const extras = tensors + (hasMask ? 1 : 0) + (kernel.dropout > 0 ? 1 : 0);
  // Segment ids and keys.
  if (index < extras)
    return strided.strides.at(-1) === 1 && mergedBatch(shape.slice(0, -1), strided.strides.slice(0, -1)) !== null;
  // The result and its cotangent are read by rows; the log-sums and bits lie as the forward kernel left them.
  const cotangent = extras + 2 + (kernel.dropout > 0 ? 1 : 0);
  return (index !== extras && index !== cotangent) || placeOf(strided, shape, null) !== null;
}

/** Operands and results in memory. */
export function operandPlaces(node: Node, operands: readonly Strided[]): Record<PlaceName, AttentionPlace> {
  const kernel = attentionOf(node)!;
  const shape = attentionShape(node, kernel);
  const part = (i: number): AttentionPlace =>
    placeOf(operands[kernel.packed ? 0 : i], node.inputs[kernel.packed ? 0 : i].shape, kernel.packed ? i : null)!;
  const extras = (kernel.packed ? 1 : 3) + (kernel.mask === "none" ? 0 : 1) + (kernel.dropout > 0 ? 1 : 0);
  const resultShape = kernel.packed
    ? [...node.inputs[0].shape.slice(0, -3), shape.heads, shape.size]
    : [...node.inputs[0].shape];
  const out = kernel.gradient
    ? placeOf(operands[extras], resultShape, null)!
    : placeOf(ownMemory(resultShape), resultShape, null)!;
  const g = kernel.gradient ? placeOf(operands[operands.length - 1], resultShape, null)! : out;
  const gradient = (i: number): AttentionPlace => {
    const like = node.inputs[kernel.packed ? 0 : i].shape;
    return placeOf(ownMemory(like), like, kernel.packed ? i : null)!;
  };
  return { q: part(0), k: part(1), v: part(2), out, g, dq: gradient(0), dk: gradient(1), dv: gradient(2) };
}
type PlaceName = "q" | "k" | "v" | "out" | "g" | "dq" | "dk" | "dv";
