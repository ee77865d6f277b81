// Matches softmax(q k^T scale, masked) v in a graph, starting from the last product. Changes nothing; the caller checks other
// users of the nodes in between.
import {
  isHalf,
  isOp,
  keepAxes,
  type Node,
  numel,
  type Precision,
  range,
  type Shape,
  sameShape,
} from "../graph/index.js";
import { build, keptScale } from "../ops/index.js";
import { closedScore, type ScoreMask } from "./attention-mask.js";
import { type FactoredProduct, productOf, regrouped } from "./attention-product.js";
import { narrowed } from "./narrow.js";
import { uniformValue } from "./walk.js";

export interface AttentionMatch {
  /** The product that computes the scores; everything between it and the root is replaced. */
  first: Node;
  /** [...lead, length, size]. */
  q: Node;
  k: Node;
  v: Node;
  scale: number;
  mask: ScoreMask;
  dropout: number;
  key: Node | null;
  precision?: Precision;
  /** From [...lead, queries, size] to the layout of the node that is replaced. */
  view: (result: Node) => Node;
}

/** Whether two nodes compute the same value, up to a limited depth. */
function same(a: Node, b: Node, depth = 24): boolean {
  if (a === b) return true;
  if (depth === 0 || a.op !== b.op || a.value !== null || b.value !== null) return false;
  if (a.op === "input" || a.op === "data" || a.op === "alias" || a.op === "barrier" || a.op === "custom") return false;
  if (a.inputs.length !== b.inputs.length || a.dtype !== b.dtype || !sameShape(a.shape, b.shape)) return false;
  if (JSON.stringify(a.attrs, exactly) !== JSON.stringify(b.attrs, exactly)) return false;
  return a.inputs.every((x, i) => same(x, b.inputs[i], depth - 1));
}
const exactly = (_: string, value: unknown): unknown =>
  typeof value === "number" && (!Number.isFinite(value) || Object.is(value, -0)) ? `#${1 / value}${value}` : value;

/** Casts between float32 and half types: the kernel computes in float32 throughout. */
const isFloatCast = (node: Node): node is Node<"cast"> =>
  isOp(node, "cast") && [node.dtype, node.inputs[0].dtype].every((d) => d === "float32" || isHalf(d));

const withoutCasts = (node: Node): Node => (isFloatCast(node) ? withoutCasts(node.inputs[0]) : node);

/** The input of stopGradient. */
function stopped(node: Node): Node | null {
  if (!isOp(node, "pick") || !isOp(node.inputs[0], "custom")) return null;
  const { body } = node.inputs[0].attrs;
  return body.outputs.length === 1 && body.outputs[0] === body.params[0] ? node.inputs[0].inputs[0] : null;
}

/** One number per row, [..., 1, ...], of a node that is constant along one axis; null otherwise. */
function perRow(node: Node, shape: Shape, axis: number): Node | null {
  const row = isOp(node, "expand") ? node.inputs[0] : node;
  return sameShape(row.shape, keepAxes(shape, [axis])) ? row : null;
}

/** The sum or maximum of `of` along an axis, as one number per row. */
function isReduced(row: Node, fn: "sum" | "max", of: Node, axis: number): boolean {
  let node = row;
  while (node.op === "reshape" || isFloatCast(node)) node = node.inputs[0];
  if (!isOp(node, "reduce") || node.attrs.fn !== fn || node.attrs.axes.join() !== String(axis)) return false;
  return same(withoutCasts(node.inputs[0]), withoutCasts(of));
}

/** Whether a number per row is what users subtract before exp: the largest score, made finite or not. */
function isShift(row: Node, scores: Node, axis: number): boolean {
  const inner = stopped(row);
  if (inner !== null) return isShift(inner, scores, axis);
  if (isReduced(row, "max", scores, axis)) return true;
  if (row.op === "reshape" || isFloatCast(row)) return isShift(row.inputs[0], scores, axis);
  if (!isOp(row, "where")) return false;
  const [, yes, no] = row.inputs;
  const isFixed = (x: Node): boolean => uniformValue(x) !== null;
  return (isShift(yes, scores, axis) && isFixed(no)) || (isFixed(yes) && isShift(no, scores, axis));
}

