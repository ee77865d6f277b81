// Validation of op attributes that come from outside: one rule per attribute, typed over the op union, so that an op or attribute
// without a rule does not compile. Rules check single values; ops/contracts.ts checks how they fit together and to the operands.
import { dtypes } from "./dtype.js";
import { WeftError } from "./errors.js";
import { limits } from "./limits.js";
import type { GraphFn } from "./node.js";
import {
  type AttentionKernel,
  argReduceFns,
  attentionKinds,
  attentionMasks,
  binaryFns,
  type CustomRule,
  collectiveKinds,
  convKinds,
  fftKinds,
  loopStops,
  type OpAttrs,
  type OpName,
  precisions,
  randomKinds,
  reduceFns,
  type Scalar,
  scanFns,
  type Transfer,
  unaryFns,
} from "./op.js";
import type { Shape } from "./shape.js";

/** Position of the decoder, for errors, and the reader of nested functions. */
export interface Place {
  op: string;
  attribute: string;
  nested(value: unknown): GraphFn;
}

type Rule<T> = (value: unknown, place: Place) => T;
type Rules<T> = { readonly [A in keyof T]-?: Rule<T[A]> };

/** Short text for any untrusted value. */
export function shown(value: unknown): string {
  if (typeof value === "string") return JSON.stringify(value.length > 40 ? `${value.slice(0, 40)}...` : value);
  if (Array.isArray(value)) return `a list of ${value.length}`;
  return typeof value === "object" && value !== null ? "an object" : String(value);
}

export function damaged(what: string): never {
  throw new WeftError(`a function that came from outside is damaged: ${what}`);
}

const wrong = (place: Place, expected: string, value: unknown): never =>
  damaged(`${place.attribute} of ${place.op} should be ${expected} and is ${shown(value)}`);

function oneOf<T extends string>(names: readonly T[]): Rule<T> {
  const known = new Set<unknown>(names);
  return (value, place) => (known.has(value) ? (value as T) : wrong(place, `one of ${names.join(", ")}`, value));
}

const flag: Rule<boolean> = (value, place) =>
  typeof value === "boolean" ? value : wrong(place, "true or false", value);

/** What only schedules have. */
const absent: Rule<undefined> = (value, place) => (value === undefined ? value : wrong(place, "nothing", value));

const isCount = (value: unknown, most: number): value is number =>
  Number.isSafeInteger(value) && (value as number) >= 0 && (value as number) <= most;

const count =
  (most: number = Number.MAX_SAFE_INTEGER): Rule<number> =>
  (value, place) =>
    isCount(value, most) ? value + 0 : wrong(place, `a whole number from 0 to ${most}`, value);

const list =
  <T>(rule: Rule<T>, most: number): Rule<readonly T[]> =>
  (value, place) => {
    if (!Array.isArray(value) || value.length > most) return wrong(place, `a list of at most ${most}`, value);
    let changed: T[] | null = null;
    for (let i = 0; i < value.length; i++) {
      const item = rule(value[i], place);
      if (changed === null && !Object.is(item, value[i])) changed = value.slice(0, i);
      changed?.push(item);
    }
    return changed ?? value;
  };

const axis = count(limits.rank);
const counts = list(count(), limits.rank);
const axes = list(axis, limits.rank);
const shape: Rule<Shape> = counts;
const dtype = oneOf(dtypes);

/** Numbers that JSON cannot represent. */
const special: Readonly<Record<string, number>> = { nan: Number.NaN, inf: Infinity, "-inf": -Infinity, "-0": -0 };

/** Serialized name of a number that JSON cannot represent; null for every other number. */
export const specialName = (x: number): string | null =>
  Object.keys(special).find((name) => Object.is(special[name], x)) ?? null;

const isObject = (value: unknown): value is Record<string, unknown> =>
  typeof value === "object" && value !== null && !Array.isArray(value);

const anyNumber: Rule<number> = (value, place) => {
  if (typeof value === "number" && Number.isFinite(value)) return value;
  if (isObject(value) && Object.keys(value).length === 1 && typeof value.$ === "string")
    if (Object.hasOwn(special, value.$)) return special[value.$];
  return wrong(place, "a number", value);
};

const finite: Rule<number> = (value, place) => {
  const number = anyNumber(value, place);
  return Number.isFinite(number) ? number : wrong(place, "a finite number", value);
};

/** Characters of paths and parameter names. Excludes quotes, backslashes and line breaks. */
const namePattern = /^[\w.:/[\]() -]*$/;
/** Names of user functions, which identify kernels in profiles. */
const identifierPattern = /^\w{1,60}$/;

const name: Rule<string> = (value, place) =>
  typeof value === "string" && value.length <= limits.name && namePattern.test(value)
    ? value
    : wrong(place, `a name of at most ${limits.name} letters, digits and _ . : / - ( ) [ ]`, value);

/** Converts any text to a valid name. */
export const asName = (text: string): string => text.slice(0, limits.name).replace(/[^\w.:/[\]() -]/g, "_");
export const asIdentifier = (text: string): string => text.slice(0, 60).replace(/\W/g, "_") || "_";

const optional =
  <T>(rule: Rule<T>): Rule<T | undefined> =>
  (value, place) =>
    value === undefined ? undefined : rule(value, place);

