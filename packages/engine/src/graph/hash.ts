// The structural key of a graph: equal for graphs that compute the same thing in the same way, whatever their node ids.
import { createHash } from "node:crypto";
import { functionOrder, type GraphFn, type Node } from "./node.js";

const bodyKeys = new WeakMap<GraphFn, string>();

function attrsKey(node: Node): string {
  return JSON.stringify(node.attrs, (key, value) => {
    if (key === "body") return structuralKey(value as GraphFn);
    if (key === "rule") return (value as { id: number }).id;
    if (key === "name") return undefined;
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    if (Object.is(value, -0)) return "-0";
    return value;
  });
}

/** A short digest of the graph's structure: ops, attributes, wiring, shapes and dtypes. */
export function structuralKey(fn: GraphFn): string {
  const known = bodyKeys.get(fn);
  if (known !== undefined) return known;
  const numbers = new Map<Node, number>();
  const hash = createHash("sha256");
  fn.params.forEach((param, i) => {
    numbers.set(param, i);
    hash.update(`p${param.dtype}${param.shape};`);
  });
  for (const node of functionOrder(fn)) {
    if (numbers.has(node)) continue;
    hash.update(`${node.op}(${node.inputs.map((input) => numbers.get(input)).join(",")})${attrsKey(node)};`);
    numbers.set(node, numbers.size);
  }
  hash.update(`>${fn.outputs.map((output) => numbers.get(output)).join(",")}`);
  const key = hash.digest("hex").slice(0, 32);
  bodyKeys.set(fn, key);
  return key;
}
