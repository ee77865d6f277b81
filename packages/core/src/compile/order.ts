// The order of the steps of a schedule: that of the program, except where another order needs less memory.
import { InternalError } from "../graph/index.js";
import type { ScheduleStep } from "./schedule.js";

/** A step that waits for its place in the order. */
export interface Work {
  step: ScheduleStep;
  reads: Set<string>;
  writes: Set<string>;
  /** Work that must come first although none of its results is read. */
  after?: Work[];
  /** Position in the program, for a stable order. */
  at: number;
  /** Small, and depends only on parameters: comes first. */
  early?: boolean;
}

/** Bytes from which another place in the order is worth more than the one of the program, where small kernels share a launch. */
const worthMoving = 1 << 16;

/** Where values are and how large they are. */
interface MemorySizes {
  /** Parameters of the function, which live throughout. */
  params: ReadonlySet<string>;
  /** Results of the function. */
  results: ReadonlySet<string>;
  bytesOf: (key: string) => number;
}

const sum = (keys: Iterable<string>, { bytesOf }: MemorySizes): number =>
  [...keys].reduce((total, key) => total + bytesOf(key), 0);

/** Work whose place is fixed by other rules, and updates of the state, which share a launch. */
const isFixed = (w: Work, { results }: MemorySizes): boolean =>
  w.early === true ||
  w.step.kind === "collective" ||
  w.after !== undefined ||
  [...w.writes].some((key) => results.has(key));

/**
 * Delays work whose results are needed much later, up to the first step that reads them, unless its operands would take more
 * memory until then. Rematerialized values of checkpoints are computed where they are used, not all at once.
 */
export function asLate(work: Work[], sizes: MemorySizes): Work[] {
  const readers = readersOf(work);
  for (const [i, w] of work.entries()) w.at = i;
  let delayed = false;
  for (let i = work.length - 1; i >= 0; i--) {
    const w = work[i];
    const written = sum(w.writes, sizes);
    if (isFixed(w, sizes) || written < worthMoving) continue;
    const users = [...w.writes].flatMap((key) => readers.get(key) ?? []);
    const first = Math.min(...users.map(({ at }) => at));
    if (!Number.isFinite(first) || first <= i + 1) continue;
    const lives = (key: string): boolean =>
      sizes.params.has(key) || (readers.get(key) ?? []).some((other) => other !== w && other.at >= first);
    const held = [...w.reads].filter((key) => !lives(key));
    if (sum(held, sizes) > written) continue;
    w.at = first - 0.5;
    delayed = true;
  }
  return delayed ? inOrder(work) : work;
}

/** The steps that read each value. */
function readersOf(work: readonly Work[]): Map<string, Work[]> {
  const readers = new Map<string, Work[]>();
  for (const w of work)
    for (const key of w.reads) {
      const found = readers.get(key);
      if (found === undefined) readers.set(key, [w]);
      else found.push(w);
    }
  return readers;
}

/**
 * Moves work that is the last reader of large values to the step after their other readers, if it writes less than they hold:
 * gradients of weights, whose place in the program is that of the update.
 */
export function asSoon(work: Work[], sizes: MemorySizes): Work[] {
  const readers = readersOf(work);
  const writers = new Map(work.flatMap((w) => [...w.writes].map((key) => [key, w] as const)));
  for (const [i, w] of work.entries()) w.at = i;
  let moved = false;
  for (const w of work) {
    if (isFixed(w, sizes)) continue;
    const others = (key: string): Work[] => (readers.get(key) ?? []).filter((other) => other !== w);
    const ended = [...w.reads].filter((key) => !sizes.params.has(key) && others(key).every(({ at }) => at < w.at));
    const freed = sum(ended, sizes);
    if (freed < worthMoving || freed <= sum(w.writes, sizes)) continue;
    const large = ended.filter((key) => sizes.bytesOf(key) * 4 >= freed);
    const before = [...[...w.reads].flatMap((key) => writers.get(key) ?? []), ...large.flatMap(others)];
    const target = Math.max(-1, ...before.map(({ at }) => at)) + 0.25;
    if (target + 1 >= w.at) continue;
    w.at = target;
    moved = true;
  }
  return moved ? inOrder(work) : work;
}

