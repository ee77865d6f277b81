// The library ops of the CPU device: each is one call through the table of the runtime library (native/abi.h).

import { isCounted, isZeroBase } from "../../compile/index.js";
import { bytesOf, codeOf, convKinds, fftKinds, InternalError, type Node, numel, scanFns } from "../../graph/index.js";
import { convRoles, type LibraryOp } from "../../ops/index.js";

/** C expressions for the arguments of a call. */
interface CallOperands {
  /** The library's number of a matrix dtype. */
  code: number;
  input(i: number): string;
  output(i?: number): string;
}

type LibraryCall<K extends LibraryOp> = (node: Node<K>, at: CallOperands) => string;

/** Number of matrices, and their rows and columns. */
const matrices = (node: Node<LibraryOp>): string => {
  const { shape } = node.inputs[0];
  return `${numel(shape.slice(0, -2))}, ${shape.slice(-2).join(", ")}`;
};
/** The same for square matrices: their order once. */
const squares = (node: Node<LibraryOp>): string => {
  const { shape } = node.inputs[0];
  return `${numel(shape.slice(0, -2))}, ${shape[shape.length - 1]}`;
};
const rightSides = (node: Node<LibraryOp>): number => node.shape[node.shape.length - 1];

/** Batches, slices before the axis, its length, elements after it, and indices per batch. */
function scatterSizes(node: Node<"scatterAdd"> | Node<"scatterReduce">): string {
  const { axis, batch } = node.attrs;
  const [{ shape }, indices] = node.inputs;
  const outer = [numel(shape.slice(0, batch)), numel(shape.slice(batch, axis))];
  return [...outer, shape[axis], numel(shape.slice(axis + 1)), numel(indices.shape.slice(batch))].join(", ");
}

/** The description of a convolution that native/conv.c reads. */
function convShape(node: Node<"conv">, code: number): number[] {
  const { x, w, y } = convRoles(node);
  const { kind, stride, dilation, low, groups, channelsLast } = node.attrs;
  const three = (list: readonly number[], rest = 1): number[] => [
    ...new Array<number>(3 - list.length).fill(rest),
    ...list,
  ];
  const spatial = ({ shape }: Node): number[] => three(channelsLast ? shape.slice(1, -1) : shape.slice(2));
  const channels = ({ shape }: Node): number => shape[channelsLast ? shape.length - 1 : 1];
  return [
    ...[convKinds.indexOf(kind), code, Number(channelsLast), x.shape[0], channels(x), channels(y), groups],
    ...[...spatial(x), ...spatial(w), ...spatial(y)],
    ...[...three(stride), ...three(dilation), ...three(low, 0)],
  ];
}

