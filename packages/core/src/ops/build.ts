// Builders of graph nodes, which are used as `build.add`. Shapes must already fit. Ops that would change nothing are omitted.
import {
  type BinaryFn,
  type DType,
  isComplex,
  keepAxes,
  type Node,
  numel,
  type OpAttrs,
  outputAvals,
  type Precision,
  type ReduceFn,
  range,
  type Scalar,
  type Shape,
  sameShape,
  showShape,
  storedScalar,
  type UnaryFn,
  WeftError,
} from "../graph/index.js";
import { make } from "./make.js";

export { make, withInputs } from "./make.js";

export const input = (shape: Shape, dtype: DType, name = ""): Node => make("input", [], { shape, dtype, name });
/** A constant as its dtype stores it, so that constant folding agrees with computation on a device. */
export const constant = (value: Scalar, dtype: DType): Node =>
  make("const", [], { value: storedScalar(value, dtype), dtype });
export const full = (shape: Shape, value: Scalar, dtype: DType): Node => expandTo(constant(value, dtype), shape);
export const fullLike = (like: Node, value: Scalar): Node => full(like.shape, value, like.dtype);
export const iota = (shape: Shape, axis: number, dtype: DType): Node => make("iota", [], { shape, axis, dtype });

export const unary = (fn: UnaryFn, x: Node): Node => make("unary", [x], { fn });
export const binary = (fn: BinaryFn, a: Node, b: Node): Node => make("binary", [a, b], { fn });

export const neg = (x: Node): Node => unary("neg", x);
export const add = (a: Node, b: Node): Node => binary("add", a, b);
export const sub = (a: Node, b: Node): Node => binary("sub", a, b);
export const mul = (a: Node, b: Node): Node => binary("mul", a, b);
export const div = (a: Node, b: Node): Node => binary("div", a, b);
export const scale = (x: Node, factor: Scalar): Node => mul(x, fullLike(x, factor));
export const shift = (x: Node, amount: Scalar): Node => add(x, fullLike(x, amount));
export const where = (condition: Node, a: Node, b: Node): Node => make("where", [condition, a, b], {});
export const eq = (a: Node, b: Node): Node => binary("eq", a, b);
export const lt = (a: Node, b: Node): Node => binary("lt", a, b);
export const le = (a: Node, b: Node): Node => binary("le", a, b);
export const conj = (x: Node): Node => (isComplex(x.dtype) ? unary("conj", x) : x);
export const real = (x: Node): Node => (isComplex(x.dtype) ? unary("real", x) : x);
export const imag = (x: Node): Node => unary("imag", x);
export const toComplex = (re: Node, im: Node): Node => binary("complex", re, im);

export const cast = (x: Node, dtype: DType): Node => (x.dtype === dtype ? x : make("cast", [x], { dtype }));

const wideIntegers: ReadonlySet<DType> = new Set(["int64", "uint64", "uint32"]);

/** Integers as int32, the dtype of indices. Those that int32 cannot hold must stay out of range instead of wrapping into it. */
export function toIndex(x: Node): Node {
  if (!wideIntegers.has(x.dtype)) return cast(x, "int32");
  const below = binary("min", x, fullLike(x, 2 ** 31 - 1));
  return cast(x.dtype === "int64" ? binary("max", below, fullLike(x, -(2 ** 31))) : below, "int32");
}

export function reshape(x: Node, shape: Shape): Node {
  if (sameShape(x.shape, shape)) return x;
  // Kernels would find elements that do not exist, and the compiler an index for them without end.
  if (numel(x.shape) !== numel(shape))
    throw new WeftError(`reshape: ${showShape(x.shape)} has another number of elements than ${showShape(shape)}`);
  return make("reshape", [x], { shape });
}

export const permute = (x: Node, axes: readonly number[]): Node =>
  axes.every((a, i) => a === i) ? x : make("permute", [x], { axes });

/** Swaps the last two axes. */
export function transpose(x: Node): Node {
  const n = x.shape.length;
  return permute(x, [...range(n - 2), n - 1, n - 2]);
}

export const adjoint = (x: Node): Node => conj(transpose(x));

export function moveAxis(x: Node, from: number, to: number): Node {
  const axes = range(x.shape.length);
  axes.splice(from, 1);
  axes.splice(to, 0, from);
  return permute(x, axes);
}

export const expand = (x: Node, shape: Shape): Node => (sameShape(x.shape, shape) ? x : make("expand", [x], { shape }));

