// Graph walks shared by the transforms: dependence, copies, and instantiation of function bodies.
import {
  functionOrder,
  type GraphFn,
  InternalError,
  inScope,
  isOp,
  type Node,
  numel,
  type OpName,
  type Scalar,
  topological,
} from "../graph/index.js";
import { build } from "../ops/index.js";

/** The nodes among `order` (inputs first) that depend on one of the sources, the sources included. */
export function dependents(order: readonly Node[], sources: Iterable<Node>): Set<Node> {
  const found = new Set<Node>(sources);
  for (const node of order) if (!found.has(node) && node.inputs.some((input) => found.has(input))) found.add(node);
  return found;
}

/**
 * The nodes that must come after one of the sources, which are included: those that depend on it, and what depends on a collective
 * that all devices issue after one of these. For passes that compute several nodes as one: what the one reads must not be among
 * them. `order` is that of `functionOrder`.
 */
export function followers(order: readonly Node[], sources: Iterable<Node>): Set<Node> {
  const found = new Set<Node>(sources);
  let issued = false;
  for (const node of order) {
    const follows: boolean = node.inputs.some((input) => found.has(input)) || (issued && node.op === "collective");
    if (follows) found.add(node);
    issued ||= follows && node.op === "collective";
  }
  return found;
}

/** The value of a node that is constant over all elements, or null. */
export function uniformValue(node: Node): Scalar | null {
  let at = node;
  while (at.op === "expand" || at.op === "reshape" || at.op === "permute" || at.op === "slice" || at.op === "flip")
    at = at.inputs[0];
  return isOp(at, "const") ? at.attrs.value : null;
}

/** Copies a node with other inputs. */
export function rebuild(node: Node, inputs: readonly Node[]): Node {
  if (inputs.every((input, i) => input === node.inputs[i])) return node;
  return inScope(node.scope, () => build.withInputs(node, inputs));
}

/**
 * Copies a function. The nodes of user tensors become leaves when they are computed, and they hold values, so compiled functions
 * and loop bodies, which outlive a run, must not share them.
 */
export function copyGraph(fn: GraphFn): GraphFn {
  const params = fn.params.map((p) => build.input(p.shape, p.dtype));
  const map = new Map<Node, Node>(fn.params.map((p, i) => [p, params[i]]));
  for (const node of functionOrder(fn)) if (!map.has(node)) map.set(node, copyNode(node, map));
  return { params, outputs: fn.outputs.map((output) => map.get(output)!) };
}

const copyNode = (node: Node, map: ReadonlyMap<Node, Node>): Node =>
  inScope(node.scope, () =>
    build.withInputs(
      node,
      node.inputs.map((input) => map.get(input)!),
    ),
  );

/** Builds the results of a function for the given arguments. */
export function instantiate(fn: GraphFn, args: readonly Node[]): Node[] {
  if (args.length !== fn.params.length)
    throw new InternalError(`a function of ${fn.params.length} parameters got ${args.length}`);
  const map = new Map<Node, Node>(fn.params.map((param, i) => [param, args[i]]));
  for (const node of functionOrder(fn)) {
    if (!map.has(node))
      map.set(
        node,
        rebuild(
          node,
          node.inputs.map((input) => map.get(input)!),
        ),
      );
  }
  return fn.outputs.map((output) => map.get(output)!);
}

const cheapOps: ReadonlySet<OpName> = new Set([
  "const",
  "iota",
  "unary",
  "binary",
  "where",
  "cast",
  "reshape",
  "permute",
  "expand",
  "slice",
  "pad",
  "flip",
] as const);

/** Whether a node is inexpensive to compute from much smaller nodes, which are then captured instead of it. */
function isBroadcast(node: Node): boolean {
  let leaves = 0;
  const seen = new Set<Node>();
  const stack = [{ at: node, most: Number.POSITIVE_INFINITY }];
  while (stack.length > 0) {
    const { at, most } = stack.pop()!;
    if (seen.has(at)) continue;
    seen.add(at);
    if (seen.size > 64) return false;
    const count = Math.min(most, numel(at.shape));
    // Of a slice, what it reads counts, not the tensor behind it.
    const bound = at.op === "slice" || at.op === "reshape" ? count : Number.POSITIVE_INFINITY;
    if (at.value === null && cheapOps.has(at.op)) stack.push(...at.inputs.map((x) => ({ at: x, most: bound })));
    else leaves += count;
  }
  return leaves * 4 <= numel(node.shape) && cheapOps.has(node.op) && node.value === null;
}

