// Masks that depend on the distance of a key from its query alone: causal masks, sliding windows, block diagonals of width one
// and the like. Found by reading the mask as inequalities between indices, so that kernels can skip what is masked.
import { isOp, type Node, type Shape } from "../graph/index.js";
import { build } from "../ops/index.js";
import { axesOfReshape, narrowed } from "./narrow.js";

/** Query i sees key j if lower <= j - i <= upper; a missing bound does not restrict. */
export interface Band {
  lower?: number;
  upper?: number;
}

/** sum(factors[axis] * index[axis]) + constant, in the axes of the node. */
interface Affine {
  factors: readonly number[];
  constant: number;
}

/** What is known about the elements of a node. */
type Known =
  | { kind: "affine"; value: Affine }
  /** The absolute value of an affine number. */
  | { kind: "distance"; value: Affine }
  /** `yes` where all numbers are at least 0, `no` elsewhere. */
  | { kind: "choice"; all: readonly Affine[]; yes: number; no: number };

/** Numbers up to this are exact in float32, so that comparisons of indices are. */
const exactIndex = 2 ** 24;
const exactTypes = new Set(["int32", "int64", "float32", "float64"]);
const maxDepth = 64;

const uniform = (constant: number, rank: number): Known => ({
  kind: "affine",
  value: { factors: new Array<number>(rank).fill(0), constant },
});
const constantOf = (known: Known | null): number | null =>
  known?.kind === "affine" && known.value.factors.every((f) => f === 0) ? known.value.constant : null;

const combine = (a: Affine, b: Affine, sign: number): Affine => ({
  factors: a.factors.map((f, i) => f + sign * b.factors[i]),
  constant: a.constant + sign * b.constant,
});
const scaled = (a: Affine, by: number): Affine => ({
  factors: a.factors.map((f) => f * by),
  constant: a.constant * by,
});

/** a >= 0 for numbers whose factors are whole; `strict`: a > 0. */
function atLeastZero(a: Affine, strict: boolean): Affine | null {
  if (!a.factors.every(Number.isInteger) || !Number.isFinite(a.constant)) return null;
  return { factors: a.factors, constant: strict ? Math.ceil(a.constant) - 1 : Math.floor(a.constant) };
}
const negated = (a: Affine): Affine => ({ factors: a.factors.map((f) => -f), constant: -a.constant - 1 });

const truth = (all: readonly Affine[]): Known => ({ kind: "choice", all, yes: 1, no: 0 });

/** x < y (strict) or x <= y. */
function compared(x: Known, y: Known, strict: boolean): Known | null {
  if (x.kind === "affine" && y.kind === "affine") {
    const one = atLeastZero(combine(y.value, x.value, -1), strict);
    return one === null ? null : truth([one]);
  }
  // |x| < c: both x < c and -x < c.
  if (x.kind === "distance" && constantOf(y) !== null && y.kind === "affine") {
    const both = [
      atLeastZero(combine(y.value, x.value, -1), strict),
      atLeastZero(combine(y.value, x.value, 1), strict),
    ];
    return both.every((one) => one !== null) ? truth(both as Affine[]) : null;
  }
  if (x.kind === "choice" && constantOf(y) !== null)
    return onChoice(x, (v) => Number(strict ? v < constantOf(y)! : v <= constantOf(y)!));
  if (y.kind === "choice" && constantOf(x) !== null)
    return onChoice(y, (v) => Number(strict ? constantOf(x)! < v : constantOf(x)! <= v));
  return null;
}

const onChoice = (x: Extract<Known, { kind: "choice" }>, fn: (v: number) => number): Known => ({
  ...x,
  yes: fn(x.yes),
  no: fn(x.no),
});

/** The inequalities that hold exactly where a bool is true; null if they are not all needed at once. */
function conditionsOf(known: Known | null): readonly Affine[] | null {
  if (known === null) return null;
  const constant = constantOf(known);
  if (constant !== null && known.kind === "affine")
    return constant !== 0 ? [] : [{ factors: known.value.factors, constant: -1 }];
  if (known.kind !== "choice") return null;
  if (known.yes !== 0 && known.no === 0) return known.all;
  if (known.yes === 0 && known.no !== 0 && known.all.length === 1) return [negated(known.all[0])];
  return null;
}

