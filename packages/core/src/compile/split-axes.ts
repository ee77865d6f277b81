// Splits the innermost loop variable of an element-wise kernel where operand addresses divide it, as after a permutation of joined axes. Loops
// then run over each part, because compilers do not vectorize divisions in addresses.
import { expressionCopier, expressionsOf, indexOf, isIndexed } from "./expressions.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel } from "./kernel.js";

/** Elements of an inner loop from which it is worth having. */
const minInner = 16;

/** The parts of a variable by the largest divisor that splits it evenly; null where there is none. */
function divisorOf(kernel: LoopKernel, expressions: Iterable<KExpr>): number | null {
  const [{ name, size }] = kernel.inner;
  const steps = new Set<number>(kernel.stores.flatMap(({ address }) => address.divisors(name)));
  for (const expr of expressions) {
    if (expr.kind === "dynamic" || expr.kind === "random") return null;
    if (isIndexed(expr)) for (const step of indexOf(expr).divisors(name)) steps.add(step);
  }
  const even = [...steps].filter((step) => step >= minInner && step < size && size % step === 0);
  return even.length === 0 ? null : Math.max(...even);
}

/** The kernel with its innermost variable in parts that are not divided; itself where that does not help. */
export function withSplitAxes(kernel: LoopKernel): LoopKernel {
  if (kernel.kind !== "rows" || kernel.inner.length !== 1) return kernel;
  if (kernel.reductions.length + kernel.columnSums.length > 0) return kernel;
  const step = divisorOf(kernel, expressionsOf(kernel.stores).values());
  if (step === null) return kernel;
  const [{ name, size }] = kernel.inner;
  const [whole, part] = [
    { name: `${name}o`, size: size / step },
    { name: `${name}i`, size: step },
  ];
  const at = new Map([[name, Ix.variable(whole.name, whole.size).times(step).add(Ix.variable(part.name, part.size))]]);
  const copy = expressionCopier(at, ({ id }) => id);
  const stores = kernel.stores.map((s) => ({ ...s, address: s.address.substitute(at), value: copy(s.value) }));
  return withSplitAxes({ ...kernel, outer: [...kernel.outer, whole], inner: [part], stores });
}