/** Rebuilds the inexpensive ops of a node on other leaves. */
function rebuildFrom(node: Node, use: (leaf: Node) => Node): Node {
  const isOwn = (at: Node): boolean => at.value === null && cheapOps.has(at.op);
  const made = new Map<Node, Node>();
  for (const at of topological([node], (n) => !isOwn(n)))
    made.set(
      at,
      isOwn(at)
        ? build.withInputs(
            at,
            at.inputs.map((x) => made.get(x)!),
          )
        : use(at),
    );
  return made.get(node)!;
}

/**
 * Turns outputs into a closed function of everything that was built before the node with id `mark`, so that nothing of the
 * function is computed outside of it. `params` are placeholders of the function itself; they come last.
 */
export function closeOverNew(outputs: readonly Node[], mark: number, params: readonly Node[]): Closed {
  const own = new Set(params);
  const isOld = (node: Node): boolean => (node.id < mark || node.value !== null) && !own.has(node);
  const map = new Map<Node, Node>(params.map((param) => [param, param]));
  const captured: Node[] = [];
  for (const node of topological(outputs, (at) => isOld(at) || own.has(at))) {
    if (map.has(node)) continue;
    if (isOld(node) && node.op !== "const") {
      // Results of a node with several are captured one by one.
      if (node.outputs !== null) continue;
      captured.push(node);
      map.set(node, build.input(node.shape, node.dtype, "captured"));
    } else if (isOp(node, "pick") && !map.has(node.inputs[0])) {
      captured.push(node);
      map.set(node, build.input(node.shape, node.dtype, "captured"));
    } else map.set(node, copyNode(node, map));
  }
  return {
    fn: { params: [...captured.map((node) => map.get(node)!), ...params], outputs: outputs.map((o) => map.get(o)!) },
    captured,
  };
}

interface Closed {
  fn: GraphFn;
  /** Captured nodes; they are the first parameters. */
  captured: Node[];
}

/**
 * Turns outputs that were traced from placeholders into a closed function: nodes that do not depend on a placeholder are computed
 * outside, once, and passed in. Nodes that consist of constants and iotas (masks, identities) stay inside and fuse with their
 * users.
 */
export function closeOver(outputs: readonly Node[], params: readonly Node[]): Closed {
  const own = new Set(params);
  const order = topological(outputs, (node) => own.has(node) || node.value !== null);
  const inside = dependents(order, params);
  const stays = new Set<Node>();
  for (const node of order) {
    if (inside.has(node)) continue;
    if (node.value === null && cheapOps.has(node.op) && node.inputs.every((input) => stays.has(input))) stays.add(node);
  }
  const captured: Node[] = [];
  const map = new Map<Node, Node>();
  for (const node of order) if (stays.has(node)) map.set(node, copyNode(node, map));
  const outsideParams: Node[] = [];
  const use = (node: Node): Node => {
    const found = map.get(node);
    if (found !== undefined) return found;
    if (inside.has(node)) return node;
    if (isBroadcast(node)) {
      const again = rebuildFrom(node, use);
      map.set(node, again);
      return again;
    }
    if (node.outputs !== null) throw new InternalError(`a function captured the tuple of ${node.op}`);
    const param = build.input(node.shape, node.dtype, "captured");
    captured.push(node);
    outsideParams.push(param);
    map.set(node, param);
    return param;
  };
  for (const node of order) {
    if (own.has(node)) continue;
    if (inside.has(node)) map.set(node, rebuild(node, node.inputs.map(use)));
  }
  const results = outputs.map((output) => (own.has(output) ? output : use(output)));
  return { fn: { params: [...outsideParams, ...params], outputs: results }, captured };
}
