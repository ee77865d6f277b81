// Checks what may be written into generated source: words of closed sets, integers, finite numbers. Graphs are checked when
// they arrive (ops/decode.ts); this is the second line of defense and holds for graphs of any origin.
import { argReduceFns, binaryFns, InternalError, randomKinds, reduceFns, unaryFns } from "../graph/index.js";

/** Words that are part of the names of functions in the preludes, or of pragmas. */
const words: ReadonlySet<string> = new Set([...unaryFns, ...binaryFns, ...reduceFns, ...argReduceFns, ...randomKinds]);

/** The name of a function of the graph language, and nothing else. */
export function word(name: string): string {
  if (!words.has(name)) throw new InternalError(`${JSON.stringify(String(name).slice(0, 40))} in generated code`);
  return name;
}

/** An integer: an index, a size, a stride. */
export function whole(value: number): string {
  if (!Number.isSafeInteger(value))
    throw new InternalError(`the number ${String(value).slice(0, 40)} in generated code`);
  return String(value);
}

/** A finite number in C syntax, always with a point or an exponent. */
export function decimal(value: number): string {
  if (typeof value !== "number" || !Number.isFinite(value))
    throw new InternalError(`the number ${String(value).slice(0, 40)} in generated code`);
  if (Object.is(value, -0)) return "-0.0";
  const text = String(value);
  return /[.e]/.test(text) ? text : `${text}.0`;
}

/** The name of a variable. */
export function identifier(name: string): string {
  if (!/^[A-Za-z_]\w{0,60}$/.test(name))
    throw new InternalError(`${JSON.stringify(String(name).slice(0, 40))} in generated code`);
  return name;
}
