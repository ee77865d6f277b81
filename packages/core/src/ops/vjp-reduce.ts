// Reverse-mode rules of the reductions.
import { inversePermutation, type Node, numel, type ReduceFn, range } from "../graph/index.js";
import { cast, concat, conj, div, eq, full, mul, permute, reshape, sliceAxis, sum, unreduce } from "./build.js";

type ReduceVjp = (x: Node, y: Node, g: Node, axes: readonly number[]) => Node;

export const reduceVjps: Record<ReduceFn, ReduceVjp> = {
  sum: (x, _y, g, axes) => unreduce(g, x.shape, axes),
  prod: (x, _y, g, axes) => mul(unreduce(g, x.shape, axes), conj(productOfOthers(x, axes))),
  max: extremum,
  min: extremum,
};

/** Elements that attain the extremum share its gradient equally. */
function extremum(x: Node, y: Node, g: Node, axes: readonly number[]): Node {
  const mask = cast(eq(x, unreduce(y, x.shape, axes)), x.dtype);
  const share = div(g, sum(mask, axes));
  return mul(mask, unreduce(share, x.shape, axes));
}

/**
 * For every element the product of the others along the axes. Not y / x: with zeros among the elements that has no
 * value, and no second derivative where it has one.
 */
function productOfOthers(x: Node, axes: readonly number[]): Node {
  const remaining = range(x.shape.length).filter((a) => !axes.includes(a));
  const order = [...remaining, ...axes];
  const rows = permute(x, order);
  const count = numel(axes.map((a) => x.shape[a]));
  const flat = reshape(rows, [...remaining.map((a) => x.shape[a]), count]);
  const others = mul(runningProduct(flat, false), runningProduct(flat, true));
  return permute(reshape(others, rows.shape), inversePermutation(order));
}

/** Along the last axis the product of all elements before (or after) each one, in log2 n steps of doubling reach. */
function runningProduct(x: Node, after: boolean): Node {
  const axis = x.shape.length - 1;
  const n = x.shape[axis];
  const shifted = (t: Node, by: number): Node => {
    const ones = full([...x.shape.slice(0, -1), Math.min(by, n)], 1, x.dtype);
    const rest = after ? sliceAxis(t, axis, Math.min(by, n), n) : sliceAxis(t, axis, 0, Math.max(0, n - by));
    return concat(after ? [rest, ones] : [ones, rest], axis);
  };
  let product = shifted(x, 1);
  for (let reach = 1; reach < n - 1; reach *= 2) product = mul(product, shifted(product, reach));
  return product;
}
