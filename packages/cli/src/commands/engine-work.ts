// Turns errors of the engine into messages without a stack trace.
import { CommandError } from "../terminal/index.js";

export async function engineWork<T>(work: () => Promise<T>, exitCode?: number): Promise<T> {
  try {
    return await work();
  } catch (error) {
    const { WeftError } = await import("@weft/core");
    if (error instanceof WeftError) throw new CommandError(error.message, exitCode);
    throw error;
  }
}
