// Structural key of a graph: equal for graphs that compute the same results in the same way, independent of node ids.
import { hash } from "node:crypto";
import { functionOrder, type GraphFn, type Node } from "./node.js";

const bodyKeys = new WeakMap<GraphFn, string>();

/**
 * Attributes as text. Barriers are numbered in order of occurrence, so that their tags do not matter. Hand-written instead of
 * JSON.stringify with a replacer, because programs without jit compute their key at every run.
 */
function attrsKey(value: unknown, barriers: Map<number, number>): string {
  if (typeof value === "number") return Object.is(value, -0) ? "-0" : String(value);
  if (typeof value !== "object" || value === null) return JSON.stringify(value) ?? "";
  let text = "";
  if (Array.isArray(value)) {
    for (const item of value) text += `${attrsKey(item, barriers)},`;
    return `[${text}]`;
  }
  for (const key in value) {
    const item = (value as Record<string, unknown>)[key];
    // A rule defines the gradient, not the result.
    if (item === undefined || key === "name" || key === "rule") continue;
    if (key === "body") text += structuralKey(item as GraphFn);
    else if (key === "tag") text += numbered(item as number, barriers);
    else text += `${key}:${attrsKey(item, barriers)};`;
  }
  return `{${text}}`;
}

function numbered(tag: number, barriers: Map<number, number>): number {
  if (!barriers.has(tag)) barriers.set(tag, barriers.size);
  return barriers.get(tag)!;
}

/** Text that identifies the structure of a graph: ops, attributes, edges, shapes and dtypes. */
export function structuralKey(fn: GraphFn): string {
  const known = bodyKeys.get(fn);
  if (known !== undefined) return known;
  const key = digest(fn, true);
  bodyKeys.set(fn, key);
  return key;
}

/** Like structuralKey, but without the values of constants outside loop bodies. */
export const skeletonKey = (fn: GraphFn): string => digest(fn, false);

function digest(fn: GraphFn, withConstants: boolean): string {
  const numbers = new Map<Node, number>();
  const barriers = new Map<number, number>();
  let text = "";
  for (const param of fn.params) {
    numbers.set(param, numbers.size);
    text += `p${param.dtype}${param.shape};`;
  }
  for (const node of functionOrder(fn)) {
    if (numbers.has(node)) continue;
    let inputs = "";
    for (const input of node.inputs) inputs += `${numbers.get(input)},`;
    const attrs = node.op === "const" && !withConstants ? node.dtype : attrsKey(node.attrs, barriers);
    const scope = node.scope === null ? "" : `@${node.scope.name}${node.scope.backward ? "'" : ""}`;
    text += `${node.op}(${inputs})${attrs}${scope};`;
    numbers.set(node, numbers.size);
  }
  text += `>${fn.outputs.map((output) => numbers.get(output)).join(",")}`;
  // Small programs outside jit compute their key at every run: the text itself is quicker than its digest.
  return text.length <= 160 ? text : hash("sha256", text, "hex").slice(0, 32);
}
