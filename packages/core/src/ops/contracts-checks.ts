// Conditions that the contracts of several ops share: axes, shapes, dtypes, matrices.
import {
  type Aval,
  checkExtent,
  type DType,
  isComplex,
  isHalf,
  isInexact,
  kindOf,
  type Node,
  type Shape,
  sameShape,
  showAval,
  showShape,
} from "../graph/index.js";

/** A contract violation; the verifier adds the node. */
export class Violation extends Error {}

export function demand(condition: boolean, problem: string): asserts condition {
  if (!condition) throw new Violation(problem);
}

export const isCount = (n: number): boolean => Number.isSafeInteger(n) && n >= 0;

export function demandShape(shape: Shape): void {
  demand(shape.every(isCount), `the shape ${showShape(shape)} has an impossible dimension`);
  checkExtent(shape);
}

export function checkAxis(axis: number, shape: Shape): void {
  demand(isCount(axis) && axis < shape.length, `axis ${axis} is not one of ${showShape(shape)}`);
}

export function checkAxes(axes: readonly number[], shape: Shape): void {
  for (const axis of axes) checkAxis(axis, shape);
  demand(new Set(axes).size === axes.length, `the axes [${axes}] repeat`);
}

export function checkSameShape(a: Node, b: Node): void {
  demand(sameShape(a.shape, b.shape), `operands have the shapes ${showShape(a.shape)} and ${showShape(b.shape)}`);
}

export function checkSameDType(a: Node, b: Node): void {
  demand(a.dtype === b.dtype, `operands have the dtypes ${a.dtype} and ${b.dtype}`);
}

export function checkSameAval(what: string, a: Aval, b: Aval): void {
  demand(a.dtype === b.dtype && sameShape(a.shape, b.shape), `${what} is ${showAval(a)} and should be ${showAval(b)}`);
}

export function checkIndices(indices: Node): void {
  demand(indices.dtype === "int32", `indices are ${indices.dtype} and should be int32`);
}

export type DTypeTest = (dtype: DType) => boolean;
export const anyDType: DTypeTest = () => true;
export const isReal: DTypeTest = (dtype) => !isComplex(dtype);
export const isLogical: DTypeTest = (dtype) => kindOf(dtype) === "bool" || kindOf(dtype) === "int";
export const isNumber: DTypeTest = (dtype) => kindOf(dtype) !== "bool";
export const isLinalg: DTypeTest = (dtype) => isInexact(dtype) && !isHalf(dtype);

export function checkOperandDType(what: string, test: DTypeTest, dtype: DType): void {
  demand(test(dtype), `${what} is not defined on ${dtype}`);
}

/** Entries of a slice or pad: one integer per axis. */
export function checkPerAxis(name: string, amounts: readonly number[], shape: Shape): void {
  demand(amounts.length === shape.length, `${name} has ${amounts.length} entries for ${showShape(shape)}`);
  demand(amounts.every(isCount), `${name} [${amounts}] holds something that is not a whole number >= 0`);
}

export const leading = (shape: Shape): Shape => shape.slice(0, -2);

export function checkMatrix(a: Node): void {
  demand(a.shape.length >= 2, `expected a matrix, got ${showShape(a.shape)}`);
}

export function checkLinalg(a: Node): void {
  checkMatrix(a);
  checkOperandDType("linear algebra", isLinalg, a.dtype);
}

export function checkSquare(a: Node): void {
  checkLinalg(a);
  const [rows, columns] = a.shape.slice(-2);
  demand(rows === columns, `expected a square matrix, got ${showShape(a.shape)}`);
}

/** a x = b: b has the rows and batch dimensions of a. */
export function checkSystem([a, b]: readonly Node[]): void {
  checkSquare(a);
  checkMatrix(b);
  checkSameDType(a, b);
  demand(
    sameShape(leading(a.shape), leading(b.shape)) && a.shape[a.shape.length - 1] === b.shape[b.shape.length - 2],
    `the system ${showShape(a.shape)} does not fit the right sides ${showShape(b.shape)}`,
  );
}
