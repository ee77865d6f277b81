// Initialization of parameters (PyTorch defaults), and validation of layer options.
import { type DType, type Shape, ShapeError, showShape, WeftError } from "../graph/index.js";
import { type Key, rand, splitKey, type Tensor } from "../tensor/index.js";

/** Splits a key into independent keys, one per part of a layer. A batch of keys ([batch, 2]) is split per example. */
export function keysOf(key: Key, count: number): Key[] {
  const all = splitKey(key, count);
  return Array.from({ length: count }, (_, i) => all.index("...", i, ":"));
}

const uniform = (shape: Shape, bound: number, key: Key, dtype: DType): Tensor =>
  rand(shape, { key, low: -bound, high: bound, dtype });

/** Uniform within 1/sqrt(fan in): what PyTorch's Linear gives its weight (kaiming with a = sqrt(5)) and its bias. */
export const fanInUniform = (shape: Shape, fanIn: number, key: Key, dtype: DType): Tensor =>
  uniform(shape, 1 / Math.sqrt(fanIn), key, dtype);

/** Glorot's uniform for a matrix [out, in]. */
export const xavierUniform = (shape: readonly [number, number], key: Key, dtype: DType): Tensor =>
  uniform(shape, Math.sqrt(6 / (shape[0] + shape[1])), key, dtype);

export function requireCount(op: string, name: string, value: number): void {
  if (!Number.isInteger(value) || value < 1)
    throw new WeftError(`${op}: ${name} must be a positive whole number, got ${value}`);
}

export function requireFlag(op: string, name: string, value: boolean): void {
  if (typeof value !== "boolean") throw new WeftError(`${op}: ${name} is true or false, got ${String(value)}`);
}

export function requireRate(op: string, rate: number): void {
  if (!(rate >= 0 && rate < 1)) throw new WeftError(`${op}: rate must be in [0, 1), got ${rate}`);
}

export function requireHeads(op: string, width: number, heads: number): void {
  requireCount(op, "heads", heads);
  if (width % heads !== 0) throw new WeftError(`${op}: width ${width} is not a multiple of heads ${heads}`);
}

/** Throws unless the last axis of x has the width of the layer. */
export function requireWidth(op: string, x: Tensor, width: number): void {
  if (x.shape.at(-1) !== width)
    throw new ShapeError(`${op}: x ${showShape(x.shape)} must have ${width} features in its last axis`);
}
