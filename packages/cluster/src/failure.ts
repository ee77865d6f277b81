// Errors of a worker as they are reported to clients.
import { GroupError, type GroupErrorCode, OutOfMemoryError, StoppedError } from "@weft/core/internal/device";
import { shortened } from "@weft/core/internal/graph";
import type { ClientSettings, FailureCode } from "./protocol.js";
import { FailedError, type Failure } from "./store.js";

/** Codes of group errors that a client treats specially. */
const groupFailures: Partial<Record<GroupErrorCode, FailureCode>> = {
  "peer-dead": "lost",
  "peer-stopped": "lost",
  aborted: "aborted",
  memory: "memory",
};

/** An error as it is reported to a client with these settings. */
export function failureOf(error: Error, { maxSeconds }: ClientSettings = {}): Failure {
  if (error instanceof FailedError) return error.failure;
  const message = shortened(error.message);
  if (error instanceof StoppedError)
    return {
      message: `${message}: a call of this client may take ${maxSeconds ?? "a limited number of"} s (maxSeconds of connect and of the dispatcher's quotas); make shorter calls`,
      code: "error",
    };
  if (error instanceof OutOfMemoryError) return { message: `out of memory on a worker: ${message}`, code: "memory" };
  return { message, code: (error instanceof GroupError && groupFailures[error.code]) || "error" };
}
