// Checks the buffers of a call against the parameters of the function. Generated code trusts the shapes of its program, so
// that a buffer of another size must not reach it. For callers that receive buffer ids from other processes.
import { bytesOf, type GraphFn, numel, WeftError } from "../graph/index.js";
import type { DeviceBuffer } from "./contract.js";

export function checkBuffers({ params }: GraphFn, buffers: readonly Pick<DeviceBuffer, "bytes">[]): void {
  if (buffers.length !== params.length)
    throw new WeftError(`run: the program takes ${params.length} tensors, and ${buffers.length} are given`);
  params.forEach(({ shape, dtype }, i) => {
    const expected = numel(shape) * bytesOf(dtype);
    if (buffers[i].bytes !== expected)
      throw new WeftError(
        `run: argument ${i} takes ${expected} bytes, and the tensor given for it has ${buffers[i].bytes}`,
      );
  });
}
