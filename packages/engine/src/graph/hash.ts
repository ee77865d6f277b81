// The structural key of a graph: equal for graphs that compute the same thing in the same way, whatever their node ids.
import { createHash } from "node:crypto";
import { functionOrder, type GraphFn, type Node } from "./node.js";

const bodyKeys = new WeakMap<GraphFn, string>();

/** Attributes as text. Barriers are numbered as they come: two recomputations differ, which ones they are does not matter. */
function attrsKey(node: Node, barriers: Map<number, number>): string {
  return JSON.stringify(node.attrs, (key, value) => {
    if (key === "body") return structuralKey(value as GraphFn);
    // A rule is how a gradient is found, not what is computed.
    if (key === "name" || key === "rule") return undefined;
    if (key === "tag") {
      if (!barriers.has(value)) barriers.set(value, barriers.size);
      return barriers.get(value);
    }
    if (typeof value === "number" && !Number.isFinite(value)) return String(value);
    if (Object.is(value, -0)) return "-0";
    return value;
  });
}

/** A short digest of the graph's structure: ops, attributes, wiring, shapes and dtypes. */
export function structuralKey(fn: GraphFn): string {
  const known = bodyKeys.get(fn);
  if (known !== undefined) return known;
  const key = digest(fn, true);
  bodyKeys.set(fn, key);
  return key;
}

/** The same without the values of constants (those inside loop bodies count): equal where only numbers differ. */
export const skeletonKey = (fn: GraphFn): string => digest(fn, false);

function digest(fn: GraphFn, withConstants: boolean): string {
  const numbers = new Map<Node, number>();
  const barriers = new Map<number, number>();
  const hash = createHash("sha256");
  fn.params.forEach((param, i) => {
    numbers.set(param, i);
    hash.update(`p${param.dtype}${param.shape};`);
  });
  for (const node of functionOrder(fn)) {
    if (numbers.has(node)) continue;
    const attrs = node.op === "const" && !withConstants ? node.dtype : attrsKey(node, barriers);
    const scope = node.scope === null ? "" : `@${node.scope.name}${node.scope.backward ? "'" : ""}`;
    hash.update(`${node.op}(${node.inputs.map((input) => numbers.get(input)).join(",")})${attrs}${scope};`);
    numbers.set(node, numbers.size);
  }
  hash.update(`>${fn.outputs.map((output) => numbers.get(output)).join(",")}`);
  return hash.digest("hex").slice(0, 32);
}