/** The scores of a softmax along an axis: exp(x - max) / sum, in its usual forms. */
function softmaxScores(node: Node, axis: number): Node | null {
  if (!isOp(node, "binary")) return null;
  const [x, y] = node.inputs;
  const { fn } = node.attrs;
  if (fn === "mul") return byReciprocal(node, x, y, axis) ?? byReciprocal(node, y, x, axis);
  if (fn !== "div") return null;
  const total = perRow(y, node.shape, axis);
  return total !== null && isReduced(total, "sum", x, axis) ? exponent(x, axis) : null;
}

function byReciprocal(node: Node, e: Node, factor: Node, axis: number): Node | null {
  let row = perRow(factor, node.shape, axis);
  while (row !== null && row.op === "reshape") row = row.inputs[0];
  if (row === null) return null;
  const isOne = isOp(row, "binary") && row.attrs.fn === "div" && uniformValue(row.inputs[0]) === 1;
  const total = isOp(row, "unary") && row.attrs.fn === "reciprocal" ? row.inputs[0] : isOne ? row.inputs[1] : null;
  return total !== null && isReduced(total, "sum", e, axis) ? exponent(e, axis) : null;
}

function exponent(node: Node, axis: number): Node | null {
  const e = withoutCasts(node);
  if (!isOp(e, "unary") || e.attrs.fn !== "exp") return null;
  const [x] = e.inputs;
  if (!isOp(x, "binary") || x.attrs.fn !== "sub") return x;
  const shift = perRow(x.inputs[1], x.shape, axis);
  return shift !== null && isShift(shift, x.inputs[0], axis) ? x.inputs[0] : x;
}

/** Composition of two permutations. */
const permuted = (x: Node, axes: readonly number[]): Node =>
  isOp(x, "permute")
    ? build.permute(
        x.inputs[0],
        axes.map((a) => x.attrs.axes[a]),
      )
    : build.permute(x, axes);

/** Views between a node and the layout of the weights: how to go there, and where the axis of the keys is here. */
interface Level {
  node: Node;
  outward: (x: Node) => Node;
  keys: number;
}

/** Removes one view or cast; null if the node is neither. */
function inside({ node, outward, keys }: Level): Level | null {
  const [x] = node.inputs;
  if (isFloatCast(node)) return { node: x, outward, keys };
  if (isOp(node, "permute")) {
    const { axes } = node.attrs;
    return { node: x, outward: (y) => outward(permuted(y, axes)), keys: axes[keys] };
  }
  if (!isOp(node, "reshape")) return null;
  const before = numel(node.shape.slice(0, keys));
  const at = range(x.shape.length).find(
    (i) => x.shape[i] === node.shape[keys] && numel(x.shape.slice(0, i)) === before && (x.shape[i] !== 1 || i === keys),
  );
  return at === undefined ? null : { node: x, outward: (y) => outward(build.reshape(y, node.shape)), keys: at };
}

interface Scores {
  first: Node;
  product: FactoredProduct;
  scale: number;
  /** Factors that are not constants, one per row. */
  rows: Node[];
  open: Node[];
  fill: number | null;
  bias: Node[];
  /** Limits the search, because sums of sums have exponentially many paths. */
  steps: { left: number };
}

const nothing = { scale: 1, rows: [], open: [], fill: null, bias: [] };

/** The product that a chain of views shows. */
function matmulUnder(node: Node): Node | null {
  let at = node;
  while (at.op === "reshape" || at.op === "permute") at = at.inputs[0];
  return at.op === "matmul" ? at : null;
}

