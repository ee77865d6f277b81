// Rewrites the graph of a training step for a plan: parameters that are split over ranks are gathered separately in the
// forward and in the backward pass, and activations of chosen segments are rematerialized in the backward pass.
import { functionOrder, type GraphFn, InternalError, type Node } from "../graph/index.js";
import { rebuild } from "../transform/index.js";
import { markNode, markOf } from "./marks.js";

/** Which parameters and state of a step belong together, as indices of the function's parameters. */
export interface StepRoles {
  /** Parameters of the model. */
  params: readonly number[];
  /** Optimizer state of each of them, of the same shape. */
  states: readonly (readonly number[])[];
  /** Inputs whose first dimension is the rows of the batch. */
  batch: readonly number[];
}

export type Phase = "forward" | "backward" | "update";

/** The parts of a step: what the loss depends on, what the gradients depend on besides, and the rest. */
export function phasesOf(fn: GraphFn): { order: Node[]; phaseOf: (node: Node) => Phase } {
  const order = functionOrder(fn);
  const marked = (kind: string): Node[] => order.filter((node) => markOf(node)?.kind === kind);
  const losses = marked("loss");
  if (losses.length === 0) throw new InternalError("the step has no marked loss");
  const forward = ancestors(losses, fn);
  const gradients = marked("gradient");
  // Without an update everything else belongs to the gradients.
  const backward = gradients.length === 0 ? new Set(order) : ancestors(gradients, fn);
  return { order, phaseOf: (node) => (forward.has(node) ? "forward" : backward.has(node) ? "backward" : "update") };
}

/** The nodes that others depend on, themselves included. */
function ancestors(of: readonly Node[], { params }: GraphFn): Set<Node> {
  const found = new Set<Node>();
  const leaves = new Set(params);
  const stack = [...of];
  while (stack.length > 0) {
    const node = stack.pop()!;
    if (found.has(node)) continue;
    found.add(node);
    if (!leaves.has(node)) stack.push(...node.inputs);
  }
  return found;
}

/** What a plan changes in the graph. */
interface StepChanges {
  /** Numbers of the parameters that are gathered where they are used. */
  gathered: ReadonlySet<number>;
  /** Segment of each forward node whose values are rematerialized; -1: its value is stored. */
  segmentOf(node: Node): number;
}

/** The rewritten step. `origin` gives the node of the original step that a node computes. */
export function rewriteStep(
  fn: GraphFn,
  roles: StepRoles,
  changes: StepChanges,
): { fn: GraphFn; origin: ReadonlyMap<Node, Node> } {
  const { order, phaseOf } = phasesOf(fn);
  const origin = new Map<Node, Node>(fn.params.map((param) => [param, param]));
  const made = new Map<Node, Node>(fn.params.map((param) => [param, param]));
  const used = new Map<string, Node>();
  const parameter = new Map(roles.params.map((at, i) => [fn.params[at], i]));
  const note = (copy: Node, node: Node): Node => {
    if (!origin.has(copy)) origin.set(copy, node);
    return copy;
  };
  const once = (key: string, make: () => Node): Node => {
    let found = used.get(key);
    if (found === undefined) used.set(key, (found = make()));
    return found;
  };
  let saved = 0;
  /** A parameter as a pass uses it. */
  const asUsed = (param: Node, phase: Phase): Node | null => {
    const index = parameter.get(param);
    if (index === undefined || !changes.gathered.has(index) || phase === "update") return null;
    return once(`${phase}${index}`, () => {
      // A barrier before the gather, too: both passes would share one gather of the same value, and hold what it gives.
      const own = phase === "forward" ? param : markNode(param, "saved", saved++);
      return note(markNode(own, phase, index), param);
    });
  };
  /** The value of a forward node for the backward pass of a segment: computed again, or stored. */
  const again = (root: Node): Node => {
    const segment = changes.segmentOf(root);
    if (segment < 0) return made.get(root)!;
    const stack = [root];
    while (stack.length > 0) {
      const node = stack[stack.length - 1];
      const key = `${segment}:${node.id}`;
      if (used.has(key)) {
        stack.pop();
        continue;
      }
      const inner = node.inputs.filter((x) => changes.segmentOf(x) === segment && !used.has(`${segment}:${x.id}`));
      if (inner.length > 0) {
        stack.push(...inner);
        continue;
      }
      stack.pop();
      const inputs = node.inputs.map((x) => {
        if (changes.segmentOf(x) === segment) return used.get(`${segment}:${x.id}`)!;
        const param = asUsed(x, "backward");
        if (param !== null) return param;
        // Without a barrier the copy would be merged with the first computation.
        if (x.inputs.length === 0 && !origin.has(x)) return made.get(x)!;
        return once(`saved${segment}:${x.id}`, () => note(markNode(made.get(x)!, "saved", saved++), x));
      });
      used.set(key, note(rebuild(node, inputs), node));
    }
    return used.get(`${segment}:${root.id}`)!;
  };
  for (const node of order) {
    if (made.has(node)) continue;
    const phase = phaseOf(node);
    const inputs = node.inputs.map((x) => {
      if (phase !== "forward" && phaseOf(x) === "forward" && !parameter.has(x)) return again(x);
      return asUsed(x, phase) ?? made.get(x)!;
    });
    made.set(node, note(rebuild(node, inputs), node));
  }
  return { fn: { ...fn, outputs: fn.outputs.map((output) => made.get(output)!) }, origin };
}
