// Properties of single nodes that fusion needs: which ops are reductions, how they divide a shape, and which operands
// libraries can read in place. Knows nothing of groups.
import { bytesOf, isComplex, isOp, kindOf, type Node, numel, sameShape } from "../graph/index.js";
import { reductionOps } from "../ops/index.js";
import { uniformValue } from "../transform/index.js";
import { deviationsOf } from "./moments.js";
import { asStrided, type Layouts, type Strided } from "./views.js";

export interface MatrixOperand extends Strided {
  conjugate: boolean;
}

/**
 * A matrix product operand as libraries take it: memory with one unit stride, possibly adjoint. Null where it must be
 * copied first.
 */
export function matrixOperand(node: Node, stop: (node: Node) => boolean, layouts: Layouts): MatrixOperand | null {
  const conjugated = isOp(node, "unary") && node.attrs.fn === "conj" && isComplex(node.dtype) && !stop(node);
  const strided = asStrided(conjugated ? node.inputs[0] : node, stop, layouts);
  if (strided === null) return null;
  const [rows, columns] = strided.strides.slice(-2);
  const [m, n] = node.shape.slice(-2);
  const plain = (columns === 1 || n === 1) && (rows >= n || m === 1);
  const transposed = (rows === 1 || m === 1) && (columns >= m || n === 1) && !(columns === 1 || n === 1);
  if (conjugated) return transposed ? { ...strided, conjugate: true } : null;
  return plain || transposed ? { ...strided, conjugate: false } : null;
}

/** scatterAdd onto zeros needs no zeros in memory. */
export const isZeroBase = (node: Node, input: Node): boolean =>
  node.op === "scatterAdd" && input === node.inputs[0] && uniformValue(input) === 0;

/** Ones that a device counts instead of reading them (bincount). */
export const isCounted = (node: Node, input: Node, counts = false): boolean =>
  counts &&
  node.op === "scatterAdd" &&
  input === node.inputs[2] &&
  kindOf(node.dtype) === "int" &&
  bytesOf(node.dtype) >= 4 &&
  Number(uniformValue(input)) === 1;

/** x[i + n] with zeros beyond the ends: a part of a tensor, padded to its size again. A load with a test of the index. */
export const isShift = (node: Node): boolean =>
  isOp(node, "pad") && isOp(node.inputs[0], "slice") && sameShape(node.shape, node.inputs[0].inputs[0].shape);

/** Parts from which a concatenation has a kernel of its own. */
export const manyParts = 256;
export const joinsMany = (node: Node): boolean => node.op === "concat" && node.inputs.length >= manyParts;

export const isReduction = (node: Node): boolean => reductionOps.has(node.op);

/** Length of rows from which squared deviations are summed in one pass; shorter ones stay in registers between two. */
const longRow = 1 << 14;

/** What a reduction reads: its input, or the operand of squared deviations from the mean where one pass sums them. */
export function reductionOperand(node: Node, onePass: boolean): { operand: Node; isSpread: boolean } {
  const [, count, after] = reductionParts(node);
  const found = onePass && (after > 1 || count > longRow) ? deviationsOf(node) : null;
  return { operand: found?.x ?? node.inputs[0], isSpread: found !== null };
}

/** The axes of a reduction as [before, reduced, after] sizes. */
export function reductionParts(node: Node): [number, number, number] {
  const { shape } = node.inputs[0];
  const axes = isOp(node, "reduce") ? node.attrs.axes : [(node as Node<"argreduce">).attrs.axis];
  const first = axes[0];
  const last = axes[axes.length - 1];
  return [numel(shape.slice(0, first)), numel(shape.slice(first, last + 1)), numel(shape.slice(last + 1))];
}

/** A largest or smallest element: gradients compare it with every element, so that both must come from the same rounded numbers. */
export const isExtremum = (node: Node): boolean =>
  isOp(node, "reduce") && (node.attrs.fn === "max" || node.attrs.fn === "min");
