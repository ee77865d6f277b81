// Layouts of padded tensors. A program for sizes up to a bucket computes on tensors with the sizes of the bucket; each
// dimension holds as many valid positions as its extent, a number that the program gets with every call. What lies outside is
// arbitrary, unless it is masked.
import { type DType, InternalError, type Node, numel, type Scalar, type Shape, WeftError } from "../graph/index.js";
import * as b from "./build.js";

/** Sizes of one dimension in several traces of a function. The first trace is that of the bucket: its size is the padded one. */
export type Sizes = readonly number[];

/**
 * A dimension as nested parts, outermost first; each part stores its valid positions first. With one part the dimension is
 * compact. Merging dimensions by a reshape gives several. `uniform`: all positions hold the same element, those outside too.
 */
export interface DimLayout {
  readonly parts: readonly Sizes[];
  readonly uniform: boolean;
}

/** A node of the padded program with the layouts of its results. */
export interface Padded {
  readonly node: Node;
  readonly layouts: readonly (readonly DimLayout[])[];
  /** Positions of these results among those of the node, if it has further ones. */
  readonly outputs?: readonly number[];
}

/** Numbers that differ between traces, as scalars of the padded program. */
export interface Slots {
  of(values: readonly Scalar[], dtype: DType): Node;
}

/** The function has no padded form; the message says why. */
export class UnpaddableError extends WeftError {
  override name = "UnpaddableError";
}

export const isVarying = (sizes: Sizes): boolean => sizes.some((size) => size !== sizes[0]);
export const compact = (sizes: Sizes): DimLayout => ({ parts: [sizes], uniform: false });
export const uniformLayout = (sizes: Sizes): DimLayout => ({ parts: [sizes], uniform: true });
export const multiplySizes = (one: Sizes, other: Sizes): Sizes => one.map((size, i) => size * other[i]);
const product = (parts: readonly Sizes[], traces: number): Sizes =>
  parts.reduce(multiplySizes, new Array<number>(traces).fill(1));
export const sizesOf = ({ parts }: DimLayout): Sizes => product(parts, parts[0].length);
/** Whether every position is valid. */
export const isWhole = ({ parts }: DimLayout): boolean => !parts.some(isVarying);
const isCompact = ({ parts }: DimLayout): boolean => parts.length === 1 || !parts.some(isVarying);

const sameSizes = (a: Sizes, c: Sizes): boolean => a.every((size, i) => size === c[i]);
const sameParts = (a: DimLayout, c: DimLayout): boolean =>
  a.parts.length === c.parts.length && a.parts.every((part, i) => sameSizes(part, c.parts[i]));

/** Integer arithmetic on indices of one shape, with numbers that may differ between traces. */
class Indices {
  constructor(
    readonly shape: Shape,
    readonly slots: Slots,
  ) {}

  number(sizes: Sizes): Node {
    return b.expandTo(this.slots.of(sizes, "int32"), this.shape);
  }

  iota(axis: number): Node {
    return b.iota(this.shape, axis, "int32");
  }

  scaled(x: Node, by: Sizes): Node {
    return sameSizes(
      by,
      by.map(() => 1),
    )
      ? x
      : b.mul(x, this.number(by));
  }

  divided(x: Node, by: Sizes): Node {
    return sameSizes(
      by,
      by.map(() => 1),
    )
      ? x
      : b.binary("floordiv", x, this.number(by));
  }

  remainder(x: Node, by: Sizes): Node {
    return b.sub(x, b.mul(this.divided(x, by), this.number(by)));
  }
}

const padded = (sizes: Sizes): Sizes => sizes.map(() => sizes[0]);

/** Positions in the parts of a dimension, from the position in the padded dimension. */
function digits(at: Indices, axis: number, { parts }: DimLayout): Node[] {
  if (parts.length === 1) return [at.iota(axis)];
  let rest = at.iota(axis);
  const found: Node[] = [];
  for (let i = parts.length - 1; i > 0; i--) {
    found.unshift(at.remainder(rest, padded(parts[i])));
    rest = at.divided(rest, padded(parts[i]));
  }
  return [rest, ...found];
}

