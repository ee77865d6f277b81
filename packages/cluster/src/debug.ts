// Debug logs on standard error: WEFT_DEBUG_DISPATCHER, _WORKER, _CLIENT and _PLANNER.
type Part = "dispatcher" | "worker" | "client" | "planner";

const on = new Map<Part, boolean>();

/** Whether logging is enabled for a component; the environment is read once. */
export function isLogging(part: Part): boolean {
  let known = on.get(part);
  if (known === undefined) {
    const value = process.env[`WEFT_DEBUG_${part.toUpperCase()}`];
    known = value !== undefined && value !== "" && value !== "0";
    on.set(part, known);
  }
  return known;
}

const begin = performance.now();

export function log(part: Part, text: () => string): void {
  if (isLogging(part)) process.stderr.write(`[${part} ${((performance.now() - begin) / 1e3).toFixed(3)}] ${text()}\n`);
}
