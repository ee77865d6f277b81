// A function as the planner sees it: nodes in order with the slots of their values, unsharded costs, and dimension classes.
// Built once per function and used for every mesh and theme.

import { type Local, type OpWork, type Rates, wholeOf, workOf, workTime } from "../cost/index.js";
import { type Aval, functionOrder, type GraphFn, isOp, type Node, outputAvals, showAval } from "../graph/index.js";
import { type DimensionClasses, dimensionClasses } from "../ops/index.js";
import { Loop } from "./loop.js";

export interface Item {
  node: Node;
  /** Signature: equal for nodes with equal op, attributes, shapes and memory traffic. */
  sig: number;
  /** Slots of the operands, and of the first result. */
  inputs: number[];
  first: number;
}

export class Problem {
  readonly items: Item[] = [];
  readonly work: Map<Node, OpWork>;
  readonly avals: Aval[] = [];
  /** Index of the aval of each slot. */
  readonly avalOf: number[] = [];
  readonly outputs: number[];
  readonly #loops = new Map<Node, Loop>();
  readonly #classesOf = new Map<Node, number[]>();
  #classes: DimensionClasses | null = null;

  constructor(readonly fn: GraphFn) {
    this.work = workOf(fn);
    const slotOf = new Map<Node, number>();
    const avalIds = new Map<string, number>();
    const addSlot = (aval: Aval): number => {
      const text = showAval(aval);
      let id = avalIds.get(text);
      if (id === undefined) {
        id = this.avals.push({ shape: aval.shape, dtype: aval.dtype }) - 1;
        avalIds.set(text, id);
      }
      return this.avalOf.push(id) - 1;
    };
    for (const param of fn.params) slotOf.set(param, addSlot(param));
    const sigs = new Map<string, number>();
    for (const node of functionOrder(fn)) {
      if (slotOf.has(node)) continue;
      if (isOp(node, "pick")) {
        slotOf.set(node, slotOf.get(node.inputs[0])! + node.attrs.index);
        continue;
      }
      const inputs = node.inputs.map((input) => slotOf.get(input)!);
      const first = this.avalOf.length;
      for (const aval of outputAvals(node)) addSlot(aval);
      slotOf.set(node, first);
      const text = this.#look(node);
      const sig = sigs.get(text) ?? sigs.size;
      sigs.set(text, sig);
      this.items.push({ node, sig, inputs, first });
    }
    this.outputs = fn.outputs.map((output) => slotOf.get(output)!);
  }

  /** Dimension classes, computed on first use. */
  get classes(): DimensionClasses {
    this.#classes ??= dimensionClasses(this.fn);
    return this.#classes;
  }

  /** The class of each factor of a node. */
  classesOf(node: Node): readonly number[] {
    let found = this.#classesOf.get(node);
    if (found === undefined) {
      found = this.classes.ofNode(node);
      this.#classesOf.set(node, found);
    }
    return found;
  }

  get slots(): number {
    return this.avalOf.length;
  }

  #look(node: Node): string {
    if (isOp(node, "scan")) return `scan ${node.id}`;
    const work = this.work.get(node)!;
    const described = isOp(node, "custom") ? node.attrs.kernel : node.attrs;
    const attrs = JSON.stringify(described, (key, value) => (key === "value" || key === "tag" ? undefined : value));
    const reads = work.reads.map(({ operand, bytesPerElement }) => `${operand}:${bytesPerElement}`);
    const inputs = node.inputs.map(showAval);
    return `${node.op}|${attrs}|${inputs}|${showAval(node)}|${work.kind}${work.writes}${work.kernels}|${reads}|${zeros(node)}`;
  }

  /** Whether the planner chooses a strategy for the node; others follow their operands. */
  decides(node: Node): boolean {
    const { kind } = this.work.get(node)!;
    return (
      kind !== "nothing" && (kind !== "fused" || node.op === "gather" || node.op === "random" || node.op === "reduce")
    );
  }

  /** Seconds of a loop on a device with these local shapes. */
  loopTime(node: Node<"scan">, rates: Rates, local: Local): number {
    let loop = this.#loops.get(node);
    if (loop === undefined) {
      loop = new Loop(node, new Problem(node.attrs.body));
      this.#loops.set(node, loop);
    }
    return loop.seconds(rates, local);
  }

  /** Seconds on one device. */
  singleTime(rates: Rates): number {
    let seconds = rates.call;
    for (const { node } of this.items)
      seconds += workTime(node, this.work.get(node)!, wholeOf(node), rates, (part) =>
        this.loopTime(node as Node<"scan">, rates, part),
      );
    return seconds;
  }
}

/** Zero operands decide whether a pending sum may propagate. */
const zeros = (node: Node): string =>
  node.inputs
    .map((input) => {
      let at = input;
      while (at.op === "expand" || at.op === "reshape" || at.op === "permute") at = at.inputs[0];
      return isOp(at, "const") && at.attrs.value === 0 ? "0" : "";
    })
    .join();
