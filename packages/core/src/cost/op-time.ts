// Estimated time of a node on a device that computes a shard of it: arithmetic, and the memory traffic that remains after
// fusion. Which values go through memory is decided once per function by a heuristic that follows the fuser.
import {
  bytesOf,
  type DType,
  functionOrder,
  type GraphFn,
  isOp,
  type Node,
  numel,
  type OpName,
  outputAvals,
  type Shape,
} from "../graph/index.js";
import { elementwiseOps, factorizationOps, leafOps, reductionOps, viewOps } from "../ops/index.js";
import { opCost } from "./index.js";
import { classOf, opRate, productTime } from "./kernel-cost.js";
import { matmulRate, type Rates, valueAt } from "./rates.js";

/** Ops without cost: views, and the selection of one of several results. */
const views: ReadonlySet<OpName> = new Set<OpName>([...viewOps, "pick"]);
const fused: ReadonlySet<OpName> = new Set<OpName>([...elementwiseOps, ...reductionOps]);

type WorkKind = "nothing" | "fused" | "matmul" | "conv" | "linalg" | "scatter" | "sort" | "loop" | "attention";

/** Properties of a node that do not depend on its placement. */
export interface OpWork {
  kind: WorkKind;
  /** Operands read from memory, by position. */
  reads: { operand: number; bytesPerElement: number }[];
  /** Its results are written to memory. */
  writes: boolean;
  /** Number of kernels that it starts. */
  kernels: number;
}

/** The node behind a chain of views. */
function behindViews(node: Node, params: ReadonlySet<Node>): Node {
  let at = node;
  while (views.has(at.op) && at.op !== "pick" && !params.has(at)) at = at.inputs[0];
  return at;
}

/** Depth of library calls and loops before each node: nodes that fuse have the same depth. */
function levels(order: readonly Node[], params: ReadonlySet<Node>): Map<Node, number> {
  const level = new Map<Node, number>();
  for (const node of order) {
    let most = 0;
    if (!params.has(node)) for (const input of node.inputs) most = Math.max(most, level.get(input)!);
    const isLibrary = !params.has(node) && !views.has(node.op) && !fused.has(node.op) && !leafOps.has(node.op);
    level.set(node, isLibrary ? most + 1 : most);
  }
  return level;
}

/** The work of every node of a function. */
export function workOf(fn: GraphFn): Map<Node, OpWork> {
  const params = new Set(fn.params);
  const order = functionOrder(fn);
  const level = levels(order, params);
  const stored = new Set<Node>(fn.params);
  const isFree = new Map<Node, boolean>();
  for (const node of order) {
    const simple = leafOps.has(node.op) || views.has(node.op) || (fused.has(node.op) && node.op !== "random");
    isFree.set(node, !params.has(node) && simple && node.inputs.every((input) => isFree.get(input)));
  }
  for (const output of fn.outputs) stored.add(behindViews(output, params));
  for (const node of order) {
    if (params.has(node) || views.has(node.op)) continue;
    const isFused = fused.has(node.op);
    if (!isFused && !leafOps.has(node.op)) stored.add(node);
    node.inputs.forEach((input, i) => {
      const source = behindViews(input, params);
      if (isFree.get(source)) return;
      const joins =
        isFused &&
        !(node.op === "gather" && i === 0) &&
        level.get(node) === level.get(source) &&
        (numel(node.shape) === numel(source.shape) || node.op === "reduce" || isRowOf(source, node));
      if (!joins) stored.add(source);
    });
  }
  const work = new Map<Node, OpWork>();
  for (const node of order) {
    if (params.has(node) || views.has(node.op) || leafOps.has(node.op) || isFree.get(node)) {
      work.set(node, { kind: "nothing", reads: [], writes: false, kernels: 0 });
      continue;
    }
    const reads = node.inputs.flatMap((input, operand) => {
      const source = behindViews(input, params);
      const inMemory = stored.has(source) || source.op === "pick";
      if (!inMemory || isFree.get(source)) return [];
      // A broadcast operand is in memory once.
      const share = Math.min(1, numel(source.shape) / Math.max(1, numel(input.shape)));
      return [{ operand, bytesPerElement: bytesOf(input.dtype) * share }];
    });
    const writes = stored.has(node);
    work.set(node, { kind: kindOf(node), reads, writes, kernels: writes ? 1 : 0 });
  }
  return work;
}

/** A reduced value that is broadcast back to its rows stays in the kernel. */
const isRowOf = (source: Node, node: Node): boolean =>
  reductionOps.has(source.op) && numel(node.shape) % Math.max(1, numel(source.shape)) === 0;

function kindOf(node: Node): WorkKind {
  if (isOp(node, "matmul")) return "matmul";
  if (isOp(node, "scan")) return "loop";
  if (isOp(node, "custom")) return "attention";
  if (node.op === "conv") return "conv";
  if (factorizationOps.has(node.op)) return "linalg";
  if (node.op === "scatterAdd" || node.op === "scatterReduce" || node.op === "updateSlice") return "scatter";
  if (node.op === "argsort") return "sort";
  return "fused";
}

/** Shapes of a device's operands and results. */
export interface Local {
  operands: readonly Shape[];
  results: readonly Shape[];
}

export const wholeOf = (node: Node): Local => ({
  operands: node.inputs.map(({ shape }) => shape),
  results: outputAvals(node).map(({ shape }) => shape),
});

