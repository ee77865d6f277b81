// What ends a run for a reason that the user can act on.
import { WeftError } from "@weft/core/internal/graph";

export class TrainError extends WeftError {
  override name = "TrainError";
}
