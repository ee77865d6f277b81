// The reverse-mode rule of every op: cotangents of the outputs in, cotangents of the inputs out. Rules build graph
// nodes, so gradients of gradients (and forward mode, which transposes twice) need nothing more.
import { inversePermutation, isComplex, isInexact, type Node, type OpName, range, WeftError } from "../graph/index.js";
import {
  add,
  adjoint,
  binary,
  cast,
  cumsum,
  div,
  eq,
  expand,
  flip,
  fullLike,
  gather,
  le,
  lt,
  matmul,
  mul,
  pad,
  permute,
  pick,
  real,
  reshape,
  scatterAdd,
  slice,
  sliceAt,
  sliceAxis,
  sub,
  sum,
  updateSlice,
  where,
  zerosLike,
} from "./build.js";
import { convVjp } from "./conv.js";
import { fftVjp } from "./fft.js";
import { make } from "./make.js";
import { binaryVjps, unaryVjps } from "./vjp-elementwise.js";
import {
  choleskyVjp,
  detVjp,
  eighVjp,
  eigVjp,
  luVjp,
  qrVjp,
  solveVjp,
  svdVjp,
  triangularSolveVjp,
} from "./vjp-linalg.js";
import { reduceVjps } from "./vjp-reduce.js";

/** transform/ differentiates loops and custom functions, because it can look into their bodies. */
export type StructuralOp = "scan" | "custom" | "pick";

/**
 * `g` has the cotangent of each output (not all null); `needs` tells which inputs need one. The result has one entry per input,
 * null for zero.
 */
export type VjpRule<K extends OpName> = (
  node: Node<K>,
  g: readonly (Node | null)[],
  needs: readonly boolean[],
) => (Node | null)[];

const none = (node: Node): null[] => node.inputs.map(() => null);
const through = (_: Node, [g]: readonly (Node | null)[]): (Node | null)[] => [g];

/** A real operand of a complex result gets the real part of its gradient. */
const realIfReal = (g: Node, like: Node): Node => (isComplex(g.dtype) && !isComplex(like.dtype) ? real(g) : g);

/** Indices after the clamping of gather. */
function clamped(indices: Node, size: number): Node {
  const least = binary("max", indices, zerosLike(indices));
  return binary("min", least, fullLike(indices, Math.max(0, size - 1)));
}

/** Gradients of the updates of a scatterAdd: zero for those out of range. */
function gatherInside(g: Node, indices: Node, axis: number, batch: number): Node {
  const size = g.shape[axis];
  const found = gather(g, indices, axis, batch);
  const isInside = binary("and", le(zerosLike(indices), indices), lt(indices, fullLike(indices, size)));
  const chosen = indices.shape.slice(batch);
  const shape = found.shape.map((d, i) => (i < batch || (i >= axis && i < axis + chosen.length) ? d : 1));
  return where(expand(reshape(isInside, shape), found.shape), found, zerosLike(found));
}

/**
 * Cotangents of the elements and updates of a scatter by product: each times the product of the others at its place. Beside zeros
 * that is not the result divided by it, but the product of what is not zero, for the only zero, or for one of two times the other,
 * so that second derivatives are right too.
 */
function scatterProductVjp(node: Node<"scatterReduce">, g: Node): Node[] {
  const [base, indices, updates] = node.inputs;
  const { axis, batch } = node.attrs;
  const isZero = (x: Node): Node => eq(x, zerosLike(x));
  const withoutZeros = (x: Node): Node => where(isZero(x), fullLike(x, 1), x);
  const onlyZeros = (x: Node): Node => where(isZero(x), x, zerosLike(x));
  const rest = make("scatterReduce", [withoutZeros(base), indices, withoutZeros(updates)], node.attrs);
  const [own, theirs] = [base, updates].map((x) => cast(isZero(x), x.dtype));
  const count = scatterAdd(own, indices, theirs, axis, batch);
  const zeros = scatterAdd(onlyZeros(base), indices, onlyZeros(updates), axis, batch);
  const are = (n: number): Node => cast(eq(count, fullLike(count, n)), g.dtype);
  const [divided, lone, pair] = [mul(g, node), mul(mul(g, rest), are(1)), mul(mul(g, rest), are(2))];
  const others = (x: Node, at: (t: Node) => Node): Node =>
    where(isZero(x), add(at(lone), mul(at(pair), sub(at(zeros), x))), div(at(divided), withoutZeros(x)));
  return [others(base, (t) => t), others(updates, (t) => gatherInside(t, indices, axis, batch))];
}