/** Where all positions along the given axes are valid; null if they are everywhere. */
function validity(shape: Shape, layout: readonly DimLayout[], axes: readonly number[], slots: Slots): Node | null {
  const at = new Indices(shape, slots);
  const tests = axes.flatMap((axis) => {
    if (isWhole(layout[axis])) return [];
    const positions = digits(at, axis, layout[axis]);
    return layout[axis].parts.flatMap((sizes, i) => (isVarying(sizes) ? [b.lt(positions[i], at.number(sizes))] : []));
  });
  return tests.length === 0 ? null : tests.reduce((one, other) => b.binary("and", one, other));
}

/** The node with `fill` outside the valid positions of the axes. */
export function masked(
  x: Node,
  layout: readonly DimLayout[],
  axes: readonly number[],
  fill: Scalar | Node,
  slots: Slots,
): Node {
  const isValid = validity(x.shape, layout, axes, slots);
  if (isValid === null) return x;
  if (typeof fill === "object" && "op" in fill) return b.where(isValid, x, fill);
  // Infinities saturate to the limits of integers; the lower limit of bool is false.
  return b.where(isValid, x, b.fullLike(x, x.dtype === "bool" ? Number(Number(fill) > 0) : fill));
}

/** Position in a padded tensor of the parts `from`, of the element with the given number in row-major order of the valid ones. */
function positionOf(element: Node, from: readonly Sizes[], at: Indices): Node {
  let rest = element;
  let stride = from[0].map(() => 1);
  let position: Node | null = null;
  for (let i = from.length - 1; i >= 0; i--) {
    const digit = i === 0 ? rest : at.remainder(rest, from[i]);
    if (i > 0) rest = at.divided(rest, from[i]);
    const term = at.scaled(digit, stride);
    position = position === null ? term : b.add(term, position);
    stride = multiplySizes(stride, padded(from[i])) as number[];
  }
  return position!;
}

/** Number of the element at each padded position, in row-major order of the valid ones. */
function elementAt(at: Indices, layout: readonly DimLayout[], axes: readonly number[]): Node {
  let stride: Sizes = layout[axes[0]].parts[0].map(() => 1);
  let element: Node | null = null;
  for (const axis of [...axes].reverse()) {
    const positions = digits(at, axis, layout[axis]);
    for (let i = positions.length - 1; i >= 0; i--) {
      const term = at.scaled(positions[i], stride);
      element = element === null ? term : b.add(term, element);
      stride = multiplySizes(stride, layout[axis].parts[i]);
    }
  }
  return element!;
}

/** The node with another layout of one dimension. */
function withDim(x: Node, axis: number, from: DimLayout, to: DimLayout, slots: Slots): Node {
  if (from.uniform || sameParts(from, to) || (isWhole(from) && isWhole(to))) return x;
  if (!sameSizes(sizesOf(from), sizesOf(to))) throw new InternalError("layouts of different dimensions");
  const at = new Indices([x.shape[axis]], slots);
  return b.gather(x, positionOf(elementAt(at, [to], [0]), from.parts, at), axis, 0);
}

/** The node with each dimension in the given layout. */
export function aligned({ node, layouts: [from] }: Padded, to: readonly DimLayout[], slots: Slots): Node {
  return from.reduce((x, dim, axis) => withDim(x, axis, dim, to[axis], slots), node);
}

/** The node with compact dimensions, all or those of the given axes. */
export function compacted(x: Padded, slots: Slots, axes: readonly number[] = x.node.shape.map((_, i) => i)): Padded {
  const [layout] = x.layouts;
  const to = layout.map((dim, i) => (axes.includes(i) && !isCompact(dim) ? compact(sizesOf(dim)) : dim));
  return { node: aligned(x, to, slots), layouts: [to] };
}

