// What loops stack instead of computing it in every step of the reverse pass: large products of the forward step, and factors and
// summands of the gradients of constants, which are one product or one sum of all steps after the loop.
import { bytesOf, isOp, type Node, numel, type OpName, topological } from "../graph/index.js";
import { build, viewOps } from "../ops/index.js";

/** Smaller products are part of loops that run as one kernel, or weigh nothing. */
const worthStacking = { gradient: 1 << 14, products: 1 << 20 };

/** The result of a loop that is the stack of this value; null where there is none. */
export function stackedAt({ attrs: { body, carries } }: Node<"scan">, value: Node): number | null {
  const at = body.outputs.indexOf(value, carries);
  return at < 0 ? null : at;
}

/** Bytes of a value of one step. */
const stepBytes = ({ shape, dtype }: Node): number => numel(shape) * bytesOf(dtype);

const multiplications = (product: Node): number => {
  const [{ shape }] = product.inputs;
  return numel(product.shape) * shape[shape.length - 1];
};

const isLargeProduct = (node: Node): boolean => isOp(node, "matmul") && multiplications(node) >= worthStacking.products;

/** Ops on a product whose result may be stored in its place. */
const continues: ReadonlySet<OpName> = new Set<OpName>(["unary", "binary", "where", "cast", "reshape"]);

/**
 * Values of a step from which the reverse pass continues instead of computing large products again: the products themselves, or
 * what element-wise ops make of them, where that is all that the reverse pass reads. They take at most as much memory as the
 * carries and inputs of the steps, and products with the most arithmetic per byte are chosen first.
 */
export function storedProducts(node: Node<"scan">, results: readonly Node[]): Node[] {
  const { body, consts } = node.attrs;
  const order = topological(body.outputs);
  const own = new Set(order);
  const users = new Map<Node, Node[]>();
  for (const user of order) for (const x of new Set(user.inputs)) users.set(x, [...(users.get(x) ?? []), user]);
  let room = body.params.slice(consts).reduce((sum, x) => sum + stepBytes(x), 0);
  const chosen = new Set<Node>();
  const isReached = (product: Node, ends: ReadonlySet<Node>): boolean =>
    topological(results, (n) => ends.has(n)).includes(product) && !ends.has(product);
  /** The last of the element-wise ops on a product from which the reverse pass can continue. */
  const endOf = (product: Node): Node => {
    const chain = [product];
    for (let at = product; ; ) {
      const [user, ...others] = users.get(at) ?? [];
      if (user === undefined || others.length > 0 || !continues.has(user.op)) break;
      if (stepBytes(user) > stepBytes(product)) break;
      at = user;
      chain.push(at);
    }
    // What is read in parts (gates) would be stored by a kernel of its own; the product is in memory anyway.
    const isInParts = (users.get(chain[chain.length - 1]) ?? []).some(({ op }) => viewOps.has(op));
    if (isInParts) return product;
    return chain.findLast((end) => !isReached(product, new Set([...chosen, end]))) ?? product;
  };
  const products = topological(results).filter((n) => own.has(n) && isLargeProduct(n));
  products.sort((a, b) => multiplications(b) / stepBytes(b) - multiplications(a) / stepBytes(a));
  for (const product of products) {
    if (!isReached(product, chosen)) continue;
    const end = endOf(product);
    const needed = stackedAt(node, end) === null ? stepBytes(end) : 0;
    if (needed > room) continue;
    room -= needed;
    chosen.add(end);
  }
  return [...chosen];
}

/** The gradient of a constant that every step adds to as a product: of values [rows, m] and [rows, n] of the step, or transposed. */
interface StepProduct {
  left: Node;
  right: Node;
  product: Node<"matmul">;
  isTransposed: boolean;
  /** Rows of one step have fewer elements than the sum that each step would read and write. */
  isCompact: boolean;
}

const swapsAxes = (x: Node): boolean => isOp(x, "permute") && x.attrs.axes.join() === "1,0";

/** Reads what a step adds to the gradient of a constant as a product; null for other additions, and for products that stay in the loop. */
export function stepProduct(added: Node): StepProduct | null {
  const isTransposed = swapsAxes(added);
  const product = isTransposed ? added.inputs[0] : added;
  if (!isOp(product, "matmul") || product.shape.length !== 2) return null;
  const [a, right] = product.inputs;
  const left = swapsAxes(a) ? a.inputs[0] : build.transpose(a);
  const [rows, m] = left.shape;
  const size = m * right.shape[1];
  if (size < worthStacking.gradient || size * rows < worthStacking.products) return null;
  return { left, right, product, isTransposed, isCompact: rows * (m + right.shape[1]) <= size };
}

/** The sum over all steps: one product of what the steps multiplied. */
export function stackedProduct({ product, isTransposed }: StepProduct, left: Node, right: Node): Node {
  const flat = (x: Node): Node => build.reshape(x, [x.shape[0] * x.shape[1], x.shape[2]]);
  const sum = build.matmul(build.transpose(flat(left)), flat(right), product.attrs.precision);
  return isTransposed ? build.transpose(sum) : sum;
}

/** The gradient of a constant that every step adds to as a sum over axes of a value of the step, such as that of a bias over the batch. */
interface StepSum {
  value: Node;
  /** The sum, and the views of it that give what the step adds. */
  sum: Node<"reduce">;
  views: Node[];
}

/** Reads what a step adds to the gradient of a constant as a sum over axes; null for other additions. */
export function stepSum(added: Node): StepSum | null {
  const views: Node[] = [];
  let at = added;
  while (isOp(at, "reshape") || isOp(at, "permute")) {
    views.unshift(at);
    at = at.inputs[0];
  }
  return isOp(at, "reduce") && at.attrs.fn === "sum" ? { value: at.inputs[0], sum: at, views } : null;
}

/** The sum over all steps: one reduction of what the steps reduced. */
export function stackedSum({ sum, views }: StepSum, stacked: Node): Node {
  const total = build.sum(stacked, [0, ...sum.attrs.axes.map((axis) => axis + 1)]);
  return views.reduce((x, view) => build.withInputs(view, [x]), total);
}

/** Whether a step computes a product that is worth stacking: such a loop does not run as one kernel. */
export const hasLargeProduct = (results: readonly Node[]): boolean => topological(results).some(isLargeProduct);
