// Errors that end a run for a reason the user can act on.
import { WeftError } from "@weft/core/internal/graph";

/** A run failed; the message says what to do. */
export class TrainError extends WeftError {
  override name = "TrainError";
}

/** A checkpoint cannot be read or written. */
export class CheckpointError extends WeftError {
  override name = "CheckpointError";
}
