// Elementwise ops. One row per function: its value on doubles, complex numbers and integers, where defined.
import {
  type BinaryFn,
  bytesOf,
  type DType,
  InternalError,
  isComplex,
  makeStorage,
  numel,
  type UnaryFn,
} from "../../graph/index.js";
import * as c from "./complex.js";
import {
  copySign,
  floorDivideInteger,
  floorMod,
  floorQuotient,
  maxInteger,
  minInteger,
  modInteger,
  nextAfter,
  powInteger,
  realErf,
  realErfc,
  realPower,
  roundToEven,
  shiftLeft,
  shiftRight,
} from "./scalar.js";
import {
  complexes,
  fromComplexes,
  fromIntegers,
  fromReals,
  integers,
  isIntegral,
  type ReferenceRules,
  reals,
  type Value,
} from "./value.js";

type Complex = c.Complex;

interface UnaryRow {
  real?(x: number): number;
  complex?(z: Complex): Complex;
  /** Exact version for bool and integers; if absent, they are converted to doubles. */
  integer?(x: bigint): bigint;
}

const asReal = (x: number): Complex => c.complex(x);
const flag = (condition: boolean): number => (condition ? 1 : 0);
const same = <T>(x: T): T => x;

const unaryTable: Record<UnaryFn, UnaryRow> = {
  neg: { real: (x) => -x, complex: c.neg, integer: (x) => -x },
  abs: { real: Math.abs, complex: (z) => asReal(c.abs(z)), integer: (x) => (x < 0n ? -x : x) },
  // Zero of either sign gives +0.
  sign: { real: (x) => Math.sign(x) + 0, complex: c.sign },
  floor: { real: Math.floor, integer: same },
  ceil: { real: Math.ceil, integer: same },
  round: { real: roundToEven, integer: same },
  trunc: { real: Math.trunc, integer: same },
  sqrt: { real: Math.sqrt, complex: c.sqrt },
  rsqrt: { real: (x) => 1 / Math.sqrt(x), complex: (z) => c.reciprocal(c.sqrt(z)) },
  reciprocal: { real: (x) => 1 / x, complex: c.reciprocal },
  exp: { real: Math.exp, complex: c.exp },
  expm1: { real: Math.expm1, complex: c.expm1 },
  log: { real: Math.log, complex: c.log },
  log1p: { real: Math.log1p, complex: c.log1p },
  sin: { real: Math.sin, complex: c.sin },
  cos: { real: Math.cos, complex: c.cos },
  tan: { real: Math.tan, complex: c.tan },
  asin: { real: Math.asin, complex: c.asin },
  acos: { real: Math.acos, complex: c.acos },
  atan: { real: Math.atan, complex: c.atan },
  sinh: { real: Math.sinh, complex: c.sinh },
  cosh: { real: Math.cosh, complex: c.cosh },
  tanh: { real: Math.tanh, complex: c.tanh },
  asinh: { real: Math.asinh, complex: c.asinh },
  acosh: { real: Math.acosh, complex: c.acosh },
  atanh: { real: Math.atanh, complex: c.atanh },
  erf: { real: realErf },
  erfc: { real: realErfc },
  // On bool, -1 - x would be nonzero for both values; `unary` handles this case.
  not: { integer: (x) => -1n - x },
  isnan: { real: (x) => flag(Number.isNaN(x)), complex: (z) => asReal(flag(c.isNaNComplex(z))) },
  isfinite: { real: (x) => flag(Number.isFinite(x)), complex: (z) => asReal(flag(c.isFiniteComplex(z))) },
  // Taken from the stored bits, because JavaScript does not show the sign of NaN; `unary` handles this case.
  signbit: {},
  real: { real: same, complex: (z) => asReal(z.re), integer: same },
  imag: { real: () => 0, complex: (z) => asReal(z.im), integer: () => 0n },
  conj: { real: same, complex: c.conj, integer: same },
};

interface BinaryRow {
  real?(x: number, y: number): number;
  complex?(x: Complex, y: Complex): Complex;
  integer?(x: bigint, y: bigint): bigint;
}

const bit = (condition: boolean): bigint => (condition ? 1n : 0n);
const sameComplex = (a: Complex, b: Complex): boolean => a.re === b.re && a.im === b.im;