const arithmetic: Partial<Record<string, (x: Known, y: Known) => Known | null>> = {
  add: (x, y) => shifted(x, y, 1) ?? shifted(y, x, 1),
  sub: (x, y) => shifted(x, y, -1),
  mul: (x, y) => product(x, y) ?? product(y, x),
  lt: (x, y) => compared(x, y, true),
  le: (x, y) => compared(x, y, false),
  eq: (x, y) => equal(x, y, true),
  ne: (x, y) => equal(x, y, false),
  and: (x, y) => {
    const [a, b] = [conditionsOf(x), conditionsOf(y)];
    return a === null || b === null ? null : truth([...a, ...b]);
  },
  or: (x, y) => {
    const [a, b] = [constantOf(x), constantOf(y)];
    return a === 0 ? y : b === 0 ? x : null;
  },
};

function shifted(x: Known, y: Known, sign: number): Known | null {
  if (x.kind === "affine" && y.kind === "affine") return { kind: "affine", value: combine(x.value, y.value, sign) };
  const by = constantOf(y);
  return x.kind === "choice" && by !== null ? onChoice(x, (v) => v + sign * by) : null;
}

function product(x: Known, y: Known): Known | null {
  const by = constantOf(y);
  if (by === null) return null;
  if (x.kind === "choice") return onChoice(x, (v) => (v === 0 || by === 0 ? 0 : v * by));
  return x.kind === "affine" ? { kind: "affine", value: scaled(x.value, by) } : null;
}

function equal(x: Known, y: Known, same: boolean): Known | null {
  const [choice, other] = x.kind === "choice" ? [x, constantOf(y)] : [y, constantOf(x)];
  if (choice.kind !== "choice" || other === null) return null;
  return onChoice(choice, (v) => Number((v === other) === same));
}

/** Reads a node as numbers that depend on its indices in a known way. */
class Reader {
  readonly #known = new Map<Node, Known | null>();

  read(node: Node, depth = 0): Known | null {
    const found = this.#known.get(node);
    if (found !== undefined) return found;
    const known = depth > maxDepth ? null : this.#read(node, depth + 1);
    this.#known.set(node, known);
    return known;
  }

