// Looking inside: values while a program runs, memory, the graph of a function.
import { printGraph } from "../graph/index.js";
import { build } from "../ops/index.js";
import { type MemoryReport, memory, setDebugLevel, type TensorValue } from "../runtime/index.js";
import { drawPlacement } from "../shard/index.js";
import { closeOver } from "../transform/index.js";
import { emitEffect } from "./effects.js";
import { Tensor } from "./tensor.js";
import { inFrame } from "./trace.js";
import { flattenTree, treeLeaves } from "./tree.js";

export { onPrint } from "./effects.js";

/** Shows a tensor; inside jit, vmap and scan when the compiled program has run. Returns the tensor. */
export function print(x: Tensor, label = ""): Tensor {
  emitEffect(label, x.node);
  return x;
}

/** Who holds what of a tensor, as a picture: parts of it, and the ranks of the devices that have them. */
export function sharding(x: Tensor): string {
  const value = x.realize().node.value as TensorValue;
  const placement = value.device.placement?.(value.buffer) ?? null;
  if (placement !== null) return drawPlacement(placement, x.shape);
  return `[${x.shape.join(", ")}] is whole on ${value.device.name}`;
}

/** The graph of a function for arguments like these, as text. */
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

export const setLevel = setDebugLevel;
export const memoryReport = (): MemoryReport => memory.report();

/** Whether memory() says where in the program each tensor was made; costs some microseconds a tensor. */
export const recordSites = (on: boolean): void => {
  memory.recordSites = on;
};
