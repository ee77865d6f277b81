// Undoes broadcasting: the smallest node that holds what a node holds.
import { isOp, type Node, range, type Shape, sameShape } from "../graph/index.js";
import { build } from "../ops/index.js";

const elementwise = new Set(["unary", "binary", "where", "cast"]);
const maxVisited = 256;

/** Where each axis of a reshape that only adds or removes axes of size 1 comes from (-1: new); null for other reshapes. */
export function axesOfReshape(from: Shape, to: Shape): number[] | null {
  const big = range(from.length).filter((i) => from[i] !== 1);
  let next = 0;
  const axes = to.map((d) => (d === 1 ? -1 : from[big[next]] === d ? big[next++] : -2));
  return next === big.length && !axes.includes(-2) ? axes : null;
}

/** The node before broadcasting: axes along which it is constant have size 1. */
export function narrowed(root: Node): Node {
  const known = new Map<Node, Node>();
  const narrow = (node: Node): Node => {
    const found = known.get(node);
    if (found !== undefined) return found;
    const result = known.size > maxVisited || node.value !== null ? node : narrowNode(node);
    known.set(node, result);
    return result;
  };
  const narrowNode = (node: Node): Node => {
    if (isOp(node, "expand")) return narrow(node.inputs[0]);
    if (isOp(node, "iota"))
      return build.iota(
        node.shape.map((d, i) => (i === node.attrs.axis ? d : 1)),
        node.attrs.axis,
        node.dtype,
      );
    if (isOp(node, "permute")) return build.permute(narrow(node.inputs[0]), node.attrs.axes);
    if (isOp(node, "reshape")) {
      const [x] = node.inputs;
      const axes = axesOfReshape(x.shape, node.shape);
      const small = axes === null ? x : narrow(x);
      return sameShape(small.shape, x.shape)
        ? node
        : build.reshape(
            small,
            axes!.map((a) => (a < 0 ? 1 : small.shape[a])),
          );
    }
    if (!elementwise.has(node.op)) return node;
    const inputs = node.inputs.map(narrow);
    const shape = node.shape.map((_, i) => Math.max(...inputs.map((x) => x.shape[i])));
    if (sameShape(shape, node.shape)) return node;
    return build.withInputs(
      node,
      inputs.map((x) => build.expand(x, shape)),
    );
  };
  return narrow(root);
}
