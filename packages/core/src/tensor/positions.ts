// Positions of nonzero elements, read from a device: what boolean masks and functions such as nonzero are made of.
import { numel } from "../graph/index.js";
import { fromStorage } from "./create.js";
import { cast } from "./math.js";
import type { Tensor } from "./tensor.js";

/** An int32 tensor of indices. */
export const indexTensor = (indices: readonly number[], shape: readonly number[] = [indices.length]): Tensor =>
  fromStorage(shape, "int32", Int32Array.from(indices));

/** Positions of the nonzero elements in the flattened tensor. */
export function nonzeroPositions(x: Tensor): number[] {
  const data = cast(x, "bool").dataSync() as Uint8Array;
  const found: number[] = [];
  for (let i = 0; i < data.length; i++) if (data[i] !== 0) found.push(i);
  return found;
}

/** Indices along every axis of positions in the flattened tensor. */
export function unravel(positions: readonly number[], shape: readonly number[]): number[][] {
  let below = numel(shape);
  return shape.map((size) => {
    below = size === 0 ? 0 : below / size;
    return positions.map((at) => Math.floor(at / below) % size);
  });
}