/** The common layout of dimensions that correspond: one that is not uniform, with more parts if they differ. */
export function common(dims: readonly DimLayout[]): DimLayout {
  const fixed = dims.filter((dim) => !dim.uniform);
  if (fixed.length === 0) return dims[0];
  return fixed.reduce((best, dim) => (dim.parts.length > best.parts.length ? dim : best));
}

/** Parts of the target dimensions of a reshape that moves no element; null if there are none. */
function regrouped(from: readonly DimLayout[], to: readonly Sizes[]): DimLayout[] | null {
  const traces = to[0]?.length ?? from[0].parts[0].length;
  const one: Sizes = new Array<number>(traces).fill(1);
  const queue = from
    .flatMap((dim) => dim.parts.map((sizes) => ({ sizes, uniform: dim.uniform })))
    .filter(({ sizes }) => !sameSizes(sizes, one));
  const dims: DimLayout[] = [];
  for (const target of to) {
    const parts: Sizes[] = [];
    let isUniform = true;
    let have = one;
    while (!sameSizes(have, target)) {
      const next = queue.shift();
      if (next === undefined) return null;
      let { sizes } = next;
      const left = target[0] / have[0];
      if (!isVarying(sizes) && left < sizes[0]) {
        if (!Number.isInteger(left) || sizes[0] % left !== 0) return null;
        const inner = sizes[0] / left;
        queue.unshift({ sizes: one.map(() => inner), uniform: next.uniform });
        sizes = one.map(() => left);
      }
      have = multiplySizes(have, sizes);
      if (have[0] > target[0]) return null;
      isUniform &&= next.uniform;
      // Neighbors without padding are one part.
      const before = parts[parts.length - 1];
      if (before !== undefined && !isVarying(before) && !isVarying(sizes))
        parts[parts.length - 1] = multiplySizes(before, sizes);
      else parts.push(sizes);
    }
    dims.push({ parts: parts.length === 0 ? [one] : parts, uniform: isUniform && parts.length > 0 });
  }
  return queue.length === 0 ? dims : null;
}

/** A reshape to dimensions of the given sizes. Elements are moved where merged dimensions cannot be divided as they are. */
export function reshaped({ node, layouts: [from] }: Padded, to: readonly Sizes[], slots: Slots): Padded {
  const shape = to.map((sizes) => sizes[0]);
  const kept = from.length === 0 || to.length === 0 ? null : regrouped(from, to);
  if (kept !== null) return { node: b.reshape(node, shape), layouts: [kept] };
  if (from.every(isWhole) && !to.some(isVarying)) return { node: b.reshape(node, shape), layouts: [to.map(compact)] };
  const dims = to.map(compact);
  const count = numel(node.shape);
  if (Math.max(count, numel(shape)) >= 2 ** 31)
    throw new UnpaddableError(`a reshape of ${count} elements is too large to be padded`);
  const flat = b.reshape(node, [count]);
  const at = new Indices(shape, slots);
  if (to.length === 0 || from.length === 0)
    throw new InternalError("a reshape between a scalar and a varying dimension");
  const element = elementAt(
    at,
    dims,
    to.map((_, axis) => axis),
  );
  const parts = from.flatMap((dim) => dim.parts);
  return { node: b.gather(flat, positionOf(element, parts, at), 0, 0), layouts: [dims] };
}

/** Whether the valid elements come first, in their order: only the outermost dimension is padded. */
export function isPrefix(layout: readonly DimLayout[]): boolean {
  const outer = layout.findIndex((dim) => dim.parts[0][0] !== 1 || isVarying(dim.parts[0]));
  return layout.every((dim, axis) => (axis === outer ? isCompact(dim) : isWhole(dim)));
}

/** Elements along an axis at the positions `start + step * i`, for `size` values of i. */
export function strided(x: Node, axis: number, size: Sizes, start: Sizes, step: Sizes, slots: Slots): Node {
  const at = new Indices([size[0]], slots);
  return b.gather(x, b.add(at.scaled(at.iota(0), step), at.number(start)), axis, 0);
}
