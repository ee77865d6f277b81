// Masks of handwritten attention: a condition with a fill value for masked positions, numbers added to the scores, both, or
// neither. Knows shapes and masks, not products.
import {
  type AttentionKernel,
  inversePermutation,
  isHalf,
  isOp,
  type Node,
  numel,
  range,
  type Scalar,
  stridesOf,
  structuralKey,
} from "../graph/index.js";
import { build, composed } from "../ops/index.js";
import { type Band, bandIntersection, biasBand, seesEverywhere, splitBand, tightened } from "./attention-band.js";
import { comparesItself, segmentIds } from "./attention-segments.js";
import { foldBinary, foldUnary } from "./fold.js";
import { narrowed } from "./narrow.js";

/** Scores up to this value count as masked: exp of the difference to any other score is 0 in float32. */
export const closedScore = -1e4;

export interface ScoreMask {
  /** bool, in the layout of the scores: true where a query may attend. */
  open: Node | null;
  /** Fill value of masked positions: -infinity, or a number of at most `closedScore`. */
  fill: number;
  /** Added to the scores, in their layout. */
  bias: Node | null;
}

interface KernelMask {
  /** The conditions that depend only on the distance between query and key: kernels skip the blocks that they exclude. */
  band: Band;
  kind: AttentionKernel["mask"];
  /** In the layout of the scores, at its own size: to be expanded; or segment ids. */
  node: Node | null;
  /** Rows where this is false (last axis 1) are fully masked; their result is the mean of the values. */
  rows: Node | null;
}

const elementwise = new Set(["unary", "binary", "where", "cast"]);

const logic: Partial<Record<string, (a: number, b: number) => number>> = {
  and: (a, b) => a & b,
  or: (a, b) => a | b,
  xor: (a, b) => a ^ b,
};

/** One element of a node that consists of constants and iotas; null for other nodes. */
function elementAt(node: Node, index: readonly number[]): number | null {
  const number = (value: Scalar | null): number | null => (typeof value === "number" ? value : null);
  if (isOp(node, "const")) return number(node.attrs.value);
  if (isOp(node, "iota")) return index[node.attrs.axis];
  const [x] = node.inputs;
  if (isOp(node, "expand"))
    return elementAt(
      x,
      index.map((i, axis) => (x.shape[axis] === 1 ? 0 : i)),
    );
  if (isOp(node, "permute"))
    return elementAt(
      x,
      inversePermutation(node.attrs.axes).map((a) => index[a]),
    );
  if (isOp(node, "reshape")) {
    let flat = stridesOf(node.shape).reduce((sum, stride, i) => sum + stride * index[i], 0);
    const at = stridesOf(x.shape).map((stride) => {
      const i = Math.floor(flat / stride);
      flat -= i * stride;
      return i;
    });
    return elementAt(x, at);
  }
  if (!elementwise.has(node.op)) return null;
  const values = node.inputs.map((input) => elementAt(input, index));
  if (values.some((v) => v === null)) return null;
  const [a, b, c] = values as number[];
  if (isOp(node, "where")) return a !== 0 ? b : c;
  if (isOp(node, "cast")) {
    if (node.dtype === "bool") return Number(a !== 0);
    return node.dtype === "int32" || node.dtype === "float32" || node.dtype === "float64" ? a : null;
  }
  if (isOp(node, "unary")) return node.attrs.fn === "not" ? 1 - a : number(foldUnary(node.attrs.fn, a, x.dtype));
  const fn = (node as Node<"binary">).attrs.fn;
  const onBools = x.dtype === "bool" ? logic[fn] : undefined;
  return onBools !== undefined ? onBools(a, b) : number(foldBinary(fn, a, b, x.dtype));
}

/** Maximum number of rows that are checked one by one; a larger mask counts as unknown. */
const maxRows = 2 ** 15;
const answers = new Map<string, boolean>();

