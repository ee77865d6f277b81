// Errors of process groups, with a code, so that callers need not read the message.
import { WeftError } from "../../graph/index.js";

/** What failed: a peer process died, was stopped or aborted, did not arrive in time, or something else. */
export type GroupErrorCode =
  | "timeout"
  | "peer-dead"
  | "peer-stopped"
  | "aborted"
  | "mismatch"
  | "memory"
  | "setup"
  | "internal";

/** A collective or a process group failed. */
export class GroupError extends WeftError {
  override name = "GroupError";
  constructor(
    message: string,
    /** What kind of failure it is. */
    readonly code: GroupErrorCode,
  ) {
    super(message);
  }
}
