// Random programs with loops, branches and indices that depend on values. One text runs on two machines: on tensors, where loops and
// branches are operations of the graph, and on dual numbers in plain JavaScript, where they are JavaScript's own; the second gives values
// and directional derivatives, and shares no rule with the first.

import type { Tensor } from "../index.js";
import * as weft from "../index.js";
import { Dice } from "./dice.js";

/** What a program may do with vectors (V), whole numbers (I) and truth values (B). */
interface Machine<V, I, B> {
  add(a: V, b: V): V;
  mul(a: V, b: V): V;
  scale(a: V, by: number): V;
  sin(a: V): V;
  tanh(a: V): V;
  roll(a: V): V;
  /** The mean, at every place. */
  mean(a: V): V;
  larger(a: V, b: V): V;
  /** The element at a place, at every place; places outside are clamped. */
  at(a: V, place: I): V;
  put(a: V, place: I, from: V): V;
  whole(k: number): I;
  /** A whole number from 0 to `below - 1` that depends on the values. */
  digit(a: V, below: number): I;
  isPositive(a: V): B;
  cond(test: B, whenTrue: () => V[], whenFalse: () => V[]): V[];
  choose(index: I, cases: readonly (() => V[])[]): V[];
  fori(count: I, most: number, body: (i: I, carry: V[]) => V[], init: V[]): V[];
  loop(test: (carry: V[]) => B, most: number, body: (carry: V[]) => V[], init: V[]): V[];
  /** Steps along a list of vectors; returns the carry, and the sum of the first carries over the steps that ran. */
  scan(xs: V[], stop: boolean, body: (carry: V[], x: V) => V[], init: V[]): V[];
}

/** Numbers with a directional derivative. */
export interface Dual {
  x: number[];
  d: number[];
}

const zip = (a: Dual, b: Dual, value: (p: number, q: number) => number, slope: (i: number) => number): Dual => ({
  x: a.x.map((p, i) => value(p, b.x[i])),
  d: a.d.map((_, i) => slope(i)),
});
const map = (a: Dual, value: (p: number) => number, slope: (p: number) => number): Dual => ({
  x: a.x.map(value),
  d: a.d.map((t, i) => slope(a.x[i]) * t),
});
const total = (x: readonly number[]): number => x.reduce((p, q) => p + q, 0);
const everywhere = (n: number, x: number, d: number): Dual => ({ x: Array(n).fill(x), d: Array(n).fill(d) });
const clamp = (i: number, n: number): number => Math.min(Math.max(i, 0), n - 1);

export const plain: Machine<Dual, number, boolean> = {
  add: (a, b) =>
    zip(
      a,
      b,
      (p, q) => p + q,
      (i) => a.d[i] + b.d[i],
    ),
  mul: (a, b) =>
    zip(
      a,
      b,
      (p, q) => p * q,
      (i) => a.d[i] * b.x[i] + a.x[i] * b.d[i],
    ),
  scale: (a, by) =>
    map(
      a,
      (p) => p * by,
      () => by,
    ),
  sin: (a) => map(a, Math.sin, Math.cos),
  tanh: (a) => map(a, Math.tanh, (p) => 1 - Math.tanh(p) ** 2),
  roll: (a) => ({ x: [...a.x.slice(-1), ...a.x.slice(0, -1)], d: [...a.d.slice(-1), ...a.d.slice(0, -1)] }),
  mean: (a) => everywhere(a.x.length, total(a.x) / a.x.length, total(a.d) / a.x.length),
  // There is no derivative at a tie.
  larger: (a, b) => zip(a, b, Math.max, (i) => (a.x[i] > b.x[i] ? a.d[i] : a.x[i] < b.x[i] ? b.d[i] : Number.NaN)),
  at: (a, place) => {
    const i = clamp(place, a.x.length);
    return everywhere(a.x.length, a.x[i], a.d[i]);
  },
  put: (a, place, from) => {
    const i = clamp(place, a.x.length);
    return { x: a.x.with(i, from.x[0]), d: a.d.with(i, from.d[0]) };
  },
  whole: (k) => k,
  digit: (a, below) => Math.min(Math.floor(Math.abs(total(a.x)) * 3), below - 1),
  isPositive: (a) => total(a.x) > 0,
  cond: (test, whenTrue, whenFalse) => (test ? whenTrue() : whenFalse()),
  choose: (index, cases) => cases[clamp(index, cases.length)](),
  fori(count, most, body, init) {
    let carry = init;
    for (let i = 0; i < Math.min(count, most); i++) carry = body(i, carry);
    return carry;
  },
  loop(test, most, body, init) {
    let carry = init;
    for (let i = 0; i < most && test(carry); i++) carry = body(carry);
    return carry;
  },
  scan(xs, stop, body, init) {
    let carry = init;
    let sum = everywhere(init[0].x.length, 0, 0);
    for (const x of xs) {
      if (stop && total(carry[0].x) > 1.5) break;
      carry = body(carry, x);
      sum = plain.add(sum, carry[0]);
    }
    return [...carry, sum];
  },
};

const int32 = { dtype: "int32" } as const;

