// The errors that Weft throws. Every message names what was called, the shapes or values at fault, and the remedy.

/** The base of every error that Weft throws on purpose. */
export class WeftError extends Error {
  override name = "WeftError";
}

/** Shapes that do not fit the operation. */
export class ShapeError extends WeftError {
  override name = "ShapeError";
}

/** A dtype that the operation does not take. */
export class DTypeError extends WeftError {
  override name = "DTypeError";
}

/** A broken promise inside Weft itself; users should never see one. */
export class InternalError extends WeftError {
  override name = "InternalError";
  constructor(message: string) {
    super(`internal: ${message}`);
  }
}
