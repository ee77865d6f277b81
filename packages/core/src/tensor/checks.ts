// Checks of shapes and dtypes that users pass; errors name the function.
import {
  type DType,
  DTypeError,
  dtypes,
  isDType,
  numel,
  type Shape,
  ShapeError,
  showShape,
  showValue,
  WeftError,
} from "../graph/index.js";

/** Throws unless the shape is a list of non-negative integers of a reasonable size. */
export function checkShape(op: string, shape: Shape): void {
  if (!Array.isArray(shape) || shape.some((d) => !Number.isInteger(d) || d < 0))
    throw new ShapeError(`${op}: a shape is an array of non-negative integers, got ${showValue(shape)}`);
  if (numel(shape) > 2 ** 40)
    throw new ShapeError(
      `${op}: shape ${showShape(shape)} has ${numel(shape).toExponential(2)} elements, more than memory holds`,
    );
}

/** Throws unless the name is a dtype. */
export function checkDType(op: string, dtype: DType): void {
  if (!isDType(dtype)) throw new DTypeError(`${op}: unknown dtype ${String(dtype)}; known: ${dtypes.join(", ")}`);
}

/** Throws unless a number of elements is one that an array of the host can have. */
export function checkCount(op: string, count: number): void {
  if (!Number.isInteger(count) || count < 0 || count >= 2 ** 31)
    throw new WeftError(`${op}: count must be a whole number below 2^31, got ${showValue(count)}`);
}
