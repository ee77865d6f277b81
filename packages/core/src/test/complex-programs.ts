// Random programs of complex and real numbers that move elements about: pads, joins, rolls, slices, flips, takes, between
// sums and products of small whole numbers, which every dtype computes exactly. A program is plain data, so that NumPy can
// run the same one (testdata/complex_programs.py).
import type { DType, Tensor } from "../index.js";
import * as weft from "../index.js";
import { glimpse } from "./modes.js";

export type Step =
  | { op: "input"; shape: number[]; re: number[]; im: number[] }
  | { op: "pad"; x: number; widths: [number, number][] }
  | { op: "concat"; xs: number[]; axis: number }
  | { op: "roll"; x: number; by: number; axis: number }
  | { op: "slice"; x: number; start: number[]; stop: number[]; step: number[] }
  | { op: "flip"; x: number; axis: number }
  | { op: "take"; x: number; ids: number[]; axis: number }
  | { op: "permute"; x: number; axes: number[] }
  | { op: "reshape"; x: number; shape: number[] }
  | { op: "sum"; x: number; axis: number }
  | { op: "add" | "sub" | "mul"; x: number; y: number }
  | { op: "conj" | "neg" | "swap"; x: number }
  /** Where the real part of a condition is positive. */
  | { op: "where"; c: number; x: number; y: number }
  | { op: "scatter"; x: number; ids: number[]; size: number };

export interface ComplexProgram {
  seed: number;
  dtype: DType;
  steps: Step[];
  /** Which steps are results. */
  results: number[];
}

class Dice {
  #state: number;
  constructor(seed: number) {
    this.#state = (seed * 2654435761 + 12345) >>> 0;
  }
  below(n: number): number {
    this.#state ^= this.#state << 13;
    this.#state ^= this.#state >>> 17;
    this.#state ^= this.#state << 5;
    this.#state >>>= 0;
    return this.#state % n;
  }
  pick<T>(list: readonly T[]): T {
    return list[this.below(list.length)];
  }
}

const count = (shape: readonly number[]): number => shape.reduce((a, b) => a * b, 1);
/** Bounds that keep every number exact in float32, and programs small. */
const [maxSize, maxMagnitude] = [4000, 2 ** 20];

/** A step, the shape of its result, and a bound of its numbers; null where it does not suit. */
type Made = { step: Step; shape: number[]; bound: number } | null;

class Builder {
  readonly steps: Step[] = [];
  readonly shapes: number[][] = [];
  readonly bounds: number[] = [];
  constructor(
    readonly dice: Dice,
    readonly isComplex: boolean,
  ) {}

  add(made: Made): boolean {
    if (made === null || count(made.shape) > maxSize || made.bound > maxMagnitude) return false;
    this.steps.push(made.step);
    this.shapes.push(made.shape);
    this.bounds.push(made.bound);
    return true;
  }

  input(shape: number[]): void {
    const numbers = (): number[] => Array.from({ length: count(shape) }, () => this.dice.below(7) - 3);
    const re = numbers();
    this.add({ step: { op: "input", shape, re, im: this.isComplex ? numbers() : re.map(() => 0) }, shape, bound: 3 });
  }

  /** The newest value most of the time. */
  any(): number {
    const { dice, steps } = this;
    return dice.below(10) < 6 ? steps.length - 1 : dice.below(steps.length);
  }

  random(): void {
    const { dice } = this;
    const x = this.any();
    const [shape, bound] = [this.shapes[x], this.bounds[x]];
    const axis = shape.length === 0 ? 0 : dice.below(shape.length);
    const resized = (size: number): number[] => shape.map((d, i) => (i === axis ? size : d));
    const other = (fits: (s: number[]) => boolean): number => {
      const all = [...this.shapes.keys()].filter((i) => fits(this.shapes[i]));
      return dice.pick(all);
    };
    const same = other((s) => s.join() === shape.join());
    const ids = (n: number): number[] => Array.from({ length: n }, () => dice.below(shape[axis]));
    const steps: Record<string, () => Made> = {
      pad: () => {
        const widths = shape.map((): [number, number] => [dice.below(3), dice.below(4)]);
        return { step: { op: "pad", x, widths }, shape: shape.map((d, i) => d + widths[i][0] + widths[i][1]), bound };
      },
      concat: () => {
        const y = other((s) => s.length === shape.length && s.every((d, i) => i === axis || d === shape[i]));
        const xs = dice.pick([
          [x, y],
          [y, x],
          [x, y, x],
          [x, x],
        ]);
        const size = xs.reduce((n, k) => n + this.shapes[k][axis], 0);
        return { step: { op: "concat", xs, axis }, shape: resized(size), bound: Math.max(bound, this.bounds[y]) };
      },
      roll: () => ({ step: { op: "roll", x, by: dice.below(9) - 4, axis }, shape, bound }),
      slice: () => {
        const start = shape.map((d) => (d === 0 ? 0 : dice.below(Math.ceil(d / 2))));
        const stop = shape.map((d, i) => Math.min(d, start[i] + 1 + dice.below(d + 1)));
        const step = shape.map(() => dice.pick([1, 1, 2, 3]));
        const sizes = shape.map((_, i) => Math.max(0, Math.ceil((stop[i] - start[i]) / step[i])));
        return sizes.includes(0) ? null : { step: { op: "slice", x, start, stop, step }, shape: sizes, bound };
      },
      flip: () => ({ step: { op: "flip", x, axis }, shape, bound }),
      take: () => {
        const list = ids(1 + dice.below(6));
        return { step: { op: "take", x, ids: list, axis }, shape: resized(list.length), bound };
      },
      permute: () => {
        const axes = [...shape.keys()].sort((a, b) => ((a * 7 + x) % 5) - ((b * 7 + x) % 5));
        return { step: { op: "permute", x, axes }, shape: axes.map((a) => shape[a]), bound };
      },
      reshape: () => {
        const n = count(shape);
        const divisors = [1, 2, 3, 4, 5, 7].filter((d) => n % d === 0);
        const d = dice.pick(divisors);
        const next = dice.pick([[n], [d, n / d], [n / d, d]]);
        return { step: { op: "reshape", x, shape: next }, shape: next, bound };
      },
      sum: () =>
        shape.length < 2
          ? null
          : { step: { op: "sum", x, axis }, shape: shape.filter((_, i) => i !== axis), bound: bound * shape[axis] },
      arithmetic: () => {
        const op = dice.pick(["add", "sub", "mul", "mul"] as const);
        const [a, b] = [bound, this.bounds[same]];
        return { step: { op, x, y: same }, shape, bound: op === "mul" ? 2 * a * b : a + b };
      },
      single: () => ({ step: { op: dice.pick(["conj", "neg", "swap"] as const), x }, shape, bound }),
      where: () => {
        const c = other((s) => s.join() === shape.join());
        return { step: { op: "where", c, x, y: same }, shape, bound: Math.max(bound, this.bounds[same]) };
      },
      scatter: () =>
        shape.length !== 1 || shape[0] > 40
          ? null
          : { step: { op: "scatter", x, ids: ids(shape[0]), size: shape[0] }, shape, bound: bound * shape[0] },
    };
    if (shape.length === 0) return;
    this.add(steps[dice.pick(Object.keys(steps))]());
  }
}

