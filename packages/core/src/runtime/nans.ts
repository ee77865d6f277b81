// Finds the op that makes the first NaN or infinity. Before a run, a second program computes for every node of the graph whether it
// holds one; the first such node whose operands hold none is reported, with the line of the user's program.
import {
  functionOrder,
  type GraphFn,
  isComplex,
  isInexact,
  type Node,
  showAval,
  siteOf,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { instantiate } from "../transform/index.js";
import { memoryManager } from "./memory.js";

/** What is looked for: each kind on its own. */
const searched = { nan: false, infinity: false };

export const isSearching = (): boolean => searched.nan || searched.infinity;

/** Turns a search on or off. Lines of the user's program are recorded while one is on. */
export function setSearch(kind: keyof typeof searched, on: boolean): void {
  searched[kind] = on;
  if (on) memoryManager.recordSites = true;
}

const isChecked = (node: Node): boolean => node.outputs === null && isInexact(node.dtype) && node.op !== "const";

/** 1 if an element of a node is one of the numbers that are looked for. */
function found(node: Node): Node {
  const parts = isComplex(node.dtype) ? [build.unary("real", node), build.unary("imag", node)] : [node];
  const tests = parts.flatMap((part) => {
    const isNaN = build.cast(build.unary("isnan", part), "int32");
    const isFinite = build.cast(build.unary("isfinite", part), "int32");
    const one = build.expandTo(build.constant(1, "int32"), part.shape);
    // Not finite and not NaN.
    const isInfinite = build.sub(build.sub(one, isFinite), isNaN);
    return [...(searched.nan ? [isNaN] : []), ...(searched.infinity ? [isInfinite] : [])];
  });
  const any = tests.reduce((a, b) => build.binary("max", a, b));
  return build.reduce(
    "max",
    any,
    any.shape.map((_, axis) => axis),
  );
}

/** The function whose results say which of these nodes hold such numbers: parameters first, then nodes in order. */
export function searchFunction(fn: GraphFn): { nodes: Node[]; flags: GraphFn } {
  const params = fn.params.map((param) => build.input(param.shape, param.dtype));
  const nodes = functionOrder(fn).filter((node) => isChecked(node) && node.shape.every((size) => size > 0));
  const copies = instantiate({ params: fn.params, outputs: nodes }, params);
  return { nodes, flags: { params, outputs: copies.map(found) } };
}

/** The nearest recorded line: of the node, of what is computed from it, or of what it is computed from. */
function lineOf(fn: GraphFn, node: Node): string {
  const own = siteOf(node);
  if (own !== null) return ` at ${own}`;
  const after = new Set([node]);
  for (const user of functionOrder(fn)) {
    if (!user.inputs.some((input) => after.has(input))) continue;
    after.add(user);
    const site = siteOf(user);
    if (site !== null) return `, for the result at ${site}`;
  }
  for (const queue = [...node.inputs], seen = new Set(queue); queue.length > 0; ) {
    const next = queue.shift()!;
    const site = siteOf(next);
    if (site !== null) return `, from the operand at ${site}`;
    for (const input of next.inputs) {
      if (seen.has(input)) continue;
      seen.add(input);
      queue.push(input);
    }
  }
  return " (call debug.nans() before the function is traced to see its line)";
}

function nameOf(node: Node): string {
  if (node.op === "pick") return nameOf(node.inputs[0]);
  return (node.attrs as { fn?: string }).fn ?? node.op;
}

/** Throws if one of the nodes holds such a number. `flags` are the results of the function above. */
export function reportFound(fn: GraphFn, nodes: readonly Node[], flags: readonly boolean[]): void {
  const bad = new Set(nodes.filter((_, i) => flags[i]));
  const params = new Set(fn.params);
  const first = nodes.find(
    (node) => bad.has(node) && (params.has(node) || !node.inputs.some((input) => bad.has(input))),
  );
  if (first === undefined) return;
  const kinds = [...(searched.nan ? ["NaN"] : []), ...(searched.infinity ? ["an infinity"] : [])].join(" or ");
  if (params.has(first))
    throw new WeftError(`a ${showAval(first)} tensor that the program reads holds ${kinds}${lineOf(fn, first)}`);
  const operands = first.inputs.map(showAval).join(", ");
  throw new WeftError(
    `${nameOf(first)}(${operands}) gave ${kinds}${lineOf(fn, first)}; its operands hold none. Result: ${showAval(first)}`,
  );
}
