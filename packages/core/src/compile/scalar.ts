// Scalar expressions as C-like text, shared by the C and CUDA dialects. Complex numbers are two variables; half types are
// computed in float. Functions are called w_<name>_<f|d>; each dialect's prelude defines them.
import {
  type BinaryFn,
  bytesOf,
  type DType,
  InternalError,
  integerLimits,
  isBig,
  isComplex,
  isHalf,
  kindOf,
  type OpAttrs,
  realOf,
  type Scalar,
  type UnaryFn,
} from "../graph/index.js";
import { decimal, whole, word } from "./text.js";

/** The C type that values of a dtype (or its parts) are computed in. */
export const computeType: Record<DType, string> = {
  bool: "int",
  int8: "int",
  uint8: "int",
  int16: "int",
  uint16: "int",
  int32: "int32_t",
  uint32: "uint32_t",
  int64: "int64_t",
  uint64: "uint64_t",
  float16: "float",
  bfloat16: "float",
  float32: "float",
  float64: "double",
  complex64: "float",
  complex128: "double",
};

/** Bytes of {@link computeType}: small integers and half types are computed in 32 bits. */
export const computeBytes = (dtype: DType): number => Math.max(4, bytesOf(realOf(dtype)));

/** The C type of an element (or of each part) in memory. */
export const storageType: Record<DType, string> = {
  bool: "uint8_t",
  int8: "int8_t",
  uint8: "uint8_t",
  int16: "int16_t",
  uint16: "uint16_t",
  int32: "int32_t",
  uint32: "uint32_t",
  int64: "int64_t",
  uint64: "uint64_t",
  float16: "w_half",
  bfloat16: "w_bfloat",
  float32: "float",
  float64: "double",
  complex64: "float",
  complex128: "double",
};

const isDouble = (dtype: DType): boolean => dtype === "float64" || dtype === "complex128";
const suffix = (dtype: DType): string => (isDouble(dtype) ? "d" : "f");

/** A value in C: one text, or two for complex numbers. */
export type CValue = readonly [string] | readonly [string, string];
/** The same expression of both parts of a value. */
export const eachPart = (x: CValue, f: (part: string, i: number) => string): CValue =>
  x.length === 1 ? [f(x[0], 0)] : [f(x[0], 0), f(x[1], 1)];

export function literal(value: number, dtype: DType): string {
  const kind = kindOf(dtype);
  if (kind === "bool" || kind === "int") {
    if (isBig(dtype)) return bigLiteral(value, dtype);
    if (dtype === "uint32") return `${whole(Math.trunc(value))}u`;
    return value === -2147483648 ? "(-2147483647 - 1)" : whole(Math.trunc(value));
  }
  if (typeof value !== "number") return decimal(value);
  if (Number.isNaN(value)) return `w_nan_${suffix(dtype)}()`;
  if (!Number.isFinite(value)) return value > 0 ? `w_inf_${suffix(dtype)}()` : `(-w_inf_${suffix(dtype)}())`;
  const digits = decimal(value);
  const text = isDouble(dtype) ? digits : `${digits}f`;
  return value < 0 || Object.is(value, -0) ? `(${text})` : text;
}

/** The ends of the range are no doubles: a constant beyond them is the end itself. */
function bigLiteral(value: number, dtype: DType): string {
  const { low, high } = integerLimits(dtype);
  const whole = BigInt(Math.trunc(value));
  if (whole <= low) return dtype === "int64" ? "INT64_MIN" : "UINT64_C(0)";
  return `${dtype === "int64" ? "INT64_C" : "UINT64_C"}(${whole < high ? whole : high})`;
}

export function constantValue(value: Scalar, dtype: DType): CValue {
  if (!isComplex(dtype)) return [literal(typeof value === "number" ? value : value.re, dtype)];
  const { re, im } = typeof value === "number" ? { re: value, im: 0 } : value;
  return [literal(re, dtype), literal(im, dtype)];
}

const call =
  (name: string) =>
  (x: string, s: string): string =>
    `w_${name}_${s}(${x})`;