const shapes = [[5], [3, 4], [2, 3, 4], [70], [9, 11], [1, 6], [130], [4, 65], [16], [33, 2]];
const dtypes: DType[] = ["complex64", "complex128", "complex64", "complex128", "float32", "float64"];

/** The program of a seed. */
export function programOf(seed: number): ComplexProgram {
  const dice = new Dice(seed + 1);
  for (let i = 0; i < 5; i++) dice.below(2);
  const dtype = dice.pick(dtypes);
  const builder = new Builder(dice, dtype.startsWith("complex"));
  const shape = dice.pick(shapes);
  builder.input(shape);
  builder.input(dice.below(2) === 0 ? shape : dice.pick(shapes));
  for (let i = 4 + dice.below(9); i > 0; i--) builder.random();
  const last = builder.steps.length - 1;
  return { seed, dtype, steps: builder.steps, results: [...new Set([last, dice.below(last + 1)])] };
}

/** Inputs of a program, and the rest of it as a function of them. */
export function asFunction({ steps, dtype, results }: ComplexProgram): {
  inputs: Tensor[];
  fn(inputs: Tensor[]): Tensor[];
} {
  const isComplex = dtype.startsWith("complex");
  const inputs = steps.flatMap((s) => {
    if (s.op !== "input") return [];
    const data = isComplex ? s.re.map((re, i) => ({ re, im: s.im[i] })) : s.re;
    return [weft.tensor(data, { dtype, shape: s.shape })];
  });
  const ids = (list: number[]): Tensor => weft.tensor(list, { dtype: "int32" });
  const fn = (given: Tensor[]): Tensor[] => {
    const values: Tensor[] = [];
    let next = 0;
    for (const s of steps) values.push(s.op === "input" ? given[next++] : glimpse(apply(s, values, ids)));
    return results.map((k) => values[k]);
  };
  return { inputs, fn };
}

function apply(s: Exclude<Step, { op: "input" }>, v: readonly Tensor[], ids: (list: number[]) => Tensor): Tensor {
  switch (s.op) {
    case "pad":
      return v[s.x].pad(s.widths);
    case "concat":
      return weft.concat(
        s.xs.map((k) => v[k]),
        s.axis,
      );
    case "roll":
      return v[s.x].roll(s.by, s.axis);
    case "slice":
      return v[s.x].index(...s.start.map((from, i) => `${from}:${s.stop[i]}:${s.step[i]}`));
    case "flip":
      return v[s.x].flip(s.axis);
    case "take":
      return v[s.x].take(ids(s.ids), s.axis);
    case "permute":
      return v[s.x].permute(s.axes);
    case "reshape":
      return v[s.x].reshape(s.shape);
    case "sum":
      return v[s.x].sum(s.axis);
    case "add":
    case "sub":
    case "mul":
      return v[s.x][s.op](v[s.y]);
    case "conj":
      return v[s.x].conj();
    case "neg":
      return v[s.x].neg();
    case "swap": {
      const x = v[s.x];
      return x.dtype.startsWith("complex") ? weft.complex(x.imag(), x.real()) : x;
    }
    case "where":
      return weft.where(v[s.c].real().greater(0), v[s.x], v[s.y]);
    case "scatter":
      return weft.scatterAdd(weft.zeros([s.size], { dtype: v[s.x].dtype }), ids(s.ids), v[s.x]);
  }
}
