// Recognizes a matrix product behind reshapes, permutations and broadcasts, as users and vmap write it, and describes it as a product of
// two factors in the layout of the result. It knows nothing of attention.
import { isOp, type Node, type Precision, type Shape } from "../graph/index.js";
import { build } from "../ops/index.js";

/** a [...lead, m, k] b [...lead, k, n], in the layout of some reshaped or permuted result. */
export interface FactoredProduct {
  a: Node;
  b: Node;
  precision?: Precision;
}

const startsWith = (shape: Shape, prefix: Shape): boolean => prefix.every((d, i) => shape[i] === d);

/**
 * The left and right factor of a product whose rows are seen as [...lead, m]: batch axes may be grouped otherwise, and rows
 * that stand for several axes (one right factor for all of them) fall apart into these.
 */
export function regrouped(a: Node, b: Node, shape: Shape): [Node, Node] | null {
  const [lead, m] = [shape.slice(0, -2), shape[shape.length - 2]];
  const [k, n] = b.shape.slice(-2);
  const own = b.shape.slice(0, -2);
  if (a.shape[a.shape.length - 2] === m) return [build.reshape(a, [...lead, m, k]), build.reshape(b, [...lead, k, n])];
  if (!startsWith(lead, own)) return null;
  const shared = build.reshape(b, [...own, ...lead.slice(own.length).map(() => 1), k, n]);
  return [build.reshape(a, [...lead, m, k]), build.expand(shared, [...lead, k, n])];
}

export function productOf(node: Node): FactoredProduct | null {
  if (isOp(node, "matmul")) return { a: node.inputs[0], b: node.inputs[1], precision: node.attrs.precision };
  const rank = node.shape.length;
  const [x] = node.inputs;
  if (isOp(node, "reshape")) {
    const inner = productOf(x);
    if (inner === null || rank < 2 || x.shape[x.shape.length - 1] !== node.shape[rank - 1]) return null;
    const parts = regrouped(inner.a, inner.b, node.shape);
    return parts === null ? null : { ...inner, a: parts[0], b: parts[1] };
  }
  if (!isOp(node, "permute")) return null;
  const { axes } = node.attrs;
  const wide = sharedLeft(node);
  if (wide !== null) return wide;
  const inner = productOf(x);
  if (inner === null || axes.slice(-2).some((axis) => axis < rank - 2)) return null;
  const order = [...axes.slice(0, -2), rank - 2, rank - 1];
  const [a, b] = [build.permute(inner.a, order), build.permute(inner.b, order)];
  return axes[rank - 1] === rank - 1 ? { ...inner, a, b } : { ...inner, a: build.transpose(b), b: build.transpose(a) };
}

/** vmap with one left factor for all: a [m, k] by all right factors side by side, [m, size * n] -> [size, m, n]. */
function sharedLeft(node: Node<"permute">): FactoredProduct | null {
  const [x] = node.inputs;
  const product = isOp(x, "reshape") ? x.inputs[0] : x;
  if (node.attrs.axes.join() !== "1,0,2" || !isOp(product, "matmul") || product.shape.length !== 2) return null;
  const [a, wide] = product.inputs;
  const [m, size, n] = x.shape;
  if (m !== a.shape[0]) return null;
  const k = a.shape[1];
  const b = build.permute(build.reshape(wide, [k, size, n]), [1, 0, 2]);
  return { a: build.expandTo(a, [size, m, k]), b, precision: product.attrs.precision };
}