/** Walks from masked and scaled scores down to their product. `so far` collects what was passed. */
function scoresOf(level: Level, soFar: Omit<Scores, "first" | "product">): Scores | null {
  const { node, outward, keys } = level;
  if (soFar.steps.left-- <= 0) return null;
  const first = matmulUnder(node);
  const product = first === null ? null : productOf(outward(node));
  if (first !== null && product !== null) return { ...soFar, first, product };
  const view = inside(level);
  if (view !== null) return scoresOf(view, soFar);
  const down = (x: Node, more: Partial<Scores>): Scores | null =>
    scoresOf({ node: x, outward, keys }, { ...soFar, ...more });
  if (isOp(node, "where")) {
    const [condition, yes, no] = node.inputs;
    for (const [x, other, open] of [
      [yes, no, condition],
      [no, yes, null],
    ] as const) {
      const value = uniformValue(other);
      if (typeof value !== "number") continue;
      const fill = value * soFar.scale;
      // A mask cannot express numbers added to masked positions, or two fill values.
      const plain = fill === Number.NEGATIVE_INFINITY || soFar.bias.length === 0;
      if (!(fill <= closedScore) || !plain || soFar.rows.length > 0 || (soFar.fill !== null && soFar.fill !== fill))
        continue;
      const may = open ?? build.unary("not", condition);
      return down(x, { open: [...soFar.open, outward(may)], fill });
    }
    return null;
  }
  if (!isOp(node, "binary")) return null;
  const [x, y] = node.inputs;
  const { fn } = node.attrs;
  const scaled = (by: Node, inverse: boolean, rest: Node): Scores | null => {
    const value = uniformValue(by);
    if (typeof value === "number") return down(rest, { scale: inverse ? soFar.scale / value : soFar.scale * value });
    if (narrowed(by).shape[keys] !== 1) return null;
    const factor = outward(by);
    return down(rest, { rows: [...soFar.rows, inverse ? build.unary("reciprocal", factor) : factor] });
  };
  const shifted = (by: Node, sign: number, rest: Node): Scores | null => {
    const value = uniformValue(by);
    // A constant shift, which softmax ignores.
    if (typeof value === "number" && Number.isFinite(value)) return down(rest, {});
    if (soFar.rows.length > 0) return null;
    const factor = sign * soFar.scale;
    const bias = outward(by);
    return down(rest, { bias: [...soFar.bias, factor === 1 ? bias : build.scale(bias, factor)] });
  };
  if (fn === "mul") return scaled(y, false, x) ?? scaled(x, false, y);
  if (fn === "div") return scaled(y, true, x);
  if (fn === "add") return shifted(y, 1, x) ?? shifted(x, 1, y);
  return fn === "sub" ? shifted(y, -1, x) : null;
}

/** A factor without plain numbers that all of it is multiplied with. */
function withoutScale(node: Node): { node: Node; scale: number } {
  if (isOp(node, "reshape") || isOp(node, "permute") || isOp(node, "expand")) {
    const inner = withoutScale(node.inputs[0]);
    if (inner.scale === 1) return { node, scale: 1 };
    return { node: build.withInputs(node, [inner.node]), scale: inner.scale };
  }
  if (!isOp(node, "binary")) return { node, scale: 1 };
  const [x, y] = node.inputs;
  const [left, right] = [uniformValue(x), uniformValue(y)];
  const { fn } = node.attrs;
  const apart = (rest: Node, factor: number): { node: Node; scale: number } => {
    const inner = withoutScale(rest);
    return { node: inner.node, scale: inner.scale * factor };
  };
  if (typeof right === "number" && (fn === "mul" || fn === "div")) return apart(x, fn === "mul" ? right : 1 / right);
  return typeof left === "number" && fn === "mul" ? apart(y, left) : { node, scale: 1 };
}

/** Weights before dropout, if it drops as the kernel does; the draw depends on the order of elements. */
function undropped({ node, outward }: Level): { weights: Node; rate: number; key: Node } | null {
  if (!isOp(node, "where") || uniformValue(node.inputs[2]) !== 0) return null;
  const [kept, scaled] = node.inputs;
  if (!isOp(scaled, "binary") || (scaled.attrs.fn !== "mul" && scaled.attrs.fn !== "div")) return null;
  if (!isOp(kept, "random") || kept.attrs.kind !== "dropoutMask" || kept.attrs.within !== undefined) return null;
  const [key] = kept.inputs;
  const lead = key.shape.length - 1;
  const rate = (kept.attrs.threshold ?? 0) / 65536;
  const value = uniformValue(scaled.inputs[1]);
  const factor = typeof value !== "number" ? 0 : scaled.attrs.fn === "mul" ? value : 1 / value;
  // Half types represent the factor with two or three digits.
  const isFactor = Math.abs(factor / keptScale(rate) - 1) < (isHalf(node.dtype) ? 0.01 : 1e-6);
  const isWhole = sameShape(kept.attrs.shape, node.shape.slice(lead)) && keepsOrder(node, outward(node), lead);
  return isFactor && isWhole && rate > 0 ? { weights: scaled.inputs[0], rate, key } : null;
}

/** Whether only reshapes lie between, and none of the leading axes that have keys of their own is touched. */
function keepsOrder(from: Node, to: Node, lead: number): boolean {
  for (let node = to; node !== from; node = node.inputs[0]) if (node.op !== "reshape") return false;
  return lead === 0 || sameShape(from.shape, to.shape);
}

