// Lowers a graph to the forms that kernels and libraries support: reductions over one run of adjacent axes, long reductions
// in two stages, matrix products in supported dtypes.
import {
  bytesOf,
  type DType,
  functionOrder,
  type GraphFn,
  integerLimits,
  isComplex,
  isHalf,
  isOp,
  kindOf,
  type Node,
  numel,
  type ReduceFn,
  sameShape,
  showAval,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { attentionNode, plainBias, rebuild, runningOf } from "../transform/index.js";
import { manyParts } from "./fuse-rules.js";
import { prepareSurrounded } from "./gather-surrounded.js";
import { type ConvSupport, prepareConvs, rewriteOps } from "./lower-conv.js";
import { prepareHalfSpectrum } from "./lower-fft.js";
import { deviationsOf, joinMoments, type Moments, plainMoments } from "./moments.js";

export interface PrepareOptions {
  /** Reductions with fewer rows than this and more elements than `longReduction` are split in two. */
  parallelRows: number;
  longReduction: number;
  /** Column reductions with fewer columns than this are split along the reduced axis; 0 never. */
  splitColumns?: number;
  /** Column reductions of at least this many elements are split where their columns are few; for threads that read a block of columns each. */
  tallColumns?: number;
  /** Kernels of columns find places of extremes; otherwise the axis is moved to the end first. */
  argsOfColumns?: boolean;
  /** Kernels sum squared deviations from the mean in one pass; see moments.ts. */
  onePassMoments?: boolean;
  /** Whether the library supports this product of half types; others are computed in float32. */
  halfMatmul?: (node: Node<"matmul">) => boolean;
  /** Maximum bytes of a row-major matrix whose product with one vector becomes a reduction of its rows, which is fused with what follows. */
  vectorRows?: number;
  /** The convolution library; without one, convolutions become matrix products. */
  conv?: ConvSupport;
  /** Whether a few places of the order of rows are selected without sorting them. */
  selects?: (rows: number, n: number) => boolean;
  /** Whether rows are sorted without indices where only the sorted values are used. */
  sortsValues?: boolean;
  /** Whether running sums of one dtype read numbers of another, without a cast. */
  sumsNarrow?: (from: DType, to: DType) => boolean;
  /** Whether the library has running products and extrema of a dtype, along axes of this length. */
  scans?: (dtype: DType, length: number) => boolean;
  /** The library of Fourier transforms needs half spectra with true symmetry, one axis at a time. */
  trueHalfSpectra?: boolean;
}

/** The reduced axes as runs of adjacent axes; axes of size one belong to no run. */
function runsOf(axes: readonly number[], shape: readonly number[]): number[][] {
  const runs: number[][] = [];
  for (const axis of axes) {
    const last = runs[runs.length - 1];
    const previous = last?.[last.length - 1];
    const between = previous === undefined ? [] : shape.slice(previous + 1, axis);
    if (last !== undefined && between.every((d) => d === 1)) last.push(axis);
    else runs.push([axis]);
  }
  return runs;
}

/** A divisor of n near the desired number of pieces, or 1. */
function pieces(n: number, wanted: number): number {
  for (let p = wanted; p > 1; p--) if (n % p === 0) return p;
  return 1;
}

/** What is summed: intermediate values are not rounded to a half type. */
const widened = (x: Node): Node => (isHalf(x.dtype) ? build.cast(x, "float32") : x);

function prepareReduce(node: Node<"reduce">, options: PrepareOptions): Node {
  const { fn, axes } = node.attrs;
  const [x] = node.inputs;
  const runs = runsOf(axes, x.shape);
  if (runs.length > 1) {
    // The innermost run first: the rest is smaller and closer together in memory.
    const last = runs[runs.length - 1];
    const first = prepareReduce(build.reduce(fn, widened(x), last) as Node<"reduce">, options);
    const rest = axes.filter((a) => !last.includes(a));
    // Three runs and more: kernels support reductions of one run only.
    return build.cast(prepareReduce(build.reduce(fn, first, rest) as Node<"reduce">, options), node.dtype);
  }
  const count = numel(axes.map((a) => x.shape[a]));
  const division = divide(x.shape, axes, options);
  if (division === null) return node;
  if (division.pieces > 1) return inTwoStages(node, division);
  const { before, after } = division;
  return after === 1 ? withTail(node, before, count) : columnsWithTail(node, [before, count, after], division.wanted);
}

/** A reduction of x as [before, pieces, length, beside, after], along `length` first; `pieces` is 1 where the number of elements has no suitable divisor. */
interface Division {
  before: number;
  pieces: number;
  length: number;
  /** Neighboring rows that count as columns of their own: single columns would leave threads idle. */
  beside: number;
  after: number;
  wanted: number;
}

/** Columns that keep a warp reading whole sectors. */
const enoughColumns = 64;

/** Columns that several threads share without reading parts of rows. */
const manyColumns = 512;
/** Rows of pieces of tall columns. */
const tallPieces = 16;

/** Few columns of many rows: a piece of the rows at a time. */
function divideTall(count: number, after: number): Division | null {
  const beside = after >= enoughColumns / 2 ? 1 : pieces(count, 2 ** Math.ceil(Math.log2(enoughColumns / after)));
  if (after >= manyColumns || count < 2 * tallPieces) return null;
  const rows = count / beside;
  const split = pieces(rows, tallPieces);
  const isEven = split >= tallPieces / 2;
  return { before: 1, pieces: isEven ? split : 1, length: rows / split, beside, after, wanted: tallPieces };
}

/** How a reduction of adjacent axes is divided in two; null where one stage is enough. */
function divide(shape: readonly number[], axes: readonly number[], options: PrepareOptions): Division | null {
  const count = numel(axes.map((a) => shape[a]));
  const after = numel(shape.slice(axes[axes.length - 1] + 1));
  const before = numel(shape.slice(0, axes[0]));
  const { splitColumns = 0, tallColumns, parallelRows, longReduction } = options;
  if (after === 1) {
    if (before >= parallelRows || count < longReduction) return null;
    const split = pieces(count, 64);
    const isEven = split >= enoughPieces;
    return { before, pieces: isEven ? split : 1, length: count / split, beside: 1, after, wanted: 64 };
  }
  if (tallColumns !== undefined) return before === 1 && count * after >= tallColumns ? divideTall(count, after) : null;
  if (before * after >= splitColumns * 32 || count < 256) return null;
  const beside = after >= 32 || count < 1 << 13 ? 1 : pieces(count, 2 ** Math.ceil(Math.log2(enoughColumns / after)));
  const columns = after * beside;
  const rows = count / beside;
  // Many columns need few pieces.
  const wanted =
    before * after >= 1 << 14 ? 16 : rows < 1 << 13 ? 64 : Math.max(64, Math.min(512, Math.floor((1 << 18) / columns)));
  const split = pieces(rows, wanted);
  const isEven = split >= wanted / 2;
  return { before, pieces: isEven ? split : 1, length: rows / split, beside, after, wanted };
}

const divided = (x: Node, { before, pieces, length, beside, after }: Division): Node =>
  build.reshape(x, [before, pieces, length, beside * after]);

/** Welford's recurrence waits for every step: columns are divided until so many times more of them are under way than sums need. */
const manyLanes = 8;

/** Sums and squared deviations from the mean, which together read x once. */
function prepareMoments(x: Node, axes: readonly number[], options: PrepareOptions): Moments {
  const sum = (part: Node, over: readonly number[]): Node =>
    prepareReduce(build.reduce("sum", part, over) as Node<"reduce">, options);
  const runs = runsOf(axes, x.shape);
  if (runs.length > 1) {
    const last = runs[runs.length - 1];
    const rest = axes.filter((a) => !last.includes(a));
    const { total, spread } = prepareMoments(x, last, options);
    return joinMoments(sum(spread, rest), prepareMoments(total, rest, options), numel(last.map((a) => x.shape[a])));
  }
  const division = divide(x.shape, axes, { ...options, splitColumns: manyLanes * (options.splitColumns ?? 0) });
  if (division === null) return plainMoments(x, axes);
  if (division.pieces === 1) return momentsWithTail(x, axes, division, sum);
  const parts = plainMoments(divided(x, division), [2]);
  const shape = [division.before, division.pieces * division.beside, division.after];
  const [total, spread] = [parts.total, parts.spread].map((part) => build.reshape(part, shape));
  const joined = joinMoments(sum(spread, [1]), prepareMoments(total, [1], options), division.length);
  const kept = x.shape.filter((_, i) => !axes.includes(i));
  return { total: build.reshape(joined.total, kept), spread: build.reshape(joined.spread, kept) };
}

/** Moments of a number of elements without a suitable divisor: of pieces of equal length and of what is left, joined by Chan's formula. */
function momentsWithTail(
  x: Node,
  axes: readonly number[],
  { before, after, wanted }: Division,
  sum: (part: Node, over: readonly number[]) => Node,
): Moments {
  const kept = x.shape.filter((_, i) => !axes.includes(i));
  const count = numel(axes.map((a) => x.shape[a]));
  const length = after === 1 ? pieceLength(count) : Math.floor(count / wanted);
  const pieces = Math.floor(count / length);
  const end = pieces * length;
  const wide = build.reshape(x, [before, count, after]);
  const parts = plainMoments(build.reshape(build.sliceAxis(wide, 1, 0, end), [before, pieces, length, after]), [2]);
  const tail = end === count ? null : plainMoments(build.sliceAxis(wide, 1, end, count), [1]);
  const over = (a: Node, n: number): Node => build.div(a, build.fullLike(a, n));
  const total = tail === null ? sum(parts.total, [1]) : build.add(sum(parts.total, [1]), tail.total);
  const mean = over(total, count);
  /** Squared distances of the sums of pieces from what they would be at the common mean. */
  const apart = (sums: Node, n: number): Node => {
    const center = sums.shape.length > 2 ? build.expand(build.reshape(mean, [before, 1, after]), sums.shape) : mean;
    const away = build.sub(sums, build.mul(center, build.fullLike(center, n)));
    return over(build.mul(away, away), n);
  };
  const within = build.add(sum(parts.spread, [1]), sum(apart(parts.total, length), [1]));
  const spread = tail === null ? within : build.add(within, build.add(tail.spread, apart(tail.total, count - end)));
  return { total: build.reshape(total, kept), spread: build.reshape(spread, kept) };
}

/** Fewer pieces leave processors idle. */
const enoughPieces = 32;
/** Length of a piece where the number of elements has no suitable divisor: a multiple of every vector and thread group. */
const pieceLength = (count: number): number => (count >= 1 << 22 ? 8192 : 1024);

/** [rows, count] as pieces of equal length [rows, pieces, length] and a tail [rows, rest], which may be missing. */
function parted(x: Node, rows: number, count: number): { parts: Node; tail: Node | null; length: number } {
  const length = pieceLength(count);
  const whole = Math.floor(count / length) * length;
  const flat = build.reshape(x, [rows, count]);
  const parts = build.reshape(build.sliceAxis(flat, 1, 0, whole), [rows, whole / length, length]);
  return { parts, tail: whole === count ? null : build.sliceAxis(flat, 1, whole, count), length };
}

/** Two stages for a number of elements without suitable divisors, such as a prime. */
function withTail(node: Node<"reduce">, rows: number, count: number): Node {
  const { fn } = node.attrs;
  const [x] = node.inputs;
  const { parts, tail } = parted(widened(x), rows, count);
  const ends = tail === null ? [] : [build.reshape(build.reduce(fn, tail, [1]), [rows, 1])];
  const partial = build.reduce(fn, parts, [2]);
  const whole = build.reduce(fn, ends.length === 0 ? partial : build.concat([partial, ...ends], 1), [1]);
  return build.cast(build.reshape(whole, node.shape), node.dtype);
}

/** Columns of a number of elements without a suitable divisor: pieces of equal length and what is left of them. */
function columnsWithTail(node: Node<"reduce">, shape: readonly [number, number, number], wanted: number): Node {
  const { fn } = node.attrs;
  const [before, count, after] = shape;
  const [x] = node.inputs;
  const wide = build.reshape(widened(x), shape);
  const length = Math.floor(count / wanted);
  const end = wanted * length;
  const parts = build.reshape(build.sliceAxis(wide, 1, 0, end), [before, wanted, length, after]);
  const partial = build.reduce(fn, parts, [2]);
  const rest = (): Node =>
    build.reshape(build.reduce(fn, build.sliceAxis(wide, 1, end, count), [1]), [before, 1, after]);
  const whole = build.reduce(fn, end === count ? partial : build.concat([partial, rest()], 1), [1]);
  return build.cast(build.reshape(whole, node.shape), node.dtype);
}

/** Reduces x along the length of its pieces, then all pieces. */
function inTwoStages(node: Node<"reduce">, division: Division): Node {
  const { fn } = node.attrs;
  const [x] = node.inputs;
  const parts = build.reduce(fn, divided(widened(x), division), [2]);
  const { before, pieces, beside, after } = division;
  const whole = build.reduce(fn, build.reshape(parts, [before, pieces * beside, after]), [1]);
  return build.cast(build.reshape(whole, node.shape), node.dtype);
}

/** A product with a vector as a sum of products, which reads the matrix once. */
function vectorProduct(node: Node<"matmul">): Node {
  const [a, b] = node.inputs;
  const batch = node.shape.slice(0, -2);
  const k = a.shape[a.shape.length - 1];
  const rank = node.shape.length;
  // The sum runs along memory where it can: along the rows of a, and of b if it is transposed.
  const isRight = node.shape[rank - 1] === 1;
  const matrix = isRight ? a : isOp(b, "permute") ? build.transpose(b) : b;
  const alongRows = isRight || matrix !== b;
  const vector = build.reshape(isRight ? b : a, [...batch, ...(alongRows ? [1, k] : [k, 1])]);
  // Widened where it is read: the vector stays in memory as it is, once for all products with it.
  const products = build.mul(widened(matrix), widened(build.expand(vector, matrix.shape)));
  return build.cast(build.reshape(build.sum(products, [alongRows ? rank - 1 : rank - 2]), node.shape), node.dtype);
}

/** Whether a product is a real matrix, whose rows lie in memory, times one vector. */
function isVectorOfRows({ inputs: [a, b], shape, dtype }: Node<"matmul">, most: number): boolean {
  if (kindOf(dtype) !== "float" || !shape.slice(-2).includes(1)) return false;
  if (Math.max(numel(a.shape), numel(b.shape)) * bytesOf(dtype) > most) return false;
  return shape[shape.length - 1] === 1 ? !isOp(a, "permute") : isOp(b, "permute");
}

function prepareMatmul(node: Node<"matmul">, options: PrepareOptions): Node {
  const [a, b] = node.inputs;
  const k = a.shape[a.shape.length - 1];
  if (k === 0) return build.zerosLike(node);
  const isWidened = isHalf(node.dtype) && !options.halfMatmul?.(node);
  if (isWidened && node.shape.slice(-2).includes(1)) return vectorProduct(node);
  if (isWidened) return build.cast(build.matmul(build.cast(a, "float32"), build.cast(b, "float32")), node.dtype);
  if (isVectorOfRows(node, options.vectorRows ?? 0)) return vectorProduct(node);
  if (kindOf(node.dtype) === "int") {
    const batch = node.shape.slice(0, -2);
    const [m, n] = node.shape.slice(-2);
    const full = [...batch, m, n, k];
    const left = build.expand(build.reshape(a, [...batch, m, 1, k]), full);
    const right = build.expand(build.reshape(build.transpose(b), [...batch, 1, n, k]), full);
    return build.sum(build.mul(left, right), [full.length - 1]);
  }
  return node;
}

function prepareArgreduce(node: Node<"argreduce">, options: PrepareOptions): Node {
  const [x] = node.inputs;
  const { fn, axis } = node.attrs;
  const last = x.shape.length - 1;
  const rows = numel(node.shape);
  const count = x.shape[axis];
  const after = numel(x.shape.slice(axis + 1));
  if ((options.splitColumns ?? 0) > 0 && after >= minColumns)
    return argOfDivided(node, divide(x.shape, [axis], options)) ?? argOfColumns(node, options);
  const moved = axis === last ? x : build.moveAxis(x, axis, last);
  if (rows < options.parallelRows && count >= options.longReduction) return argInTwoStages(node, moved, rows, count);
  if (options.argsOfColumns === true && after >= minColumns) return node;
  return axis === last ? node : build.make("argreduce", [moved], { fn, axis: last });
}

/** Neighboring columns from which two reductions along memory are faster than one across it. */
const minColumns = 16;

/** Along an axis whose elements are apart in memory: the best value, then the first place that has it. NaN is the best. */
function argOfColumns(node: Node<"argreduce">, options: PrepareOptions): Node {
  const [x] = node.inputs;
  const { fn, axis } = node.attrs;
  const reduced = (how: ReduceFn, of: Node): Node =>
    prepareReduce(build.reduce(how, of, [axis]) as Node<"reduce">, options);
  const best = reduced(fn === "argmax" ? "max" : "min", x);
  const shape = x.shape.map((n, i) => (i === axis ? 1 : n));
  const isBest = build.eq(x, build.expand(build.reshape(best, shape), x.shape));
  const isNaN = build.unary("isnan", x);
  const found = kindOf(x.dtype) === "float" ? build.where(isNaN, isNaN, isBest) : isBest;
  const none = build.full(x.shape, x.shape[axis], "int32");
  return reduced("min", build.where(found, build.iota(x.shape, axis, "int32"), none));
}

/** Along columns, in one pass: the best of every piece with its place, then the first of the best pieces. Null for an uneven division. */
function argOfDivided(node: Node<"argreduce">, division: Division | null): Node | null {
  if (division === null) return node;
  const { before, pieces, length, beside, after } = division;
  if (pieces === 1 || beside > 1) return null;
  const { fn } = node.attrs;
  const parts = divided(node.inputs[0], division);
  const places = build.make("argreduce", [parts], { fn, axis: 2 });
  const values = build.reduce(fn === "argmax" ? "max" : "min", parts, [2]);
  const piece = build.iota(values.shape, 1, "int32");
  const winner = build.reshape(build.make("argreduce", [values], { fn, axis: 1 }), [before, 1, after]);
  const isWinner = build.eq(piece, build.expand(winner, values.shape));
  const position = build.add(places, build.scale(piece, length));
  const chosen = build.sum(build.where(isWinner, position, build.zerosLike(position)), [1]);
  return build.reshape(chosen, node.shape);
}

/** Whether a node is a view of an argument. */
function isStored(node: Node): boolean {
  if (node.op === "input" || node.op === "data") return true;
  return (node.op === "reshape" || node.op === "permute") && isStored(node.inputs[0]);
}

/** The best element of every piece, then the best of these. Ties go to the first at both stages, as does the first NaN. */
function argInTwoStages(node: Node<"argreduce">, x: Node, rows: number, count: number): Node {
  const { fn } = node.attrs;
  const best = fn === "argmax" ? "max" : "min";
  const { parts, tail, length } = parted(x, rows, count);
  const bestOf = (part: Node): [Node, Node] => {
    const axis = part.shape.length - 1;
    const shape = [rows, numel(part.shape.slice(1, -1))];
    const at = build.make("argreduce", [part], { fn, axis });
    // Elements that are in memory are looked up; computing them again costs a second reduction, storing them more.
    const value = isStored(x) ? build.gather(part, at, axis, axis) : build.reduce(best, part, [axis]);
    return [build.reshape(value, shape), build.reshape(at, shape)];
  };
  const found = [parts, ...(tail === null ? [] : [tail])].map(bestOf);
  const values =
    found.length === 1
      ? found[0][0]
      : build.concat(
          found.map(([value]) => value),
          1,
        );
  const places =
    found.length === 1
      ? found[0][1]
      : build.concat(
          found.map(([, at]) => at),
          1,
        );
  const winner = build.reshape(build.make("argreduce", [values], { fn, axis: 1 }), [rows, 1]);
  const piece = build.iota(values.shape, 1, "int32");
  const isWinner = build.eq(piece, build.expand(winner, values.shape));
  const position = build.add(places, build.scale(piece, length));
  const chosen = build.sum(build.where(isWinner, position, build.zerosLike(position)), [1]);
  return build.reshape(chosen, node.shape);
}

/** The value of an empty reduction. The ends of 64-bit integers are not constants; nothing can ask for them. */
const emptyValue: Record<ReduceFn, (dtype: DType) => number> = {
  sum: () => 0,
  prod: () => 1,
  max: (dtype) => (kindOf(dtype) === "float" ? Number.NEGATIVE_INFINITY : Number(integerLimits(dtype).low)),
  min: (dtype) => (kindOf(dtype) === "float" ? Number.POSITIVE_INFINITY : Number(integerLimits(dtype).high)),
};

/** Empty tensors, and sums over them, need no loops. */
function prepareEmpty(node: Node): Node | null {
  if (node.outputs !== null || node.op === "const" || node.op === "collective") return null;
  if (numel(node.shape) === 0) return build.zerosLike(node);
  if (isOp(node, "conv") && node.inputs.some(({ shape }) => numel(shape) === 0)) return build.zerosLike(node);
  if (isOp(node, "det") && numel(node.inputs[0].shape) === 0) return build.full(node.shape, 1, node.dtype);
  if (isOp(node, "reduce") && numel(node.inputs[0].shape) === 0)
    return build.full(node.shape, emptyValue[node.attrs.fn](node.dtype), node.dtype);
  return null;
}

/** Many parts are joined in groups, each in a kernel of its own: kernels have a limited number of arguments and nested tests. */
function prepareConcat(node: Node<"concat">): Node {
  const { inputs, attrs } = node;
  if (inputs.length <= manyParts) return node;
  const groups = Array.from({ length: Math.ceil(inputs.length / manyParts) }, (_, i) =>
    build.concat(inputs.slice(i * manyParts, (i + 1) * manyParts), attrs.axis),
  );
  const joined = build.concat(groups, attrs.axis);
  return isOp(joined, "concat") ? prepareConcat(joined) : joined;
}

/** A product that is only read transposed is computed transposed: (a b)^T = b^T a^T, and its reader gets contiguous rows. */
function prepareTransposed(node: Node<"permute">, isShared: (x: Node) => boolean): Node | null {
  const [x] = node.inputs;
  const rank = x.shape.length;
  const { axes } = node.attrs;
  const swapsMatrix = axes.every((a, i) => a === (i === rank - 2 ? rank - 1 : i === rank - 1 ? rank - 2 : i));
  if (!isOp(x, "matmul") || !swapsMatrix || isShared(x)) return null;
  return build.matmul(build.transpose(x.inputs[1]), build.transpose(x.inputs[0]), x.attrs.precision);
}

/** Places of an order that are selected; more of them are sorted. */
const maxSelected = 4;

/** A few neighboring places of the order of rows, or the elements there, of which nothing else is read. */
function prepareSelection(node: Node<"slice">, isShared: (x: Node) => boolean, options: PrepareOptions): Node | null {
  const [x] = node.inputs;
  const last = x.shape.length - 1;
  const { start, step } = node.attrs;
  const isWindow =
    node.shape.every((d, i) => i === last || d === x.shape[i]) && (step[last] === 1 || node.shape[last] === 1);
  if (!isWindow || node.shape[last] > maxSelected || isShared(x)) return null;
  if (isOp(x, "gather") && x.attrs.axis === last && x.attrs.batch === last && isOp(x.inputs[1], "argsort")) {
    const order = build.slice(x.inputs[1], node.attrs.start, [...x.shape.slice(0, -1), start[last] + node.shape[last]]);
    const places = isOp(order, "slice") ? prepareSelection(order, () => false, options) : null;
    return places === null ? null : build.gather(x.inputs[0], places, last, last);
  }
  if (!isOp(x, "argsort") || !options.selects?.(numel(x.shape.slice(0, -1)), x.inputs[0].shape[last])) return null;
  const { descending, first = 0, values } = x.attrs;
  const how = { descending, first: first + start[last], count: node.shape[last] };
  const places = build.make("argsort", x.inputs, how);
  return values ? build.gather(x.inputs[0], places, last, last) : places;
}

/** All elements of rows in their order, where nobody reads the order itself. */
function prepareSorted(node: Node<"gather">, isShared: (x: Node) => boolean): Node | null {
  const [x, order] = node.inputs;
  const last = x.shape.length - 1;
  if (!isOp(order, "argsort") || order.inputs[0] !== x || node.attrs.axis !== last || node.attrs.batch !== last)
    return null;
  const { descending, first = 0, count = x.shape[last] } = order.attrs;
  if (first !== 0 || count !== x.shape[last] || isShared(order) || isComplex(x.dtype)) return null;
  return build.make("argsort", [x], { descending, values: true });
}

/** A running product or extremum that the library has. */
function scanOf(node: Node, scans: NonNullable<PrepareOptions["scans"]>): ReturnType<typeof runningOf> {
  if (!scans(node.dtype, Number.POSITIVE_INFINITY)) return null;
  const found = runningOf(node);
  return found !== null && scans(node.dtype, found.x.shape[found.axis]) ? found : null;
}

/** A running sum that widens what it reads. */
function prepareScan(node: Node<"cumsum">, { sumsNarrow }: PrepareOptions): Node {
  const [x] = node.inputs;
  const isNarrow = isOp(x, "cast") && sumsNarrow?.(x.inputs[0].dtype, node.dtype);
  return isNarrow ? build.make("cumsum", [x.inputs[0]], { ...node.attrs, dtype: node.dtype }) : node;
}

/** The gradient of attention without that of its added mask, which is as large as the scores, where nobody reads it. */
function withoutMaskGradient(node: Node<"custom">, isRead: (index: number) => boolean): Node {
  const { kernel, body, rule } = node.attrs;
  if (kernel?.gradient !== true || kernel.mask !== "float" || isRead(body.outputs.length - 1)) return node;
  const outputs = body.outputs.slice(0, -1);
  return build.make("custom", node.inputs, {
    body: { ...body, outputs },
    rule,
    kernel: { ...kernel, maskGradient: false },
  });
}

/** Attention whose log-sums nobody reads takes the numbers that are added to its scores as they are. */
function withPlainBias(node: Node<"custom">, isRead: (index: number) => boolean): Node {
  const { kernel } = node.attrs;
  if (kernel === undefined || kernel.gradient || kernel.mask !== "float" || isRead(1)) return node;
  const at = kernel.packed ? 1 : 3;
  const bias = plainBias(node.inputs[at]);
  return bias === node.inputs[at] ? node : attentionNode(node.inputs.with(at, bias), kernel);
}

/** What a node is lowered to has its shape and dtype: its readers would compute something else, or look for what does not exist. */
function assertSame(node: Node, lowered: Node): void {
  if (sameShape(node.shape, lowered.shape) && node.dtype === lowered.dtype) return;
  throw new WeftError(
    `compile: ${node.op} ${showAval(node)} was lowered to ${showAval(lowered)}; please report this program`,
  );
}

export function prepare(whole: GraphFn, options: PrepareOptions): GraphFn {
  const convolved = prepareConvs(whole, options.conv);
  const fn = options.trueHalfSpectra ? rewriteOps(convolved, "fft", prepareHalfSpectrum) : convolved;
  const map = new Map<Node, Node>(fn.params.map((p) => [p, p]));
  const order = functionOrder(fn);
  const users = new Map<Node, number>();
  for (const node of [...order.flatMap((n) => n.inputs), ...fn.outputs]) users.set(node, (users.get(node) ?? 0) + 1);
  const gathers = new Map<Node, number>();
  for (const node of order)
    if (isOp(node, "gather")) gathers.set(node.inputs[0], (gathers.get(node.inputs[0]) ?? 0) + 1);
  // Sums whose operands are also read for squared deviations: both are made at once.
  const spreads = new Map<Node, Node>(
    order.flatMap((node) => {
      const found = options.onePassMoments ? deviationsOf(node) : null;
      return found === null ? [] : [[found.total, node] as const];
    }),
  );
  const picked = new Set(order.flatMap((n) => (isOp(n, "pick") ? [`${n.inputs[0].id}:${n.attrs.index}`] : [])));
  for (const node of order) {
    if (map.has(node)) continue;
    const next = rebuild(
      node,
      node.inputs.map((input) => map.get(input)!),
    );
    const empty = prepareEmpty(next);
    const scan = options.scans === undefined ? null : scanOf(node, options.scans);
    if (empty !== null) map.set(node, empty);
    else if (scan !== null)
      map.set(node, build.make("cumsum", [map.get(scan.x)!], { axis: scan.axis, reverse: false, fn: scan.fn }));
    else if (isOp(next, "pin")) map.set(node, next.inputs[0]);
    else if (isOp(next, "permute"))
      map.set(node, prepareTransposed(next, () => users.get(node.inputs[0]) !== 1) ?? next);
    else if (isOp(next, "slice"))
      map.set(node, prepareSelection(next, () => users.get(node.inputs[0]) !== 1, options) ?? next);
    else if (isOp(next, "gather")) {
      const sorted = options.sortsValues ? prepareSorted(next, () => users.get(node.inputs[1]) !== 1) : null;
      // A copy that others read is there anyway.
      const isOnlyGathered = users.get(node.inputs[0]) === gathers.get(node.inputs[0]);
      map.set(node, sorted ?? (isOnlyGathered ? prepareSurrounded(next) : null) ?? next);
    } else if (isOp(next, "reduce") && spreads.has(node)) {
      const { total, spread } = prepareMoments(widened(next.inputs[0]), next.attrs.axes, options);
      map.set(node, build.cast(total, node.dtype));
      map.set(spreads.get(node)!, build.cast(spread, node.dtype));
    } else if (isOp(next, "reduce")) map.set(node, prepareReduce(next, options));
    else if (isOp(next, "matmul")) map.set(node, prepareMatmul(next, options));
    else if (isOp(next, "argreduce")) map.set(node, prepareArgreduce(next, options));
    else if (isOp(next, "concat")) map.set(node, prepareConcat(next));
    else if (isOp(next, "cumsum")) map.set(node, prepareScan(next, options));
    else if (isOp(next, "custom")) {
      const isRead = (i: number): boolean => picked.has(`${node.id}:${i}`);
      map.set(node, withPlainBias(withoutMaskGradient(next, isRead) as Node<"custom">, isRead));
    } else map.set(node, next);
    assertSame(node, map.get(node)!);
  }
  // A device without work still takes part in collectives.
  const effects = order.filter(({ op }) => op === "collective").map((node) => map.get(node)!);
  const outputs = fn.outputs.map((output) => map.get(output)!);
  return effects.length === 0 ? { params: fn.params, outputs } : { params: fn.params, outputs, effects };
}
