// A device that computes on the host and keeps what a GPU would be asked to compile, for tests that look at plans: how many
// launches, which fused functions, what lies in memory.
import assert from "node:assert/strict";
import { type Schedule, scheduleFunction } from "../../compile/index.js";
import { type GraphFn, type Node, numel } from "../../graph/index.js";
import { ReferenceDevice } from "../../index.js";
import type { CompileOptions } from "../contract.js";
import { canFuse } from "./attention.js";
import { cudaScheduleOptions } from "./source.js";

export class Recorder extends ReferenceDevice {
  readonly graphs: { fn: GraphFn; options: CompileOptions }[] = [];
  supportsCustomKernel(node: Node<"custom">): boolean {
    return canFuse(node, { sharedBytes: 232448, major: 9, precision: "float32" });
  }
  override compile(fn: GraphFn, options: CompileOptions = {}) {
    this.graphs.push({ fn, options });
    return super.compile(fn);
  }
  /** The GPU's plan of what was compiled last (and fits the description). */
  plan(fits: (options: CompileOptions) => boolean = () => true): Schedule {
    return this.planOf(this.graphs.findLastIndex((g) => fits(g.options)));
  }
  planOf(index: number): Schedule {
    const { fn, options } = this.graphs[index];
    return scheduleFunction(fn, { ...cudaScheduleOptions, donated: options.donated });
  }
}

/** Names of the fused functions of a plan, in order. */
export const fusedOf = (plan: Schedule): string[] =>
  plan.steps.flatMap((s) =>
    s.kind === "library" && s.node.op === "custom" ? [(s.node as Node<"custom">).attrs.rule.name] : [],
  );

/** The largest number of elements that a step of the plan reads or writes. */
function largestBuffer(plan: Schedule): { elements: number; what: string } {
  let largest = { elements: 0, what: "nothing" };
  const see = (node: Node, what: string): void => {
    const elements = node.outputs === null ? numel(node.shape) : 0;
    if (elements > largest.elements) largest = { elements, what: `${what} [${node.shape}]` };
  };
  for (const s of plan.steps) {
    for (const kernel of s.kind === "kernel" ? [s.kernel] : s.kind === "batch" ? s.kernels : [])
      for (const node of kernel.buffers) see(node, kernel.name);
    if (s.kind === "library") see(s.node, s.node.op);
  }
  return largest;
}

export function assertSmallerThan(plan: Schedule, elements: number): void {
  const largest = largestBuffer(plan);
  assert.ok(largest.elements < elements, `${largest.what} is as large as the scores (${elements})`);
}
