// The variables of a kernel's loops: merging those that every address traverses as one, and dividing one for more iterations.
import { Ix } from "./index-expr.js";
import type { KExpr, LoopVariable, Reduction, Store } from "./kernel.js";

/** Every address in the kernel, as cells that can be rewritten. */
export function indexCells(expressions: readonly KExpr[], stores: readonly Store[], reductions: readonly Reduction[]) {
  const cells: { get: () => Ix; set: (ix: Ix) => void }[] = [];
  for (const e of expressions) {
    if (e.kind === "load")
      cells.push({
        get: () => e.address,
        set: (ix) => {
          e.address = ix;
        },
      });
    if (e.kind === "index" || e.kind === "inRange" || e.kind === "random")
      cells.push({
        get: () => e.ix,
        set: (ix) => {
          e.ix = ix;
        },
      });
  }
  for (const s of stores)
    cells.push({
      get: () => s.address,
      set: (ix) => {
        s.address = ix;
      },
    });
  for (const r of reductions)
    if (r.fn === "argmax" || r.fn === "argmin")
      cells.push({
        get: () => r.position,
        set: (ix) => {
          r.position = ix;
        },
      });
  return cells;
}

/** Merges adjacent variables that every address traverses as one. */
export function collapse(variables: LoopVariable[], cells: ReturnType<typeof indexCells>): LoopVariable[] {
  const result = [...variables];
  for (let i = result.length - 2; i >= 0; i--) {
    const [a, b] = [result[i], result[i + 1]];
    const joint = cells.every(({ get }) => {
      const [outer, inner] = [get().stride(a.name), get().stride(b.name)];
      return outer !== null && inner !== null && outer === inner * b.size;
    });
    if (!joint) continue;
    const merged = { name: a.name, size: a.size * b.size };
    rewrite(cells, a.name, b.name, merged);
    result.splice(i, 2, merged);
  }
  return result;
}

/** a * (size of b) + b becomes one variable with the name of a. */
function rewrite(cells: ReturnType<typeof indexCells>, a: string, b: string, merged: LoopVariable): void {
  for (const cell of cells) {
    const ix = cell.get();
    const step = ix.stride(b)!;
    const cleared = ix.substitute(
      new Map([
        [a, Ix.zero],
        [b, Ix.zero],
      ]),
    );
    cell.set(cleared.add(Ix.variable(merged.name, merged.size).times(step)));
  }
}

/** Splits a variable into count pieces, so that there are enough independent iterations. */
export function splitVariable(
  cells: ReturnType<typeof indexCells>,
  v: LoopVariable,
  count: number,
): [LoopVariable, LoopVariable] {
  const piece = v.size / count;
  const outer = { name: `${v.name}o`, size: count };
  const inner = { name: `${v.name}i`, size: piece };
  const whole = Ix.variable(outer.name, count).times(piece).add(Ix.variable(inner.name, piece));
  for (const cell of cells) cell.set(cell.get().substitute(new Map([[v.name, whole]])));
  return [outer, inner];
}

/** Sorts variables (outermost first) into three parts by their stride in the domain. */
export function partition(
  variables: LoopVariable[],
  size: number,
  partOf: (stride: number) => number,
): LoopVariable[][] {
  const parts: LoopVariable[][] = [[], [], []];
  let stride = size;
  for (const v of variables) {
    stride /= v.size;
    parts[partOf(stride)].push(v);
  }
  return parts;
}
