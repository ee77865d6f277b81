// Symbolic integers for addresses: linear sums of loop variables, with the quotients and remainders that could not be
// resolved. Kept in a normal form, so that equal addresses are equal strings and reshapes cancel out.
import { InternalError } from "../graph/index.js";
import { identifier, whole } from "./text.js";

/** A term of a sum. */
type Atom =
  | { kind: "var"; name: string; size: number }
  | { kind: "div"; of: Ix; by: number }
  | { kind: "mod"; of: Ix; by: number };

interface Term {
  atom: Atom;
  factor: number;
}

const atomKey = (atom: Atom): string =>
  atom.kind === "var" ? atom.name : `(${atom.of.key} ${atom.kind === "div" ? "/" : "%"} ${atom.by})`;

function atomRange(atom: Atom): [number, number] {
  if (atom.kind === "var") return [0, atom.size - 1];
  if (atom.kind === "mod") return [0, atom.by - 1];
  const [low, high] = atom.of.range();
  return [Math.floor(low / atom.by), Math.floor(high / atom.by)];
}

export class Ix {
  readonly terms: ReadonlyMap<string, Term>;
  readonly constant: number;
  #key: string | null = null;

  private constructor(terms: ReadonlyMap<string, Term>, constant: number) {
    this.terms = terms;
    this.constant = constant;
  }

  static #zero: Ix | null = null;

  static get zero(): Ix {
    Ix.#zero ??= new Ix(new Map(), 0);
    return Ix.#zero;
  }

  static constant(value: number): Ix {
    return value === 0 ? Ix.zero : new Ix(new Map(), value);
  }

  static variable(name: string, size: number): Ix {
    return size === 1 ? Ix.zero : Ix.#of({ kind: "var", name, size });
  }

