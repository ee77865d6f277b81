// Joins many small kernels into one launch: independent loop kernels that can run concurrently become a batch (the updates
// of all parameters, the second stages of sums). Knows the order of steps, not how a device launches them.
import type { LoopKernel } from "./kernel.js";

/** Which kernels a device can put into one launch, and the maximum number of buffers per launch. */
export interface Batching {
  mayBatch(kernel: LoopKernel): boolean;
  maxBuffers: number;
}

/** The part of a step that joining needs. */
interface Schedulable {
  kernel: LoopKernel | null;
  reads: ReadonlySet<string>;
  writes: ReadonlySet<string>;
  /** Must keep its position. */
  early?: boolean;
}

/** Kernels up to this size are delayed until their reader: they keep little memory alive. */
const smallKernel = 1 << 18;

const touches = (a: ReadonlySet<string>, b: ReadonlySet<string>): boolean => {
  for (const key of a) if (b.has(key)) return true;
  return false;
};

/**
 * Delays small kernels, and kernels that nothing reads, as far as possible, so that similar ones become adjacent: to just
 * before the first step that needs them, in layers of dependent kernels.
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

/** Maximum number of earlier groups of kernels that are searched for one which a kernel can join. */
const lookBack = 8;
/** Results of sums up to this size keep little memory alive. */
const smallResult = 1 << 18;

/** Whether a kernel may run earlier than it must: it is small, or sums rows to a small result, as products with a vector do. */
function mayAdvance({ kind, size, outer, reductions, columnSums, stores, inner }: LoopKernel): boolean {
  if (size <= smallKernel) return true;
  const rows = outer.reduce((n, v) => n * v.size, 1);
  const sumsRows = kind === "rows" && reductions.length > 0 && columnSums.length === 0 && rows <= smallResult;
  return sumsRows && stores.every(({ address }) => inner.every(({ name }) => !address.mentions(name)));
}

/** Reorders the steps and groups them into runs: a run of several kernels is a batch. */
export function joinKernels<W extends Schedulable>(work: readonly W[], batching: Batching): W[][] {
  const isEligible = (w: W): boolean => w.kernel !== null && batching.mayBatch(w.kernel);
  const advances = (w: W): boolean => isEligible(w) && !w.early && mayAdvance(w.kernel!);
  const runs: W[][] = [];
  /** The last run that a kernel fits into, if nothing that runs between the two computes an operand of it. */
  const earlier = (w: W): W[] | null => {
    for (let i = runs.length - 1; i >= Math.max(0, runs.length - lookBack); i--) {
      const run = runs[i];
      if (run.every(advances) && fits(run, w, batching.maxBuffers)) return run;
      if (run.some((other) => touches(other.writes, w.reads))) return null;
    }
    return null;
  };
  for (const w of delayed(work, isEligible)) {
    const last = runs[runs.length - 1];
    if (last !== undefined && isEligible(w) && isEligible(last[0]) && fits(last, w, batching.maxBuffers)) last.push(w);
    else {
      const run = advances(w) ? earlier(w) : null;
      if (run === null) runs.push([w]);
      else run.push(w);
    }
  }
  return runs;
}

function fits<W extends Schedulable>(run: readonly W[], w: W, maxBuffers: number): boolean {
  const buffers = run.reduce((n, other) => n + other.kernel!.buffers.length, w.kernel!.buffers.length);
  return buffers <= maxBuffers && !run.some((other) => touches(other.writes, w.reads));
}
