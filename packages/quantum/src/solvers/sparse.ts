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

/** d state / dt; states are real parts followed by imaginary parts, density matrices as `packed` says. */
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
  // A jump operator that turns as a whole leaves L x L^H as it is.
  const turning = frame === null ? [] : [g, ...ls.filter((_, k) => !turnsAsWhole(leaps[k], frame))];
  const isReal = ls.map((l, k) => !turning.includes(l) && leaps[k].parts[0].im.every((x) => x === 0));
  const [whole, scratch] = isDensity ? [new Float64Array(2 * size), new Float64Array(2 * size)] : [null, null];
  const [cos, sin] = [new Float64Array(d), new Float64Array(d)];
  const nonzeros =
    generator.columns.length + leaps.reduce((n, l) => n + (hasOnePerRow(l) ? 0.5 : 2) * l.columns.length, 0);
  return {
    work: nonzeros * columns + (isDensity ? 4 : 6) * size,
    apply(state, time, inputs, out) {
      g.sum(inputs);
      ls.forEach((l, k) => void l.scale(k < movingFrom ? 1 : Math.sqrt(inputs[drives + k - movingFrom])));
      if (frame !== null) {
        for (let i = 0; i < d; i++) {
          cos[i] = Math.cos(frame[i] * time);
          sin[i] = Math.sin(frame[i] * time);
        }
        for (const m of turning) m.rotate(cos, sin);
      }
      if (whole === null) return multiply(g, state, out, columns);
      unpack(state, whole, d);
      multiply(g, whole, scratch, columns);
      addAdjoint(scratch, out, d);
      for (const [k, l] of ls.entries())
        if (l.hasOnePerRow) addSandwich(l, whole, out, d, isReal[k]);
        else {
          multiply(l, whole, scratch, columns);
          addRight(l, scratch, out, d);
        }
    },
  };
}

/** Whether all entries of a matrix have one frequency in the interaction picture. */
function turnsAsWhole({ rows, columns }: SparseMatrix, energies: Float64Array): boolean {
  const frequencies: number[] = [];
  for (let i = 0; i < energies.length; i++)
    for (let e = rows[i]; e < rows[i + 1]; e++) frequencies.push(energies[i] - energies[columns[e]]);
  const room = 1e-14 * energies.reduce((most, x) => Math.max(most, Math.abs(x)), 0);
  return frequencies.every((x) => Math.abs(x - frequencies[0]) <= room);
}

/** Whether no row has two entries, as in jump operators of oscillators and spins. */
const hasOnePerRow = ({ rows }: Pick<SparseMatrix, "rows">): boolean =>
  rows.every((r, i) => i === 0 || r - rows[i - 1] <= 1);

/**
 * A Hermitian matrix as the rows of its upper triangle, real parts and then imaginary parts: sums of stages and estimates of errors cost
 * half.
 */
export function packed({ re, im }: Pick<Operator, "re" | "im">, d: number): Float64Array {
  const n = (d * (d + 1)) / 2;
  const out = new Float64Array(2 * n);
  let k = 0;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++, k++) {
      out[k] = re[i * d + j];
      out[k + n] = i === j ? 0 : im[i * d + j];
    }
  return out;
}

/** Real parts, then imaginary parts of a packed matrix. */
export function unpack(x: Float64Array, out: Float64Array, d: number): void {
  const size = d * d;
  const n = x.length / 2;
  let k = 0;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++, k++) {
      const a = x[k];
      const b = x[k + n];
      const u = i * d + j;
      const v = j * d + i;
      out[u] = a;
      out[v] = a;
      out[u + size] = b;
      out[v + size] = -b;
    }
}

interface Evaluated {
  rows: Int32Array;
  columns: Int32Array;
  re: Float64Array;
  im: Float64Array;
  hasOnePerRow: boolean;
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
    hasOnePerRow: hasOnePerRow({ rows }),
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

/** out = m x for columns of x: two entries of a row at a time, and imaginary ones at half the cost. */
function multiply({ rows, columns, re, im }: Evaluated, x: Float64Array, out: Float64Array, width: number): void {
  const d = rows.length - 1;
  const size = d * width;
  out.fill(0);
  for (let i = 0; i < d; i++) {
    const at = i * width;
    const end = rows[i + 1];
    for (let e = rows[i]; e < end; e += 2) {
      const isLast = e + 1 === end;
      const f = columns[e] * width;
      const g = isLast ? f : columns[e + 1] * width;
      const a = re[e];
      const b = im[e];
      const a2 = isLast ? 0 : re[e + 1];
      const b2 = isLast ? 0 : im[e + 1];
      if (a === 0 && a2 === 0)
        for (let c = 0; c < width; c++) {
          out[at + c] -= b * x[f + c + size] + b2 * x[g + c + size];
          out[at + c + size] += b * x[f + c] + b2 * x[g + c];
        }
      else
        for (let c = 0; c < width; c++) {
          const p = x[f + c];
          const q = x[f + c + size];
          const r = x[g + c];
          const s = x[g + c + size];
          out[at + c] += a * p - b * q + (a2 * r - b2 * s);
          out[at + c + size] += a * q + b * p + (a2 * s + b2 * r);
        }
    }
  }
}

/** x + x^H, packed. */
function addAdjoint(x: Float64Array, out: Float64Array, d: number): void {
  const size = d * d;
  const n = out.length / 2;
  let k = 0;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++, k++) {
      const u = i * d + j;
      const v = j * d + i;
      out[k] = x[u] + x[v];
      out[k + n] = x[u + size] - x[v + size];
    }
}

/** Adds x m^H, packed. */
function addRight({ rows, columns, re, im }: Evaluated, x: Float64Array, out: Float64Array, d: number): void {
  const size = d * d;
  const n = out.length / 2;
  let k = 0;
  for (let i = 0; i < d; i++)
    for (let j = i; j < d; j++, k++)
      for (let e = rows[j]; e < rows[j + 1]; e++) {
        const from = i * d + columns[e];
        const p = x[from];
        const q = x[from + size];
        out[k] += p * re[e] + q * im[e];
        if (i !== j) out[k + n] += q * re[e] - p * im[e];
      }
}

/** Adds m x m^H, packed, for a matrix m with at most one entry per row. */
function addSandwich(
  { rows, columns, re, im }: Evaluated,
  x: Float64Array,
  out: Float64Array,
  d: number,
  isReal: boolean,
): void {
  const size = d * d;
  const n = out.length / 2;
  for (let i = 0; i < d; i++) {
    const e = rows[i];
    if (e === rows[i + 1]) continue;
    const a = re[e];
    const b = im[e];
    const row = columns[e] * d;
    // Where row i of the triangle would start with column 0.
    const at = i * d - (i * (i + 1)) / 2;
    out[at + i] += (a * a + b * b) * x[row + columns[e]];
    if (isReal) {
      for (let j = i + 1; j < d; j++) {
        const f = rows[j];
        if (f === rows[j + 1]) continue;
        const c = a * re[f];
        out[at + j] += c * x[row + columns[f]];
        out[at + j + n] += c * x[row + columns[f] + size];
      }
      continue;
    }
    for (let j = i + 1; j < d; j++) {
      const f = rows[j];
      if (f === rows[j + 1]) continue;
      const p = x[row + columns[f]];
      const q = x[row + columns[f] + size];
      // Entry i times the conjugate of entry j.
      const c = a * re[f] + b * im[f];
      const s = b * re[f] - a * im[f];
      out[at + j] += c * p - s * q;
      out[at + j + n] += c * q + s * p;
    }
  }
}
