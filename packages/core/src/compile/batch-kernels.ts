// Many small kernels as one launch: independent loop kernels that can run at the same time are joined into a batch (the
// updates of all parameters, the second stages of sums). Knows the order of work, not what a device makes of it.
import type { LoopKernel } from "./kernel.js";

/** Which kernels a device can put into one launch, and how many buffers a launch may name. */
export interface Batching {
  mayBatch(kernel: LoopKernel): boolean;
  maxBuffers: number;
}

/** As much of a step as joining needs. */
export interface Schedulable {
  kernel: LoopKernel | null;
  reads: ReadonlySet<string>;
  writes: ReadonlySet<string>;
  /** Stays where it is. */
  early?: boolean;
}

/** Kernels up to this size wait for their reader: what they keep alive meanwhile is little. */
const smallKernel = 1 << 18;

const touches = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean => {
  for (const key of a) if (b.has(key)) return true;
  return false;
};

/**
 * Moves small kernels, and kernels that nothing reads, as late as possible, so that alike ones meet: to just before the
 * work that cannot wait for them any longer, in layers of what depends on each other.
 */
function delayed<W extends Schedulable>(work: readonly W[], isEligible: (w: W) => boolean): W[] {
  const place = new Map<W, { before: number; height: number }>();
  const readersOf = new Map<string, number[]>();
  work.forEach((w, i) => {
    for (const key of w.reads) readersOf.set(key, [...(readersOf.get(key) ?? []), i]);
  });
  for (let i = work.length - 1; i >= 0; i--) {
    const w = work[i];
    const readers = [...w.writes].flatMap((key) => readersOf.get(key) ?? []);
    if (w.early || !isEligible(w) || (readers.length > 0 && w.kernel!.size > smallKernel)) continue;
    const places = readers.map((r) => place.get(work[r]) ?? { before: r, height: -1 });
    const before = Math.min(work.length, ...places.map((p) => p.before));
    const height = Math.max(-1, ...places.filter((p) => p.before === before).map((p) => p.height)) + 1;
    place.set(w, { before, height });
  }
  const waiting = new Map<number, W[]>();
  for (const w of work) {
    const at = place.get(w);
    if (at !== undefined) waiting.set(at.before, [...(waiting.get(at.before) ?? []), w]);
  }
  const order: W[] = [];
  for (let i = 0; i <= work.length; i++) {
    const layers = (waiting.get(i) ?? []).sort((a, b) => place.get(b)!.height - place.get(a)!.height);
    order.push(...layers);
    if (i < work.length && !place.has(work[i])) order.push(work[i]);
  }
  return order;
}

/** The work in an order in which kernels meet, as runs: a run of several is a batch. */
export function joinKernels<W extends Schedulable>(work: readonly W[], batching: Batching): W[][] {
  const isEligible = (w: W): boolean => w.kernel !== null && batching.mayBatch(w.kernel);
  const runs: W[][] = [];
  for (const w of delayed(work, isEligible)) {
    const last = runs[runs.length - 1];
    if (last !== undefined && isEligible(w) && isEligible(last[0]) && fits(last, w, batching.maxBuffers)) last.push(w);
    else runs.push([w]);
  }
  return runs;
}

function fits<W extends Schedulable>(run: readonly W[], w: W, maxBuffers: number): boolean {
  const buffers = run.reduce((n, other) => n + other.kernel!.buffers.length, w.kernel!.buffers.length);
  return buffers <= maxBuffers && !run.some((other) => touches(other.writes, w.reads));
}
