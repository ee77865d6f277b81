// Whether a transform is tracing a function: what runs meanwhile keeps the inputs of computed nodes, and collectives are numbered.
import { makeLeaf, type Node } from "../graph/index.js";

/** Number of nested traces, which may need the inputs of computed nodes. */
let traces = 0;
const waiting: Node[] = [];

/** Drops the inputs of a computed node, unless a trace may still differentiate through it. */
export function detach(node: Node): void {
  if (traces > 0) {
    waiting.push(node);
    return;
  }
  makeLeaf(node);
}

/** Runs a function that a transform traces. */
export function tracing<T>(body: () => T): T {
  if (traces === 0) collectives = 0;
  traces++;
  try {
    return body();
  } finally {
    traces--;
    if (traces === 0) for (const node of waiting.splice(0)) detach(node);
  }
}

let collectives = 0;

/** Sequence number of the next collective in the traced program; null outside a trace. */
export const nextCollective = (): number | null => (traces === 0 ? null : collectives++);

/** Whether a function is being traced. */
export const isTracing = (): boolean => traces > 0;
