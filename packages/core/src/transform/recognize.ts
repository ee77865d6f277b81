// Puts the custom function of attention in the place of the ops that compute it, where a device has kernels for it. Done on
// the user's graph before gradients are taken: the gradient of the custom function is one too. It knows no device, only
// whom to ask, and changes nothing where it finds nothing.
import {
  type AttentionKernel,
  functionOrder,
  type GraphFn,
  inScope,
  isOp,
  type Node,
  recordSite,
  siteOf,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { settings } from "../settings/index.js";
import { attentionNode, swapHeads } from "./attention.js";
import { kernelMask, withClosedRows } from "./attention-mask.js";
import { type AttentionMatch, matchAttention } from "./attention-match.js";
import type { CustomKernelSupport } from "./simplify.js";
import { dependents, rebuild } from "./walk.js";

/** More nodes than this between the two products are somebody else's program. */
const maxBetween = 200;

/** The nodes that the first product leads to before the last one does; null where a result is among them. */
function between(
  { first }: AttentionMatch,
  root: Node,
  usersOf: ReadonlyMap<Node, readonly Node[]>,
  results: ReadonlySet<Node>,
): Set<Node> | null {
  const seen = new Set<Node>([first]);
  for (const node of seen) {
    if (results.has(node) || seen.size > maxBetween) return null;
    for (const user of usersOf.get(node) ?? []) if (user !== root) seen.add(user);
  }
  return seen;
}

function usersIn(order: readonly Node[]): Map<Node, Node[]> {
  const users = new Map<Node, Node[]>();
  for (const node of order)
    for (const input of node.inputs) {
      const known = users.get(input);
      if (known === undefined) users.set(input, [node]);
      else known.push(node);
    }
  return users;
}

/** The custom function that computes a match, and the node that takes the root's place. */
function standIn(match: AttentionMatch, forGradient: boolean): { custom: Node<"custom">; result: Node } {
  const { q, k, v, view } = match;
  const rank = q.shape.length;
  const headed = (x: Node): Node => (rank === 2 ? build.reshape(x, [1, ...x.shape]) : x);
  const mask = kernelMask(match.mask, forGradient);
  const scores = [...headed(q).shape.slice(0, -1), k.shape[rank - 2]];
  const kernel: AttentionKernel = {
    kind: "attention",
    gradient: false,
    packed: false,
    scale: match.scale,
    mask: mask.kind,
    dropout: match.dropout,
    ...(match.precision === undefined ? {} : { precision: match.precision }),
  };
  const inputs = [q, k, v].map((x) => swapHeads(headed(x)));
  if (mask.node !== null) inputs.push(build.expandTo(mask.node, scores));
  if (match.key !== null) inputs.push(match.key);
  const custom = attentionNode(inputs, kernel);
  const result = build.reshape(swapHeads(build.pick(custom, 0)), [...q.shape.slice(0, -1), v.shape[rank - 1]]);
  return { custom, result: view(withClosedRows(result, v, mask.rows)) };
}

/** The function on other nodes where some have stand-ins; stand-ins may be made of nodes that have stand-ins themselves. */
function replaced(fn: GraphFn, standIns: ReadonlyMap<Node, Node>): GraphFn {
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  const inputsOf = (node: Node): readonly Node[] => {
    const other = standIns.get(node);
    return other === undefined ? node.inputs : [other];
  };
  const stack: { node: Node; next: number }[] = [];
  for (const output of fn.outputs) {
    stack.push({ node: output, next: 0 });
    while (stack.length > 0) {
      const top = stack[stack.length - 1];
      const inputs = map.has(top.node) || top.node.value !== null ? [] : inputsOf(top.node);
      if (top.next < inputs.length) stack.push({ node: inputs[top.next++], next: 0 });
      else {
        stack.pop();
        const { node } = top;
        if (map.has(node)) continue;
        const done = inputs.map((input) => map.get(input)!);
        const made = standIns.has(node) ? done[0] : node.value !== null ? node : rebuild(node, done);
        recordSite(made, siteOf(node));
        map.set(node, made);
      }
    }
  }
  return { ...fn, outputs: fn.outputs.map((output) => map.get(output)!) };
}

export interface Recognition {
  /** Asked for once something was found; null: no device wants it. */
  customKernelSupport: () => CustomKernelSupport | null;
  /** A gradient will be taken. */
  gradient?: boolean;
  /** With respect to these: what does not depend on them is left as it is. */
  wrt?: readonly Node[];
}

/** Whether a node depends on one of a set that is closed under users, itself or through nodes that were made just now. */
function dependsOn(node: Node, set: ReadonlySet<Node>, known: ReadonlySet<Node>): boolean {
  return set.has(node) || (!known.has(node) && node.inputs.some((input) => dependsOn(input, set, known)));
}

/** The same function with attention that was written by hand as custom functions; the function itself where there is none. */
export function recognizeAttention(fn: GraphFn, { customKernelSupport, gradient = false, wrt }: Recognition): GraphFn {
  if (!settings.attention.get()) return fn;
  const order = functionOrder(fn);
  const known = new Set([...order, ...fn.params]);
  const params = new Set(fn.params);
  const active = wrt === undefined ? null : dependents(order, wrt);
  const roots = order
    .filter((node) => isOp(node, "matmul"))
    .filter((node) => !params.has(node) && node.value === null && active?.has(node) !== false);
  const matches = roots.flatMap((root) => {
    const match = inScope(root.scope, () => matchAttention(root));
    return match === null ? [] : [{ root, match }];
  });
  const keep = matches.length === 0 ? null : customKernelSupport();
  if (keep === null) return fn;
  const users = usersIn(order);
  const results = new Set([...fn.outputs, ...(fn.effects ?? [])]);
  const standIns = new Map<Node, Node>();
  for (const { root, match } of matches) {
    const { q, k, v, mask, key } = match;
    // The gradient of numbers that are added is as large as the scores: the kernels do not make it.
    if (active !== null && mask.bias !== null && dependsOn(mask.bias, active, known)) continue;
    const inner = between(match, root, users, results);
    const operands = [q, k, v, mask.open, mask.bias, key];
    if (inner === null || operands.some((x) => x !== null && dependsOn(x, inner, known))) continue;
    const { custom, result } = inScope(root.scope, () => standIn(match, gradient));
    if (keep(custom, () => false)) standIns.set(root, result);
  }
  return standIns.size === 0 ? fn : replaced(fn, standIns);
}
