// Right-hand sides of Schrödinger and Lindblad equations on the host: sparse rows times states.
import type { Operator } from "../operators/index.js";

/** Sparse rows of a sum of matrices that share one pattern: values of every matrix for every entry. */
export interface SparseMatrix {
  /** [D + 1]: where the entries of a row start. */
  rows: Int32Array;
  columns: Int32Array;
  /** Real and imaginary parts by matrix. */
  parts: { re: Float64Array; im: Float64Array }[];
  /** Largest sum of the magnitudes of all entries of a row, without the diagonal. */
  rowSum: number;
}

/** Sparse rows of matrices of one size. */
export function sparseOf(matrices: readonly Operator[]): SparseMatrix {
  const [{ rows: d, columns: width }] = matrices;
  const rows = new Int32Array(d + 1);
  const columns: number[] = [];
  const at: number[] = [];
  let rowSum = 0;
  for (let i = 0; i < d; i++) {
    let sum = 0;
    for (let j = 0; j < width; j++) {
      const k = i * width + j;
      const size = matrices.reduce((total, m) => total + Math.hypot(m.re[k], m.im[k]), 0);
      if (size === 0) continue;
      if (i !== j) sum += size;
      columns.push(j);
      at.push(k);
    }
    rows[i + 1] = columns.length;
    rowSum = Math.max(rowSum, sum);
  }
  const parts = matrices.map(({ re, im }) => ({
    re: Float64Array.from(at, (k) => re[k]),
    im: Float64Array.from(at, (k) => im[k]),
  }));
  return { rows, columns: Int32Array.from(columns), parts, rowSum };
}

interface RateParts {
  /** The generator without jumps: a constant part, one part per drive, one per rate that depends on time. */
  generator: SparseMatrix;
  /** Jump operators; those from `movingFrom` on have rates that depend on time. */
  leaps: readonly SparseMatrix[];
  movingFrom: number;
  /** Number of drives; the inputs are drives, then rates. */
  drives: number;
  /** Energies of the interaction picture. */
  frame: Float64Array | null;
  columns: number;
  /** The state is a Hermitian matrix. */
  isDensity: boolean;
}

/** d state / dt; states are real parts followed by imaginary parts. */
interface HostRate {
  /** Complex multiplications of one evaluation. */
  work: number;
  apply(state: Float64Array, time: number, inputs: Float64Array, out: Float64Array): void;
}

/** A right-hand side: G x, and for density matrices G x + (G x)^H + sum of L x L^H. */
export function rateOn({ generator, leaps, movingFrom, drives, frame, columns, isDensity }: RateParts): HostRate {
  const d = generator.rows.length - 1;
  const size = d * columns;
  const g = evaluated(generator);
  const ls = leaps.map(evaluated);
  const scratch = new Float64Array(2 * size);
  const [cos, sin] = [new Float64Array(d), new Float64Array(d)];
  const nonzeros = generator.columns.length + 2 * leaps.reduce((n, l) => n + l.columns.length, 0);
  return {
    work: nonzeros * columns + (isDensity ? size : 0) + 6 * size,
    apply(state, time, inputs, out) {
      g.sum(inputs);
      ls.forEach((l, k) => void l.scale(k < movingFrom ? 1 : Math.sqrt(inputs[drives + k - movingFrom])));
      if (frame !== null) {
        for (let i = 0; i < d; i++) {
          cos[i] = Math.cos(frame[i] * time);
          sin[i] = Math.sin(frame[i] * time);
        }
        for (const m of [g, ...ls]) m.rotate(cos, sin);
      }
      if (!isDensity) return multiply(g, state, out, columns);
      multiply(g, state, scratch, columns);
      addAdjoint(scratch, out, d);
      for (const l of ls) {
        multiply(l, state, scratch, columns);
        addRight(l, scratch, out, d);
      }
      mirror(out, d);
    },
  };
}

