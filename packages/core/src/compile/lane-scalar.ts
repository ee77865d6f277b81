// The real scalars that one lane computes: hash-consed, with algebraic folding. Identities that are exact for finite numbers
// are applied (commutation, moving signs outwards, zeros, ones, x - x), and two that are not: two constant factors become
// one, and sums of the same terms in another order are one sum. Terms that cancel within a sum are left as they are, so
// compensated summation works. Knows nothing of tensors or text.
import { type DType, kindOf, type LoopStop } from "../graph/index.js";
import type { Ix } from "./index-expr.js";

/**
 * The end of a loop that may stop early: it runs while one of the lane's predicates is true, or for the largest of the lane's
 * numbers of steps.
 */
export interface LaneStop {
  kind: LoopStop;
  values: LaneScalar[];
}

/** A loop of a lane program: one scan, for one lane. */
export interface LaneLoop {
  id: number;
  parent: LaneLoop | null;
  length: number;
  reverse: boolean;
  stop: LaneStop | null;
  /** The index of the current step, as it appears in addresses. */
  time: Ix;
  variable: string;
  /** State variables: initial values, and values after a step. */
  init: LaneScalar[];
  next: LaneScalar[];
  /** Scalars of a step that another loop or the code after the loop reads at some time. */
  history: LaneScalar[];
}

/** A real scalar of a lane. */
export interface LaneScalar {
  id: number;
  /**
   * "const", "load", "lane" (an index), "state" and "final" (a state variable inside and after its loop), "past" (a
   * scalar of another loop at a time), or the name of a function of its arguments.
   */
  op: string;
  args: LaneScalar[];
  dtype: DType;
  /** const: the value; state, final: the index of the variable; past: the index in the loop's history. */
  value: number;
  /** load: the operand. */
  input: number;
  /** load: the element; lane: the index; past: the time. */
  address: Ix | null;
  /** load: the part of a complex number. */
  part: 0 | 1;
  /** state, final, past: the loop. */
  of: LaneLoop | null;
  /** The innermost loop in which the scalar varies; null where it is invariant. */
  loop: LaneLoop | null;
  /** A digest of the terms of the sum, independent of their order, and the number of terms. */
  sum: readonly [number, number];
  terms: number;
}

// Digests of sums are numbers modulo two primes whose products fit a double; a term's own digest follows from its id.
const primes = [67108859, 67108837] as const;
const scrambled = (id: number): [number, number] => {
  let x = Math.imul(id + 1, 0x9e3779b1) >>> 0;
  x = Math.imul(x ^ (x >>> 15), 0x85ebca6b) >>> 0;
  const y = Math.imul(x ^ (x >>> 13), 0xc2b2ae35) >>> 0;
  return [((x ^ (x >>> 16)) >>> 0) % primes[0], ((y ^ (y >>> 16)) >>> 0) % primes[1]];
};

export class NotLane extends Error {}

const depthOf = (loop: LaneLoop | null): number => (loop === null ? 0 : 1 + depthOf(loop.parent));
export const deeper = (a: LaneLoop | null, b: LaneLoop | null): LaneLoop | null => (depthOf(a) >= depthOf(b) ? a : b);

const isPowerOfTwo = (x: number): boolean => Number.isInteger(Math.log2(Math.abs(x)));

export const stripped = (s: LaneScalar): LaneScalar => (s.op === "neg" ? s.args[0] : s);
export const signOf = (s: LaneScalar): 1 | -1 => (s.op === "neg" ? -1 : 1);

type Digest = readonly [number, number];
const negated = ([a, b]: Digest): Digest => [(primes[0] - a) % primes[0], (primes[1] - b) % primes[1]];
const signedSum = (s: LaneScalar): Digest => (s.op === "neg" ? negated(s.args[0].sum) : s.sum);
const sumKey = (dtype: DType, [a, b]: Digest, terms: number): string => `${dtype}|${a}.${b}|${terms}`;

type Sum = Pick<LaneScalar, "op" | "args">;
const isSum = (s: LaneScalar): boolean => kindOf(s.dtype) === "float" && (s.op === "add" || s.op === "sub");

