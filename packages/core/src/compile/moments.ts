// Means and variances in one pass over memory. A sum of squared deviations from the mean needs the mean first, so that its operand would be read
// twice. Long reductions are divided into pieces whose sums and squared deviations are joined (Chan's formula); kernels reduce a piece by
// Welford's recurrence. Both are as accurate as two passes.
import { isOp, keepAxes, kindOf, type Node, numel } from "../graph/index.js";
import { build } from "../ops/index.js";
import { uniformValue } from "../transform/index.js";

/** The sum over the elements of a mean, if a node divides one by their number. */
function totalOf(center: Node, count: number): Node<"reduce"> | null {
  let [at, isDivided] = [center, false];
  for (;;) {
    if (isOp(at, "reduce")) return isDivided && at.attrs.fn === "sum" ? at : null;
    if (isOp(at, "reshape")) {
      [at] = at.inputs;
      continue;
    }
    if (isDivided || !isOp(at, "binary")) return null;
    const [a, b] = at.inputs;
    const factor = Number(uniformValue(b));
    const isMean = at.attrs.fn === "div" ? factor === count : at.attrs.fn === "mul" && isInverse(factor, count);
    if (!isMean) return null;
    [at, isDivided] = [a, true];
  }
}

const isInverse = (factor: number, count: number): boolean => factor === 1 / count || factor === Math.fround(1 / count);

/** A sum of squared deviations from the mean over the same axes: the operand and its sum. Null for other nodes. */
export function deviationsOf(node: Node): { x: Node; total: Node<"reduce"> } | null {
  if (!isOp(node, "reduce") || node.attrs.fn !== "sum" || kindOf(node.dtype) !== "float") return null;
  const [square] = node.inputs;
  if (!isOp(square, "binary") || square.attrs.fn !== "mul" || square.inputs[0] !== square.inputs[1]) return null;
  const [deviation] = square.inputs;
  if (!isOp(deviation, "binary") || deviation.attrs.fn !== "sub") return null;
  const [x, center] = deviation.inputs;
  const { axes } = node.attrs;
  if (!isOp(center, "expand")) return null;
  const [kept] = center.inputs;
  if (kept.shape.some((n, i) => n !== (axes.includes(i) ? 1 : x.shape[i]))) return null;
  const total = totalOf(kept, numel(axes.map((a) => x.shape[a])));
  if (total === null || total.inputs[0] !== x || total.attrs.axes.join() !== axes.join()) return null;
  return { x, total };
}

/** A sum and the sum of squared deviations from the mean. */
export interface Moments {
  total: Node;
  spread: Node;
}

/** Means, as large as what they are subtracted from. */
function centerOf(total: Node, x: Node, axes: readonly number[]): Node {
  const count = numel(axes.map((a) => x.shape[a]));
  const kept = build.reshape(total, keepAxes(x.shape, axes));
  return build.expand(build.div(kept, build.fullLike(kept, count)), x.shape);
}

/** Sums of x and of squared deviations, as kernels reduce them. */
export function plainMoments(x: Node, axes: readonly number[]): Moments {
  const total = build.reduce("sum", x, axes);
  const deviation = build.sub(x, centerOf(total, x, axes));
  return { total, spread: build.reduce("sum", build.mul(deviation, deviation), axes) };
}

/** The moments of all pieces of `length` elements each, from the sum of their squared deviations and the moments of their sums. */
export function joinMoments(within: Node, between: Moments, length: number): Moments {
  const apart = build.div(between.spread, build.fullLike(between.spread, length));
  return { total: between.total, spread: build.add(within, apart) };
}