  #read(node: Node, depth: number): Known | null {
    const rank = node.shape.length;
    if (node.shape.some((d) => d >= exactIndex)) return null;
    if (isOp(node, "const")) {
      const { value } = node.attrs;
      return typeof value === "number" || typeof value === "boolean" ? uniform(Number(value), rank) : null;
    }
    if (isOp(node, "iota")) {
      if (!exactTypes.has(node.dtype)) return null;
      return {
        kind: "affine",
        value: { factors: node.shape.map((_, i) => Number(i === node.attrs.axis)), constant: 0 },
      };
    }
    const [x] = node.inputs;
    if (isOp(node, "expand")) return this.#mapped(x, depth, (i) => i, rank, x.shape);
    if (isOp(node, "permute")) return this.#mapped(x, depth, (i) => node.attrs.axes.indexOf(i), rank, x.shape);
    if (isOp(node, "reshape")) {
      const axes = axesOfReshape(x.shape, node.shape);
      return axes === null ? null : this.#mapped(x, depth, (i) => axes.indexOf(i), rank, x.shape);
    }
    if (isOp(node, "slice")) return this.#sliced(node, depth);
    if (isOp(node, "cast")) return this.#cast(node, depth);
    if (isOp(node, "unary")) return this.#unary(node.attrs.fn, this.read(x, depth));
    if (isOp(node, "where")) return this.#where(node, depth);
    if (!isOp(node, "binary")) return null;
    const [a, b] = node.inputs.map((input) => this.read(input, depth));
    return a === null || b === null ? null : (arithmetic[node.attrs.fn]?.(a, b) ?? null);
  }

  /** A view: axis i of the input is axis `at(i)` of the result; axes of size 1 have no index. */
  #mapped(x: Node, depth: number, at: (axis: number) => number, rank: number, shape: Shape): Known | null {
    const known = this.read(x, depth);
    const moved = ({ factors, constant }: Affine): Affine => {
      const to = new Array<number>(rank).fill(0);
      factors.forEach((f, i) => {
        if (shape[i] !== 1 && at(i) >= 0) to[at(i)] = f;
      });
      return { factors: to, constant };
    };
    return known === null ? null : onAffine(known, moved);
  }

  #sliced(node: Node<"slice">, depth: number): Known | null {
    const { start, step } = node.attrs;
    const known = this.read(node.inputs[0], depth);
    const moved = ({ factors, constant }: Affine): Affine => ({
      factors: factors.map((f, i) => f * step[i]),
      constant: factors.reduce((sum, f, i) => sum + f * start[i], constant),
    });
    return known === null ? null : onAffine(known, moved);
  }

  #cast(node: Node<"cast">, depth: number): Known | null {
    const known = this.read(node.inputs[0], depth);
    if (known === null || known.kind === "choice") {
      // A choice is between two constants, which a cast to bool turns into truth values.
      return known === null || node.dtype !== "bool" ? known : onChoice(known, (v) => Number(v !== 0));
    }
    const constant = constantOf(known);
    if (node.dtype === "bool") return constant === null ? null : uniform(Number(constant !== 0), node.shape.length);
    if (!exactTypes.has(node.dtype)) return null;
    const whole = known.value.factors.every(Number.isInteger) && Number.isInteger(known.value.constant);
    return whole || constant !== null ? known : null;
  }

  #unary(fn: string, x: Known | null): Known | null {
    if (x === null) return null;
    if (fn === "neg" && x.kind === "affine") return { kind: "affine", value: scaled(x.value, -1) };
    if (fn === "abs" && x.kind === "affine") return { kind: "distance", value: x.value };
    if (x.kind !== "choice") return fn === "not" && constantOf(x) !== null ? onUniform(x, (v) => 1 - v) : null;
    const choices: Partial<Record<string, (v: number) => number>> = {
      not: (v) => 1 - v,
      neg: (v) => -v,
      log: Math.log,
      isfinite: (v) => Number(Number.isFinite(v)),
    };
    return choices[fn] === undefined ? null : onChoice(x, choices[fn]);
  }

  #where(node: Node<"where">, depth: number): Known | null {
    const [condition, yes, no] = node.inputs.map((input) => this.read(input, depth));
    const all = conditionsOf(condition);
    const [a, b] = [constantOf(yes), constantOf(no)];
    if (all !== null && a !== null && b !== null) return { kind: "choice", all, yes: a, no: b };
    // where(c, x, no) of an x that is `no` elsewhere already: both must hold.
    if (all !== null && yes?.kind === "choice" && b !== null && yes.no === b)
      return { kind: "choice", all: [...all, ...yes.all], yes: yes.yes, no: b };
    return null;
  }
}

const onAffine = (known: Known, fn: (a: Affine) => Affine): Known =>
  known.kind === "choice" ? { ...known, all: known.all.map(fn) } : { ...known, value: fn(known.value) };
const onUniform = (known: Known, fn: (v: number) => number): Known =>
  known.kind === "affine" ? { ...known, value: { ...known.value, constant: fn(known.value.constant) } } : known;

/** The band that inequalities describe, in the last two axes; null if they describe something else. */
function asBand(all: readonly Affine[]): Band | null {
  let [lower, upper] = [Number.NEGATIVE_INFINITY, Number.POSITIVE_INFINITY];
  for (const { factors, constant } of all) {
    const rank = factors.length;
    if (factors.every((f) => f === 0)) {
      if (constant >= 0) continue;
      return null;
    }
    const [i, j] = [factors[rank - 2] ?? 0, factors[rank - 1]];
    if (factors.some((f, axis) => f !== 0 && axis < rank - 2) || i !== -j || j === 0) return null;
    // j - i >= -constant / j, or for negative factors j - i <= constant / |j|.
    if (j > 0) lower = Math.max(lower, Math.ceil(-constant / j));
    else upper = Math.min(upper, Math.floor(constant / -j));
  }
  return {
    ...(lower === Number.NEGATIVE_INFINITY ? {} : { lower }),
    ...(upper === Number.POSITIVE_INFINITY ? {} : { upper }),
  };
}

