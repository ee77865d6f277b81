// The library ops of the CUDA device: kernels written by hand (native/) and the solvers of the vendor.
import { isCounted, isZeroBase } from "../../compile/index.js";
import { bytesOf, type DType, InternalError, type Node, numel } from "../../graph/index.js";
import type { LibraryOp } from "../../ops/index.js";
import type { Convolutions } from "./convolution.js";
import { isDepthwiseKernel, launchDepthwise } from "./depthwise.js";
import type { FourierTransforms } from "./fourier.js";
import { type LibraryCalls, launchScan, launchSort } from "./scan-sort.js";
import { launchReduced, launchScatter } from "./scatter.js";

/** Storage names of the library kernels. */
const kernelDType: Record<DType, string> = {
  bool: "u8",
  int8: "i8",
  uint8: "u8",
  int16: "i16",
  uint16: "u16",
  int32: "i32",
  uint32: "u32",
  int64: "i64",
  uint64: "u64",
  float16: "f16",
  bfloat16: "bf16",
  float32: "f32",
  float64: "f64",
  complex64: "f32",
  complex128: "f64",
};

/** Addresses of a call, and what it can launch. */
interface CallOperands {
  input(i: number): number;
  output: number;
  workspace: number;
  kernels: LibraryCalls;
  /** Null without cuDNN: schedules have no convolutions then. */
  convolutions: Convolutions | null;
  fourier: FourierTransforms;
  /** Runs the op by the vendor's solvers, or on the host without them. */
  linearAlgebra(): void;
  /** Runs the op on the host by its reference rule. */
  onHost(): void;
}

type LibraryCall<K extends LibraryOp> = (node: Node<K>, at: CallOperands) => void;

const linearAlgebra = (_: unknown, at: CallOperands): void => at.linearAlgebra();

/** The kernel of an update: its name, the numbers that it writes, and the sizes that it takes. */
export function updateCall(node: Node<"updateSlice">): { name: string; count: number; sizes: number[] } {
  const [{ shape, dtype }, , update] = node.inputs;
  const { axis, batch } = node.attrs;
  const words = bytesOf(dtype) > 8 ? 2 : 1;
  const inner = numel(shape.slice(axis + 1)) * words;
  return {
    name: `w_update_${(8 * bytesOf(dtype)) / words}`,
    count: numel(update.shape) * words,
    sizes: [numel(shape.slice(batch, axis)), shape[axis], update.shape[axis], inner],
  };
}

/** One entry per library op: a missing one is a type error. */
const calls: { [K in LibraryOp]: LibraryCall<K> } = {
  cumsum: (node, { input, output, workspace, kernels }) => {
    const [from, to] = [node.inputs[0].dtype, node.dtype].map((dtype) => kernelDType[dtype]);
    const type = `${node.attrs.fn ?? ""}${from === to ? to : from + to}`;
    launchScan(node, type, { x: input(0), out: output, workspace }, kernels);
  },
  conv: (node, { input, output, workspace, kernels, convolutions }) => {
    const operands = { inputs: [input(0), input(1)], output, workspace };
    if (isDepthwiseKernel(node)) launchDepthwise(node, kernelDType[node.dtype], operands, kernels);
    else convolutions!.issue(node, operands);
  },
  fft: (node, { input, output, fourier }) => fourier.issue(node, input(0), output),
  argsort: (node, { input, output, workspace, kernels }) =>
    launchSort(node, kernelDType[node.inputs[0].dtype], { x: input(0), out: output, workspace }, kernels),
  updateSlice: (node, { input, output, kernels }) => {
    const { name, count, sizes } = updateCall(node);
    kernels.copy(output, input(0), numel(node.shape) * bytesOf(node.dtype));
    if (count > 0) kernels.launch(name, Math.ceil(count / 256), 256, [output, input(1), input(2), count, ...sizes]);
  },
  scatterAdd: (node, { input, output, workspace, kernels }) => {
    const base = isZeroBase(node, node.inputs[0]) ? 0 : input(0);
    const updates = isCounted(node, node.inputs[2], true) ? 0 : input(2);
    const places = { base, indices: input(1), updates, out: output, workspace };
    launchScatter(node, kernelDType[node.inputs[0].dtype], places, kernels);
  },
  scatterReduce: (node, { input, output, workspace, kernels }) => {
    const places = { base: input(0), indices: input(1), updates: input(2), out: output, workspace };
    launchReduced(node, kernelDType[node.dtype], places, kernels);
  },
  cholesky: linearAlgebra,
  triangularSolve: linearAlgebra,
  solve: linearAlgebra,
  det: linearAlgebra,
  eigh: linearAlgebra,
  qr: linearAlgebra,
  lu: linearAlgebra,
  // The vendor has no general eigenvalue solver in most of its versions.
  eig: (_, at) => at.onHost(),
  svd: linearAlgebra,
};

/** Issues a library op to the stream. */
export function issueLibraryOp(node: Node, at: CallOperands): void {
  // A graph from outside can hold ops that only a partitioner or a transform should see.
  if (!Object.hasOwn(calls, node.op)) throw new InternalError(`the CUDA device has no code for ${node.op}`);
  (calls[node.op as LibraryOp] as LibraryCall<LibraryOp>)(node as Node<LibraryOp>, at);
}
