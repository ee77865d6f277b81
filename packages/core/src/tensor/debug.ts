// Debugging: printed values, memory, placements, graphs.
import { printGraph } from "../graph/index.js";
import { build } from "../ops/index.js";
import { type MemoryReport, memoryManager, setDebugLevel, setSearch, type TensorValue } from "../runtime/index.js";
import { drawPlacement } from "../shard/index.js";
import { closeOver } from "../transform/index.js";
import { emitEffect } from "./effects.js";
import { Tensor } from "./tensor.js";
import { inFrame } from "./trace.js";
import { flattenTree, treeLeaves } from "./tree.js";

export { onPrint } from "./effects.js";

/** Prints a tensor and returns it. Inside jit, vmap and scan it prints when the compiled program has run. */
export function print(x: Tensor, label = ""): Tensor {
  emitEffect(label, x.node);
  return x;
}

/** Draws the placement of a tensor: its shards and the ranks of the devices that hold them. */
export function sharding(x: Tensor): string {
  const value = x.realize().node.value as TensorValue;
  const placement = value.device.placement?.(value.buffer) ?? null;
  if (placement !== null) return drawPlacement(placement, x.shape);
  return `[${x.shape.join(", ")}] is whole on ${value.device.name}`;
}

/** Returns the graph of a function as text, for arguments of these shapes and dtypes. */
export function graph<A extends unknown[]>(fn: (...args: A) => unknown, ...args: A): string {
  const { leaves, def } = flattenTree(args);
  const params = leaves.map((leaf) => build.input(leaf.shape, leaf.dtype, ""));
  const { result } = inFrame("map", () => fn(...(def.rebuild(params.map((p) => new Tensor(p))) as A)));
  return printGraph(
    closeOver(
      treeLeaves(result).map((l) => l.node),
      params,
    ).fn,
  );
}

/** Sets the level of debug output; see WEFT_DEBUG. */
export const setLevel = setDebugLevel;
/** Reports the tensors in device memory. */
export const memoryReport = (): MemoryReport => memoryManager.report();

/**
 * Turns on recording of the source line that built each tensor, for memory reports and errors. Costs a few microseconds per
 * tensor.
 */
export const recordSites = (on: boolean): void => {
  memoryManager.recordSites = on;
};

/**
 * Looks for NaN: from now on, a program in which an operation gives NaN throws an error that names the operation and the line that
 * called it. Every program runs twice, so use it to find a problem and turn it off again. Functions that were jitted before are
 * searched too, without lines. See {@link infinities}.
 *
 * @example
 * ```ts
 * import { debug, tensor } from "@weft/core";
 *
 * debug.nans();
 * try {
 *   tensor([1, -1]).log().sum().itemSync();
 * } catch (error) {
 *   console.log((error as Error).message.startsWith("log(float32[2]) gave NaN")); // true
 * }
 * debug.nans(false);
 * ```
 */
export const nans = (on = true): void => setSearch("nan", on);

/** Looks for infinities in the same way as {@link nans}. Masks of -Infinity are found too. */
export const infinities = (on = true): void => setSearch("infinity", on);
