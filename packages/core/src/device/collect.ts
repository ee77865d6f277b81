// Garbage collection on demand, in synchronous loops too: V8 keeps objects that were looked at through a WeakRef alive
// until the current task ends; running a script in a context with its own microtask queue ends that list early.
import { setFlagsFromString } from "node:v8";
import { createContext, runInNewContext, Script } from "node:vm";

let keptContext: object | null = null;
const nothing = new Script("0");
let gc: (() => void) | null = null;

/** Clears V8's list of objects that this task read through a WeakRef, so that the next collection may free them. */
export function forgetSeen(): void {
  keptContext ??= createContext({}, { microtaskMode: "afterEvaluate" });
  nothing.runInContext(keptContext);
}

/** Collects all unreachable objects now; WeakRefs to them are empty afterwards. */
export function collectNow(): void {
  forgetSeen();
  if (gc === null) {
    const existing = (globalThis as { gc?: () => void }).gc;
    if (existing !== undefined) gc = existing;
    else {
      setFlagsFromString("--expose-gc");
      gc = runInNewContext("gc") as () => void;
    }
  }
  gc();
}
