// Converts arguments of users (tensors, numbers, complex pairs) to graph nodes: promotion, broadcasting, axis checks. Errors are
// thrown here, at the call of the user.
import {
  type BinaryFn,
  broadcastShapes,
  complexOf,
  type DType,
  DTypeError,
  integerLimits,
  isBig,
  isComplex,
  isHalf,
  isInexact,
  type Node,
  promote,
  type Shape,
  ShapeError,
  sameShape,
  showShape,
  showValue,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { build } from "../ops/index.js";
import { boundPending } from "../runtime/index.js";
import { Tensor } from "./tensor.js";

/** A complex number. */
export interface ComplexNumber {
  /** Real part. */
  re: number;
  /** Imaginary part. */
  im: number;
}
/** A tensor, or a value that operations convert to one. */
export type TensorLike = Tensor | number | bigint | boolean | ComplexNumber;
/** A single value that operations convert to a tensor. */
type ScalarLike = Exclude<TensorLike, Tensor>;

/** Wraps a node as a tensor. Runs chains of pending work that are too long. */
export function wrap(node: Node): Tensor {
  boundPending(node);
  return new Tensor(node);
}

/** A number, a bigint of at most 64 bits, true or false, or a complete complex number. */
export function isScalarValue(x: unknown): x is ScalarLike {
  if (typeof x === "number" || typeof x === "boolean") return true;
  if (typeof x === "bigint") return x >= integerLimits("int64").low && x <= integerLimits("uint64").high;
  const { re, im } = (typeof x === "object" && x !== null ? x : {}) as Partial<ComplexNumber>;
  return typeof re === "number" && typeof im === "number";
}

const isScalar = (x: TensorLike): x is ScalarLike => !(x instanceof Tensor);

const bigDType = (value: bigint): DType => (value > integerLimits("int64").high ? "uint64" : "int64");

function scalarDType(value: ScalarLike): DType {
  if (typeof value === "boolean") return "bool";
  if (typeof value === "bigint") return bigDType(value);
  return typeof value === "number" ? "float32" : "complex64";
}

const half = 2n ** 32n;

/** A single value as a constant of a dtype. Constants are doubles: bigints with more digits are put together of two. */
export function scalarNode(value: ScalarLike, dtype: DType): Node {
  if (typeof value !== "bigint") return build.constant(typeof value === "boolean" ? Number(value) : value, dtype);
  if (!isBig(dtype) || Number.isSafeInteger(Number(value))) return build.constant(Number(value), dtype);
  const [high, low] = [value / half, value % half];
  const [top, scale, rest] = [high, half, low].map((x) => build.constant(Number(x), dtype));
  return build.add(build.mul(top, scale), rest);
}

/** The dtype of a number used with a tensor: that of the tensor, unless it cannot represent the number. */
function besideTensor(value: ScalarLike, dtype: DType): DType {
  if (typeof value === "object") return isComplex(dtype) ? dtype : complexOf(dtype);
  if (typeof value === "boolean") return dtype;
  if (isInexact(dtype)) return dtype;
  if (typeof value === "number" && !Number.isInteger(value)) return "float32";
  const fits = (d: DType): boolean => value >= integerLimits(d).low && value <= integerLimits(d).high;
  if (dtype !== "bool" && fits(dtype)) return dtype;
  // An integer out of range of the tensor's dtype widens the result instead of wrapping.
  return (["int32", "int64", "uint64"] as const).find(fits) ?? "float32";
}

function describeArgument(x: unknown): string {
  if (x instanceof Tensor) return `a ${x.dtype} tensor of shape ${showShape(x.shape)}`;
  if (Array.isArray(x) || ArrayBuffer.isView(x)) return "an array (wrap it in weft.tensor)";
  return typeof x === "object" || x === undefined ? showValue(x) : `${typeof x} ${String(x)}`;
}

const argumentKinds = {
  tensor: { title: "a tensor", accepts: (x: unknown) => x instanceof Tensor },
  function: { title: "a function", accepts: (x: unknown) => typeof x === "function" },
  array: { title: "an array", accepts: (x: unknown) => Array.isArray(x) },
  number: { title: "a number", accepts: (x: unknown) => typeof x === "number" },
  string: { title: "a string", accepts: (x: unknown) => typeof x === "string" },
};

/** Throws at the first argument that is not of a kind; programs without types pass anything. */
export function checkArguments(op: string, kind: keyof typeof argumentKinds, given: Record<string, unknown>): void {
  const { title, accepts } = argumentKinds[kind];
  for (const name in given)
    if (!accepts(given[name]))
      throw new WeftError(`${op}: ${name} must be ${title}, got ${describeArgument(given[name])}`);
}

function checkOperand(op: string, x: TensorLike): void {
  if (!(x instanceof Tensor) && !isScalarValue(x))
    throw new WeftError(`${op}: expected a tensor or a number, got ${describeArgument(x)}`);
}

/** The node of a single operand. */
export function nodeOf(op: string, x: TensorLike): Node {
  checkOperand(op, x);
  return x instanceof Tensor ? x.node : scalarNode(x, scalarDType(x));
}

/** A node cast to a dtype. */
export function nodeAs(op: string, x: TensorLike, dtype: DType): Node {
  checkOperand(op, x);
  return x instanceof Tensor ? build.cast(x.node, dtype) : scalarNode(x, dtype);
}

/** Updates of a tensor, in its dtype. They must not need a wider one: nothing is rounded or cut off in silence. */
export function updateNode(op: string, x: Tensor, updates: TensorLike): Node {
  const isTruth = x.dtype === "bool" && (updates === 0 || updates === 1);
  if (!isTruth && commonDType(op, [x, updates]) !== x.dtype)
    throw new DTypeError(
      `${op}: updates (${describeArgument(updates)}) do not fit a tensor of ${x.dtype}; cast the tensor or the updates`,
    );
  return nodeAs(op, updates, x.dtype);
}

/** The common dtype of operands: tensors are promoted, numbers follow. */
export function commonDType(op: string, operands: readonly TensorLike[]): DType {
  for (const x of operands) checkOperand(op, x);
  const given = operands.flatMap((x) => (x instanceof Tensor ? [x.dtype] : []));
  // Floats decide first: uint64 with int64 gives float64, and that must not depend on the order of the operands.
  const inexact = given.filter(isInexact);
  let dtype = (inexact.length > 0 ? inexact : given).reduce<DType | null>(
    (a, b) => (a === null ? b : promote(a, b)),
    null,
  );
  if (dtype === null) return operands.map((x) => scalarDType(x as number)).reduce(promote);
  for (const x of operands) if (isScalar(x)) dtype = promote(dtype, besideTensor(x, dtype));
  return dtype;
}

export function broadcastAll(op: string, shapes: readonly Shape[]): number[] {
  let shape: number[] = [];
  for (const next of shapes) {
    const joined = broadcastShapes(shape, next);
    if (joined === null)
      throw new ShapeError(
        `${op}: shapes ${shapes.map(showShape).join(" and ")} do not broadcast; ` +
          "sizes must be equal or 1, counted from the last axis (reshape or unsqueeze one of them)",
      );
    shape = joined;
  }
  return shape;
}

/** Operands as nodes of one dtype and shape. */
export function align(op: string, operands: readonly TensorLike[], dtype = commonDType(op, operands)): Node[] {
  const nodes = operands.map((x) => nodeAs(op, x, dtype));
  const first = nodes[0].shape;
  if (nodes.every((node) => sameShape(node.shape, first))) return nodes;
  const shape = broadcastAll(
    op,
    nodes.map((node) => node.shape),
  );
  return nodes.map((node) => build.expandTo(node, shape));
}

export function binaryOp(op: string, fn: BinaryFn, a: TensorLike, b: TensorLike, dtype?: DType): Tensor {
  const [x, y] = align(op, [a, b], dtype);
  return wrap(build.binary(fn, x, y));
}

/** The operand in a floating-point dtype. */
export function inexactNode(op: string, x: TensorLike): Node {
  const node = nodeOf(op, x);
  return build.cast(node, toInexact(node.dtype));
}

/**
 * Computes integers in float64 and halves in float32, and rounds the result once: differences of large integers have no digits in
 * float32, and sums and counts leave the range of float16.
 */
export function inWiderFloat(op: string, x: TensorLike, body: (t: Tensor) => Tensor): Tensor {
  const node = nodeOf(op, x);
  if (isInexact(node.dtype)) return inFloat32(op, x, body);
  return wrap(build.cast(body(wrap(build.cast(node, "float64"))).node, toInexact(node.dtype)));
}

/** Computes halves in float32 and rounds the result once: sums and counts leave the range of float16. */
export function inFloat32(op: string, x: TensorLike, body: (t: Tensor) => Tensor): Tensor {
  const node = nodeOf(op, x);
  if (!isHalf(node.dtype)) return body(wrap(node));
  return wrap(build.cast(body(wrap(build.cast(node, "float32"))).node, node.dtype));
}

/** Resolves an axis, counted from the end if negative. */
export function resolveAxis(op: string, axis: number, rank: number): number {
  if (typeof axis !== "number")
    throw new ShapeError(`${op}: an axis is a number, got ${showValue(axis)}; options come after it`);
  const resolved = axis < 0 ? axis + rank : axis;
  if (!Number.isInteger(axis) || resolved < 0 || resolved >= rank)
    throw new ShapeError(
      `${op}: axis ${axis} is out of range for a tensor of rank ${rank}` +
        (rank === 0 ? "; a scalar has no axes" : `; axes go from ${-rank} to ${rank - 1}`),
    );
  return resolved;
}

export function resolveAxes(op: string, axes: number | readonly number[] | undefined | null, rank: number): number[] {
  if (axes === undefined || axes === null) return Array.from({ length: rank }, (_, i) => i);
  const list = typeof axes === "number" ? [axes] : axes;
  if (!Array.isArray(list))
    throw new ShapeError(
      `${op}: axes are a number or an array of numbers, got ${showValue(axes)}; options come after them`,
    );
  const resolved = list.map((axis) => resolveAxis(op, axis, rank));
  if (new Set(resolved).size !== resolved.length)
    throw new ShapeError(`${op}: axes [${list.join(", ")}] name one axis twice`);
  return resolved.sort((a, b) => a - b);
}
