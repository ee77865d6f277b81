// Sums of a row in which a test of indices leaves one element, as those of diagonals and traces: the element is read where it is.
import { expressionCopier, expressionsOf, indexOf, isIndexed } from "./expressions.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, LoopVariable, Reduction } from "./kernel.js";

/** The place along a row of the only element that a sum has; null for other sums. */
function placeOf({ fn, dtype, argument }: Reduction, { name, size }: LoopVariable): Ix | null {
  if (fn !== "sum" || argument.kind !== "where" || argument.dtype !== dtype) return null;
  const [test, , other] = argument.args;
  if (test.kind !== "binary" || test.fn !== "eq" || other.kind !== "const" || !Object.is(other.value, 0)) return null;
  const [a, b] = test.args;
  if (a.kind !== "index" || b.kind !== "index" || a.dynamic.length + b.dynamic.length > 0) return null;
  const along = Ix.variable(name, size);
  const place = a.ix.equals(along) ? b.ix : b.ix.equals(along) ? a.ix : null;
  if (place === null || place.mentions(name)) return null;
  const [low, high] = place.range();
  return low >= 0 && high < size ? place : null;
}

/** The kernel without such sums; itself where it has others. */
export function withoutDiagonals(kernel: LoopKernel): LoopKernel {
  const { kind, outer, inner, reductions, columnSums, stores } = kernel;
  const [variable, ...others] = inner;
  if (kind !== "rows" || variable === undefined || others.length + columnSums.length > 0) return kernel;
  if (reductions.length === 0 || outer.length === 0) return kernel;
  const places = reductions.map((r) => placeOf(r, variable));
  if (places.includes(null)) return kernel;
  // Stores along the row, and indices from data, which have names of their own.
  const read = [...expressionsOf(stores).values()];
  const summed = [...expressionsOf(reductions.map((r) => ({ ...stores[0], value: r.argument }))).values()];
  if (stores.some((s) => s.address.mentions(variable.name))) return kernel;
  if (read.some((e) => isIndexed(e) && indexOf(e).mentions(variable.name))) return kernel;
  if ([...read, ...summed].some((e) => e.kind === "dynamic" || e.kind === "random")) return kernel;
  if (summed.some((e) => e.kind === "reduced")) return kernel;
  // Sums at several places may share what they read there.
  let next = 1 + Math.max(...[...read, ...summed].map(({ id }) => id));
  const elements = new Map(
    reductions.map(({ slot, dtype, argument }, i): [number, KExpr] => {
      const [, element, zero] = (argument as Extract<KExpr, { kind: "where" }>).args;
      const moved = expressionCopier(new Map([[variable.name, places[i]!]]), () => next++)(element);
      // As sums do, -0 becomes 0.
      return [slot, { id: next++, dtype, kind: "binary", fn: "add", args: [moved, zero] }];
    }),
  );
  const value = expressionCopier(
    new Map(),
    () => next++,
    (expr) => (expr.kind === "reduced" ? elements.get(expr.slot)! : null),
  );
  return {
    ...kernel,
    outer: outer.slice(0, -1),
    inner: outer.slice(-1),
    reductions: [],
    stores: stores.map((s) => ({ ...s, value: value(s.value) })),
    size: kernel.size / variable.size,
  };
}