/** Whether every row of a mask is known to have an unmasked position: true for causal masks and windows, unknown for data. */
function isOpenEverywhere(open: Node): boolean {
  const rank = open.shape.length;
  const [queries, keys] = [rank < 2 ? 1 : open.shape[rank - 2], open.shape[rank - 1]];
  const rows = numel(open.shape.slice(0, -1));
  if (
    rows > maxRows ||
    keys === 0 ||
    elementAt(
      open,
      open.shape.map(() => 0),
    ) === null
  )
    return false;
  const key = structuralKey({ params: [], outputs: [open] });
  const known = answers.get(key);
  if (known !== undefined) return known;
  const strides = stridesOf(open.shape.slice(0, -1));
  const isRowOpen = (row: number): boolean => {
    let rest = row;
    const lead = strides.map((stride) => {
      const i = Math.floor(rest / stride);
      rest -= i * stride;
      return i;
    });
    const i = row % queries;
    const likely = [0, Math.min(i, keys - 1), keys - 1, Math.max(0, Math.min(i + keys - queries, keys - 1))];
    return likely.some((j) => elementAt(open, [...lead, j]) === 1);
  };
  const answer = range(rows).every(isRowOpen);
  if (answers.size > 256) answers.clear();
  answers.set(key, answer);
  return answer;
}

/** Fill values that, unlike -infinity, do not make a fully masked row NaN. */
const farBelow = -1e30;

/**
 * The mask operand of a kernel with the same result as the ops that it replaces. A kernel gives zeros for fully masked rows of a
 * bool mask; the ops give NaN (fill value -infinity) or the mean of the values (large negative fill value).
 */
export function kernelMask(mask: ScoreMask, forGradient: boolean): KernelMask {
  const { band, rest } = withoutBand(mask);
  return { band, ...restMask(rest, forGradient) };
}

/** Takes the band out of a mask, if no query is left without a key: only then all fill values have the same result. */
function withoutBand({ open, fill, bias }: ScoreMask): { band: Band; rest: ScoreMask } {
  const shape = (open ?? bias)?.shape ?? [];
  const [queries, keys] = shape.slice(-2);
  const usable = (band: Band): boolean => seesEverywhere(band, queries, keys);
  let band: Band = {};
  let rest: ScoreMask = { open, fill, bias };
  const split = open === null ? null : splitBand(open);
  // With another condition besides, a query may lose its last key; the fill value then decides, as for the rest alone.
  const keepsFill =
    split?.rest === null || (fill === Number.NEGATIVE_INFINITY && split !== null && !isOpenEverywhere(split.rest));
  if (split !== null && usable(split.band) && keepsFill) {
    band = split.band;
    rest = { ...rest, open: split.rest };
  }
  const added = bias === null ? null : biasBand(bias, closedScore);
  if (added !== null && usable(bandIntersection(band, added)) && rest.open === null) {
    band = bandIntersection(band, added);
    rest = { ...rest, bias: null };
  }
  return { band: tightened(band, queries, keys), rest };
}

/** Mask of a kernel without its band. */
function restMask({ open, fill, bias }: ScoreMask, forGradient: boolean): Omit<KernelMask, "band"> {
  if (open === null && bias === null) return { kind: "none", node: null, rows: null };
  const may = open === null ? null : narrowed(open);
  const ids = open !== null && bias === null && comparesItself(may!) ? segmentIds(may!, open.shape) : null;
  if (ids !== null) return { kind: "segments", node: ids, rows: null };
  const closes = may !== null && !isOpenEverywhere(may);
  const rows = closes && Number.isFinite(fill) ? rowsOf(may) : null;
  if (bias === null) {
    if (!closes || rows !== null) return { kind: "bool", node: may, rows };
    const zero = build.full(may!.shape, 0, "float32");
    return { kind: "float", node: build.where(may!, zero, build.fullLike(zero, fill)), rows: null };
  }
  const own = narrowed(bias);
  const wide = isHalf(own.dtype) ? build.cast(own, "float32") : own;
  const added = forGradient ? belowZero(wide) : wide;
  if (may === null) return { kind: "float", node: added, rows: null };
  const shape = may.shape.map((d, i) => Math.max(d, added.shape[i]));
  const [condition, numbers] = [build.expand(may, shape), build.expand(added, shape)];
  const closed = build.fullLike(numbers, rows === null ? Number.NEGATIVE_INFINITY : farBelow);
  return { kind: "float", node: build.where(condition, numbers, closed), rows };
}

