// Graph queries for the search for lane programs: users, compile-time values, and which nodes every lane rematerializes
// instead of reading them from memory.

import { functionCost } from "../cost/index.js";
import { functionOrder, type GraphFn, isOp, type Node, numel } from "../graph/index.js";
import type { Value } from "../ops/index.js";
import { isView } from "./views.js";

/** Arithmetic up to this cost is rematerialized in every lane instead of read from memory. */
const inlineCost = 12;
const loadCost = 0.5;

/** A function with the queries of the region search. */
export class RegionGraph {
  readonly order: Node[];
  readonly params: ReadonlySet<Node>;
  readonly users = new Map<Node, Node[]>();
  readonly results: ReadonlySet<Node>;
  readonly #costs = new Map<Node, number>();
  readonly #values = new Map<Node, Value>();

  constructor(
    readonly fn: GraphFn,
    constants: ReadonlyMap<number, Value>,
  ) {
    this.order = functionOrder(fn);
    this.params = new Set(fn.params);
    this.results = new Set(fn.outputs);
    for (const node of this.order)
      for (const input of node.inputs) {
        const list = this.users.get(input);
        if (list === undefined) this.users.set(input, [node]);
        else list.push(node);
      }
    for (const [i, value] of constants) this.#values.set(fn.params[i], value);
  }

  known(node: Node, element: number): { re: number; im: number } | null {
    const value = this.#values.get(node);
    if (value === undefined || typeof value.data[0] === "bigint") return null;
    const data = value.data as Float64Array;
    return value.dtype.startsWith("complex")
      ? { re: data[2 * element], im: data[2 * element + 1] }
      : { re: data[element], im: 0 };
  }

  /** Whether every lane computes the node itself instead of reading it. */
  isInline(node: Node): boolean {
    return this.#cost(node) <= inlineCost;
  }

  #cost(node: Node): number {
    const cached = this.#costs.get(node);
    if (cached !== undefined) return cached;
    this.#costs.set(node, Number.POSITIVE_INFINITY);
    const cost = this.#findCost(node);
    this.#costs.set(node, cost);
    return cost;
  }

  #findCost(node: Node): number {
    if (this.params.has(node)) return this.#values.has(node) && numel(node.shape) <= 4096 ? 0 : loadCost;
    // An operand that is too expensive to rematerialize is read from memory.
    const costs = node.inputs.map((x) => (this.isInline(x) ? this.#cost(x) : loadCost));
    const operands = costs.reduce((n, x) => n + x, 0);
    if (node.op === "const" || node.op === "iota") return 0;
    if (isView(node) || node.op === "concat" || node.op === "pad") return operands;
    if (isOp(node, "cast") || isOp(node, "where")) return 1 + operands;
    const folds = numel(node.shape) <= 1024 && costs.every((x) => x === 0);
    if (isOp(node, "unary")) return folds ? 0 : operands + (functionCost(node.attrs.fn) === "simple" ? 1 : 100);
    if (isOp(node, "binary")) return folds ? 0 : operands + (functionCost(node.attrs.fn) === "simple" ? 1 : 100);
    if (node.op === "matmul" || node.op === "reduce")
      return folds && node.inputs.every((x) => numel(x.shape) <= 4096) ? 0 : Number.POSITIVE_INFINITY;
    return Number.POSITIVE_INFINITY;
  }
}