const floatUnary: Record<UnaryFn, (x: string, s: string) => string> = {
  neg: (x) => `-${x}`,
  abs: call("abs"),
  sign: call("sign"),
  floor: call("floor"),
  ceil: call("ceil"),
  round: call("round"),
  trunc: call("trunc"),
  sqrt: call("sqrt"),
  rsqrt: call("rsqrt"),
  reciprocal: (x, s) => `${s === "f" ? "1.0f" : "1.0"} / ${x}`,
  exp: call("exp"),
  expm1: call("expm1"),
  log: call("log"),
  log1p: call("log1p"),
  sin: call("sin"),
  cos: call("cos"),
  tan: call("tan"),
  asin: call("asin"),
  acos: call("acos"),
  atan: call("atan"),
  sinh: call("sinh"),
  cosh: call("cosh"),
  tanh: call("tanh"),
  asinh: call("asinh"),
  acosh: call("acosh"),
  atanh: call("atanh"),
  erf: call("erf"),
  erfc: call("erfc"),
  not: (x) => `(${x} == 0)`,
  isnan: (x) => `(${x} != ${x})`,
  isfinite: call("isfinite"),
  signbit: call("signbit"),
  real: (x) => x,
  imag: (_x, s) => (s === "f" ? "0.0f" : "0.0"),
  conj: (x) => x,
};

/** Functions with a shorter form `w_..._h` for results that are rounded to a half type. */
const halfUnary: ReadonlySet<UnaryFn> = new Set<UnaryFn>(["erfc", "exp"]);

const wideSuffix: Partial<Record<DType, string>> = { uint32: "u", int64: "l", uint64: "q" };
/** Integer functions exist for signed and unsigned numbers of 32 and 64 bits. Narrower dtypes are computed as int32 and wrapped. */
const integerSuffix = (dtype: DType): string => wideSuffix[dtype] ?? "i";

const integerUnary: Partial<Record<UnaryFn, (x: string, dtype: DType) => string>> = {
  neg: (x, dtype) => `w_neg_${integerSuffix(dtype)}(${x})`,
  abs: (x, dtype) => `w_abs_${integerSuffix(dtype)}(${x})`,
  sign: (x) => `((${x} > 0) - (${x} < 0))`,
  not: (x, dtype) => (dtype === "bool" ? `!${x}` : `~${x}`),
  floor: (x) => x,
  ceil: (x) => x,
  round: (x) => x,
  trunc: (x) => x,
  real: (x) => x,
  conj: (x) => x,
  imag: () => "0",
  isnan: () => "0",
  isfinite: () => "1",
};

/** Wraps a result around: dtypes narrower than int are computed as int. */
export const wrapText = (text: string, dtype: DType): string =>
  kindOf(dtype) === "int" && bytesOf(dtype) < 4 ? `(int)(${storageType[dtype]})(${text})` : text;

/** Complex functions of one argument that are expanded inline; the others are helper calls with two results. */
const complexUnary: Partial<Record<UnaryFn, (re: string, im: string, s: string) => CValue>> = {
  neg: (re, im) => [`-${re}`, `-${im}`],
  conj: (re, im) => [re, `-${im}`],
  real: (re) => [re],
  imag: (_re, im) => [im],
  abs: (re, im, s) => [`w_hypot_${s}(${re}, ${im})`],
};

/** Emits statements; returns the name(s) of a new variable that holds the value. */
export interface Emitter {
  define(type: string, text: string): string;
  /** Declares two variables and fills them by a statement that uses their addresses. */
  definePair(type: string, statement: (re: string, im: string) => string): [string, string];
}

/** `narrow`: the value is only used for results of half types. */
export function unaryValue(out: Emitter, fn: UnaryFn, x: CValue, from: DType, to: DType, narrow = false): CValue {
  const type = computeType[to];
  if (narrow && halfUnary.has(fn) && (from === "float32" || isHalf(from)))
    return [out.define(type, call(fn)(x[0], "h"))];
  if (isComplex(from)) {
    const s = suffix(from);
    const [re, im] = x as readonly [string, string];
    const rule = complexUnary[fn];
    if (rule !== undefined) return eachPart(rule(re, im, s), (text) => out.define(type, text));
    return out.definePair(computeType[from], (a, b) => `w_c${word(fn)}_${s}(${re}, ${im}, &${a}, &${b});`);
  }
  if (kindOf(from) === "float") return [out.define(type, floatUnary[fn](x[0], suffix(from)))];
  const rule = integerUnary[fn];
  if (rule === undefined) throw new InternalError(`${fn} of ${from}`);
  return [out.define(type, wrapText(rule(x[0], from), to))];
}

