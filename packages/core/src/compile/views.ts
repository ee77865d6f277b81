// Views: ops that only rearrange elements. A chain of views is resolved to the node that stores or computes the elements,
// with the index there.
import { isOp, type Node, numel, type Shape, stridesOf } from "../graph/index.js";
import { viewOps } from "../ops/index.js";
import { delinearize, Ix, linearize } from "./index-expr.js";

export const isView = (node: Node): boolean => viewOps.has(node.op);

interface ElementSource {
  node: Node;
  index: readonly Ix[];
}

/**
 * The index of an element under another shape. Axes that are neither split nor joined keep theirs, and the others are divided among
 * themselves: an index before padding, which may lie beyond its axis where a guard fails, carries nothing over to the next axis.
 */
function reshaped(index: readonly Ix[], from: Shape, to: Shape): Ix[] {
  if (numel(from) === 0) return delinearize(linearize(index, from), to);
  const result: Ix[] = [];
  for (let [i, j] = [0, 0]; i < from.length || j < to.length; ) {
    const [first, start] = [i, j];
    let [a, b] = [i < from.length ? from[i++] : 1, j < to.length ? to[j++] : 1];
    while (a !== b) {
      if (a < b) a *= from[i++];
      else b *= to[j++];
    }
    const isKept = i - first === 1 && j - start === 1;
    if (isKept) result.push(index[first]);
    else result.push(...delinearize(linearize(index.slice(first, i), from.slice(first, i)), to.slice(start, j)));
  }
  return result;
}

/** One step down a view: the input and the index of the same element there. */
export function throughView(node: Node, index: readonly Ix[]): ElementSource {
  const [x] = node.inputs;
  if (isOp(node, "reshape")) return { node: x, index: reshaped(index, node.shape, x.shape) };
  if (isOp(node, "permute")) {
    const at = new Array<Ix>(x.shape.length);
    node.attrs.axes.forEach((axis, i) => {
      at[axis] = index[i];
    });
    return { node: x, index: at };
  }
  if (isOp(node, "expand")) return { node: x, index: index.map((ix, i) => (x.shape[i] === 1 ? Ix.zero : ix)) };
  if (isOp(node, "slice")) {
    const { start, step } = node.attrs;
    return { node: x, index: index.map((ix, i) => ix.times(step[i]).plus(start[i])) };
  }
  if (isOp(node, "flip")) {
    const { axes } = node.attrs;
    return { node: x, index: index.map((ix, i) => (axes.includes(i) ? ix.times(-1).plus(x.shape[i] - 1) : ix)) };
  }
  return { node: x, index: [...index] };
}

/** Follows views until `stop` or something that is not a view. */
export function resolveViews(node: Node, index: readonly Ix[], stop: (node: Node) => boolean): ElementSource {
  let place: ElementSource = { node, index: [...index] };
  while (isView(place.node) && !stop(place.node)) place = throughView(place.node, place.index);
  return place;
}

/** Where the elements of a copied view come from: below the view itself. */
export function resolveCopied(node: Node, index: ElementSource["index"], stop: (node: Node) => boolean): ElementSource {
  if (!isView(node)) return { node, index };
  const below = throughView(node, index);
  return resolveViews(below.node, below.index, stop);
}

/** One variable per axis. */
export function axisVariables(shape: readonly number[]): readonly Ix[] {
  let variables = variablesOf.get(shape);
  if (variables === undefined) {
    variables = shape.map((d, i) => Ix.variable(`x${i}`, d));
    variablesOf.set(shape, variables);
  }
  return variables;
}

/** Element-wise nodes share the array of their shape. */
const variablesOf = new WeakMap<readonly number[], readonly Ix[]>();

/** Strides of nodes whose elements are not in row-major order (see fuse.ts, which lets products write permuted). */
export type Layouts = ReadonlyMap<Node, readonly number[]>;

/** The location of a view's elements in the memory of a node. */
export function addressIn(layouts: Layouts, node: Node, index: readonly Ix[]): Ix {
  const strides = layouts.get(node);
  if (strides === undefined) return linearize(index, node.shape);
  return index.reduce((sum, ix, i) => sum.add(ix.times(strides[i])), Ix.zero);
}

export interface Strided {
  node: Node;
  /** In elements, one entry per axis of the viewing node; zero for broadcast axes. */
  strides: number[];
  offset: number;
}

