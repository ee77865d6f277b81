// What ends a run for a reason that the user can act on.
import { WeftError } from "../graph/index.js";

export class TrainError extends WeftError {
  override name = "TrainError";
}
