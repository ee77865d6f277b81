// A case: a function of tensors with seeded inputs, its dtypes, and the equivalent in NumPy. The suites run every case on every
// device, differentiate it and map over it.
import type { DType, Tensor } from "../../index.js";

/** An input on the host: row-major numbers, complex ones as interleaved pairs. */
export interface Host {
  shape: readonly number[];
  dtype: DType;
  data: number[];
}

export type CaseFn = (...inputs: Tensor[]) => Tensor | Tensor[];

export interface Case {
  /** "function: what is special about it"; the part before the colon is the public function that is covered. */
  name: string;
  dtypes: readonly DType[];
  inputs: (source: Source) => Host[];
  fn: CaseFn;
  /** The same in NumPy, as an expression of inputs a, b, c, d; tuples for several results. */
  np?: string;
  /** False where no gradient exists or finite differences cannot see it; the inputs that carry one, otherwise. */
  grad?: false | readonly number[];
  /** False where second derivatives are not defined or too ill-conditioned for finite differences. */
  grad2?: false;
  /** False where the result depends on more than one example's slice, or the shape is not that of a function. */
  vmap?: false;
  /** Multiplies the tolerance of the dtype. */
  loose?: number;
}

export const floats: readonly DType[] = ["float16", "bfloat16", "float32", "float64"];
export const singles: readonly DType[] = ["float32", "float64"];
export const complexes: readonly DType[] = ["complex64", "complex128"];
export const integers: readonly DType[] = ["int8", "uint8", "int16", "uint16", "int32", "uint32", "int64", "uint64"];
export const reals: readonly DType[] = [...integers, ...floats];
export const inexact: readonly DType[] = [...floats, ...complexes];
export const numbers: readonly DType[] = [...integers, ...floats, ...complexes];
export const anyDType: readonly DType[] = ["bool", ...numbers];
/** What LAPACK-like functions take without a conversion. */
export const matrixDTypes: readonly DType[] = [...singles, ...complexes];

const isComplex = (dtype: DType): boolean => dtype === "complex64" || dtype === "complex128";
const isInteger = (dtype: DType): boolean => integers.includes(dtype);
const isUnsigned = (dtype: DType): boolean => dtype.startsWith("uint");
const count = (shape: readonly number[]): number => shape.reduce((n, d) => n * d, 1);

/** Seeded numbers (mulberry32 on a hash of the case's name): the same on every run and every device. */
export class Source {
  #state: number;

  constructor(
    readonly dtype: DType,
    seed: string,
  ) {
    let h = 2166136261;
    for (const c of `${seed}/${dtype}`) h = Math.imul(h ^ c.charCodeAt(0), 16777619);
    this.#state = h >>> 0;
  }

  #next(): number {
    this.#state = (this.#state + 0x6d2b79f5) >>> 0;
    let t = this.#state;
    t = Math.imul(t ^ (t >>> 15), t | 1);
    t ^= t + Math.imul(t ^ (t >>> 7), t | 61);
    return ((t ^ (t >>> 14)) >>> 0) / 2 ** 32;
  }

  /** Two digits after the point: exact enough to print, and never two equal neighbors by accident of rounding. */
  #uniform(low: number, high: number): number {
    return Math.round((low + (high - low) * this.#next()) * 1e4) / 1e4;
  }

  #fill(shape: readonly number[], dtype: DType, draw: () => number): Host {
    const n = count(shape) * (isComplex(dtype) ? 2 : 1);
    const value = dtype === "bool" ? () => Number(draw() !== 0) : draw;
    return { shape, dtype, data: Array.from({ length: n }, value) };
  }

  /** Numbers around zero: in (-2, 2), whole numbers -4..5 (0..9 for unsigned ones), 0 or 1 for bool. */
  any(shape: readonly number[], dtype: DType = this.dtype): Host {
    if (dtype === "bool") return this.#fill(shape, dtype, () => Number(this.#next() < 0.5));
    if (isUnsigned(dtype)) return this.#fill(shape, dtype, () => Math.floor(this.#next() * 10));
    if (isInteger(dtype)) return this.#fill(shape, dtype, () => Math.floor(this.#next() * 10) - 4);
    return this.#fill(shape, dtype, () => this.#uniform(-2, 2));
  }

  /** Like `any`, but exact in every dtype. */
  eighths(shape: readonly number[], dtype: DType = this.dtype): Host {
    const host = this.any(shape, dtype);
    return { ...host, data: host.data.map((x) => Math.round(x * 8) / 8) };
  }

  /** Numbers in [low, high); complex ones in the square. */
  between(low: number, high: number, shape: readonly number[], dtype: DType = this.dtype): Host {
    if (dtype === "bool") return this.any(shape, dtype);
    if (isInteger(dtype)) return this.#fill(shape, dtype, () => Math.floor(low + (high - low) * this.#next()));
    return this.#fill(shape, dtype, () => this.#uniform(low, high));
  }

  /** At least 0.5 away from zero in every part, of both signs (positive for unsigned integers). */
  nonzero(shape: readonly number[], dtype: DType = this.dtype): Host {
    const size = (): number => (isInteger(dtype) ? 1 + Math.floor(this.#next() * 5) : this.#uniform(0.5, 2));
    return this.#fill(shape, dtype, () => (!isUnsigned(dtype) && this.#next() < 0.5 ? -size() : size()));
  }

  /** Distinct numbers, well apart, in random order: for maxima, sorting and other functions with ties. */
  distinct(shape: readonly number[], dtype: DType = this.dtype): Host {
    const n = count(shape);
    const order = Array.from({ length: n }, (_, i) => i);
    for (let i = n - 1; i > 0; i--) {
      const j = Math.floor(this.#next() * (i + 1));
      [order[i], order[j]] = [order[j], order[i]];
    }
    const whole = isInteger(dtype);
    return { shape, dtype, data: order.map((k) => (whole ? k : (k - n / 2) * 0.25 + 0.0625)) };
  }

  /** Exactly these numbers. */
  exact(shape: readonly number[], data: readonly number[], dtype: DType = this.dtype): Host {
    const pairs = isComplex(dtype) && data.length === count(shape) ? data.flatMap((x) => [x, 0]) : [...data];
    return { shape, dtype, data: pairs };
  }

  /** int32 indices in [low, high). */
  indices(shape: readonly number[], low: number, high: number): Host {
    return this.#fill(shape, "int32", () => low + Math.floor(this.#next() * (high - low)));
  }

  /** Well-conditioned square matrices: random ones plus a multiple of the identity. */
  matrix(shape: readonly number[], dtype: DType = this.dtype): Host {
    const host = this.#fill(shape, dtype, () => this.#uniform(-1, 1));
    const [n] = shape.slice(-1);
    const parts = isComplex(dtype) ? 2 : 1;
    const rows = shape[shape.length - 2];
    for (let i = 0; i < count(shape); i++)
      if (i % n === Math.floor(i / n) % rows) host.data[i * parts] += 2 + (i % n) * 0.7;
    return host;
  }
}

/** A case in one line: name, dtypes, inputs, function, the same in NumPy, and what else is to be said. */
export const plain = (
  name: string,
  dtypes: readonly DType[],
  inputs: Case["inputs"],
  fn: Case["fn"],
  np: string,
  extra: Partial<Case> = {},
): Case => ({ name, dtypes, inputs, fn, np, ...extra });

/** For cases without a derivative. */
export const none = { grad: false } as const;
