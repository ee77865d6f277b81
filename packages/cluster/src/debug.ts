// Debug logs on standard error: WEFT_DEBUG_DISPATCHER, _WORKER, _CLIENT and _PLANNER.
import { printable } from "./printable.js";
import { clusterSettings } from "./settings.js";

type Part = keyof typeof clusterSettings.debug;

/** Whether logging is enabled for a component. */
const isLogging = (part: Part): boolean => clusterSettings.debug[part].get();

const begin = performance.now();

export function logDebug(part: Part, text: () => string): void {
  if (isLogging(part))
    process.stderr.write(`[${part} ${((performance.now() - begin) / 1e3).toFixed(3)}] ${printable(text())}\n`);
}
