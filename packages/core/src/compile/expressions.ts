// Expressions of kernels as graphs: lists them, and copies them with other loop variables.
import type { Ix } from "./index-expr.js";
import type { KExpr, Store } from "./kernel.js";

type Indexed = Extract<KExpr, { kind: "load" | "index" | "inRange" | "random" }>;
/** The index or address of an expression. */
export const indexOf = (expr: Indexed): Ix => (expr.kind === "load" ? expr.address : expr.ix);
/** Whether an expression has an index or address. */
export const isIndexed = (expr: KExpr): expr is Indexed => "ix" in expr || expr.kind === "load";

const partsOf = (expr: KExpr): KExpr[] => [
  ...("args" in expr ? expr.args : []),
  ...("dynamic" in expr ? expr.dynamic : []),
  ...(expr.kind === "load" && expr.guard !== null ? [expr.guard] : []),
];

/** Every expression below stores, by its number. */
export function expressionsOf(stores: readonly Store[]): Map<number, KExpr> {
  const found = new Map<number, KExpr>();
  const stack = stores.map((s) => s.value);
  while (stack.length > 0) {
    const expr = stack.pop()!;
    if (found.has(expr.id)) continue;
    found.set(expr.id, expr);
    stack.push(...partsOf(expr));
  }
  return found;
}

/**
 * A function that copies expressions; what two of them share is copied once. The expressions must not contain indices from data.
 *
 * @param at - What replaces loop variables.
 * @param number - The number of the copy of an expression.
 * @param replaced - The expression that stands for another one instead of a copy; null for a copy.
 */
export function expressionCopier(
  at: ReadonlyMap<string, Ix>,
  number: (expr: KExpr) => number,
  replaced: (expr: KExpr) => KExpr | null = () => null,
): (expr: KExpr) => KExpr {
  const copies = new Map<number, KExpr>();
  const copy = (expr: KExpr): KExpr => {
    const known = copies.get(expr.id) ?? replaced(expr);
    if (known !== null) return known;
    const made = { ...expr, id: number(expr) } as KExpr;
    if ("args" in made) made.args = made.args.map(copy);
    if ("ix" in made) made.ix = made.ix.substitute(at);
    if (made.kind === "load") {
      made.address = made.address.substitute(at);
      made.guard = made.guard === null ? null : copy(made.guard);
    }
    copies.set(expr.id, made);
    return made;
  };
  return copy;
}
