// Kernels that test every second (third, ...) element, as gradients of windows with steps do: quotients and remainders of the innermost
// variable vanish where one iteration computes that many neighbors, and what is left are ranges and contiguous loads.
import { expressionCopier, expressionsOf, indexOf, isIndexed } from "./expressions.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel } from "./kernel.js";

const maxPhases = 4;
/** Larger kernels would become too long. */
const maxExpressions = 400;
const minIterations = 8;

/** The number of neighbors that one iteration computes; 1 for kernels that gain nothing. */
function phasesOf(kernel: LoopKernel, expressions: ReadonlyMap<number, KExpr>): number {
  const [variable, ...others] = kernel.inner;
  if (kernel.kind !== "rows" || variable === undefined || others.length > 0 || kernel.outer.length === 0) return 1;
  if (kernel.reductions.length + kernel.columnSums.length > 0 || expressions.size > maxExpressions) return 1;
  const steps = new Set<number>();
  for (const expr of expressions.values()) {
    if (expr.kind === "dynamic" || expr.kind === "random") return 1;
    if (isIndexed(expr)) for (const step of indexOf(expr).divisors(variable.name)) steps.add(step);
  }
  const [step = 1] = steps;
  const fits = steps.size === 1 && step <= maxPhases && variable.size % step === 0;
  return fits && variable.size / step >= minIterations ? step : 1;
}

/** The kernel with several neighbors per iteration; itself where that gains nothing. */
export function withPhases(kernel: LoopKernel): LoopKernel {
  const expressions = expressionsOf(kernel.stores);
  const phases = phasesOf(kernel, expressions);
  if (phases === 1) return kernel;
  const [{ name, size }] = kernel.inner;
  const count = size / phases;
  let next = 0;
  const stores = Array.from({ length: phases }, (_, phase) => {
    const at = new Map([[name, Ix.variable(name, count).times(phases).plus(phase)]]);
    const copy = expressionCopier(at, () => next++);
    return kernel.stores.map((s) => ({ ...s, address: s.address.substitute(at), value: copy(s.value) }));
  });
  return { ...kernel, inner: [{ name, size: count }], stores: stores.flat(), size: kernel.size / phases };
}