const infix: Partial<Record<BinaryFn, string>> = {
  add: "+",
  sub: "-",
  mul: "*",
  eq: "==",
  ne: "!=",
  lt: "<",
  le: "<=",
  and: "&",
  or: "|",
  xor: "^",
};

export function binaryValue(out: Emitter, fn: BinaryFn, a: CValue, b: CValue, from: DType, to: DType): CValue {
  const type = computeType[to];
  if (fn === "complex") return [a[0], b[0]];
  if (isComplex(from))
    return complexBinary(out, fn, a as readonly [string, string], b as readonly [string, string], from, type);
  const sign = infix[fn];
  const isFloat = kindOf(from) === "float";
  // Signed overflow is undefined in both dialects: sums and products that may wrap are functions.
  const wraps = kindOf(to) === "int" && (fn === "add" || fn === "sub" || fn === "mul");
  if (sign !== undefined && !wraps) {
    const text = `${a[0]} ${sign} ${b[0]}`;
    return [out.define(type, wrapText(text, to))];
  }
  if (fn === "div") return [out.define(type, `${a[0]} / ${b[0]}`)];
  const name = isFloat ? suffix(from) : integerSuffix(from);
  if (fn === "max" || fn === "min") return [out.define(type, extremumText(fn, a[0], b[0], isFloat, name))];
  return [out.define(type, wrapText(`w_${word(fn)}_${name}(${a[0]}, ${b[0]})`, to))];
}

const isLiteral = (text: string): boolean => /^\(?-?[0-9][0-9.e+-]*[fu]?\)?$/.test(text);

/**
 * The larger or smaller of two; NaN propagates, and -0 is below 0. A comparison that fails for NaN keeps the left value, so a literal
 * needs one test; that of a zero also passes for the other zero.
 */
function extremumText(fn: "max" | "min", a: string, b: string, isFloat: boolean, name: string): string {
  const [x, y] = isLiteral(a) ? [b, a] : [a, b];
  if (isFloat && !isLiteral(y)) return `w_${fn}_${name}(${x}, ${y})`;
  const replaced = isFloat && y.includes("-") === (fn === "min") ? "=" : "";
  return `${x} ${fn === "max" ? "<" : ">"}${replaced} ${y} ? ${y} : ${x}`;
}

function complexBinary(
  out: Emitter,
  fn: BinaryFn,
  [ar, ai]: readonly [string, string],
  [br, bi]: readonly [string, string],
  dtype: DType,
  type: string,
): CValue {
  const pair = (re: string, im: string): CValue => [out.define(type, re), out.define(type, im)];
  if (fn === "add" || fn === "sub") return pair(`${ar} ${infix[fn]} ${br}`, `${ai} ${infix[fn]} ${bi}`);
  if (fn === "mul") return multiply(out, type, [ar, ai], [br, bi]);
  const call = (name: string): CValue =>
    out.definePair(type, (a, b) => `w_${name}_${suffix(dtype)}(${ar}, ${ai}, ${br}, ${bi}, &${a}, &${b});`);
  if (fn === "div") return call("cdiv");
  if (fn === "eq") return [out.define("int", `(${ar} == ${br}) & (${ai} == ${bi})`)];
  if (fn === "ne") return [out.define("int", `(${ar} != ${br}) | (${ai} != ${bi})`)];
  if (fn === "pow") return call("cpow");
  throw new InternalError(`${fn} of ${dtype}`);
}

const isZero = (text: string): boolean => /^\(?-?0\.0f?\)?$/.test(text);

/** A complex product; parts that are known to be zero cost nothing. */
function multiply(out: Emitter, type: string, a: readonly [string, string], b: readonly [string, string]): CValue {
  const product = (x: string, y: string): string | null => (isZero(x) || isZero(y) ? null : `${x} * ${y}`);
  const combine = (x: string | null, y: string | null, sign: string): string => {
    if (x === null && y === null) return type === "double" ? "0.0" : "0.0f";
    if (y === null) return x!;
    return x === null ? (sign === "-" ? `-(${y})` : y) : `${x} ${sign} ${y}`;
  };
  const re = combine(product(a[0], b[0]), product(a[1], b[1]), "-");
  const im = combine(product(a[0], b[1]), product(a[1], b[0]), "+");
  return [isZero(re) ? re : out.define(type, re), isZero(im) ? im : out.define(type, im)];
}

