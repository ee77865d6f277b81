// Integer and bit functions: greatest common divisors, bit counts, packed bits, indices in a shape (ravel and unravel), and the exponents of
// floats. All are composed of ops, so that every device and vmap has them.
import {
  checkOptions,
  type DType,
  DTypeError,
  isComplex,
  kindOf,
  numel,
  range,
  type Shape,
  toInexact,
  WeftError,
} from "../graph/index.js";
import { checkShape } from "./checks.js";
import { whileLoop } from "./control.js";
import { commonDType, nodeOf, resolveAxis, type TensorLike, wrap } from "./convert.js";
import { tensor } from "./create.js";
import { exp2 } from "./elementary.js";
import { rightShift } from "./elementwise.js";
import {
  abs,
  bitwiseAnd,
  cast,
  clip,
  equal,
  floor,
  floorDivide,
  isFinite,
  less,
  log2,
  logicalAnd,
  mod,
  notEqual,
  where,
} from "./math.js";
import { stopGradient } from "./reduce.js";
import { broadcastTensors, reshape, unsqueeze } from "./shape.js";
import type { Tensor } from "./tensor.js";

/** The operands as tensors of one integer dtype and shape. */
function wholeNumbers(op: string, ...operands: TensorLike[]): Tensor[] {
  const dtype = commonDType(op, operands);
  if (kindOf(dtype) !== "int") throw new DTypeError(`${op}: needs integers, got ${dtype}; cast the operands first`);
  return broadcastTensors(...operands.map((x) => cast(x, dtype)));
}

/** Euclid's algorithm needs at most this many steps for 64 bits. */
const mostSteps = 93;

/** Elementwise greatest common divisor of integers, with broadcasting; never negative. */
export function gcd(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = wholeNumbers("gcd", a, b);
  const [result] = whileLoop(
    ([, q]) => notEqual(q, 0).any(),
    ([p, q]) => {
      const isDone = equal(q, 0);
      return [where(isDone, p, q), where(isDone, q, mod(p, q))];
    },
    [x, y],
    { maxTrips: mostSteps },
  );
  return abs(result);
}

/** Elementwise least common multiple of integers, with broadcasting; 0 where one of them is 0. Wraps. */
export function lcm(a: TensorLike, b: TensorLike): Tensor {
  const [x, y] = wholeNumbers("lcm", a, b);
  const divisor = gcd(x, y);
  // Sizes divide evenly; of negative numbers the floor would be another.
  return floorDivide(abs(x), where(equal(divisor, 0), 1, divisor)).mul(abs(y));
}

const unsignedOf: Partial<Record<DType, DType>> = { int8: "uint8", int16: "uint16", int32: "uint32", int64: "uint64" };

/** Number of 1-bits (uint8) in the absolute values of integers, as numpy.bitwise_count. */
export function bitwiseCount(x: TensorLike): Tensor {
  const [t] = wholeNumbers("bitwiseCount", x);
  let v = cast(cast(abs(t), unsignedOf[t.dtype] ?? t.dtype), "uint64");
  const fields = (bits: Tensor, of: bigint): Tensor => bitwiseAnd(bits, of);
  const after = (by: number): Tensor => rightShift(v, by);
  v = v.sub(fields(after(1), 0x5555555555555555n));
  v = fields(v, 0x3333333333333333n).add(fields(after(2), 0x3333333333333333n));
  v = fields(v.add(after(4)), 0x0f0f0f0f0f0f0f0fn);
  return cast(rightShift(v.mul(0x0101010101010101n), 56), "uint8");
}

/** Options of {@link packBits} and {@link unpackBits}. @inline */
interface BitOptions {
  /** The axis along which bits lie; all elements in a row by default. */
  axis?: number;
  /** Whether the first bit is the highest ("big", the default) or the lowest of its byte. */
  order?: "big" | "little";
}

/** The operand with its bits along the last axis, the weights of eight of them, and how to put that axis back. */
function alongBits(
  op: string,
  x: TensorLike,
  options: BitOptions,
): { t: Tensor; powers: number[]; back: (t: Tensor) => Tensor } {
  const { axis, order = "big" } = checkOptions(op, options, ["axis", "order"]);
  if (order !== "big" && order !== "little")
    throw new WeftError(`${op}: order is "big" or "little", got ${String(order)}`);
  const node = wrap(nodeOf(op, x));
  const flat = axis === undefined ? reshape(node, [-1]) : node;
  const at = axis === undefined ? 0 : resolveAxis(op, axis, flat.rank);
  const axes = range(flat.rank).filter((i) => i !== at);
  const back = range(flat.rank).map((i) => (i === at ? flat.rank - 1 : axes.indexOf(i)));
  const powers = range(8).map((i) => (order === "big" ? 7 - i : i));
  return { t: flat.permute([...axes, at]), powers, back: (t) => t.permute(back) };
}

