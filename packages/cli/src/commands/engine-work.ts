// Work of the engine: programs that are compiled are shown, and errors become messages without a stack trace.
import { CommandError, interrupted, isInterrupted, showCompiling } from "../terminal/index.js";

export async function engineWork<T>(work: () => Promise<T>, exitCode?: number): Promise<T> {
  const { compileListeners } = await import("@weft/core/internal/device");
  const done = compileListeners.size === 0 ? showCompiling(compileListeners) : () => {};
  try {
    return await work();
  } catch (error) {
    if (isInterrupted(error)) throw new CommandError(error.message, interrupted);
    const { WeftError } = await import("@weft/core");
    if (error instanceof WeftError) throw new CommandError(error.message, exitCode);
    throw error;
  } finally {
    done();
  }
}
