// Errors of Weft. Every message names the function, the offending shapes or values, and the remedy.

/** Base class of all errors that Weft throws on purpose. */
export class WeftError extends Error {
  override name = "WeftError";
}

/** Shapes do not fit the operation. */
export class ShapeError extends WeftError {
  override name = "ShapeError";
}

/** The operation does not support the dtype. */
export class DTypeError extends WeftError {
  override name = "DTypeError";
}

/** An invariant of Weft is violated; this is a bug in Weft. */
export class InternalError extends WeftError {
  override name = "InternalError";
  constructor(message: string) {
    super(`internal: ${message}`);
  }
}