/** How often a sum adds and subtracts each of its terms. Shared partial sums are visited once. */
function termCounts(sum: Sum): Map<LaneScalar, [number, number]> {
  const partial = new Set<LaneScalar>();
  const stack = sum.args.map(stripped);
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (!isSum(at) || partial.has(at)) continue;
    partial.add(at);
    stack.push(...at.args.map(stripped));
  }
  const counts = new Map<LaneScalar, [number, number]>();
  const spread = ({ op, args }: Sum, [plus, minus]: readonly [number, number]): void =>
    args.forEach((arg, i) => {
      const term = stripped(arg);
      const isMinus = signOf(arg) < 0 !== (i === 1 && op === "sub");
      const [p, m] = counts.get(term) ?? [0, 0];
      counts.set(term, isMinus ? [p + minus, m + plus] : [p + plus, m + minus]);
    });
  spread(sum, [1, 0]);
  // Operands have smaller ids than their sums, so every count is complete before it is distributed.
  for (const at of [...partial].sort((a, b) => b.id - a.id)) {
    spread(at, counts.get(at)!);
    counts.delete(at);
  }
  return counts;
}

/** Confirms what equal digests suggest: that two sums have the same terms, or with sign -1 the negated ones. */
function haveSameTerms(a: Sum, b: Sum, sign: 1 | -1): boolean {
  const [counts, others] = [termCounts(a), termCounts(b)];
  if (counts.size !== others.size) return false;
  for (const [term, [plus, minus]] of counts) {
    const [p, m] = others.get(term) ?? [0, 0];
    if (sign === 1 ? p !== plus || m !== minus : p !== minus || m !== plus) return false;
  }
  return true;
}

export class ScalarPool {
  readonly #pool = new Map<string, LaneScalar>();
  readonly #sums = new Map<string, LaneScalar>();
  readonly scalars: LaneScalar[] = [];

  constructor(readonly limit: number) {}

  make(
    op: string,
    dtype: DType,
    args: LaneScalar[],
    extra: Partial<Pick<LaneScalar, "value" | "input" | "address" | "part" | "of" | "loop">> = {},
  ): LaneScalar {
    const { value = 0, input = -1, address = null, part = 0, of = null } = extra;
    const key = `${op}|${dtype}|${args.map((a) => a.id).join(",")}|${Object.is(value, -0) ? "-0" : value}|${input}|${address?.key ?? ""}|${part}|${of?.id ?? ""}`;
    const equal = this.#pool.get(key);
    if (equal !== undefined) return equal;
    if (this.scalars.length >= this.limit) throw new NotLane("the step is too large to unroll");
    let loop = extra.loop ?? null;
    for (const a of args) loop = deeper(loop, a.loop);
    const { sum, terms } = this.#digest(op, args, dtype);
    if (terms > 2 && Number.isSafeInteger(terms)) {
      const same = (sign: 1 | -1, digest: Digest): LaneScalar | undefined => {
        const earlier = this.#sums.get(sumKey(dtype, digest, terms));
        return earlier !== undefined && haveSameTerms({ op, args }, earlier, sign) ? earlier : undefined;
      };
      const opposite = same(-1, negated(sum));
      const known = same(1, sum) ?? (opposite === undefined ? undefined : this.neg(opposite));
      if (known !== undefined) {
        this.#pool.set(key, known);
        return known;
      }
    }
    const made: LaneScalar = {
      id: this.scalars.length,
      op,
      args,
      dtype,
      value,
      input,
      address,
      part,
      of,
      loop,
      sum,
      terms,
    };
    this.scalars.push(made);
    if (terms > 2 && !this.#sums.has(sumKey(dtype, sum, terms))) this.#sums.set(sumKey(dtype, sum, terms), made);
    this.#pool.set(key, made);
    return made;
  }

  #digest(op: string, args: readonly LaneScalar[], dtype: DType): { sum: readonly [number, number]; terms: number } {
    if (kindOf(dtype) !== "float" || (op !== "add" && op !== "sub"))
      return { sum: scrambled(this.scalars.length), terms: 1 };
    const [a, b] = args.map(signedSum);
    const terms = stripped(args[0]).terms + stripped(args[1]).terms;
    const join = (k: 0 | 1): number => (a[k] + (op === "add" ? b[k] : primes[k] - b[k])) % primes[k];
    return { sum: [join(0), join(1)], terms };
  }

  constant(value: number, dtype: DType): LaneScalar {
    return this.make("const", dtype, [], { value });
  }

  is(x: LaneScalar, value: number): boolean {
    return x.op === "const" && x.value === value;
  }