/**
 * The same for softmax, with 0 as the largest number of rows that hold large ones alone: the kernels of the gradient read
 * the logarithm of a row's sum, which has no digits left beside -1e9.
 */
export function belowZero(bias: Node): Node {
  if (bias.shape.length === 0) return bias;
  const axis = bias.shape.length - 1;
  const top = build.reshape(build.reduce("max", bias, [axis]), [...bias.shape.slice(0, -1), 1]);
  const none = build.zerosLike(top);
  const finite = build.where(build.unary("isfinite", top), top, none);
  const shift = build.where(build.le(build.fullLike(top, -closedScore), build.unary("abs", top)), finite, none);
  return build.sub(bias, build.expand(composed.stopGradient(shift), bias.shape));
}

/** The numbers that `belowZero` was given: x of x - s with an s that it makes of the largest number of each row; null for others. */
function shiftedBias(node: Node): Node | null {
  if (!isOp(node, "binary") || node.attrs.fn !== "sub") return null;
  const [bias, shift] = node.inputs;
  const under = (x: Node): Node => (isOp(x, "expand") || isOp(x, "reshape") ? under(x.inputs[0]) : x);
  const choice = under(shift);
  if (!isOp(choice, "where")) return null;
  const [isLarge, , other] = choice.inputs;
  const none = under(other);
  let top = isLarge;
  while (["binary", "unary", "reshape", "expand"].includes(top.op)) top = top.inputs[top.inputs.length - 1];
  const isRows = isOp(top, "reduce") && top.attrs.fn === "max" && top.attrs.axes.join() === `${bias.shape.length - 1}`;
  return isRows && top.inputs[0] === bias && isOp(none, "const") && none.attrs.value === 0 ? bias : null;
}

/**
 * Numbers added to scores as they were before `belowZero` and before they were widened: for kernels whose log-sums nobody
 * reads, which widen numbers themselves. The result is the same, except that scores lose digits beside large numbers, as they do in
 * plain ops.
 */
export function plainBias(bias: Node): Node {
  if (isOp(bias, "expand") || isOp(bias, "reshape")) {
    const plain = plainBias(bias.inputs[0]);
    return plain === bias.inputs[0] ? bias : build[bias.op](plain, bias.shape);
  }
  if (isOp(bias, "cast") && isHalf(bias.inputs[0].dtype)) return bias.inputs[0];
  const unshifted = shiftedBias(bias);
  return unshifted === null ? bias : plainBias(unshifted);
}

function rowsOf(open: Node): Node {
  const any = build.reduce("max", open, [open.shape.length - 1]);
  return build.reshape(any, [...open.shape.slice(0, -1), 1]);
}

/** Corrects fully masked rows of the result of attention; values: [..., keys, size]. */
export function withClosedRows(result: Node, values: Node, rows: Node | null): Node {
  if (rows === null) return result;
  const axis = values.shape.length - 2;
  const total = build.sum(build.cast(values, "float32"), [axis]);
  const mean = build.cast(build.scale(total, 1 / values.shape[axis]), result.dtype);
  const kept = build.reshape(
    mean,
    values.shape.map((d, i) => (i === axis ? 1 : d)),
  );
  return build.where(build.expandTo(rows, result.shape), result, build.expand(kept, result.shape));
}