/** One entry per library op: a missing one is a type error. */
const calls: { [K in LibraryOp]: LibraryCall<K> } = {
  cumsum: (node, { input, output }) => {
    const { shape, dtype } = node.inputs[0];
    const { axis, reverse, fn } = node.attrs;
    const [outer, n, inner] = [numel(shape.slice(0, axis)), shape[axis], numel(shape.slice(axis + 1))];
    if (fn !== undefined)
      return `rt->scan(${codeOf(dtype)}, ${scanFns.indexOf(fn)}, ${outer}, ${n}, ${inner}, ${input(0)}, ${output()}, threads);`;
    return `rt->cumsum(${codeOf(dtype)}, ${outer}, ${n}, ${inner}, ${Number(reverse)}, ${input(0)}, ${output()}, threads);`;
  },
  conv: (node, { code, input, output }) =>
    `W_TRY(rt->conv((const int64_t[]){${convShape(node, code).join(", ")}}, ${input(0)}, ${input(1)}, ${output()}, threads));`,
  fft: (node, { code, input, output }) => {
    const { kind, inverse, axes, size } = node.attrs;
    const { shape } = node.inputs[0];
    const lead = numel(shape.slice(0, -axes));
    const numbers = [fftKinds.indexOf(kind), Number(inverse), axes, lead, ...shape.slice(-axes, -1), size];
    return `W_TRY(rt->fft(${code & 1}, (const int64_t[]){${numbers.join(", ")}}, ${input(0)}, ${output()}, threads));`;
  },
  argsort: (node, { input, output }) => {
    const { shape, dtype } = node.inputs[0];
    const n = shape[shape.length - 1];
    return `W_TRY(rt->argsort(${codeOf(dtype)}, ${numel(shape.slice(0, -1))}, ${n}, ${node.attrs.first ?? 0}, ${node.shape[node.shape.length - 1]}, ${Number(node.attrs.descending)}, ${input(0)}, (int32_t*)${output()}, threads));`;
  },
  updateSlice: (node, { input, output }) => {
    const [{ shape, dtype }, , update] = node.inputs;
    const { axis, batch } = node.attrs;
    const bytes = bytesOf(dtype) * numel(shape.slice(axis + 1));
    const sizes = [
      numel(shape.slice(0, axis)),
      numel(shape.slice(batch, axis)),
      shape[axis],
      update.shape[axis],
      bytes,
    ];
    return `w_update(${input(0)}, ${input(1)}, ${input(2)}, ${output()}, ${sizes.join(", ")});`;
  },
  scatterAdd: (node, { input, output }) => {
    const base = isZeroBase(node, node.inputs[0]) ? "NULL" : input(0);
    const updates = isCounted(node, node.inputs[2], true) ? "NULL" : input(2);
    return `rt->scatter_add(${codeOf(node.dtype)}, ${scatterSizes(node)}, ${base}, (const int32_t*)${input(1)}, ${updates}, ${output()}, threads);`;
  },
  scatterReduce: (node, { input, output }) =>
    `rt->scatter_reduce(${codeOf(node.dtype)}, ${scanFns.indexOf(node.attrs.fn)}, ${scatterSizes(node)}, ${input(0)}, (const int32_t*)${input(1)}, ${input(2)}, ${output()}, threads);`,
  cholesky: (node, { code, input, output }) =>
    `W_TRY(rt->cholesky(${code}, ${squares(node)}, ${input(0)}, ${output()}));`,
  det: (node, { code, input, output }) => `W_TRY(rt->det(${code}, ${squares(node)}, ${input(0)}, ${output()}));`,
  eigh: (node, { code, input, output }) =>
    `W_TRY(rt->eigh(${code}, ${squares(node)}, ${input(0)}, ${output(0)}, ${output(1)}));`,
  lu: (node, { code, input, output }) =>
    `W_TRY(rt->lu(${code}, ${matrices(node)}, ${input(0)}, ${output(0)}, (int32_t*)${output(1)}));`,
  eig: (node, { code, input, output }) =>
    `W_TRY(rt->eig(${code}, ${squares(node)}, ${input(0)}, ${output(0)}, ${output(1)}));`,
  qr: (node, { code, input, output }) =>
    `W_TRY(rt->qr(${code}, ${matrices(node)}, ${input(0)}, ${output(0)}, ${output(1)}));`,
  svd: (node, { code, input, output }) =>
    `W_TRY(rt->svd(${code}, ${matrices(node)}, ${input(0)}, ${output(0)}, ${output(1)}, ${output(2)}));`,
  solve: (node, { code, input, output }) =>
    `W_TRY(rt->solve(${code}, ${squares(node)}, ${rightSides(node)}, ${input(0)}, ${input(1)}, ${output()}));`,
  triangularSolve: (node, { code, input, output }) => {
    const { lower, adjoint, unit } = node.attrs;
    const flags = [lower, adjoint, unit].map(Number).join(", ");
    return `W_TRY(rt->triangular_solve(${code}, ${squares(node)}, ${rightSides(node)}, ${flags}, ${input(0)}, ${input(1)}, ${output()}));`;
  },
};

/** The C statement that runs a library op. */
export function libraryCall(node: Node, at: CallOperands): string {
  // A graph from outside can hold ops that only a partitioner or a transform should see.
  if (!Object.hasOwn(calls, node.op)) throw new InternalError(`the CPU device has no code for ${node.op}`);
  return (calls[node.op as LibraryOp] as LibraryCall<LibraryOp>)(node as Node<LibraryOp>, at);
}
