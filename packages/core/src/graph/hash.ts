// Structural key of a graph: equal for graphs that compute the same results in the same way, independent of node ids.
import { hash } from "node:crypto";
import { functionOrder, type GraphFn, isOp, type Node } from "./node.js";
import type { Scalar } from "./op.js";

const numberKey = (x: number): string => (Object.is(x, -0) ? "-0" : String(x));

/** The value of a constant as text: equal texts are equal values. */
export const scalarKey = (value: Scalar): string =>
  typeof value === "number" ? numberKey(value) : `${numberKey(value.re)},${numberKey(value.im)}`;

/**
 * Attributes as text. Barriers are numbered in order of occurrence, so that their tags do not matter. Hand-written instead of
 * JSON.stringify with a replacer, because programs without jit compute their key at every run.
 */
function attrsKey(value: unknown, barriers: Map<number, number>): string {
  if (typeof value === "number") return numberKey(value);
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

const keys = new WeakMap<GraphFn, string>();

/** Text that identifies the structure of a graph: ops, attributes, edges, shapes and dtypes. */
export function structuralKey(fn: GraphFn): string {
  let key = keys.get(fn);
  if (key === undefined) keys.set(fn, (key = structureOf(fn).key));
  return key;
}

/** What identifies a graph, from one walk. */
export class Structure {
  constructor(
    readonly fn: GraphFn,
    /** Everything but the values of constants outside loop bodies. */
    readonly skeleton: string,
    /** These constants in the order of the walk, and their values as text. */
    readonly constants: readonly Node<"const">[],
    readonly values: readonly string[],
  ) {}

  /** The structural key of the function. */
  get key(): string {
    return this.values.length === 0 ? this.skeleton : digest(`${this.skeleton}=${this.values.join(";")}`);
  }

  /** The function with some of its constants, given by their positions, as further parameters. Needs no other walk for its key. */
  withParameters(positions: ReadonlySet<number>): GraphFn {
    const { fn, constants, values, skeleton } = this;
    const made: GraphFn = { ...fn, params: [...fn.params, ...constants.filter((_, i) => positions.has(i))] };
    keys.set(made, digest(`${skeleton}=${values.map((value, i) => (positions.has(i) ? "p" : value)).join(";")}`));
    return made;
  }
}

export function structureOf(fn: GraphFn): Structure {
  const numbers = new Map<Node, number>();
  const barriers = new Map<number, number>();
  const constants: Node<"const">[] = [];
  let text = "";
  for (const param of fn.params) {
    numbers.set(param, numbers.size);
    text += `p${param.dtype}${param.shape};`;
  }
  for (const node of functionOrder(fn)) {
    if (numbers.has(node)) continue;
    let inputs = "";
    for (const input of node.inputs) inputs += `${numbers.get(input)},`;
    const isConstant = isOp(node, "const");
    if (isConstant) constants.push(node);
    const attrs = isConstant ? node.dtype : attrsKey(node.attrs, barriers);
    const scope = node.scope === null ? "" : `@${node.scope.name}${node.scope.backward ? "'" : ""}`;
    text += `${node.op}(${inputs})${attrs}${scope};`;
    numbers.set(node, numbers.size);
  }
  text += `>${fn.outputs.map((output) => numbers.get(output)).join(",")}`;
  const values = constants.map((node) => scalarKey(node.attrs.value));
  return new Structure(fn, digest(text), constants, values);
}

/** Small programs outside jit compute their key at every run: the text itself is quicker than its digest. */
const digest = (text: string): string => (text.length <= 160 ? text : hash("sha256", text, "hex").slice(0, 32));