/** Arithmetic of a node inside a fused kernel, in seconds. */
export function arithmetic(node: Node, elements: number, rates: Rates): number {
  if (isOp(node, "random")) return elements / opRate(rates, node.attrs.kind === "bits" ? "uniform" : node.attrs.kind);
  if (isOp(node, "gather")) return lookupTime(elements, numel(node.inputs[0].shape.slice(node.attrs.axis + 1)), rates);
  if (!isOp(node, "unary") && !isOp(node, "binary")) return elements / rates.simple;
  const [op, each] = classOf(node.attrs.fn, node.inputs[0].dtype);
  return (elements * each) / opRate(rates, op);
}

/** Gathered or scattered rows: the cost of long rows is per element, that of short rows per row. */
const lookupTime = (elements: number, row: number, rates: Rates): number =>
  Math.min(elements / rates.lookup, elements / Math.max(1, row) / rates.lookup + elements / rates.simple);

/** Largest size of products that are unrolled, and the smallest batch of them, on devices that have a rate for them. */
export const smallProduct: Partial<Record<DType, number>> = { float32: 16, float64: 16, complex64: 24, complex128: 24 };
export const fewestSmall = 8;

/** Whether a batch of products is unrolled. */
export const isSmallProduct = (dtype: DType, batch: number, sizes: readonly number[]): boolean =>
  batch >= fewestSmall && sizes.every((size) => size <= (smallProduct[dtype] ?? 0));

/** Whether an operand of a product is transposed. */
function isTransposed(node: Node): boolean {
  if (!isOp(node, "permute")) return false;
  const [rows, columns] = node.attrs.axes.slice(-2);
  return rows > columns;
}

/** Seconds of a device's shard of a node; `bodyTime` gives the time of a loop. */
export function workTime(
  node: Node,
  work: OpWork,
  local: Local,
  rates: Rates,
  bodyTime: (local: Local) => number,
): number {
  if (work.kind === "nothing") return 0;
  const whole = wholeOf(node);
  const size = (shapes: readonly Shape[]): number => shapes.reduce((n, shape) => n + numel(shape), 0);
  const bytes =
    work.reads.reduce((n, { operand, bytesPerElement }) => n + numel(local.operands[operand]) * bytesPerElement, 0) +
    (work.writes ? outputAvals(node).reduce((n, { dtype }, i) => n + numel(local.results[i]) * bytesOf(dtype), 0) : 0);
  const streaming = bytes === 0 ? 0 : bytes / valueAt(rates.bandwidth, bytes);
  const fixed = work.kernels * rates.kernel;
  switch (work.kind) {
    case "fused": {
      const elements = Math.max(size(local.operands.slice(0, 1)), size(local.results));
      return fixed + streaming + arithmetic(node, elements, rates);
    }
    case "matmul": {
      const [m, n] = local.results[0].slice(-2);
      const k = local.operands[0][local.operands[0].length - 1];
      const full = whole.operands[0][whole.operands[0].length - 1];
      // A complex product is several real ones.
      const parts = opCost(node).flops / Math.max(1, 2 * numel(whole.results[0]) * full);
      const batch = (parts * numel(local.results[0])) / Math.max(1, m * n);
      if (rates.ops?.product !== undefined && isSmallProduct(node.dtype, batch / parts, [m, n, k]))
        return fixed + Math.max(streaming, (batch * m * n * k) / rates.ops.product);
      const [left, right] = node.inputs.map(isTransposed);
      const product = productTime(rates, { dtype: node.dtype, batch, m, n, k, left, right });
      return fixed + (rates.products === undefined ? Math.max(product, streaming) : product + streaming);
    }
    case "scatter": {
      const { axis } = (node as Node<"scatterAdd">).attrs;
      return fixed + streaming + lookupTime(numel(local.operands[2]), numel(local.results[0].slice(axis + 1)), rates);
    }
    case "sort":
      return fixed + (opCost(node).flops * (size(local.results) / Math.max(1, size(whole.results)))) / rates.lookup;
    case "linalg": {
      const share = size(local.operands) / Math.max(1, size(whole.operands));
      return fixed + (opCost(node).flops * share) / rates.linalg;
    }
    case "conv": {
      // As one product of the windows with the weight.
      // Every factor of the work is a dimension of two of the three tensors.
      const volume = ({ operands, results }: Local): number =>
        [...operands, ...results].reduce((product, shape) => product * Math.sqrt(numel(shape)), 1);
      const share = volume(local) / Math.max(1, volume(whole));
      const { flops } = opCost(node);
      const [n, k] = [64, 512];
      const m = Math.max(1, flops / (2 * n * k));
      return fixed + Math.max(streaming, (share * flops) / matmulRate(rates, node.dtype, m, n, k));
    }
    case "attention": {
      // Attention multiplies tiles on chip: only the operands and the result go through memory.
      const share = size(local.operands.slice(0, 1)) / Math.max(1, size(whole.operands.slice(0, 1)));
      const [m, , n] = whole.operands[0].slice(-3);
      return (
        fixed + Math.max(streaming, (share * opCost(node).flops) / matmulRate(rates, node.inputs[0].dtype, m, m, n))
      );
    }
    case "loop":
      return fixed + streaming + bodyTime(local);
  }
  return 0;
}
