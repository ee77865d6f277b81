// Errors of a cluster's tensors, with the failure code of the protocol.
import { WeftError } from "@weft/core/internal/graph";
import type { FailureCode } from "./protocol.js";

/** A tensor of a cluster has no value; `code` says why. */
export class ClusterError extends WeftError {
  override name = "ClusterError";
  constructor(
    message: string,
    /** "error": its program failed. "memory": a worker ran out of memory. "lost", "aborted": a worker died. */
    readonly code: FailureCode,
  ) {
    super(message);
  }
}

/** A tensor was lost with a worker; it may be recomputable. */
export class LostTensorError extends ClusterError {
  constructor(
    message: string,
    /** Whether the dispatcher has already reported the dead worker. */
    readonly reported: boolean,
    /** Whether its worker has been silent for as long as the dispatcher needs to notice that. */
    readonly silent = false,
  ) {
    super(message, "lost");
  }
}