interface Evaluated {
  rows: Int32Array;
  columns: Int32Array;
  re: Float64Array;
  im: Float64Array;
  /** First part plus the others times inputs. */
  sum(inputs: Float64Array): void;
  /** First part times a number. */
  scale(by: number): void;
  /** Entries (i, j) times exp(i (angle_i - angle_j)). */
  rotate(cos: Float64Array, sin: Float64Array): void;
}

function evaluated({ rows, columns, parts }: SparseMatrix): Evaluated {
  const [re, im] = [new Float64Array(columns.length), new Float64Array(columns.length)];
  return {
    rows,
    columns,
    re,
    im,
    sum(inputs) {
      re.set(parts[0].re);
      im.set(parts[0].im);
      for (let k = 1; k < parts.length; k++) {
        const [part, by] = [parts[k], inputs[k - 1]];
        for (let e = 0; e < re.length; e++) {
          re[e] += by * part.re[e];
          im[e] += by * part.im[e];
        }
      }
    },
    scale(by) {
      for (let e = 0; e < re.length; e++) {
        re[e] = by * parts[0].re[e];
        im[e] = by * parts[0].im[e];
      }
    },
    rotate(cos, sin) {
      for (let i = 0; i < rows.length - 1; i++)
        for (let e = rows[i]; e < rows[i + 1]; e++) {
          const j = columns[e];
          const c = cos[i] * cos[j] + sin[i] * sin[j];
          const s = sin[i] * cos[j] - cos[i] * sin[j];
          const before = re[e];
          re[e] = c * before - s * im[e];
          im[e] = c * im[e] + s * before;
        }
    },
  };
}

/** out = m x for columns of x. Entries that are real or imaginary cost half. */
function multiply({ rows, columns, re, im }: Evaluated, x: Float64Array, out: Float64Array, width: number): void {
  const d = rows.length - 1;
  const size = d * width;
  out.fill(0);
  for (let i = 0; i < d; i++) {
    const at = i * width;
    for (let e = rows[i]; e < rows[i + 1]; e++) {
      const from = columns[e] * width;
      const a = re[e];
      const b = im[e];
      if (b === 0)
        for (let c = 0; c < width; c++) {
          out[at + c] += a * x[from + c];
          out[at + c + size] += a * x[from + c + size];
        }
      else if (a === 0)
        for (let c = 0; c < width; c++) {
          out[at + c] -= b * x[from + c + size];
          out[at + c + size] += b * x[from + c];
        }
      else
        for (let c = 0; c < width; c++) {
          const p = x[from + c];
          const q = x[from + c + size];
          out[at + c] += a * p - b * q;
          out[at + c + size] += a * q + b * p;
        }
    }
  }
}

/** Upper triangle of x + x^H. */
function addAdjoint(x: Float64Array, out: Float64Array, d: number): void {
  const size = d * d;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++) {
      const k = i * d + j;
      const t = j * d + i;
      out[k] = x[k] + x[t];
      out[k + size] = x[k + size] - x[t + size];
    }
}

/** Adds the upper triangle of x m^H. */
function addRight({ rows, columns, re, im }: Evaluated, x: Float64Array, out: Float64Array, d: number): void {
  const size = d * d;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++)
      for (let e = rows[j]; e < rows[j + 1]; e++) {
        const from = i * d + columns[e];
        const p = x[from];
        const q = x[from + size];
        out[i * d + j] += p * re[e] + q * im[e];
        out[i * d + j + size] += q * re[e] - p * im[e];
      }
}

/** The lower triangle from the upper one. */
function mirror(x: Float64Array, d: number): void {
  const size = d * d;
  for (let i = 0; i < d; i++) {
    x[i * d + i + size] = 0;
    for (let j = i + 1; j < d; j++) {
      x[j * d + i] = x[i * d + j];
      x[j * d + i + size] = -x[i * d + j + size];
    }
  }
}
