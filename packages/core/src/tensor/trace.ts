// State while a user function is traced: the stack of frames, values to print after the run (debug.print), and the random key of
// each call.
import { type Node, WeftError } from "../graph/index.js";
import { build } from "../ops/index.js";
import { tracing } from "../runtime/index.js";
import { Tensor } from "./tensor.js";
import { flattenTree, type TreeDef } from "./tree.js";

// biome-ignore lint/suspicious/noExplicitAny: user functions take and return trees of any type.
export type AnyFunction = (...args: any[]) => any;

export function refusePromise(op: string, result: unknown): void {
  if (result instanceof Promise) {
    // The promise is never awaited; a rejection must not end the process in addition to the error below.
    result.catch(() => {});
    throw new WeftError(
      `${op}: the function is async; transforms trace ordinary functions (await the data before or after)`,
    );
  }
}

/** The tensors that a traced function returned; there must be at least one. */
export function outputsOf(op: string, result: unknown): { leaves: Tensor[]; def: TreeDef } {
  refusePromise(op, result);
  const flat = flattenTree(result);
  if (flat.leaves.length === 0) throw new WeftError(`${op}: the function returned no tensor`);
  return flat;
}

interface Effect {
  label: string;
  node: Node;
}

export interface Frame {
  kind: "jit" | "map" | "loop" | "custom";
  effects: Effect[];
  /** Placeholder of the key of each call, slice or step; null until it is used. */
  key: Node | null;
  keysUsed: number;
}

const frames: Frame[] = [];

/** Traces a function inside a new frame and returns both its result and the frame. */
export function inFrame<T>(kind: Frame["kind"], body: () => T): { result: T; frame: Frame } {
  const frame: Frame = { kind, effects: [], key: null, keysUsed: 0 };
  frames.push(frame);
  try {
    return { result: tracing(body), frame };
  } finally {
    frames.pop();
  }
}

const currentFrame = (): Frame | null => frames[frames.length - 1] ?? null;

/** Registers a value to be shown by the innermost frame; false when nothing is being traced. */
export function addEffect(label: string, node: Node): boolean {
  const frame = currentFrame();
  if (frame === null) return false;
  frame.effects.push({ label, node });
  return true;
}

/**
 * Another key on every use, and on every call of a jitted function, slice of vmap and step of scan, while one of these
 * is traced; null otherwise.
 */
export function traceKey(): Tensor | null {
  const frame = frames.findLast((f) => f.kind !== "custom");
  if (frame === undefined) return null;
  frame.key ??= build.input([2], "int32", "random key");
  return new Tensor(nthKey(frame.key, frame.keysUsed++));
}

/** Elements 2i and 2i+1 of the stream of a key do not depend on its length. */
function nthKey(key: Node, index: number): Node {
  const bits = build.make("random", [key], { kind: "bits", shape: [index + 1, 2], dtype: "int32" });
  return build.reshape(build.sliceAxis(bits, 0, index, index + 1), [2]);
}

/** A key that the traced step did not use: the key of the next step in a loop of unknown length. */
export const nextStepKey = (frame: Frame): Node => nthKey(frame.key!, frame.keysUsed);