/** Strides of the same elements under another shape; null where one stride per axis cannot express it. */
function reshapedStrides(from: Shape, strides: readonly number[], to: Shape): number[] | null {
  const axes = from.flatMap((size, i) => (size === 1 ? [] : [{ size, stride: strides[i] }]));
  const result = new Array<number>(to.length).fill(0);
  // From the innermost axis on: an axis of the new shape takes (part of) old axes that are nested in memory.
  let left = axes.pop();
  for (let i = to.length - 1; i >= 0; i--) {
    if (to[i] === 1) continue;
    if (left === undefined) return null;
    while (to[i] > left.size || left.size % to[i] !== 0) {
      const outer = axes.pop();
      if (outer === undefined || outer.stride !== left.stride * left.size) return null;
      left = { size: left.size * outer.size, stride: left.stride };
    }
    result[i] = left.stride;
    left = left.size === to[i] ? axes.pop() : { size: left.size / to[i], stride: left.stride * to[i] };
  }
  return result;
}

/** A view as base, strides and offset; null where the addresses are not a plain sum. */
export function asStrided(node: Node, stop: (node: Node) => boolean, layouts: Layouts): Strided | null {
  return structurally(node, stop, layouts) ?? symbolically(node, stop, layouts);
}

function structurally(node: Node, stop: (node: Node) => boolean, layouts: Layouts): Strided | null {
  const views: Node[] = [];
  let base = node;
  while (isView(base) && !stop(base)) {
    views.push(base);
    [base] = base.inputs;
  }
  if (numel(base.shape) === 0) return null;
  let strides: number[] = [...(layouts.get(base) ?? stridesOf(base.shape))];
  let offset = 0;
  for (const view of views.reverse()) {
    const [x] = view.inputs;
    if (isOp(view, "permute")) strides = view.attrs.axes.map((axis) => strides[axis]);
    else if (isOp(view, "expand")) strides = strides.map((s, i) => (x.shape[i] === 1 ? 0 : s));
    else if (isOp(view, "slice")) {
      const { start, step } = view.attrs;
      offset = start.reduce((sum, at, i) => sum + at * strides[i], offset);
      strides = strides.map((s, i) => s * step[i]);
    } else if (isOp(view, "reshape")) {
      const next = reshapedStrides(x.shape, strides, view.shape);
      if (next === null) return null;
      strides = next;
    } else if (isOp(view, "flip")) return null;
  }
  return { node: base, strides: strides.map((s, i) => (node.shape[i] === 1 ? 0 : s)), offset };
}

function symbolically(node: Node, stop: (node: Node) => boolean, layouts: Layouts): Strided | null {
  const place = resolveViews(node, axisVariables(node.shape), stop);
  const address = addressIn(layouts, place.node, place.index);
  const strides: number[] = [];
  for (let i = 0; i < node.shape.length; i++) {
    const stride = address.stride(`x${i}`);
    if (stride === null) return null;
    strides.push(stride);
  }
  const plain = [...address.terms.values()].every(({ atom }) => atom.kind === "var");
  return plain ? { node: place.node, strides, offset: address.constant } : null;
}

/** How the elements of a node relate to those of the node behind its views. */
export type Relation =
  | { kind: "same" }
  /** Element i of the viewing node is element floor(i / inner) of the other. */
  | { kind: "row"; inner: number }
  | { kind: "other" };

/** The common case without views that move elements: no addresses need to be computed. */
const isDirect = (node: Node, place: ElementSource): boolean =>
  place.node.shape.length === node.shape.length &&
  place.node.shape.every((size, i) => {
    if (size !== node.shape[i]) return false;
    const { terms, constant } = place.index[i];
    return constant === 0 && (size === 1 ? terms.size === 0 : terms.size === 1 && terms.get(`x${i}`)?.factor === 1);
  });

export function relationOf(node: Node, place: ElementSource, layouts: Layouts): Relation {
  if (isDirect(node, place) && !layouts.has(place.node)) return { kind: "same" };
  const position = linearize(axisVariables(node.shape), node.shape);
  const address = addressIn(layouts, place.node, place.index);
  const [size, other] = [numel(node.shape), numel(place.node.shape)];
  if (size === other && address.equals(position)) return { kind: "same" };
  if (other > 0 && size % other === 0 && size > other && address.equals(position.div(size / other)))
    return { kind: "row", inner: size / other };
  return { kind: "other" };
}
