// Replaces ops that compute attention by its custom function, if a device has kernels for it. Runs on the graph of the user before
// gradients are taken, because the gradient of the custom function is a kernel too.
import {
  type AttentionKernel,
  functionOrder,
  type GraphFn,
  inScope,
  isOp,
  type Node,
  recordSite,
  type Shape,
  siteOf,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { settings } from "../settings/index.js";
import { attentionNode, swapHeads } from "./attention.js";
import { kernelMask, withClosedRows } from "./attention-mask.js";
import { type AttentionMatch, matchAttention } from "./attention-match.js";
import type { CustomKernelSupport } from "./simplify.js";
import { dependents, rebuild } from "./walk.js";

/** Maximum number of nodes between the two products. */
const maxBetween = 200;

/** Nodes between the first product and the last one; null if a result is among them. */
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
      const found = users.get(input);
      if (found === undefined) users.set(input, [node]);
      else found.push(node);
    }
  return users;
}

/** A mask of its own size as the kernel takes it: in the shape of the scores, or segment ids of all examples. */
const expandedMask = (node: Node, kind: AttentionKernel["mask"], scores: Shape): Node =>
  build.expandTo(node, kind === "segments" ? [...scores.slice(0, -3), node.shape[node.shape.length - 1]] : scores);

/** The custom function of a match, and the replacement of the root. */
function replacementOf(match: AttentionMatch, forGradient: boolean): { custom: Node<"custom">; result: Node } {
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
    ...mask.band,
    dropout: match.dropout,
    ...(match.precision === undefined ? {} : { precision: match.precision }),
  };
  const inputs = [q, k, v].map((x) => swapHeads(headed(x)));
  if (mask.node !== null) inputs.push(expandedMask(mask.node, mask.kind, scores));
  if (match.key !== null) inputs.push(match.key);
  const custom = attentionNode(inputs, kernel);
  const result = build.reshape(swapHeads(build.pick(custom, 0)), [...q.shape.slice(0, -1), v.shape[rank - 1]]);
  return { custom, result: view(withClosedRows(result, v, mask.rows)) };
}

/** Rebuilds a function with replaced nodes; replacements may depend on replaced nodes. */
function replaced(fn: GraphFn, replacements: ReadonlyMap<Node, Node>): GraphFn {
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  const inputsOf = (node: Node): readonly Node[] => {
    const other = replacements.get(node);
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
        const made = replacements.has(node) ? done[0] : node.value !== null ? node : rebuild(node, done);
        recordSite(made, siteOf(node));
        map.set(node, made);
      }
    }
  }
  return { ...fn, outputs: fn.outputs.map((output) => map.get(output)!) };
}

interface Recognition {
  /** Called after the first match; null: no device has kernels. */
  customKernelSupport: () => CustomKernelSupport | null;
  /** Whether a gradient will be taken. */
  gradient?: boolean;
  /** Differentiation variables; matches that do not depend on them are not replaced. */
  wrt?: readonly Node[];
}

/** Whether a node depends on a set that is closed under users, directly or through new nodes. */
function dependsOn(node: Node, set: ReadonlySet<Node>, known: ReadonlySet<Node>): boolean {
  return set.has(node) || (!known.has(node) && node.inputs.some((input) => dependsOn(input, set, known)));
}

/** Replaces handwritten attention by custom functions; returns the function itself if there is none. */
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
  const replacements = new Map<Node, Node>();
  for (const { root, match } of matches) {
    const { q, k, v, mask, key } = match;
    const inner = between(match, root, users, results);
    const operands = [q, k, v, mask.open, mask.bias, key];
    if (inner === null || operands.some((x) => x !== null && dependsOn(x, inner, known))) continue;
    const { custom, result } = inScope(root.scope, () => replacementOf(match, gradient));
    if (keep(custom)) replacements.set(root, result);
  }
  return replacements.size === 0 ? fn : replaced(fn, replacements);
}