  static #of(atom: Atom): Ix {
    return new Ix(new Map([[atomKey(atom), { atom, factor: 1 }]]), 0);
  }

  get key(): string {
    if (this.#key === null) {
      const parts = [...this.terms].map(([name, { factor }]) => `${factor}*${name}`).sort();
      this.#key = `${parts.join("+")}+${this.constant}`;
    }
    return this.#key;
  }

  equals(other: Ix): boolean {
    return this.key === other.key;
  }

  get isConstant(): boolean {
    return this.terms.size === 0;
  }

  /** Smallest and largest value. */
  range(): [number, number] {
    let low = this.constant;
    let high = this.constant;
    for (const { atom, factor } of this.terms.values()) {
      const [a, b] = atomRange(atom);
      low += factor > 0 ? factor * a : factor * b;
      high += factor > 0 ? factor * b : factor * a;
    }
    return [low, high];
  }

  add(other: Ix): Ix {
    if (other.isConstant && other.constant === 0) return this;
    if (this.isConstant && this.constant === 0) return other;
    const terms = new Map(this.terms);
    for (const [name, { atom, factor }] of other.terms) {
      const sum = (terms.get(name)?.factor ?? 0) + factor;
      if (sum === 0) terms.delete(name);
      else terms.set(name, { atom, factor: sum });
    }
    return new Ix(terms, this.constant + other.constant).#rejoined();
  }

  /** by * (e / by) + (e % by) is e: a reshape and its inverse cancel. */
  #rejoined(): Ix {
    for (const [name, { atom, factor }] of this.terms) {
      if (atom.kind !== "mod") continue;
      const quotient = atomKey({ kind: "div", of: atom.of, by: atom.by });
      if (this.terms.get(quotient)?.factor !== factor * atom.by) continue;
      const terms = new Map(this.terms);
      terms.delete(name);
      terms.delete(quotient);
      return new Ix(terms, this.constant).add(atom.of.times(factor));
    }
    return this;
  }

  plus(value: number): Ix {
    return value === 0 ? this : new Ix(this.terms, this.constant + value);
  }

  times(factor: number): Ix {
    if (factor === 1) return this;
    if (factor === 0) return Ix.zero;
    const terms = new Map([...this.terms].map(([name, t]) => [name, { atom: t.atom, factor: t.factor * factor }]));
    return new Ix(terms, this.constant * factor);
  }

  /**
   * This = multiple * by + rest, with the terms that divide evenly in the first part. The rest keeps as much of the
   * constant as makes it positive: C rounds quotients of negative numbers up.
   */
  #divide(by: number): { quotient: Ix; rest: Ix } {
    const even = new Map<string, Term>();
    const odd = new Map<string, Term>();
    for (const [name, term] of this.terms) {
      if (term.factor % by === 0) even.set(name, { atom: term.atom, factor: term.factor / by });
      else odd.set(name, term);
    }
    const whole = Math.floor(this.constant / by);
    const rest = new Ix(odd, this.constant - whole * by);
    const [low] = rest.range();
    const kept = low < 0 ? Math.ceil(-low / by) : 0;
    return { quotient: new Ix(even, whole - kept), rest: rest.plus(kept * by) };
  }

  /** Splits a sum as common * outer + small with 0 <= small < common and common dividing `by`. */
  #factorOut(by: number): { common: number; outer: Ix; small: Ix } | null {
    const factors = [...this.terms.values()].map((t) => Math.abs(t.factor)).filter((f) => f > 1 && by % f === 0);
    for (const common of [...new Set(factors)].sort((a, b) => b - a)) {
      const { quotient, rest } = this.#divide(common);
      const [low, high] = rest.range();
      if (low >= 0 && high < common && !quotient.isConstant) return { common, outer: quotient, small: rest };
    }
    return null;
  }

  /** Floor division by a positive number. */
  div(by: number): Ix {
    if (by <= 0) throw new InternalError(`division of an index by ${by}`);
    if (by === 1) return this;
    const { quotient, rest } = this.#divide(by);
    const [low, high] = rest.range();
    if (low >= 0 && high < by) return quotient;
    const split = rest.#factorOut(by);
    if (split !== null && split.common < by) return quotient.add(split.outer.div(by / split.common));
    return quotient.add(Ix.#of({ kind: "div", of: rest, by }));
  }

  /** Remainder, never negative. */
  mod(by: number): Ix {
    if (by === 1) return Ix.zero;
    const { rest } = this.#divide(by);
    const [low, high] = rest.range();
    if (low >= 0 && high < by) return rest;
    const split = rest.#factorOut(by);
    if (split !== null)
      return split.outer
        .mod(by / split.common)
        .times(split.common)
        .add(split.small);
    return Ix.#of({ kind: "mod", of: rest, by });
  }

  /** The coefficient of a variable that appears nowhere inside a quotient or remainder; null if it does. */
  stride(name: string): number | null {
    for (const [key, { atom }] of this.terms)
      if (key !== name && atom.kind !== "var" && atom.of.mentions(name)) return null;
    return this.terms.get(name)?.factor ?? 0;
  }

  mentions(name: string): boolean {
    for (const [key, { atom }] of this.terms) {
      if (key === name) return true;
      if (atom.kind !== "var" && atom.of.mentions(name)) return true;
    }
    return false;
  }

  /** What quotients and remainders of a variable are divided by. */
  divisors(name: string): number[] {
    return [...this.terms.values()].flatMap(({ atom }) =>
      atom.kind === "var" || !atom.of.mentions(name) ? [] : [atom.by, ...atom.of.divisors(name)],
    );
  }

  /** Names of its variables. */
  variables(into: Set<string> = new Set()): Set<string> {
    for (const { atom } of this.terms.values()) {
      if (atom.kind === "var") into.add(atom.name);
      else atom.of.variables(into);
    }
    return into;
  }

  /** The terms of some variables, and those of others with the constant; null where a term mixes them or has any further ones. */
  apart(inner: ReadonlySet<string>, outer: ReadonlySet<string>): { inner: Ix; rest: Ix } | null {
    const [mine, others] = [new Map<string, Term>(), new Map<string, Term>()];
    for (const [name, term] of this.terms) {
      const used = term.atom.kind === "var" ? [term.atom.name] : [...term.atom.of.variables()];
      if (used.every((variable) => inner.has(variable))) mine.set(name, term);
      else if (used.every((variable) => outer.has(variable))) others.set(name, term);
      else return null;
    }
    return { inner: new Ix(mine, 0), rest: new Ix(others, this.constant) };
  }

  /** The same sum with variables replaced by other sums. */
  substitute(values: ReadonlyMap<string, Ix>): Ix {
    let result = Ix.constant(this.constant);
    for (const [name, { atom, factor }] of this.terms) {
      let part: Ix;
      if (atom.kind === "var") part = values.get(name) ?? Ix.#of(atom);
      else {
        const inner = atom.of.substitute(values);
        part = atom.kind === "div" ? inner.div(atom.by) : inner.mod(atom.by);
      }
      result = result.add(part.times(factor));
    }
    return result;
  }

  /** C text. */
  print(): string {
    const parts: string[] = [];
    for (const { atom, factor } of this.terms.values()) {
      const text =
        atom.kind === "var"
          ? identifier(atom.name)
          : `((${atom.of.print()}) ${atom.kind === "div" ? "/" : "%"} ${whole(atom.by)})`;
      parts.push(factor === 1 ? text : `${whole(factor)}*${text}`);
    }
    if (this.constant !== 0 || parts.length === 0) parts.push(whole(this.constant));
    return parts.join(" + ").replaceAll("+ -", "- ");
  }
}

/** The linear index of a multi-index. */
export function linearize(index: readonly Ix[], shape: readonly number[]): Ix {
  let result = Ix.zero;
  let stride = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    result = result.add(index[i].times(stride));
    stride *= shape[i];
  }
  return result;
}

/** The multi-index of a linear index. */
export function delinearize(position: Ix, shape: readonly number[]): Ix[] {
  if (shape.includes(0)) return shape.map(() => Ix.zero);
  const index = new Array<Ix>(shape.length);
  let stride = 1;
  for (let i = shape.length - 1; i >= 0; i--) {
    const quotient = position.div(stride);
    // The first axis needs no remainder: indices are in range.
    index[i] = shape[i] === 1 ? Ix.zero : isOutermost(shape, i) ? quotient : quotient.mod(shape[i]);
    stride *= shape[i];
  }
  return index;
}

const isOutermost = (shape: readonly number[], axis: number): boolean => {
  for (let i = 0; i < axis; i++) if (shape[i] !== 1) return false;
  return true;
};