  // Folding a zero factor is safe: the zero is a constant of the user's program, so NaN times it is not expected.
  add(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.is(a, 0)) return b;
    if (this.is(b, 0)) return a;
    if (a.op === "neg" && b.op === "neg") return this.neg(this.add(a.args[0], b.args[0]));
    // Exact, and the following sum can be fused into one instruction.
    if (a === b && kindOf(a.dtype) === "float") return this.mul(a, this.constant(2, a.dtype));
    if (b.op === "neg") return this.sub(a, b.args[0]);
    if (a.op === "neg") return this.sub(b, a.args[0]);
    return a.id <= b.id ? this.#fold("add", a, b, (x, y) => x + y) : this.#fold("add", b, a, (x, y) => x + y);
  }

  sub(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.is(b, 0)) return a;
    if (this.is(a, 0)) return this.neg(b);
    if (a === b && kindOf(a.dtype) === "float") return this.constant(0, a.dtype);
    if (b.op === "neg") return this.add(a, b.args[0]);
    if (a.op === "neg") return this.neg(this.add(a.args[0], b));
    // One of a - b and b - a is computed, the other is its negative.
    if (a.id > b.id && kindOf(a.dtype) === "float" && !(a.op === "const" && b.op === "const"))
      return this.neg(this.#fold("sub", b, a, (x, y) => x - y));
    return this.#fold("sub", a, b, (x, y) => x - y);
  }

  mul(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (this.is(a, 0)) return a;
    if (this.is(b, 0)) return b;
    if (this.is(a, 1)) return b;
    if (this.is(b, 1)) return a;
    if (a.op === "neg" && b.op === "neg") return this.mul(a.args[0], b.args[0]);
    if (a.op === "neg") return this.neg(this.mul(a.args[0], b));
    if (b.op === "neg") return this.neg(this.mul(a, b.args[0]));
    if (kindOf(a.dtype) === "float") {
      if (b.op === "const") return this.#scale(a, b);
      if (a.op === "const") return this.#scale(b, a);
    }
    return a.id <= b.id ? this.#fold("mul", a, b, (x, y) => x * y) : this.#fold("mul", b, a, (x, y) => x * y);
  }

  /** A product with a constant: signs move outwards, and the constant is merged into an existing one. */
  #scale(a: LaneScalar, c: LaneScalar): LaneScalar {
    if (a.op === "const") return this.#fold("mul", a, c, (x, y) => x * y);
    if (c.value < 0) return this.neg(this.mul(a, this.constant(-c.value, c.dtype)));
    if (a.op === "mul" && a.args[1].op === "const")
      return this.mul(
        a.args[0],
        this.#fold("mul", a.args[1], c, (x, y) => x * y),
      );
    return this.make("mul", a.dtype, [a, c]);
  }

  div(a: LaneScalar, b: LaneScalar): LaneScalar {
    if (kindOf(a.dtype) === "float" && b.op === "const" && isPowerOfTwo(b.value))
      return this.mul(a, this.constant(1 / b.value, b.dtype));
    if (kindOf(a.dtype) === "float" && a.op === "neg") return this.neg(this.div(a.args[0], b));
    return this.#fold("div", a, b, (x, y) => x / y);
  }

  neg(a: LaneScalar): LaneScalar {
    if (a.op === "neg") return a.args[0];
    if (a.op === "const") return this.constant(a.value === 0 ? 0 : -a.value, a.dtype);
    return this.make("neg", a.dtype, [a]);
  }

  #fold(op: string, a: LaneScalar, b: LaneScalar, rule: (x: number, y: number) => number): LaneScalar {
    if (a.op === "const" && b.op === "const" && kindOf(a.dtype) === "float") {
      const value = rule(a.value, b.value);
      if (Number.isFinite(value)) return this.constant(a.dtype === "float32" ? Math.fround(value) : value, a.dtype);
    }
    return this.make(op, a.dtype, [a, b]);
  }
}

/** Whether a scalar depends on the lane: on its state, or on an address that contains its number. `known` holds earlier answers. */
export function readsLane(s: LaneScalar, known: Map<LaneScalar, boolean>): boolean {
  const answer = known.get(s);
  if (answer !== undefined) return answer;
  const stack = [s];
  const seen = new Set<LaneScalar>();
  while (stack.length > 0) {
    const at = stack.pop()!;
    if (seen.has(at) || known.get(at) === false) continue;
    const isState = at.op === "state" || at.op === "final" || at.op === "past";
    const isLane = (): boolean =>
      at.address !== null && [...at.address.variables()].some((name) => name.startsWith("l"));
    if (isState || known.get(at) === true || isLane()) {
      known.set(s, true);
      return true;
    }
    seen.add(at);
    stack.push(...at.args);
  }
  for (const at of seen) known.set(at, false);
  return false;
}
