// Garbage collection on demand, in synchronous loops too: V8 keeps objects that were looked at through a WeakRef alive
// until the current task ends; running a script in a context with its own microtask queue ends that list early.
import { setFlagsFromString } from "node:v8";
import { createContext, runInNewContext, Script } from "node:vm";

let keptContext: object | null = null;
const nothing = new Script("0");
let gc: (() => void) | null = null;

/** Lets go of what WeakRefs have shown to this task, so that the next collection may take it. */
export function forgetSeen(): void {
  keptContext ??= createContext({}, { microtaskMode: "afterEvaluate" });
  nothing.runInContext(keptContext);
}

/** Collects everything that nobody can reach, now: WeakRefs to it are empty afterwards. */
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