export const tensors: Machine<Tensor, Tensor, Tensor> = {
  add: weft.add,
  mul: weft.mul,
  scale: (a, by) => a.mul(by),
  sin: weft.sin,
  tanh: weft.tanh,
  roll: (a) => a.roll(1),
  mean: (a) => a.mean().expand(a.shape),
  larger: weft.maximum,
  at: (a, place) => weft.dynamicSlice(a, [place], [1]).expand(a.shape),
  put: (a, place, from) => weft.dynamicUpdateSlice(a, from.index("0:1"), [place]),
  whole: (k) => weft.tensor(k, int32),
  digit: (a, below) => weft.minimum(a.sum().abs().mul(3).floor(), below - 1).cast("int32"),
  isPositive: (a) => a.sum().greater(0),
  cond: (test, whenTrue, whenFalse) => weft.cond(test, whenTrue, whenFalse),
  choose: (index, cases) => weft.switchCase(index, cases),
  fori: (count, most, body, init) => weft.foriLoop(0, count, body, init, { maxTrips: most }),
  loop: (test, most, body, init) => weft.whileLoop(test, body, init, { maxTrips: most }),
  scan(xs, stop, body, init) {
    const step = (carry: Tensor[], x: Tensor): [Tensor[], Tensor] => {
      const next = body(carry, x);
      return [next, next[0]];
    };
    const options = stop ? { while: (carry: Tensor[]) => carry[0].sum().lessEqual(1.5) } : {};
    const [last, firsts] = weft.scan(step, init, weft.stack(xs, 0), options);
    return [...last, firsts.sum(0)];
  },
};

type Block = <V, I, B>(machine: Machine<V, I, B>, given: readonly V[]) => V[];

/** One of the simple operations on vectors of a pool. */
function simple<V, I, B>(m: Machine<V, I, B>, dice: Dice, pool: readonly V[]): V {
  const [a, b] = [dice.pick(pool), dice.pick(pool)];
  return dice.pick([
    () => m.tanh(m.add(a, b)),
    () => m.mul(m.sin(a), b),
    () => m.add(m.scale(a, 0.7), m.scale(b, -0.4)),
    () => m.add(m.roll(a), m.scale(m.mean(b), 0.5)),
    () => m.larger(a, m.scale(b, 0.9)),
    () => m.sin(m.add(m.at(a, m.digit(b, 4)), b)),
    () => m.put(a, m.digit(b, 5), m.tanh(b)),
  ])();
}

/** Random steps on a pool that starts with what is given; returns as many vectors as `results`. */
function block(seed: number, depth: number, results: number): Block {
  return <V, I, B>(m: Machine<V, I, B>, given: readonly V[]): V[] => {
    const dice = new Dice(seed);
    const pool = [...given];
    for (let i = 1 + dice.below(3); i > 0; i--) pool.push(simple(m, dice, pool));
    if (depth > 0) for (const v of flow(m, dice, pool, depth - 1)) pool.push(m.tanh(v));
    return Array.from({ length: results }, (_, i) => m.tanh(m.add(pool[pool.length - 1 - i], dice.pick(pool))));
  };
}

/** A loop or a branch; its bodies read the vectors around it too. */
function flow<V, I, B>(m: Machine<V, I, B>, dice: Dice, pool: readonly V[], depth: number): V[] {
  const carries = 1 + dice.below(2);
  const [first, second, third] = [0, 1, 2].map(() => block(dice.below(1e9), dice.chance(60) ? depth : 0, carries));
  const init = Array.from({ length: carries }, () => dice.pick(pool));
  const about = dice.pick(pool);
  const most = 1 + dice.below(6);
  switch (dice.below(6)) {
    case 0:
      return m.cond(
        m.isPositive(about),
        () => first(m, [...init, about]),
        () => second(m, init),
      );
    case 1: {
      const cases = [first, second, third].map((b) => () => b(m, [...init, ...pool.slice(-2)]));
      return m.choose(m.digit(about, 5), cases);
    }
    case 2:
      return m.fori(m.digit(about, most + 2), most, (i, c) => first(m, [...c, m.at(about, i), about]), init);
    case 3:
      return m.loop(
        (c) => m.isPositive(m.add(c[0], about)),
        most,
        (c) => first(m, [...c, about]),
        init,
      );
    case 4:
      return m.fori(m.whole(most), most, (_, c) => first(m, c), init);
    default: {
      const xs = Array.from({ length: 1 + dice.below(4) }, () => m.scale(dice.pick(pool), 0.8));
      return m.scan(xs, dice.chance(50), (c, x) => first(m, [...c, x, about]), init);
    }
  }
}

export interface FlowProgram {
  length: number;
  inputs: number[][];
  directions: number[][];
  run: Block;
}

export function flowProgram(seed: number): FlowProgram {
  const dice = new Dice(seed + 31);
  const length = 1 + dice.below(4);
  const numbers = (): number[] => Array.from({ length }, () => dice.below(2001) / 1000 - 1);
  const run = block(dice.below(1e9), 2, 2);
  return { length, inputs: [numbers(), numbers(), numbers()], directions: [numbers(), numbers(), numbers()], run };
}
