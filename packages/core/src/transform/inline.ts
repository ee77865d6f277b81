// Inlines custom functions for which the device has no kernel, and changes nothing else, because partitioned functions must stay
// aligned with those of other devices.
import { functionOrder, type GraphFn, isOp, type Node } from "../graph/index.js";
import type { CustomKernelSupport } from "./simplify.js";
import { instantiate, rebuild } from "./walk.js";

export function inlineCustom(fn: GraphFn, keep: CustomKernelSupport = () => false): GraphFn {
  const order = functionOrder(fn);
  const isInlined = (node: Node): boolean => isOp(node, "custom") && !keep(node);
  if (!order.some(isInlined)) return fn;
  const map = new Map<Node, Node>(fn.params.map((param) => [param, param]));
  const results = new Map<Node, Node[]>();
  for (const node of order) {
    if (map.has(node)) continue;
    const inside = isOp(node, "pick") ? results.get(node.inputs[0])?.[node.attrs.index] : undefined;
    if (inside !== undefined) {
      map.set(node, inside);
      continue;
    }
    const inputs = node.inputs.map((input) => map.get(input)!);
    if (isInlined(node)) results.set(node, instantiate((node as Node<"custom">).attrs.body, inputs));
    map.set(node, isInlined(node) ? node : rebuild(node, inputs));
  }
  // Bodies may have custom functions inside.
  return inlineCustom({ ...fn, outputs: fn.outputs.map((output) => map.get(output)!) }, keep);
}
