// Minimum cost of an op: floating-point operations and bytes moved. Used for GFLOP/s and GB/s in debug output, for the
// choice of threads, and by the planner.
import {
  type AttentionKernel,
  bytesOf,
  isComplex,
  type Node,
  numel,
  type OpName,
  outputAvals,
} from "../graph/index.js";

interface OpCost {
  flops: number;
  bytes: number;
}

/** Steps that a loop without a fixed number of steps is assumed to run. */
const assumedSteps = 128;

/** Number of steps of a loop, or an estimate where it depends on values. */
export const expectedSteps = ({ length, stop }: { length: number; stop?: unknown }): number =>
  stop === undefined || stop === null ? length : Math.min(length, assumedSteps);

const sizeOf = (node: Node): number => numel(node.shape);
const outBytes = (node: Node): number =>
  outputAvals(node).reduce((n, aval) => n + numel(aval.shape) * bytesOf(aval.dtype), 0);
const inBytes = (node: Node): number => node.inputs.reduce((n, x) => n + sizeOf(x) * bytesOf(x.dtype), 0);
const perElement = (node: Node): number => sizeOf(node) * (isComplex(node.dtype) ? 2 : 1);
/** A complex multiply-add is four real ones. */
const arithmetic = (node: Node): number => (isComplex(node.inputs[0].dtype) ? 4 : 1);

const matrixCubed =
  (factor: number) =>
  (node: Node): number => {
    const [m, n] = node.inputs[0].shape.slice(-2);
    const batch = numel(node.inputs[0].shape.slice(0, -2));
    return factor * batch * m * n * Math.min(m, n) * arithmetic(node);
  };
const nothing = (): number => 0;

/** Part of all pairs of queries and keys that a band leaves. Long sequences are sampled. */
function bandShare({ lower, upper }: AttentionKernel, queries: number, keys: number): number {
  if (lower === undefined && upper === undefined) return 1;
  const step = Math.max(1, Math.floor(queries / 1024));
  let [seen, rows] = [0, 0];
  for (let i = Math.floor(step / 2); i < queries; i += step) {
    const last = Math.min(keys - 1, upper === undefined ? keys - 1 : i + upper);
    const first = Math.max(0, lower === undefined ? 0 : i + lower);
    seen += Math.max(0, last - first + 1);
    rows++;
  }
  return rows === 0 ? 1 : seen / (rows * Math.max(1, keys));
}

/** Two products forward; five products and one recomputed product backward. */
function attentionFlops({ attrs: { kernel }, inputs: [q, k] }: Node<"custom">): number {
  if (kernel === undefined) return 0;
  const [heads, size] = q.shape.slice(-2);
  const tail = kernel.packed ? 4 : 3;
  const queries = q.shape[q.shape.length - tail];
  const keys = kernel.packed ? queries : k.shape[k.shape.length - 3];
  const pairs = queries * keys * bandShare(kernel, queries, keys);
  return (kernel.gradient ? 10 : 4) * numel(q.shape.slice(0, -tail)) * heads * pairs * size;
}

const flops: { [K in OpName]: (node: Node<K>) => number } = {
  input: nothing,
  data: nothing,
  const: nothing,
  iota: nothing,
  random: (node) => 60 * sizeOf(node),
  alias: nothing,
  barrier: nothing,
  pin: nothing,
  unary: perElement,
  binary: perElement,
  where: perElement,
  cast: nothing,
  reshape: nothing,
  permute: nothing,
  expand: nothing,
  slice: nothing,
  pad: nothing,
  flip: nothing,
  concat: nothing,
  reduce: (node) => perElement(node.inputs[0]),
  argreduce: (node) => perElement(node.inputs[0]),
  cumsum: perElement,
  matmul: (node) => 2 * sizeOf(node) * node.inputs[0].shape[node.inputs[0].shape.length - 1] * arithmetic(node),
  conv: (node) => {
    const { kind, groups, channelsLast } = node.attrs;
    const [first, second] = node.inputs;
    const weight = kind === "weight" ? node : second;
    const [y, channels] = [kind === "forward" ? node : kind === "input" ? first : second, channelsLast ? -1 : 1];
    const outputs = weight.shape[0] / groups;
    const inputs = weight.shape.at(channels) as number;
    const positions = sizeOf(y) / Math.max(1, weight.shape[0]);
    const taps = sizeOf(weight) / Math.max(1, weight.shape[0] * inputs);
    return 2 * groups * positions * outputs * inputs * taps * arithmetic(node);
  },
  gather: nothing,
  scatterAdd: (node) => perElement(node.inputs[2]),
  scatterReduce: (node) => perElement(node.inputs[2]),
  updateSlice: nothing,
  fft: ({ attrs: { kind, axes, size }, inputs: [x] }) => {
    const lengths = [...x.shape.slice(-axes, -1), size];
    const points = (numel(x.shape) / Math.max(1, x.shape[x.shape.length - 1])) * size;
    return (kind === "c2c" ? 5 : 2.5) * points * Math.log2(Math.max(2, numel(lengths)));
  },
  argsort: ({ inputs: [x] }) => sizeOf(x) * Math.log2(Math.max(2, x.shape[x.shape.length - 1] ?? 1)),
  cholesky: matrixCubed(1 / 3),
  triangularSolve: (node) => sizeOf(node) * node.inputs[0].shape[node.inputs[0].shape.length - 1] * arithmetic(node),
  solve: matrixCubed(2 / 3),
  det: matrixCubed(2 / 3),
  eigh: matrixCubed(9),
  qr: matrixCubed(4),
  lu: matrixCubed(2 / 3),
  eig: matrixCubed(25),
  svd: matrixCubed(12),
  scan: (node) => {
    const { body } = node.attrs;
    let total = 0;
    const seen = new Set<Node>(body.params);
    const stack = [...body.outputs];
    while (stack.length > 0) {
      const next = stack.pop()!;
      if (seen.has(next)) continue;
      seen.add(next);
      total += flopsOf(next);
      stack.push(...next.inputs);
    }
    return total * expectedSteps(node.attrs);
  },
  custom: attentionFlops,
  collective: nothing,
  pick: nothing,
};

const flopsOf = (node: Node): number => flops[node.op](node as never);

export function opCost(node: Node): OpCost {
  return { flops: flopsOf(node), bytes: inBytes(node) + outBytes(node) };
}