/** Broadcasts with the rules of NumPy: new axes in front, ones are expanded. */
export function expandTo(x: Node, shape: Shape): Node {
  if (sameShape(x.shape, shape)) return x;
  const lead = shape.length - x.shape.length;
  return expand(reshape(x, [...new Array<number>(lead).fill(1), ...x.shape]), shape);
}

export const reduce = (fn: ReduceFn, x: Node, axes: readonly number[]): Node =>
  axes.length === 0 ? x : make("reduce", [x], { fn, axes: [...axes].sort((a, b) => a - b) });

export const sum = (x: Node, axes: readonly number[]): Node => reduce("sum", x, axes);

/** Restores reduced axes as ones and broadcasts to the shape before the reduction. */
export const unreduce = (x: Node, shape: Shape, axes: readonly number[]): Node =>
  expand(reshape(x, keepAxes(shape, axes)), shape);

export const matmul = (a: Node, b: Node, precision?: Precision): Node =>
  make("matmul", [a, b], precision === undefined ? {} : { precision });

/** The gradient rules need the other two kinds with the same geometry. */
export const conv = (inputs: readonly [Node, Node], attrs: OpAttrs["conv"]): Node => make("conv", inputs, attrs);

export function slice(x: Node, start: readonly number[], stop: readonly number[], step?: readonly number[]): Node {
  const steps = step ?? start.map(() => 1);
  if (start.every((s, i) => s === 0 && stop[i] === x.shape[i] && steps[i] === 1)) return x;
  return make("slice", [x], { start, stop, step: steps });
}

/** Elements [from, to) of one axis. */
export function sliceAxis(x: Node, axis: number, from: number, to: number): Node {
  const start = x.shape.map((_, i) => (i === axis ? from : 0));
  const stop = x.shape.map((d, i) => (i === axis ? to : d));
  return slice(x, start, stop);
}

export const pad = (x: Node, low: readonly number[], high: readonly number[]): Node =>
  low.every((l, i) => l === 0 && high[i] === 0) ? x : make("pad", [x], { low, high });

export const flip = (x: Node, axes: readonly number[]): Node => (axes.length === 0 ? x : make("flip", [x], { axes }));

export const concat = (parts: readonly Node[], axis: number): Node =>
  parts.length === 1 ? parts[0] : make("concat", parts, { axis });

export const gather = (x: Node, indices: Node, axis: number, batch: number): Node =>
  make("gather", [x, indices], { axis, batch });

export const scatterAdd = (base: Node, indices: Node, updates: Node, axis: number, batch: number): Node =>
  make("scatterAdd", [base, indices, updates], { axis, batch });

export const scatterReduce = (base: Node, indices: Node, updates: Node, attrs: OpAttrs["scatterReduce"]): Node =>
  make("scatterReduce", [base, indices, updates], attrs);

export const updateSlice = (base: Node, start: Node, update: Node, axis: number, batch: number): Node =>
  make("updateSlice", [base, start, update], { axis, batch });

/** `size` elements along an axis from a start [...batch], which is clamped so that all exist. */
export function sliceAt(x: Node, start: Node, size: number, axis: number, batch: number): Node {
  const last = fullLike(start, x.shape[axis] - size);
  const first = binary("min", binary("max", start, fullLike(start, 0)), last);
  const shape = [...start.shape, size];
  const indices = add(expand(reshape(first, [...start.shape, 1]), shape), iota(shape, batch, "int32"));
  return gather(x, indices, axis, batch);
}

export const cumsum = (x: Node, axis: number, reverse = false): Node => make("cumsum", [x], { axis, reverse });

export const pick = (tuple: Node, index: number): Node => make("pick", [tuple], { index });

export const picks = (tuple: Node): Node[] => outputAvals(tuple).map((_, i) => pick(tuple, i));

export const zerosLike = (x: { shape: Shape; dtype: DType }): Node => full(x.shape, 0, x.dtype);

/** Identity matrix, from a comparison of row and column indices. */
export function identityLike(n: number, dtype: DType, batch: Shape = []): Node {
  const rows = iota([n, n], 0, "int32");
  const columns = iota([n, n], 1, "int32");
  return expandTo(cast(eq(rows, columns), dtype), [...batch, n, n]);
}

/** Keeps the triangle on and below (or strictly below) the diagonal. */
export function triangle(x: Node, lower: boolean, strict: boolean): Node {
  const rows = iota(x.shape, x.shape.length - 2, "int32");
  const columns = iota(x.shape, x.shape.length - 1, "int32");
  const [small, large] = lower ? [columns, rows] : [rows, columns];
  return where(strict ? lt(small, large) : le(small, large), x, zerosLike(x));
}
