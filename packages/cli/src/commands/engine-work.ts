// Work of the engine: programs that are compiled and plans that are searched are shown, and errors become messages without a stack
// trace.
import { CommandError, interrupted, isInterrupted, showCompiling, showPlanning } from "../terminal/index.js";

export async function engineWork<T>(work: () => Promise<T>, exitCode?: number): Promise<T> {
  const { compileListeners } = await import("@weft/core/internal/device");
  const { planListeners } = await import("@weft/core/internal/shard");
  // Work inside of other work is shown already.
  const ends = compileListeners.size > 0 ? [] : [showCompiling(compileListeners), showPlanning(planListeners)];
  try {
    return await work();
  } catch (error) {
    if (isInterrupted(error)) throw new CommandError(error.message, interrupted);
    const { WeftError } = await import("@weft/core");
    if (error instanceof WeftError) throw new CommandError(error.message, exitCode);
    throw error;
  } finally {
    for (const end of ends) end();
  }
}
