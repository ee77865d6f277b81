// Batching rules (vmap): how every op handles an additional leading axis. Batched operands have the batch axis first; a rule gets
// its operands unchanged and builds the batched op.
import { type Node, type OpAttrs, type OpName, range, WeftError } from "../graph/index.js";
import { type BatchContext, withBatch } from "./batch-operand.js";
import { concat, permute, reshape } from "./build.js";
import { convBatch } from "./conv.js";
import { make } from "./make.js";
import type { StructuralOp } from "./vjp.js";

type BatchRule<K extends OpName> = (context: BatchContext<K>) => Node;

const later = (axes: readonly number[]): number[] => axes.map((a) => a + 1);

/** The same op on all operands with the batch axis. */
function sameOp<K extends OpName>(attrs: (node: Node<K>, size: number) => OpAttrs[K]): BatchRule<K> {
  return ({ node, inputs, size }) =>
    make(
      node.op,
      inputs.map((x) => withBatch(x, size)),
      attrs(node, size),
    );
}

/** For ops whose attributes do not depend on axis positions. */
const anyRank = sameOp<OpName>((node) => node.attrs);

const leaf: BatchRule<OpName> = ({ node, size }) => withBatch({ node, batched: false }, size);

export const batchRules: { [K in Exclude<OpName, StructuralOp>]: BatchRule<K> } = {
  input: leaf,
  data: leaf,
  const: leaf,
  iota: leaf,
  random: anyRank,
  alias: anyRank,
  barrier: anyRank,
  pin: sameOp(({ attrs }) => ({ dims: [[], ...attrs.dims], backward: [[], ...attrs.backward] })),
  unary: anyRank,
  binary: anyRank,
  where: anyRank,
  cast: anyRank,
  reshape: sameOp((node, size) => ({ shape: [size, ...node.attrs.shape] })),
  permute: sameOp((node) => ({ axes: [0, ...later(node.attrs.axes)] })),
  expand: sameOp((node, size) => ({ shape: [size, ...node.attrs.shape] })),
  slice: sameOp((node, size) => ({
    start: [0, ...node.attrs.start],
    stop: [size, ...node.attrs.stop],
    step: [1, ...node.attrs.step],
  })),
  pad: sameOp((node) => ({ low: [0, ...node.attrs.low], high: [0, ...node.attrs.high] })),
  flip: sameOp((node) => ({ axes: later(node.attrs.axes) })),
  concat: ({ node, inputs, size }) =>
    concat(
      inputs.map((x) => withBatch(x, size)),
      node.attrs.axis + 1,
    ),
  reduce: sameOp((node) => ({ fn: node.attrs.fn, axes: later(node.attrs.axes) })),
  argreduce: sameOp((node) => ({ fn: node.attrs.fn, axis: node.attrs.axis + 1 })),
  cumsum: sameOp((node) => ({ axis: node.attrs.axis + 1, reverse: node.attrs.reverse })),
  matmul: ({ node, inputs, size }) => {
    const [a, b] = inputs;
    const plain = node.shape.length === 2;
    // A shared right operand: merge the batch into the rows, for one large product.
    if (a.batched && !b.batched && plain) {
      const [, m, k] = a.node.shape;
      const product = make("matmul", [reshape(a.node, [size * m, k]), b.node], node.attrs);
      return reshape(product, [size, m, node.shape[1]]);
    }
    // A shared left operand: merge the batch into the columns.
    if (!a.batched && b.batched && plain) {
      const [, k, n] = b.node.shape;
      const wide = reshape(permute(b.node, [1, 0, 2]), [k, size * n]);
      const product = reshape(make("matmul", [a.node, wide], node.attrs), [node.shape[0], size, n]);
      return permute(product, [1, 0, 2]);
    }
    return make("matmul", [withBatch(a, size), withBatch(b, size)], node.attrs);
  },
  conv: convBatch,
  gather: ({ node, inputs, size }) => {
    const { axis, batch } = node.attrs;
    const [x, indices] = inputs;
    if (!x.batched && batch === 0) {
      // A shared table: look up all indices at once, then move the batch axis to the front.
      const found = make("gather", [x.node, indices.node], { axis, batch: 0 });
      const order = [axis, ...range(found.shape.length).filter((i) => i !== axis)];
      return permute(found, order);
    }
    // Shared indices: one lookup for all examples.
    if (!indices.batched && batch === 0) return make("gather", [x.node, indices.node], { axis: axis + 1, batch: 0 });
    return make("gather", [withBatch(x, size), withBatch(indices, size)], { axis: axis + 1, batch: batch + 1 });
  },
  updateSlice: sameOp((node) => ({ axis: node.attrs.axis + 1, batch: node.attrs.batch + 1 })),
  scatterAdd: sameOp((node) => ({ axis: node.attrs.axis + 1, batch: node.attrs.batch + 1 })),
  scatterReduce: sameOp(({ attrs: { axis, batch, fn } }) => ({ axis: axis + 1, batch: batch + 1, fn })),
  fft: anyRank,
  argsort: anyRank,
  cholesky: anyRank,
  triangularSolve: anyRank,
  solve: anyRank,
  det: anyRank,
  eigh: anyRank,
  qr: anyRank,
  lu: anyRank,
  eig: anyRank,
  svd: anyRank,
  collective: () => {
    throw new WeftError("vmap of a collective: map the function first, then shard it or reduce its results");
  },
};
