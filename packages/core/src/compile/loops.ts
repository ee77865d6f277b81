// Loops of a schedule: what their steps may overwrite, what they copy, and the memory of their carries.
import { bytesOf, functionOrder, type GraphFn, type Node, numel } from "../graph/index.js";
import { build } from "../ops/index.js";
import type { ScheduleOptions, ScheduleStep } from "./schedule.js";

type LoopStep = Extract<ScheduleStep, { kind: "loop" }>;

const alignment = 64;
export const alignedBytes = (bytes: number): number => Math.max(alignment, Math.ceil(bytes / alignment) * alignment);

/** The carries of a loop may be updated in place: each result in the memory of its own parameter. */
export function carriesInPlace({ attrs: { consts, carries, body } }: Node<"scan">): Partial<ScheduleOptions> {
  return { donated: body.params.map((_, i) => i >= consts && i < consts + carries), aliasOffset: consts };
}

/**
 * The step of a loop with a node of its own for each stacked result that equals another result or is an argument. Loops without
 * library calls may be one launch, which copies by itself.
 */
export function withOwnResults({ attrs: { carries, body } }: Node<"scan">): GraphFn {
  if (!functionOrder(body).some(({ op }) => op === "matmul")) return body;
  const claimed = new Set<Node>([...body.params, ...body.outputs.slice(0, carries)]);
  const outputs = body.outputs.map((output, i) => {
    if (i < carries) return output;
    const own = claimed.has(output) ? build.make("alias", [output], { name: "copy" }) : output;
    claimed.add(own);
    return own;
  });
  return { ...body, outputs };
}

/** A loop's own memory: its step's scratch, and buffers for every carry. Allocated only while it runs. */
export function reserveLoop(
  step: LoopStep,
  take: (size: number) => number,
  release: (offset: number, size: number) => void,
): void {
  const { total } = loopMemory(step);
  const offset = take(alignedBytes(total));
  step.offset = offset;
  release(offset, alignedBytes(total));
}

/** Offsets in a loop's memory of the buffers of each carry: the one that a step reads, and the one that it writes. */
export function loopMemory(step: LoopStep): { carries: { reads: number; writes: number }[]; total: number } {
  const { carries, body } = step.node.attrs;
  let total = alignedBytes(step.body.scratchBytes);
  const places = body.outputs.slice(0, carries).map((o, c) => {
    const size = alignedBytes(numel(o.shape) * bytesOf(o.dtype));
    const reads = total;
    const writes = step.body.aliases.has(c) ? reads : reads + size;
    total = writes + size;
    return { reads, writes };
  });
  return { carries: places, total };
}
