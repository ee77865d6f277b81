// Calls of the lab from commands.
import { ImportError } from "@weft/lab/internal/import";
import { PointsError } from "@weft/lab/internal/predict";
import { CommandError } from "../terminal/index.js";

/** Runs a function of the lab; errors of the lab become errors for the user. */
export async function labWork<T>(work: () => T | Promise<T>): Promise<T> {
  try {
    return await work();
  } catch (error) {
    if (error instanceof ImportError || error instanceof PointsError) throw new CommandError(error.message);
    throw error;
  }
}
