// Guarded loads of `pad` and `concat`. A load is never conditional in generated code, because compilers turn conditional
// loads into masked ones, and gcc 12 does so incorrectly for the two parts of complex numbers. The load uses an index that
// is always in range, and a branch-free select discards the value where the guard fails.
import type { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, LoopVariable } from "./kernel.js";

/** The values of a variable from `low` (inclusive) to `high` (exclusive). */
export interface Interval {
  low: number;
  high: number;
}

type RangeTest = Extract<KExpr, { kind: "inRange" }>;

const none: Interval = { low: 0, high: 0 };

/** The values of its only variable for which a test holds; null where it has several, or a quotient. */
function intervalOf({ ix, low, high }: RangeTest): { name: string | null; interval: Interval } | null {
  if (ix.isConstant) {
    const holds = ix.constant >= low && ix.constant < high;
    return { name: null, interval: holds ? { low: 0, high: 1 } : none };
  }
  const [[name, { atom, factor }], ...others] = ix.terms;
  if (others.length > 0 || atom.kind !== "var") return null;
  const at = (bound: number): number =>
    factor > 0 ? Math.ceil((bound - ix.constant) / factor) : Math.floor((bound - ix.constant) / factor) + 1;
  const [from, to] = factor > 0 ? [at(low), at(high)] : [at(high), at(low)];
  return { name, interval: { low: Math.max(0, from), high: Math.min(atom.size, to) } };
}

/** The tests of a guard, all of which hold where it does. */
export function* tests(guard: KExpr): Generator<KExpr> {
  if (guard.kind === "binary" && guard.fn === "and") for (const arg of guard.args) yield* tests(arg);
  else yield guard;
}

/**
 * The box of variables in which a guard holds. Every point of it is in range, so clamping each variable to its interval
 * gives a valid address. Null where a test mixes variables; "never" where the guard cannot hold.
 */
export function guardBox(guard: KExpr | Iterable<KExpr>): Map<string, Interval> | "never" | null {
  const box = new Map<string, Interval>();
  for (const test of "kind" in guard ? tests(guard) : guard) {
    const found = test.kind === "inRange" ? intervalOf(test) : null;
    if (found === null) return null;
    const { name, interval } = found;
    const known = name === null ? undefined : box.get(name);
    const low = Math.max(interval.low, known?.low ?? interval.low);
    const high = Math.min(interval.high, known?.high ?? interval.high);
    if (low >= high) return "never";
    if (name !== null) box.set(name, { low, high });
  }
  return box;
}

/** C text of a variable clamped to an interval; its own name where it cannot leave it. */
export function clampText(name: string, size: number, { low, high }: Interval): string {
  const above = high < size ? `${name} > ${high - 1} ? ${high - 1} : ${name}` : name;
  return low > 0 ? `${name} < ${low} ? ${low} : ${above}` : above;
}

export function sizeIn(ix: Ix, name: string): number {
  const atom = ix.terms.get(name)?.atom;
  return atom?.kind === "var" ? atom.size : Number.POSITIVE_INFINITY;
}

/** Loops over fewer elements are not worth several copies of their text. */
const minSplit = 64;
const maxSplits = 4;

/** Positions inside a variable's range where a test of a kernel changes. */
function testPoints(kernel: LoopKernel, { name, size }: LoopVariable): number[] {
  const points = new Set<number>();
  const seen = new Set<number>();
  const stack: KExpr[] = [...kernel.stores.map((s) => s.value), ...kernel.reductions.map((r) => r.argument)];
  while (stack.length > 0) {
    const expr = stack.pop()!;
    if (seen.has(expr.id)) continue;
    seen.add(expr.id);
    if (expr.kind === "inRange") {
      const found = intervalOf(expr);
      if (found?.name === name) for (const at of [found.interval.low, found.interval.high]) points.add(at);
    }
    if ("dynamic" in expr) stack.push(...expr.dynamic);
    if ("args" in expr) stack.push(...expr.args);
    if (expr.kind === "load" && expr.guard !== null) stack.push(expr.guard);
  }
  return [...points].filter((at) => at > 0 && at < size).sort((a, b) => a - b);
}

/**
 * Positions where the loop over a variable is split. Between two of them each test has one outcome, which the compiler
 * derives from the loop bounds: plain loads remain inside.
 */
export function splitPoints(kernel: LoopKernel, variable: LoopVariable): number[] {
  if (variable.size < minSplit) return [];
  const points = testPoints(kernel, variable);
  return points.length > maxSplits ? [] : points;
}

/** Whether tests change along a variable whose loop is not split there. */
export const unsplitGuards = (kernel: LoopKernel, variable: LoopVariable): boolean =>
  splitPoints(kernel, variable).length === 0 && testPoints(kernel, variable).length > 0;
