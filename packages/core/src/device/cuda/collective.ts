// Collectives of a CUDA device: by NCCL where the group has it, through host memory otherwise (processes that share a
// GPU). The latter block the host, so that they cannot be part of a CUDA graph.
import { bytesOf, type Node, numel, WeftError } from "../../graph/index.js";
import type { ProcessGroup } from "../contract.js";
import { CudaBuffer, type CudaContext } from "./context.js";
import { NcclGroup } from "./nccl.js";

/** Runs one collective on device memory at the addresses `from` and `to`. */
export function stagedCollective(
  context: CudaContext,
  group: ProcessGroup | null,
  node: Node<"collective">,
  from: number,
  to: number,
): void {
  if (group === null)
    throw new WeftError(
      "this function exchanges data with other processes, and this one is in no group; call distributed.init() of @weft/cluster first",
    );
  const [operand] = node.inputs;
  if (group instanceof NcclGroup && group.onDevice(node.attrs, operand.shape, from, to)) return;
  const input = new Uint8Array(numel(operand.shape) * bytesOf(operand.dtype));
  const output = new Uint8Array(numel(node.shape) * bytesOf(node.dtype));
  if (input.byteLength > 0) context.transfers.download(new CudaBuffer(from, input.byteLength), input);
  group.collective(node.attrs, input, output, operand.shape);
  if (output.byteLength > 0) context.transfers.upload(new CudaBuffer(to, output.byteLength), output);
}