/**
 * Moves collectives whose results or operands are large to where they take least memory: a gathered tensor is awaited right before
 * its first reader and started after the gather before it, and what a reduce-scatter reads is released before the next collective
 * starts. Their order stays: all devices issue and await them in it.
 */
export function paceCollectives(work: Work[], sizes: MemorySizes): Work[] {
  const of = (phase: "start" | "finish"): Work[] =>
    work.filter(({ step }) => step.kind === "collective" && step.phase === phase);
  const [starts, ends] = [of("start"), of("finish")];
  const kindOf = ({ step }: Work): string => (step.kind === "collective" ? step.node.attrs.kind : "");
  const isLarge = (w: Work): boolean => sum([...w.reads, ...w.writes], sizes) >= worthMoving;
  // Small ones follow: one that is awaited early would make larger ones before it early.
  const paced = starts.map((w) => ["allGather", "reduceScatter"].includes(kindOf(w)));
  if (!starts.some((w, k) => paced[k] && isLarge(w))) return work;
  for (const [i, w] of work.entries()) w.at = i;
  const readers = readersOf(work);
  const firstReader = ends.map((end) => {
    const others = [...end.writes].flatMap((key) => readers.get(key) ?? []);
    return Math.min(Number.POSITIVE_INFINITY, ...others.map(({ at }) => at));
  });
  // In the order of the collectives, which is that of both lists.
  const awaited = ends.map(({ at }, k) => {
    if (!paced[k]) return at;
    if (kindOf(starts[k]) === "allGather")
      return firstReader[k] === Number.POSITIVE_INFINITY ? at : firstReader[k] - 0.5;
    return k + 1 < starts.length ? Math.max(starts[k].at + 0.5, starts[k + 1].at - 0.5) : at;
  });
  // One that is awaited early makes those before it early, too.
  for (let k = awaited.length - 2; k >= 0; k--) awaited[k] = Math.min(awaited[k], awaited[k + 1]);
  let gathered = Number.NEGATIVE_INFINITY;
  let before = Number.NEGATIVE_INFINITY;
  starts.forEach((start, k) => {
    const isGather = kindOf(start) === "allGather" && paced[k];
    start.at = Math.min(Math.max(isGather ? Math.max(start.at, gathered) : start.at, before), awaited[k]);
    before = start.at;
    ends[k].at = awaited[k] + 0.1;
    if (isGather) gathered = ends[k].at;
  });
  return inOrder(work);
}

/** Topological order; among ready work, the order of the program. */
export function inOrder(work: Work[]): Work[] {
  const writer = new Map<string, Work>();
  for (const w of work) for (const key of w.writes) writer.set(key, w);
  const waiting = new Map<Work, number>();
  const readers = new Map<Work, Work[]>();
  for (const w of work) {
    const written = [...w.reads].map((key) => writer.get(key)).filter((s) => s !== undefined && s !== w);
    const sources = new Set([...written, ...(w.after ?? [])]);
    waiting.set(w, sources.size);
    for (const s of sources) readers.set(s!, [...(readers.get(s!) ?? []), w]);
  }
  const ready = work.filter((w) => waiting.get(w) === 0);
  const done: Work[] = [];
  while (ready.length > 0) {
    let first = 0;
    for (let i = 1; i < ready.length; i++) if (ready[i].at < ready[first].at) first = i;
    const [w] = ready.splice(first, 1);
    done.push(w);
    for (const r of readers.get(w) ?? []) {
      const left = waiting.get(r)! - 1;
      waiting.set(r, left);
      if (left === 0) ready.push(r);
    }
  }
  if (done.length !== work.length) throw new InternalError("the fused program has a cycle");
  return done;
}