/** The value in another dtype: floats to integers saturate, integers wrap, conversion to bool tests for nonzero. */
export function castValue(out: Emitter, x: CValue, from: DType, to: DType): CValue {
  if (from === to) return x;
  if (isComplex(to)) {
    const real = isComplex(from) ? x : castValue(out, x, from, to === "complex64" ? "float32" : "float64");
    if (!isComplex(from)) return [real[0], to === "complex64" ? "0.0f" : "0.0"];
    return eachPart(x, (part) => out.define(computeType[to], `(${computeType[to]})${part}`));
  }
  const [re] = x;
  if (to === "bool") {
    const test = isComplex(from) ? `(${re} != 0) | (${(x as readonly [string, string])[1]} != 0)` : `${re} != 0`;
    return [out.define("int", test)];
  }
  const source: DType = isComplex(from) ? (from === "complex64" ? "float32" : "float64") : from;
  return [out.define(computeType[to], castText(re, source, to))];
}

function castText(x: string, from: DType, to: DType): string {
  const fromFloat = kindOf(from) === "float";
  if (kindOf(to) === "int") {
    if (fromFloat) return `w_to_${to}_${suffix(from)}(${x})`;
    return wrapText(`(${computeType[to]})${x}`, to);
  }
  if (to === "float16") return `w_round_half(${from === "float64" ? "w_to_odd" : "(float)"}(${x}))`;
  if (to === "bfloat16") return `w_round_bfloat((float)${x})`;
  return `(${computeType[to]})${x}`;
}

const selectSuffix: Record<string, string> = {
  float: "f",
  double: "d",
  int: "i",
  int32_t: "i",
  uint32_t: "u",
  int64_t: "l",
  uint64_t: "q",
};

/** Selects one of two values without a branch: both are computed, so that no load before it becomes conditional. */
export const selectText = (type: string, test: string, a: string, b: string): string =>
  `w_select_${selectSuffix[type]}(${test}, ${a}, ${b})`;

/** Text that reads an element (or the part-th number of a complex one) from memory. */
export function loadText(pointer: string, address: string, dtype: DType, part: 0 | 1 = 0): string {
  if (isComplex(dtype)) return `${pointer}[2*(${address})${part === 1 ? " + 1" : ""}]`;
  const raw = `${pointer}[${address}]`;
  if (dtype === "float16") return `w_from_half(${raw})`;
  return dtype === "bfloat16" ? `w_from_bfloat(${raw})` : raw;
}

/** Statements that write an element. */
export function storeText(pointer: string, address: string, dtype: DType, value: CValue): string[] {
  if (isComplex(dtype))
    return [
      `${pointer}[2*(${address})] = ${value[0]};`,
      `${pointer}[2*(${address}) + 1] = ${(value as readonly [string, string])[1]};`,
    ];
  if (dtype === "float16") return [`${pointer}[${address}] = w_to_half(${value[0]});`];
  if (dtype === "bfloat16") return [`${pointer}[${address}] = w_to_bfloat(${value[0]});`];
  return [`${pointer}[${address}] = ${value[0]};`];
}

const randomSuffix: Partial<Record<DType, string>> = { float64: "d", float16: "h", bfloat16: "b" };
type RandomKind = OpAttrs["random"]["kind"];

/** How many neighbors share a block of random bits. */
export const elementsPerBlock = (kind: RandomKind, dtype: DType): number =>
  kind === "dropoutMask" ? 4 : kind === "bits" || dtype === "float64" ? 1 : 2;

/** The C function of a draw. Normal numbers of half types are rounded ones of float32. */
export function randomName(kind: RandomKind, dtype: DType): string {
  if (kind === "dropoutMask") return "w_dropout_mask";
  if (kind === "bits") return "w_bits";
  const suffix = randomSuffix[dtype] ?? "f";
  return `w_${word(kind)}_${kind === "normal" && suffix !== "d" ? "f" : suffix}`;
}

/** Element `number` of a draw with the key (k0, k1). */
export function randomText(
  kind: RandomKind,
  dtype: DType,
  k0: string,
  k1: string,
  number: string,
  threshold: number,
): string {
  const args = `(uint32_t)${k0}, (uint32_t)${k1}, (uint64_t)(${number})`;
  return `${randomName(kind, dtype)}(${args}${kind === "dropoutMask" ? `, ${whole(threshold)}u` : ""})`;
}
