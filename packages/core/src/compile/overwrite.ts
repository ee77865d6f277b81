// What a loop kernel reads and writes at the same place: whether a result may be written over an operand, and whether a kernel only
// finishes a matrix product.
import { type Node, numel } from "../graph/index.js";
import { loadsUnder } from "./emit-common.js";
import type { Ix } from "./index-expr.js";
import type { KExpr, LoopKernel, Store } from "./kernel.js";
import { memoryKey } from "./memory-key.js";

/** Addresses at which a kernel reads a value. */
export function kernelLoads(kernel: LoopKernel, key: string): Ix[] {
  const slots = new Set(
    kernel.buffers.flatMap((node, i) => (memoryKey(node) === key && !kernel.written.has(i) ? [i] : [])),
  );
  return kernel.loads.filter((load) => slots.has(load.buffer)).map((load) => load.address);
}

/** One store, as large as the product and of its dtype, reading the product only where it writes. */
export function finishes(kernel: LoopKernel, product: Node): boolean {
  if (kernel.kind !== "rows" || kernel.reductions.length + kernel.columnSums.length > 0) return false;
  if (kernel.stores.length !== 1) return false;
  const [store] = kernel.stores;
  const target = kernel.buffers[store.buffer];
  const units = kernel.outer.length === 0 ? kernel.size : numel(kernel.outer.map((v) => v.size));
  const fits = kernel.size === numel(product.shape) && target.dtype === product.dtype && units % product.shape[0] === 0;
  return fits && kernelLoads(kernel, memoryKey(product)).every((address) => address.equals(store.address));
}

/** Number of passes over a row before a value is known. */
function passesBefore(expr: KExpr, kernel: LoopKernel, known = new Map<number, number>()): number {
  const found = known.get(expr.id);
  if (found !== undefined) return found;
  const parts = [...("args" in expr ? expr.args : []), ...("dynamic" in expr ? expr.dynamic : [])];
  if (expr.kind === "load" && expr.guard !== null) parts.push(expr.guard);
  let passes = Math.max(0, ...parts.map((part) => passesBefore(part, kernel, known)));
  if (expr.kind === "reduced") passes = passesBefore(kernel.reductions[expr.slot].argument, kernel, known) + 1;
  known.set(expr.id, passes);
  return passes;
}

/** Whether the elements of rows are written by a single store, in the last pass: nothing reads them afterwards. */
export function isLastPass(kernel: LoopKernel, store: Store): boolean {
  const inner = kernel.inner.map((v) => v.name);
  const known = new Map<number, number>();
  const isPerRow = (s: Store): boolean =>
    !inner.some((name) => s.address.mentions(name)) &&
    loadsUnder([s.value]).every(({ dynamic }) => dynamic.length === 0);
  const last = Math.max(...kernel.reductions.map(({ argument }) => passesBefore(argument, kernel, known)));
  return passesBefore(store.value, kernel, known) >= last && kernel.stores.every((s) => s === store || isPerRow(s));
}

/** Whether the reductions of a kernel read a value, and not only the work on their results, which one thread per result does. */
export const reducesOver = ({ reductions, buffers }: LoopKernel, key: string): boolean =>
  loadsUnder(reductions.map(({ argument }) => argument)).some(({ buffer }) => memoryKey(buffers[buffer]) === key);