/** The last product with weights on its left side, in the layout that the weights had before they were joined for it. */
function lastProduct(weights: Node, v: Node): { weights: Node; v: Node; view: (result: Node) => Node } {
  if (isOp(weights, "reshape") && weights.shape.length >= 2) {
    const [x] = weights.inputs;
    const rank = x.shape.length;
    if (rank >= 2 && x.shape[rank - 1] === weights.shape[weights.shape.length - 1]) {
      const parts = regrouped(weights, v, x.shape);
      const shape = [...weights.shape.slice(0, -1), v.shape[v.shape.length - 1]];
      if (parts !== null) {
        const inner = lastProduct(x, parts[1]);
        return { ...inner, view: (result) => build.reshape(inner.view(result), shape) };
      }
    }
  }
  return { weights, v, view: (result) => result };
}

const kernelDTypes = new Set(["float32", "bfloat16", "float16"]);

function matchOneSide(root: Node<"matmul">, left: Node, right: Node, flip: boolean): AttentionMatch | null {
  const { weights, v, view } = lastProduct(left, right);
  let level: Level = { node: weights, outward: (x) => x, keys: weights.shape.length - 1 };
  let drop: { rate: number; key: Node | null } = { rate: 0, key: null };
  let scores: Node | null = null;
  for (;;) {
    scores = softmaxScores(level.node, level.keys);
    if (scores !== null) break;
    const before = drop.key === null ? undropped(level) : null;
    if (before !== null) drop = before;
    const next: Level | null = before !== null ? { ...level, node: before.weights } : inside(level);
    if (next === null) return null;
    level = next;
  }
  const found = scoresOf({ ...level, node: scores }, { ...nothing, steps: { left: 64 } });
  if (found === null) return null;
  const { product } = found;
  const [q, k] = [withoutScale(product.a), withoutScale(product.b)];
  const { precision } = root.attrs;
  const dtypes = [product.a, product.b, v, root].map((x) => x.dtype);
  const size = q.node.shape[q.node.shape.length - 1];
  const scale = found.scale * q.scale * k.scale;
  if (!kernelDTypes.has(dtypes[0]) || dtypes.some((d) => d !== dtypes[0]) || !Number.isFinite(scale)) return null;
  if (!isHalf(dtypes[0]) && precision !== product.precision) return null;
  if (v.shape[v.shape.length - 1] !== size) return null;
  const factors = found.rows.map((row) => build.expand(narrowed(row), q.node.shape));
  const and = (a: Node, b: Node): Node => build.binary("and", a, b);
  return {
    first: found.first,
    q: factors.reduce((x, factor) => build.mul(x, build.cast(factor, x.dtype)), q.node),
    k: build.transpose(k.node),
    v,
    scale,
    mask: {
      open: found.open.length === 0 ? null : found.open.reduce(and),
      fill: found.fill ?? Number.NEGATIVE_INFINITY,
      bias: found.bias.length === 0 ? null : found.bias.reduce(build.add),
    },
    dropout: drop.rate,
    key: drop.key,
    ...(precision === undefined ? {} : { precision }),
    view: flip ? (result) => build.transpose(view(result)) : view,
  };
}

/** Whether there may be a softmax under views, casts and dropout. A cheap test before the full match. */
function mayBeWeights(node: Node): boolean {
  let at = node;
  while (isOp(at, "reshape") || isOp(at, "permute") || isFloatCast(at)) at = at.inputs[0];
  if (isOp(at, "where")) {
    const [, scaled] = at.inputs;
    return scaled.op === "binary" && mayBeWeights(scaled.inputs[0]);
  }
  const isExp = (x: Node): boolean => isOp(x, "unary") && x.attrs.fn === "exp";
  return isOp(at, "binary") && at.inputs.some((x) => isExp(withoutCasts(x)));
}

/** Matches a product as the last one of attention; its other operand may be on either side. */
export function matchAttention(root: Node<"matmul">): AttentionMatch | null {
  const [a, b] = root.inputs;
  if (!kernelDTypes.has(root.dtype)) return null;
  const onLeft = mayBeWeights(a) ? matchOneSide(root, a, b, false) : null;
  if (onLeft !== null || !mayBeWeights(b)) return onLeft;
  return matchOneSide(root, build.transpose(b), build.transpose(a), true);
}
