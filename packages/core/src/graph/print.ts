// Graphs as readable text: one line per node, nested functions indented below their loop.

import { functionOrder, type GraphFn, isOp, type Node, outputAvals, showAval } from "./node.js";
import type { OpAttrs, Scalar } from "./op.js";

const showScalar = (value: Scalar): string =>
  typeof value === "number" ? String(value) : `${value.re}${value.im < 0 ? "" : "+"}${value.im}i`;

/** `allGather axis=0 sizes=[2,1] of [0,1] #3`: only the attributes that the kind uses. */
function showCollective(attrs: OpAttrs["collective"]): string {
  const { kind, fn, groups, rank, axis, splitAxis, sizes, splitSizes, sends, receives, sequence } = attrs;
  const boxes = (list: typeof sends): string =>
    list.map((t) => `${t.rank}:[${t.start.map((s, i) => `${s}..${t.stop[i]}`)}]`).join(" ");
  const parts: Record<typeof kind, string> = {
    allReduce: fn,
    allGather: `axis=${axis} sizes=[${sizes}]`,
    reduceScatter: `${fn} axis=${axis} sizes=[${sizes}]`,
    allToAll: `splitAxis=${splitAxis} splitSizes=[${splitSizes}] axis=${axis} sizes=[${sizes}]`,
    exchange: `sends ${boxes(sends)} receives ${boxes(receives)}`,
  };
  return `${kind} ${parts[kind]} of [${groups.find((group) => group.includes(rank)) ?? ""}] #${sequence}`;
}

function showAttrs(node: Node): string {
  if (isOp(node, "const")) return showScalar(node.attrs.value);
  if (isOp(node, "collective")) return showCollective(node.attrs);
  if (isOp(node, "custom")) return node.attrs.rule.name;
  const parts: string[] = [];
  for (const [key, value] of Object.entries(node.attrs as Record<string, unknown>)) {
    if (key === "shape" || key === "dtype" || key === "body" || key === "tag") continue;
    if (value === false || value === "") continue;
    parts.push(key === "fn" ? String(value) : `${key}=${Array.isArray(value) ? `[${value}]` : String(value)}`);
  }
  return parts.join(" ");
}

/** `%3 = matmul(%1, %2)  : float32[4, 5]` for every node, and the results last. */
export function printGraph(fn: GraphFn, indent = ""): string {
  const order = functionOrder(fn);
  const names = new Map<Node, string>();
  fn.params.forEach((param, i) => {
    names.set(param, `a${i}`);
  });
  let count = 0;
  const lines: string[] = [];
  const params = fn.params.map((p, i) => `a${i}: ${showAval(p)}`).join(", ");
  lines.push(`${indent}(${params}) {`);
  for (const node of order) {
    if (names.has(node)) continue;
    const name = `%${count++}`;
    names.set(node, name);
    const inputs = node.inputs.map((input) => names.get(input) ?? "?");
    const attrs = showAttrs(node);
    const args = [inputs.join(", "), attrs].filter((s) => s !== "").join("; ");
    lines.push(`${indent}  ${name} = ${node.op}(${args}) : ${outputAvals(node).map(showAval).join(", ")}`);
    if (isOp(node, "scan") || isOp(node, "custom")) lines.push(printGraph(node.attrs.body, `${indent}    `));
  }
  lines.push(`${indent}  return ${fn.outputs.map((o) => names.get(o)).join(", ")}`);
  lines.push(`${indent}}`);
  return lines.join("\n");
}
