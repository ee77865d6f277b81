// scope: frees everything that was computed inside and is not returned.
import { isTracing, memoryManager, type TensorValue } from "../runtime/index.js";
import { checkArguments } from "./convert.js";
import { treeLeaves } from "./tree.js";

/**
 * Runs a function and frees every tensor computed inside that is not part of its result, even if pending work outside still
 * reads it. Inside a traced function nothing is computed, so nothing is freed.
 */
export function scope<T>(body: () => T): T {
  checkArguments("scope", "function", { body });
  if (isTracing()) return body();
  const made = memoryManager.openScope();
  try {
    const result = body();
    if (result instanceof Promise) {
      result.catch(() => {});
      throw new TypeError(
        "scope: the function is async; other code would run inside the scope. Use `using` or dispose()",
      );
    }
    const kept = new Set(treeLeaves(result).map((t) => t.realize().node.value as TensorValue));
    for (const value of memoryManager.closeScope(made)) if (!kept.has(value)) end(value);
    return result;
  } catch (error) {
    for (const value of memoryManager.closeScope(made)) end(value);
    throw error;
  }
}

function end(value: TensorValue): void {
  value.release();
  value.free();
}