const binaryTable: Record<BinaryFn, BinaryRow> = {
  add: { real: (x, y) => x + y, complex: c.add, integer: (x, y) => x + y },
  sub: { real: (x, y) => x - y, complex: c.sub, integer: (x, y) => x - y },
  mul: { real: (x, y) => x * y, complex: c.mul, integer: (x, y) => x * y },
  div: { real: (x, y) => x / y, complex: c.div },
  pow: { real: realPower, complex: c.pow, integer: powInteger },
  mod: { real: floorMod, integer: modInteger },
  floordiv: { real: floorQuotient, integer: floorDivideInteger },
  // JavaScript's max and min give NaN when either side is NaN, as NumPy's do.
  max: { real: Math.max, integer: maxInteger },
  min: { real: Math.min, integer: minInteger },
  atan2: { real: Math.atan2 },
  hypot: { real: Math.hypot },
  copysign: { real: copySign },
  // Steps depend on the width of the dtype; `binary` handles this case.
  nextafter: {},
  eq: {
    real: (x, y) => flag(x === y),
    complex: (x, y) => asReal(flag(sameComplex(x, y))),
    integer: (x, y) => bit(x === y),
  },
  ne: {
    real: (x, y) => flag(x !== y),
    complex: (x, y) => asReal(flag(!sameComplex(x, y))),
    integer: (x, y) => bit(x !== y),
  },
  lt: { real: (x, y) => flag(x < y), integer: (x, y) => bit(x < y) },
  le: { real: (x, y) => flag(x <= y), integer: (x, y) => bit(x <= y) },
  and: { integer: (x, y) => x & y },
  or: { integer: (x, y) => x | y },
  xor: { integer: (x, y) => x ^ y },
  lshift: { integer: shiftLeft },
  rshift: { integer: shiftRight },
  complex: {},
};

/** The function on doubles, or undefined if there is none. */
export const realFunction = (fn: UnaryFn): ((x: number) => number) | undefined => unaryTable[fn].real;
export const realFunction2 = (fn: BinaryFn): ((x: number, y: number) => number) | undefined => binaryTable[fn].real;

const undefinedOn = (name: string, dtype: DType): InternalError =>
  new InternalError(`${name} is not defined on ${dtype}`);

function unary(fn: UnaryFn, x: Value, dtype: DType): Value {
  const row = unaryTable[fn];
  if (fn === "not" && x.dtype === "bool") {
    return fromIntegers(
      dtype,
      x.shape,
      integers(x).map((bool) => 1n - bool),
    );
  }
  if (fn === "signbit") return fromReals(dtype, x.shape, signBits(x));
  if (isComplex(x.dtype)) {
    if (!row.complex) throw undefinedOn(fn, x.dtype);
    return fromComplexes(dtype, x.shape, complexes(x).map(row.complex));
  }
  if (isIntegral(x.dtype) && row.integer) return fromIntegers(dtype, x.shape, integers(x).map(row.integer));
  if (!row.real) throw undefinedOn(fn, x.dtype);
  return fromReals(dtype, x.shape, reals(x).map(row.real));
}

/** Highest bit of every element of a float tensor. */
function signBits({ dtype, shape, data }: Value): number[] {
  const width = bytesOf(dtype);
  const bytes = new Uint8Array(data.buffer, data.byteOffset, data.byteLength);
  return Array.from({ length: numel(shape) }, (_, i) => bytes[width * i + width - 1] >> 7);
}

function binary(fn: BinaryFn, x: Value, y: Value, dtype: DType): Value {
  const row = binaryTable[fn];
  if (fn === "complex") {
    const im = reals(y);
    return fromComplexes(
      dtype,
      x.shape,
      Array.from(reals(x), (re, i) => c.complex(re, im[i])),
    );
  }
  if (isComplex(x.dtype)) {
    const compute = row.complex;
    if (!compute) throw undefinedOn(fn, x.dtype);
    const right = complexes(y);
    return fromComplexes(
      dtype,
      x.shape,
      complexes(x).map((z, i) => compute(z, right[i])),
    );
  }
  if (isIntegral(x.dtype) && row.integer) {
    const compute = row.integer;
    const right = integers(y);
    return fromIntegers(
      dtype,
      x.shape,
      integers(x).map((n, i) => compute(n, right[i])),
    );
  }
  const compute = fn === "nextafter" ? nextAfter(x.dtype) : row.real;
  if (!compute || (isIntegral(x.dtype) && fn === "div")) throw undefinedOn(fn, x.dtype);
  const right = reals(y);
  return fromReals(
    dtype,
    x.shape,
    reals(x).map((n, i) => compute(n, right[i])),
  );
}

function where(condition: Value, yes: Value, no: Value): Value {
  const data = makeStorage(yes.dtype, numel(yes.shape)) as { [i: number]: number | bigint };
  const perElement = isComplex(yes.dtype) ? 2 : 1;
  for (let i = 0; i < condition.data.length * perElement; i++) {
    const chosen = condition.data[Math.floor(i / perElement)] ? yes : no;
    data[i] = chosen.data[i];
  }
  return { shape: yes.shape, dtype: yes.dtype, data: data as Value["data"] };
}

/** Integers wrap, floats truncate into integers and saturate, complex numbers drop their imaginary part. */
function cast(x: Value, dtype: DType): Value {
  if (x.dtype === dtype) return x;
  if (isComplex(x.dtype)) return fromComplexes(dtype, x.shape, complexes(x));
  if (isIntegral(x.dtype)) return fromIntegers(dtype, x.shape, integers(x));
  return fromReals(dtype, x.shape, reals(x));
}

export const elementwiseRules: ReferenceRules<"unary" | "binary" | "where" | "cast"> = {
  unary: ([x], node) => unary(node.attrs.fn, x, node.dtype),
  binary: ([x, y], node) => binary(node.attrs.fn, x, y, node.dtype),
  where: ([condition, yes, no]) => where(condition, yes, no),
  cast: ([x], node) => cast(x, node.attrs.dtype),
};
