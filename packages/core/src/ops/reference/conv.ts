// Convolutions by their definition: every pair of a position of the result side and a tap of the kernel is visited once, and the
// product of two of the three tensors is added to the third. Sums are in double, in pairs of doubles, or exact for integers.
import { isComplex, type Node, numel, type Shape } from "../../graph/index.js";
import { convRoles } from "../conv.js";
import * as c from "./complex.js";
import { seen } from "./matmul.js";
import {
  complexes,
  forEachIndex,
  fromComplexes,
  fromIntegers,
  fromReals,
  integers,
  isIntegral,
  type ReferenceRules,
  reals,
  type Value,
} from "./value.js";

/** Calls back with the positions in x, w and y of every product of the trilinear form. */
function forEachProduct(node: Node<"conv">, visit: (x: number, w: number, y: number) => void): void {
  const { x, w, y } = convRoles(node);
  const { stride, dilation, low, groups, channelsLast } = node.attrs;
  const parts = ({ shape }: Node): { lead: number; channels: number; size: Shape; positions: number } => {
    const size = channelsLast ? shape.slice(1, -1) : shape.slice(2);
    return { lead: shape[0], channels: shape[channelsLast ? shape.length - 1 : 1], size, positions: numel(size) };
  };
  const [px, pw, py] = [x, w, y].map(parts);
  const place = (p: ReturnType<typeof parts>, lead: number, channel: number, at: number): number =>
    channelsLast ? (lead * p.positions + at) * p.channels + channel : (lead * p.channels + channel) * p.positions + at;
  const perGroup = pw.lead / groups;
  forEachIndex(py.size, (p, py_) => {
    forEachIndex(pw.size, (k, pk) => {
      let px_ = 0;
      for (let i = 0; i < p.length; i++) {
        const from = stride[i] * p[i] + dilation[i] * k[i] - low[i];
        if (from < 0 || from >= px.size[i]) return;
        px_ = px_ * px.size[i] + from;
      }
      for (let n = 0; n < px.lead; n++)
        for (let o = 0; o < pw.lead; o++)
          for (let ch = 0; ch < pw.channels; ch++) {
            const first = Math.floor(o / perGroup) * pw.channels;
            visit(place(px, n, first + ch, px_), place(pw, o, ch, pk), place(py, n, o, py_));
          }
    });
  });
}

function sums<T>(
  node: Node<"conv">,
  operands: readonly ArrayLike<T>[],
  zero: T,
  addProduct: (sum: T, a: T, b: T) => T,
): T[] {
  const out = new Array<T>(numel(node.shape)).fill(zero);
  const [a, b] = operands;
  const { kind } = node.attrs;
  forEachProduct(node, (x, w, y) => {
    const [i, j, to] = kind === "forward" ? [x, w, y] : kind === "input" ? [y, w, x] : [x, y, w];
    out[to] = addProduct(out[to], a[i], b[j]);
  });
  return out;
}

function convolve(inputs: readonly Value[], node: Node<"conv">): Value {
  const { dtype, shape } = node;
  if (isComplex(dtype)) {
    const total = sums(node, inputs.map(complexes), c.zero, (sum, a, b) => c.add(sum, c.mul(a, b)));
    return fromComplexes(dtype, shape, total);
  }
  if (isIntegral(dtype)) {
    const total = sums(node, inputs.map(integers), 0n, (sum, a, b) => sum + a * b);
    return fromIntegers(dtype, shape, total);
  }
  const total = sums(node, inputs.map(reals), 0, (sum, a, b) => sum + a * b);
  return fromReals(dtype, shape, total);
}

export const convRules: ReferenceRules<"conv"> = {
  conv: (inputs, node) =>
    convolve(
      inputs.map((x) => seen(x, node.attrs.precision)),
      node,
    ),
};
