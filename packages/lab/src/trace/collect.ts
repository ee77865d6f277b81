// Garbage collection between the analyses of a large trace: each makes lists as long as the trace, and V8 collects typed arrays
// late as long as its own heap is small.
import { setFlagsFromString } from "node:v8";
import { runInNewContext } from "node:vm";

/** Lists of smaller traces are left to V8. */
const manyRows = 3e6;
let gc: (() => void) | null = null;

/** Runs an analysis and frees what it no longer needs, where the trace has many rows. */
export function freed<T>(rows: number, analysis: () => T): T {
  const result = analysis();
  if (rows < manyRows) return result;
  if (gc === null) {
    setFlagsFromString("--expose-gc");
    gc = runInNewContext("gc") as () => void;
  }
  gc();
  return result;
}