/** Packs elements that are not 0 as 1-bits into bytes (uint8), as numpy.packbits; zeros fill the last byte. */
export function packBits(x: TensorLike, options: BitOptions = {}): Tensor {
  const { t, powers, back } = alongBits("packBits", x, options);
  const n = t.shape[t.rank - 1];
  const bytes = Math.ceil(n / 8);
  const filled = notEqual(t, 0).pad([...range(t.rank - 1).map(() => [0, 0] as const), [0, 8 * bytes - n]]);
  const bits = cast(reshape(filled, [...t.shape.slice(0, -1), bytes, 8]), "int32");
  const weights = tensor(
    powers.map((p) => 2 ** p),
    { dtype: "int32" },
  );
  return back(cast(bits.mul(weights).sum(-1), "uint8"));
}

/** The bits (uint8, 0 or 1) of bytes, as numpy.unpackbits. */
export function unpackBits(x: TensorLike, options: BitOptions = {}): Tensor {
  const { dtype } = nodeOf("unpackBits", x);
  if (dtype !== "uint8") throw new DTypeError(`unpackBits: needs uint8, got ${dtype}; cast it first`);
  const { t, powers, back } = alongBits("unpackBits", x, options);
  const bits = bitwiseAnd(rightShift(unsqueeze(t, -1), tensor(powers, { dtype: "uint8" })), 1);
  return back(reshape(bits, [...t.shape.slice(0, -1), 8 * t.shape[t.rank - 1]]));
}

/**
 * The indices along each axis of the elements with the given places in row-major order, as numpy.unravel_index. Negative places count
 * from the end; places out of range are clamped. The indices are int32, or int64 where places may need it.
 *
 * @example
 * ```ts
 * import { tensor, unravelIndex } from "@weft/core";
 *
 * const [row, column] = unravelIndex(tensor([5], { dtype: "int32" }), [2, 3]);
 * console.log(await row.array(), await column.array()); // [1] [2]
 * ```
 */
export function unravelIndex(places: TensorLike, shape: Shape): Tensor[] {
  checkShape("unravelIndex", shape);
  const [narrow] = wholeNumbers("unravelIndex", places);
  const size = numel(shape);
  if (size === 0) throw new WeftError("unravelIndex: a shape without elements has no places");
  // Places of a narrow dtype count from the end of any shape.
  const isWide = size >= 2 ** 31 || ["int64", "uint32", "uint64"].includes(narrow.dtype);
  const given = cast(narrow, isWide ? "int64" : "int32");
  let rest = clip(where(less(given, 0), given.add(size), given), 0, size - 1);
  return [...shape]
    .reverse()
    .map((n) => {
      const index = mod(rest, n);
      rest = floorDivide(rest, n);
      return index;
    })
    .reverse();
}

function exponentOf(op: string, x: TensorLike): { t: Tensor; dtype: DType; exponent: Tensor; isScaled: Tensor } {
  const dtype = toInexact(nodeOf(op, x).dtype);
  if (isComplex(dtype)) throw new DTypeError(`${op}: not defined for ${dtype}`);
  const t = cast(x, "float64");
  const size = stopGradient(abs(t));
  const isScaled = logicalAnd(isFinite(size), notEqual(size, 0));
  // Denormal numbers are multiplied first: their logarithm would be right, but 2^1074 is not a float.
  const isSmall = less(size, 2 ** -1000);
  const lifted = where(isScaled, where(isSmall, size.mul(2 ** 100), size), 1);
  const guess = floor(log2(lifted)).add(1);
  const part = lifted.mul(exp2(guess.neg()));
  const exact = guess.add(where(less(part, 0.5), -1, where(less(part, 1), 0, 1)));
  return { t, dtype, exponent: where(isScaled, exact.sub(where(isSmall, 100, 0)), 0), isScaled };
}

/** t 2^exponent in two steps, of which only the second can round. */
function scaled(t: Tensor, exponent: Tensor): Tensor {
  const first = floor(exponent.div(2));
  return t.mul(exp2(first)).mul(exp2(exponent.sub(first)));
}

/** Floats as mantissa 2^exponent with 0.5 <= |mantissa| < 1 and an int32 exponent, as numpy.frexp. Zeros, infinities and NaN have exponent 0. */
export function frexp(x: TensorLike): { mantissa: Tensor; exponent: Tensor } {
  const { t, dtype, exponent } = exponentOf("frexp", x);
  return { mantissa: cast(scaled(t, exponent.neg()), dtype), exponent: cast(exponent, "int32") };
}

/** Elementwise x 2^exponent, rounded once, as numpy.ldexp. */
export function ldexp(x: TensorLike, exponent: TensorLike): Tensor {
  const { t, dtype, exponent: own, isScaled } = exponentOf("ldexp", x);
  const mantissa = scaled(t, own.neg());
  // From 2,200 on every result is 0 or infinite.
  const given = cast(exponent, "float64");
  const by = clip(given.add(own), -2200, 2200);
  // The factor of a zero is its derivative.
  return cast(where(isScaled, scaled(mantissa, by), scaled(t, clip(given, -1000, 1000))), dtype);
}