/** Both bands at once. */
export const bandIntersection = (a: Band, b: Band): Band => {
  const lower = Math.max(a.lower ?? Number.NEGATIVE_INFINITY, b.lower ?? Number.NEGATIVE_INFINITY);
  const upper = Math.min(a.upper ?? Number.POSITIVE_INFINITY, b.upper ?? Number.POSITIVE_INFINITY);
  return {
    ...(lower === Number.NEGATIVE_INFINITY ? {} : { lower }),
    ...(upper === Number.POSITIVE_INFINITY ? {} : { upper }),
  };
};

/** A band without bounds that restrict nothing. */
export function tightened({ lower, upper }: Band, queries: number, keys: number): Band {
  return {
    ...(lower === undefined || lower <= 1 - queries ? {} : { lower }),
    ...(upper === undefined || upper >= keys - 1 ? {} : { upper }),
  };
}

/** Whether every query sees at least one key. */
export function seesEverywhere(
  { lower = Number.NEGATIVE_INFINITY, upper = Number.POSITIVE_INFINITY }: Band,
  queries: number,
  keys: number,
): boolean {
  if (keys === 0 || lower > upper) return queries === 0;
  return queries === 0 || (upper >= 0 && queries - 1 + lower <= keys - 1);
}

/** A bool mask as a band and what else it asks for; both narrowed. */
export function splitBand(open: Node): { band: Band; rest: Node | null } {
  const reader = new Reader();
  let band: Band = {};
  const others: Node[] = [];
  const visit = (node: Node): void => {
    const all = conditionsOf(reader.read(node));
    const found = all === null ? null : asBand(all);
    if (found !== null) band = bandIntersection(band, found);
    else if (isOp(node, "binary") && node.attrs.fn === "and") node.inputs.forEach(visit);
    else if (isOp(node, "expand") && node.inputs[0].shape.length === node.shape.length && isAnd(node.inputs[0]))
      visit(node.inputs[0]);
    else others.push(node);
  };
  visit(open);
  const shape = open.shape;
  const rest =
    others.length === 0
      ? null
      : others.map((node) => build.expandTo(node, shape)).reduce((a, b) => build.binary("and", a, b));
  return { band, rest: rest === null ? null : narrowed(rest) };
}
const isAnd = (node: Node): boolean => isOp(node, "binary") && node.attrs.fn === "and";

/** The band of numbers that are 0 inside it and far below every score outside; null for other numbers. */
export function biasBand(bias: Node, closed: number): Band | null {
  const known = new Reader().read(bias);
  if (known?.kind !== "choice") return null;
  const { all, yes, no } = known;
  const inside = asBand(all);
  if (inside === null || (yes === 0 && no <= closed)) return inside;
  // The outside of a band with one bound is a band too.
  const { lower, upper } = inside;
  if (no !== 0 || !(yes <= closed) || (lower === undefined) === (upper === undefined)) return null;
  return lower === undefined ? { lower: upper! + 1 } : { upper: lower - 1 };
}

/** The band as a bool node [queries, keys], expanded to the shape of scores. */
export function bandMask({ lower, upper }: Band, scores: Shape): Node {
  const rank = scores.length;
  const distance = build.sub(build.iota(scores, rank - 1, "int32"), build.iota(scores, rank - 2, "int32"));
  const sides = [
    ...(upper === undefined ? [] : [build.le(distance, build.fullLike(distance, upper))]),
    ...(lower === undefined ? [] : [build.le(build.fullLike(distance, lower), distance)]),
  ];
  return sides.reduce((a, b) => build.binary("and", a, b), sides[0] ?? build.full(scores, 1, "bool"));
}
