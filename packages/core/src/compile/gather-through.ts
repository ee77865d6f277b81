// Cheap values that only gathers read, such as the interpolated rows of an image whose columns are interpolated next: they are computed for
// every element that is taken, instead of written and read again.
import { loopCost } from "../cost/index.js";
import { isHalf, isOp, type Node, numel } from "../graph/index.js";
import { elementwiseOps } from "../ops/index.js";
import { isReduction } from "./fuse-rules.js";
import { isView } from "./views.js";

/**
 * Loads and cost of an element, and the loads of all gathers for each element of the value: fewer where an element has more loads than
 * two, as in gradients of interpolations.
 */
const most = { loads: 4, cost: 24, times: (loads: number): number => (loads > 2 ? 6 : 10) };
/** Operands that are smaller than the value by this factor stay in caches: tables of indices and weights. */
const smaller = 64;

/** What the fuser knows so far. */
interface FusionState {
  params: ReadonlySet<Node>;
  stored: ReadonlySet<Node>;
  /** Computed wherever they are read. */
  free: ReadonlySet<Node>;
  /** Values for which this was found true. */
  through: ReadonlySet<Node>;
}

/**
 * Whether a value is computed where gathers read it.
 *
 * @param reads - The number of elements that all gathers take.
 * @param users - What reads the value.
 */
export function isGatheredThrough(source: Node, reads: number, users: readonly Node[], state: FusionState): boolean {
  const { params, stored, free, through } = state;
  if (isReduction(source) || stored.has(source) || isHalf(source.dtype)) return false;
  if (!users.every((user) => isOp(user, "gather") && user.inputs[0] === source)) return false;
  let [loads, cost] = [0, 0];
  const seen = new Set<Node>();
  const stack = [source];
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (seen.has(at) || free.has(at)) continue;
    seen.add(at);
    const isMemory = at !== source && (params.has(at) || stored.has(at));
    if (isMemory || !(elementwiseOps.has(at.op) || isView(at))) {
      if (numel(at.shape) * smaller > numel(source.shape)) loads++;
      continue;
    }
    // Draws are made once, and tests of indices are not repeated.
    if (isReduction(at) || at.op === "random" || at.op === "pad" || at.op === "concat") return false;
    if (!isView(at)) cost += loopCost(at);
    if (isOp(at, "gather")) {
      const [from, ...indices] = at.inputs;
      if (through.has(from)) loads += most.loads / 2;
      else if (params.has(from) || stored.has(from)) loads++;
      else return false;
      stack.push(...indices);
    } else stack.push(...at.inputs);
  }
  return loads <= most.loads && cost <= most.cost && loads * reads <= most.times(loads) * numel(source.shape);
}