export const vjpRules: { [K in Exclude<OpName, StructuralOp>]: VjpRule<K> } = {
  input: none,
  data: none,
  const: none,
  iota: none,
  random: none,
  alias: through,
  barrier: through,
  pin: ({ attrs }, [g]) => [make("pin", [g!], { dims: attrs.backward, backward: attrs.dims })],
  unary: (node, [g]) => [unaryVjps[node.attrs.fn](node.inputs[0], node, g!)],
  binary: (node, [g], needs) => {
    const [a, b] = node.inputs;
    return binaryVjps[node.attrs.fn](a, b, node, g!).map((rule, i) => (needs[i] ? rule() : null));
  },
  where: (node, [g]) => {
    const [condition] = node.inputs;
    const zero = zerosLike(g!);
    return [null, where(condition, g!, zero), where(condition, zero, g!)];
  },
  cast: (node, [g]) => {
    const [x] = node.inputs;
    return [isInexact(x.dtype) && isInexact(node.dtype) ? cast(realIfReal(g!, x), x.dtype) : null];
  },
  reshape: (node, [g]) => [reshape(g!, node.inputs[0].shape)],
  permute: (node, [g]) => [permute(g!, inversePermutation(node.attrs.axes))],
  expand: (node, [g]) => {
    const from = node.inputs[0].shape;
    const grown = range(from.length).filter((i) => from[i] === 1 && node.shape[i] !== 1);
    return [reshape(sum(g!, grown), from)];
  },
  slice: (node, [g]) => {
    const { start, stop, step } = node.attrs;
    const full = node.inputs[0].shape;
    // Undo the step by dilation, then pad to the full size.
    let spread = g!;
    step.forEach((s, axis) => {
      if (s === 1 || spread.shape[axis] === 0) return;
      const shape = spread.shape;
      const split = reshape(spread, [...shape.slice(0, axis + 1), 1, ...shape.slice(axis + 1)]);
      const high = split.shape.map((_, i) => (i === axis + 1 ? s - 1 : 0));
      const padded = pad(
        split,
        split.shape.map(() => 0),
        high,
      );
      const joined = reshape(padded, [...shape.slice(0, axis), shape[axis] * s, ...shape.slice(axis + 1)]);
      spread = sliceAxis(joined, axis, 0, Math.min(shape[axis] * s, stop[axis] - start[axis]));
    });
    return [
      pad(
        spread,
        start,
        full.map((d, i) => d - start[i] - spread.shape[i]),
      ),
    ];
  },
  pad: (node, [g]) => {
    const { low } = node.attrs;
    const inner = node.inputs[0].shape;
    return [
      slice(
        g!,
        low,
        inner.map((d, i) => d + low[i]),
      ),
    ];
  },
  flip: (node, [g]) => [flip(g!, node.attrs.axes)],
  concat: (node, [g]) => {
    let from = 0;
    return node.inputs.map((part) => {
      const size = part.shape[node.attrs.axis];
      from += size;
      return sliceAxis(g!, node.attrs.axis, from - size, from);
    });
  },
  reduce: (node, [g]) => [reduceVjps[node.attrs.fn](node.inputs[0], node, g!, node.attrs.axes)],
  argreduce: none,
  cumsum: (node, [g]) => [cumsum(g!, node.attrs.axis, !node.attrs.reverse)],
  matmul: (node, [g], needs) => {
    const [a, b] = node.inputs;
    const { precision } = node.attrs;
    return [needs[0] ? matmul(g!, adjoint(b), precision) : null, needs[1] ? matmul(adjoint(a), g!, precision) : null];
  },
  conv: (node, [g], needs) => convVjp(node, g!, needs),
  gather: (node, [g]) => {
    const [x, indices] = node.inputs;
    const { axis, batch } = node.attrs;
    return [scatterAdd(zerosLike(x), clamped(indices, x.shape[axis]), g!, axis, batch), null];
  },
  updateSlice: ({ inputs: [, start, update], attrs: { axis, batch } }, [g]) => [
    updateSlice(g!, start, zerosLike(update), axis, batch),
    null,
    sliceAt(g!, start, update.shape[axis], axis, batch),
  ],
  scatterAdd: (node, [g]) => [g, null, gatherInside(g!, node.inputs[1], node.attrs.axis, node.attrs.batch)],
  scatterReduce: (node, [g]) => {
    const [base, indices, updates] = node.inputs;
    const { axis, batch, fn } = node.attrs;
    if (fn === "prod") {
      const [toBase, toUpdates] = scatterProductVjp(node, g!);
      return [toBase, null, toUpdates];
    }
    // Elements and updates that are equal to the result share its cotangent evenly, as maxima do elsewhere.
    const own = cast(eq(base, node), g!.dtype);
    const theirs = cast(eq(updates, gather(node, clamped(indices, base.shape[axis]), axis, batch)), g!.dtype);
    const count = scatterAdd(own, indices, theirs, axis, batch);
    const share = div(g!, binary("max", count, fullLike(count, 1)));
    return [mul(own, share), null, mul(theirs, gatherInside(share, indices, axis, batch))];
  },
  fft: (node, [g]) => [fftVjp(node, g!)],
  argsort: none,
  cholesky: (node, [g]) => [choleskyVjp(node, g!)],
  triangularSolve: (node, [g]) => triangularSolveVjp(node.inputs[0], node, g!, node.attrs),
  solve: (node, [g]) => solveVjp(node.inputs[0], node, g!),
  det: (node, [g]) => [detVjp(node.inputs[0], node, g!)],
  eigh: (node, [gw, gv]) => [eighVjp(pick(node, 0), pick(node, 1), gw, gv)],
  qr: (node, [gq, gr]) => [qrVjp(node.inputs[0], pick(node, 0), pick(node, 1), gq, gr)],
  lu: (node, [g]) => [g === null ? null : luVjp(pick(node, 0), pick(node, 1), g)],
  eig: (node, [gw, gv]) => [eigVjp(node.inputs[0], pick(node, 0), pick(node, 1), gw, gv)],
  svd: (node, [gu, gs, gvh]) => {
    const [u, s, vh] = [0, 1, 2].map((i) => pick(node, i));
    return [svdVjp(u, s, vh, gu, gs, gvh)];
  },
  collective: () => {
    throw new WeftError(
      "the gradient of a collective: differentiate the function first, then shard it or reduce its gradients",
    );
  },
};
