// Properties of dtypes, constants and the inspection functions of the Python Array API standard.
import {
  bytesOf,
  type DType,
  dtypes,
  integerLimits,
  isComplex,
  isInexact,
  isUnsigned,
  kindOf,
  promote,
  realOf,
  WeftError,
} from "../graph/index.js";
import { session } from "../runtime/index.js";
import { checkDType } from "./checks.js";
import { Tensor } from "./tensor.js";

/** Euler's number. */
export const e = Math.E;
/** The ratio of a circle's circumference to its diameter. */
export const pi = Math.PI;
/** Positive infinity. */
export const inf = Number.POSITIVE_INFINITY;
/** Not a number. */
export const nan = Number.NaN;
/** Inserts an axis in {@link index}. */
export const newaxis = null;

/** Limits of a floating-point dtype; see {@link finfo}. */
export interface FloatInfo {
  /** The dtype. */
  dtype: DType;
  /** Bits of a number (of each part of a complex one). */
  bits: number;
  /** Distance from 1 to the next larger number. */
  eps: number;
  /** Largest finite number. */
  max: number;
  /** Smallest finite number, -max. */
  min: number;
  /** Smallest positive number with full precision. */
  smallestNormal: number;
}

/** Bits of the fraction and largest exponent. */
const formats: Partial<Record<DType, readonly [fraction: number, exponent: number]>> = {
  float16: [10, 15],
  bfloat16: [7, 127],
  float32: [23, 127],
  float64: [52, 1023],
};

/** Limits of a floating-point dtype; of its parts for a complex one. */
export function finfo(type: DType | Tensor): FloatInfo {
  const dtype = dtypeOf("finfo", type);
  const format = formats[realOf(dtype)];
  if (format === undefined) throw new WeftError(`finfo: ${dtype} is not a floating-point dtype; use iinfo`);
  const [fraction, exponent] = format;
  const max = 2 ** exponent * (2 - 2 ** -fraction);
  const bits = 8 * bytesOf(realOf(dtype));
  return { dtype: realOf(dtype), bits, eps: 2 ** -fraction, max, min: -max, smallestNormal: 2 ** (1 - exponent) };
}

/** Limits of an integer dtype; see {@link iinfo}. */
export interface IntegerInfo {
  /** The dtype. */
  dtype: DType;
  /** Bits of a number. */
  bits: number;
  /** Largest number. */
  max: bigint;
  /** Smallest number. */
  min: bigint;
}

/** Limits of an integer dtype. */
export function iinfo(type: DType | Tensor): IntegerInfo {
  const dtype = dtypeOf("iinfo", type);
  if (kindOf(dtype) !== "int") throw new WeftError(`iinfo: ${dtype} is not an integer dtype; use finfo`);
  const { low, high } = integerLimits(dtype);
  return { dtype, bits: 8 * bytesOf(dtype), max: high, min: low };
}

function dtypeOf(op: string, type: DType | Tensor): DType {
  if (type instanceof Tensor) return type.dtype;
  checkDType(op, type);
  return type;
}

/** Kinds of dtypes as in the Array API standard. @inline */
type KindName =
  | "bool"
  | "signed integer"
  | "unsigned integer"
  | "integral"
  | "real floating"
  | "complex floating"
  | "numeric";

const kindTests: Record<KindName, (dtype: DType, kind: ReturnType<typeof kindOf>) => boolean> = {
  bool: (_, kind) => kind === "bool",
  "signed integer": (dtype, kind) => kind === "int" && !isUnsigned(dtype),
  "unsigned integer": (dtype) => isUnsigned(dtype),
  integral: (_, kind) => kind === "int",
  "real floating": (_, kind) => kind === "float",
  "complex floating": (_, kind) => kind === "complex",
  numeric: (_, kind) => kind !== "bool",
};

/** Whether a dtype is of a kind, equals another dtype, or does so for one of a list. */
export function isOfKind(dtype: DType, kind: KindName | DType | readonly (KindName | DType)[]): boolean {
  checkDType("isOfKind", dtype);
  if (Array.isArray(kind)) return kind.some((one) => isOfKind(dtype, one));
  if (typeof kind === "string" && Object.hasOwn(kindTests, kind))
    return kindTests[kind as KindName](dtype, kindOf(dtype));
  checkDType("isOfKind", kind as DType);
  return dtype === kind;
}

/** Whether every value of a dtype has one in another: promotion of the two gives the other. */
export function canCast(from: DType | Tensor, to: DType): boolean {
  checkDType("canCast", to);
  const source = dtypeOf("canCast", from);
  // Promotion does not widen floats for integers, which they do not all hold.
  if (isInexact(to) && kindOf(source) === "int") return 8 * bytesOf(source) <= (formats[realOf(to)]?.[0] ?? 0) + 1;
  if (isComplex(to) && !isComplex(source)) return canCast(source, realOf(to));
  return promote(source, to) === to;
}

/** What the library offers, as the Array API standard asks for it; see {@link namespaceInfo}. */
export interface NamespaceInfo {
  /** What the standard asks about optional features. */
  capabilities: { booleanIndexing: boolean; dataDependentShapes: boolean; maxDimensions: number | null };
  /** Name of the current device. */
  defaultDevice: string;
  /** Dtypes of tensors that are created without one. */
  defaultDtypes: { realFloating: DType; complexFloating: DType; integral: DType; indexing: DType };
  /** All dtypes. */
  dtypes: readonly DType[];
}

/** Capabilities, default device, default dtypes and all dtypes. */
export const namespaceInfo = (): NamespaceInfo => ({
  capabilities: { booleanIndexing: true, dataDependentShapes: true, maxDimensions: null },
  defaultDevice: session().device.name,
  defaultDtypes: { realFloating: "float32", complexFloating: "complex64", integral: "int32", indexing: "int32" },
  dtypes,
});