/** Rule for an object with exactly these keys. Keeps the order of its keys. */
function record<T>(rules: Rules<T>): Rule<T> {
  const names = Object.keys(rules) as (keyof T & string)[];
  return (value, place) => {
    if (!isObject(value)) return wrong(place, "an object", value);
    const around = place.attribute;
    const prefix = around === "" ? "" : `${around}.`;
    let seen = 0;
    const result: Record<string, unknown> = {};
    for (const key of Object.keys(value)) {
      if (!Object.hasOwn(rules, key)) damaged(`${place.op} has no attribute ${prefix}${shown(key)}`);
      place.attribute = prefix + key;
      result[key] = rules[key as keyof T](value[key], place);
      seen++;
    }
    if (seen < names.length)
      for (const key of names) {
        if (Object.hasOwn(value, key)) continue;
        place.attribute = prefix + key;
        rules[key](undefined, place);
      }
    place.attribute = around;
    return result as T;
  };
}

const pair = record<{ re: number; im: number }>({ re: anyNumber, im: anyNumber });
const scalar: Rule<Scalar> = (value, place) =>
  isObject(value) && "re" in value ? pair(value, place) : anyNumber(value, place);

const body: Rule<GraphFn> = (value, place) => {
  if (!isObject(value) || Object.keys(value).length !== 1 || !Object.hasOwn(value, "$fn"))
    return wrong(place, "a function", value);
  return place.nested(value.$fn);
};

/** A gradient rule is code and cannot be serialized; only its name is. */
const rule: Rule<CustomRule> = (value, place) =>
  typeof value === "string" && identifierPattern.test(value)
    ? { name: value, backward: () => damaged("gradients are taken before a function travels") }
    : wrong(place, "a name of at most 60 letters, digits and _", value);

const window = record<{ shape: Shape; start: readonly number[] }>({ shape, start: counts });
const member = count(2 ** 20);
const ranks = list(member, limits.members);
const transfer = record<Transfer>({ rank: member, start: counts, stop: counts });
const transfers = list(transfer, limits.operands);
const sizes = list(count(), limits.members);
const meshAxes = list(list(name, limits.rank), limits.rank);
const precision = optional(oneOf(precisions));
/** A signed distance between two positions of a sequence, which kernels hold in 32 bits. */
const distance: Rule<number> = (value, place) =>
  Number.isInteger(value) && Math.abs(value as number) < 2 ** 30
    ? (value as number) + 0
    : wrong(place, "a whole number of less than 2^30 in size", value);
const attention = record<AttentionKernel>({
  kind: oneOf(attentionKinds),
  gradient: flag,
  packed: flag,
  scale: finite,
  mask: oneOf(attentionMasks),
  maskGradient: optional(flag),
  lower: optional(distance),
  upper: optional(distance),
  dropout: finite,
  precision,
});
const nothing = {};

const attrRules: { readonly [K in OpName]: Rules<OpAttrs[K]> } = {
  input: { shape, dtype, name },
  data: { shape, dtype },
  const: { value: scalar, dtype },
  iota: { shape, axis, dtype },
  random: {
    // Tapes of earlier versions call the kind "kept".
    kind: (value, place) => oneOf(randomKinds)(value === "kept" ? "dropoutMask" : value, place),
    shape,
    dtype,
    within: optional(window),
    threshold: optional(count(65535)),
  },
  alias: { name },
  barrier: { tag: count() },
  pin: { dims: meshAxes, backward: meshAxes },
  unary: { fn: oneOf(unaryFns) },
  binary: { fn: oneOf(binaryFns) },
  where: nothing,
  cast: { dtype },
  reshape: { shape },
  permute: { axes },
  expand: { shape },
  slice: { start: counts, stop: counts, step: counts },
  pad: { low: counts, high: counts },
  flip: { axes },
  concat: { axis },
  reduce: { fn: oneOf(reduceFns), axes },
  argreduce: { fn: oneOf(argReduceFns), axis },
  cumsum: { axis, reverse: flag, dtype: absent, fn: absent },
  matmul: { precision },
  conv: {
    kind: oneOf(convKinds),
    size: counts,
    stride: counts,
    dilation: counts,
    low: counts,
    groups: count(),
    channelsLast: flag,
    precision,
  },
  gather: { axis, batch: axis },
  scatterAdd: { axis, batch: axis },
  scatterReduce: { axis, batch: axis, fn: oneOf(scanFns) },
  updateSlice: { axis, batch: axis },
  fft: { kind: oneOf(fftKinds), inverse: flag, axes: count(3), size: count() },
  argsort: { descending: flag, first: optional(count()), count: optional(count()), values: absent },
  cholesky: nothing,
  triangularSolve: { lower: flag, adjoint: flag, unit: flag },
  solve: nothing,
  det: nothing,
  eigh: nothing,
  qr: nothing,
  lu: nothing,
  eig: nothing,
  svd: nothing,
  scan: { body, consts: count(), carries: count(), length: count(), reverse: flag, stop: optional(oneOf(loopStops)) },
  custom: { body, rule, kernel: optional(attention) },
  collective: {
    kind: oneOf(collectiveKinds),
    fn: oneOf(reduceFns),
    groups: list(ranks, limits.members),
    rank: member,
    sequence: count(),
    axis,
    splitAxis: axis,
    sizes,
    splitSizes: sizes,
    sends: transfers,
    receives: transfers,
    shape,
    dtype,
  },
  pick: { index: count(limits.operands) },
};

const readers = new Map<string, Rule<unknown>>(
  Object.entries(attrRules).map(([op, rules]) => [op, record(rules as Rules<Record<string, unknown>>)]),
);

export const isOpName = (op: unknown): op is OpName => typeof op === "string" && readers.has(op);

/** Decodes the attributes of an op, checking each one. */
export function decodeAttrs<K extends OpName>(op: K, value: unknown, place: Place): OpAttrs[K] {
  place.op = op;
  place.attribute = "";
  return readers.get(op)!(value, place) as OpAttrs[K];
}

export { dtype as dtypeRule, shape as shapeRule };
