// Reverse-mode rules of the element-wise functions. Complex gradients follow the convention of docs/gradients.md:
// the gradient of a real loss is dL/dRe + i dL/dIm, so the rule of a holomorphic f multiplies by the conjugate of f'.
import { type BinaryFn, isComplex, type Node, type UnaryFn } from "../graph/index.js";
import {
  add,
  binary,
  cast,
  conj,
  div,
  eq,
  fullLike,
  imag,
  lt,
  mul,
  neg,
  real,
  scale,
  shift,
  sub,
  toComplex,
  unary,
  where,
  zerosLike,
} from "./build.js";

/** (input, output, cotangent of the output) -> cotangent of the input; null where the derivative is zero. */
type UnaryVjp = (x: Node, y: Node, g: Node) => Node | null;
/** (operands, output, cotangent) -> one thunk per operand, so that only the needed side is built. */
type BinaryVjp = (a: Node, b: Node, y: Node, g: Node) => [() => Node | null, () => Node | null];

const none = (): null => null;
const square = (x: Node): Node => mul(x, x);

/** 1 / x, and 0 where x is 0. */
function inverseOrZero(x: Node): Node {
  const isZero = eq(x, zerosLike(x));
  return where(isZero, zerosLike(x), unary("reciprocal", where(isZero, fullLike(x, 1), x)));
}

export const unaryVjps: Record<UnaryFn, UnaryVjp> = {
  neg: (_x, _y, g) => neg(g),
  abs: (x, _y, g) => mul(cast(g, x.dtype), unary("sign", x)),
  sign: (x, s, g) => {
    if (!isComplex(x.dtype)) return null;
    // The phase has no derivative at 0; the value 0 keeps second derivatives of |z| finite.
    const turn = mul(imag(mul(conj(s), g)), inverseOrZero(unary("abs", x)));
    return mul(scale(s, { re: 0, im: 1 }), cast(turn, x.dtype));
  },
  floor: none,
  ceil: none,
  round: none,
  trunc: none,
  sqrt: (_x, y, g) => div(scale(g, 0.5), conj(y)),
  rsqrt: (_x, y, g) => mul(scale(g, -0.5), conj(mul(y, square(y)))),
  reciprocal: (_x, y, g) => neg(mul(g, conj(square(y)))),
  exp: (_x, y, g) => mul(g, conj(y)),
  expm1: (_x, y, g) => mul(g, conj(shift(y, 1))),
  log: (x, _y, g) => div(g, conj(x)),
  log1p: (x, _y, g) => div(g, conj(shift(x, 1))),
  sin: (x, _y, g) => mul(g, conj(unary("cos", x))),
  cos: (x, _y, g) => neg(mul(g, conj(unary("sin", x)))),
  tan: (_x, y, g) => mul(g, conj(shift(square(y), 1))),
  asin: (x, _y, g) => mul(g, conj(unary("rsqrt", shift(neg(square(x)), 1)))),
  acos: (x, _y, g) => neg(mul(g, conj(unary("rsqrt", shift(neg(square(x)), 1))))),
  atan: (x, _y, g) => div(g, conj(shift(square(x), 1))),
  sinh: (x, _y, g) => mul(g, conj(unary("cosh", x))),
  cosh: (x, _y, g) => mul(g, conj(unary("sinh", x))),
  tanh: (_x, y, g) => mul(g, conj(shift(neg(square(y)), 1))),
  asinh: (x, _y, g) => mul(g, conj(unary("rsqrt", shift(square(x), 1)))),
  acosh: (x, _y, g) => mul(g, conj(mul(unary("rsqrt", shift(x, -1)), unary("rsqrt", shift(x, 1))))),
  atanh: (x, _y, g) => div(g, conj(shift(neg(square(x)), 1))),
  erf: (x, _y, g) => mul(g, scale(unary("exp", neg(square(x))), 2 / Math.sqrt(Math.PI))),
  erfc: (x, _y, g) => mul(g, scale(unary("exp", neg(square(x))), -2 / Math.sqrt(Math.PI))),
  not: none,
  isnan: none,
  isfinite: none,
  signbit: none,
  real: (x, _y, g) => (isComplex(x.dtype) ? toComplex(g, zerosLike(g)) : g),
  imag: (x, _y, g) => (isComplex(x.dtype) ? toComplex(zerosLike(g), g) : null),
  conj: (_x, _y, g) => conj(g),
};

/** Gradient of the selected operand; equal operands share it. */
const chosen = (isA: Node, tie: Node, g: Node): Node => where(isA, g, where(tie, scale(g, 0.5), zerosLike(g)));

export const binaryVjps: Record<BinaryFn, BinaryVjp> = {
  add: (_a, _b, _y, g) => [() => g, () => g],
  sub: (_a, _b, _y, g) => [() => g, () => neg(g)],
  mul: (a, b, _y, g) => [() => mul(g, conj(b)), () => mul(g, conj(a))],
  div: (_a, b, y, g) => [() => div(g, conj(b)), () => neg(mul(conj(y), div(g, conj(b))))],
  pow: (a, b, y, g) => [
    () => {
      // An exponent of 0 takes another one in the branch that is not chosen: 1 / a would be infinite in second derivatives.
      const zero = eq(b, zerosLike(b));
      const exponent = where(zero, fullLike(b, 1), b);
      const slope = mul(b, binary("pow", a, sub(exponent, fullLike(b, 1))));
      return mul(g, conj(slope));
    },
    () => {
      const atZero = eq(a, zerosLike(a));
      const log = unary("log", where(atZero, fullLike(a, 1), a));
      return mul(g, conj(mul(y, where(atZero, zerosLike(a), log))));
    },
  ],
  mod: (a, b, _y, g) => [() => g, () => neg(mul(g, binary("floordiv", a, b)))],
  floordiv: () => [none, none],
  max: (a, b, _y, g) => [() => chosen(lt(b, a), eq(a, b), g), () => chosen(lt(a, b), eq(a, b), g)],
  min: (a, b, _y, g) => [() => chosen(lt(a, b), eq(a, b), g), () => chosen(lt(b, a), eq(a, b), g)],
  atan2: (y, x, _out, g) => {
    // x / (x^2 + y^2) in parts of the larger operand, so that no square overflows or vanishes. The angle of 0 has no
    // derivative; it is taken as 0.
    const size = (): Node => binary("max", unary("abs", x), unary("abs", y));
    const part = (of: Node): Node => {
      const inverse = inverseOrZero(size());
      const [u, v] = [mul(x, inverse), mul(y, inverse)];
      const slope = mul(of === x ? u : v, inverseOrZero(add(square(u), square(v))));
      return mul(mul(g, slope), inverse);
    };
    return [() => part(x), () => neg(part(y))];
  },
  hypot: (a, b, y, g) => [a, b].map((x) => () => mul(g, mul(x, inverseOrZero(y)))) as ReturnType<BinaryVjp>,
  copysign: (a, b, _y, g) => [() => mul(g, mul(unary("sign", a), binary("copysign", fullLike(b, 1), b))), none],
  nextafter: (_a, _b, _y, g) => [() => g, none],
  eq: () => [none, none],
  ne: () => [none, none],
  lt: () => [none, none],
  le: () => [none, none],
  and: () => [none, none],
  or: () => [none, none],
  xor: () => [none, none],
  lshift: () => [none, none],
  rshift: () => [none, none],
  complex: (_a, _b, _y, g) => [() => real(g), () => imag(g)],
};
