// Joins a short last axis of an element-wise kernel with the axis before it, so that threads still write whole vectors. Examples are pairs of
// neighbors with one source (nearest interpolation, repeat) and the two halves of a complex number. Operand indices are then found by division.
import { loadsUnder } from "./emit-common.js";
import { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel } from "./kernel.js";

/** Axes of at least this many elements are vectorized by themselves. */
const shortAxis = 8;

/** Every expression below the stores of a kernel. */
function expressionsOf({ stores }: LoopKernel): Set<KExpr> {
  const seen = new Set(stores.map(({ value }) => value));
  for (const expr of seen) {
    const guard = expr.kind === "load" && expr.guard !== null ? [expr.guard] : [];
    for (const part of [...("args" in expr ? expr.args : []), ...("dynamic" in expr ? expr.dynamic : []), ...guard])
      seen.add(part);
  }
  return seen;
}

/** Joins the last two variables of a kernel without reductions where all results are written along both. */
export function joinShortAxes(kernel: LoopKernel): void {
  const variables = [...kernel.outer, ...kernel.inner];
  const [a, b] = variables.slice(-2);
  if (kernel.kind !== "rows" || kernel.reductions.length > 0 || b === undefined || b.size >= shortAxis) return;
  if ((a.size * b.size) % 4 !== 0) return;
  const isJoint = kernel.stores.every(
    ({ address }) => address.stride(b.name) === 1 && address.stride(a.name) === b.size,
  );
  // Elements of a pair that lie apart are read by neighboring threads instead.
  const isNear = loadsUnder(kernel.stores.map(({ value }) => value)).every(({ address, dynamic, guard }) => {
    const [outer, inner] = [address.stride(a.name), address.stride(b.name)];
    return dynamic.length === 0 && guard === null && inner === 0 && (outer === 0 || outer === 1);
  });
  if (!isJoint || !isNear) return;
  const joint = { name: a.name, size: a.size * b.size };
  const whole = Ix.variable(joint.name, joint.size);
  const values = new Map([
    [a.name, whole.div(b.size)],
    [b.name, whole.mod(b.size)],
  ]);
  for (const expr of expressionsOf(kernel)) {
    if (expr.kind === "load") expr.address = expr.address.substitute(values);
    if (expr.kind === "index" || expr.kind === "inRange" || expr.kind === "random")
      expr.ix = expr.ix.substitute(values);
  }
  for (const at of [...kernel.stores, ...kernel.loads]) at.address = at.address.substitute(values);
  kernel.outer = variables.slice(0, -2);
  kernel.inner = [joint];
}
