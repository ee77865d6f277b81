// Basis states that an evolution can reach: where excitations or parities are conserved, these are few, and operators on them are
// small. Found from the nonzero entries of the operators.
import { Operator } from "../operators/index.js";

/** Whether an entry is not zero. */
const isSet = ({ re, im }: Operator, k: number): boolean => re[k] !== 0 || im[k] !== 0;

/**
 * Ascending indices of the basis states that states with the support of `start` can reach under generators, jumps L, and their decay
 * L^H L.
 */
export function reachable(start: Operator, generators: readonly Operator[], jumps: readonly Operator[]): number[] {
  const d = start.rows;
  const groups: number[][] = [];
  /** Numbers of the groups that a state leads to; a group is the states of one row of a jump, which L^H L connects. */
  const leads = Array.from({ length: d }, () => ({ states: [] as number[], groups: [] as number[] }));
  for (const m of [...generators, ...jumps])
    for (let i = 0; i < d; i++) for (let j = 0; j < d; j++) if (isSet(m, i * d + j) && i !== j) leads[j].states.push(i);
  for (const m of jumps)
    for (let i = 0; i < d; i++) {
      const row: number[] = [];
      for (let j = 0; j < d; j++) if (isSet(m, i * d + j)) row.push(j);
      if (row.length < 2) continue;
      for (const j of row) leads[j].groups.push(groups.length);
      groups.push(row);
    }
  const isFound = new Uint8Array(d);
  const isOpen = new Uint8Array(groups.length).fill(1);
  const waiting: number[] = [];
  const visit = (states: readonly number[]): void => {
    for (const at of states) {
      if (isFound[at] === 1) continue;
      isFound[at] = 1;
      waiting.push(at);
    }
  };
  for (let i = 0; i < d; i++)
    for (let j = 0; j < start.columns; j++)
      if (isSet(start, i * start.columns + j)) visit(start.columns === d && d > 1 ? [i, j] : [i]);
  // A matrix of zeros stays one.
  if (waiting.length === 0) visit([0]);
  for (let at = waiting.pop(); at !== undefined; at = waiting.pop()) {
    visit(leads[at].states);
    for (const group of leads[at].groups)
      if (isOpen[group] === 1) {
        isOpen[group] = 0;
        visit(groups[group]);
      }
  }
  return Array.from(isFound.keys()).filter((at) => isFound[at] === 1);
}

/** Rows and columns of a matrix; null: all columns. */
export function restricted(m: Operator, rows: readonly number[], columns: readonly number[] | null): Operator {
  const width = columns?.length ?? m.columns;
  const out = Operator.zeros(rows.length, width);
  rows.forEach((row, i) => {
    for (let j = 0; j < width; j++) {
      const from = row * m.columns + (columns === null ? j : columns[j]);
      out.re[i * width + j] = m.re[from];
      out.im[i * width + j] = m.im[from];
    }
  });
  return out;
}

/** A state on the whole space from one on some basis states. */
export function embedded(x: Operator, states: readonly number[], d: number, isDensity: boolean): Operator {
  const out = Operator.zeros(d, isDensity ? d : x.columns);
  for (let i = 0; i < x.rows; i++)
    for (let j = 0; j < x.columns; j++) {
      const to = states[i] * out.columns + (isDensity ? states[j] : j);
      out.re[to] = x.re[i * x.columns + j];
      out.im[to] = x.im[i * x.columns + j];
    }
  return out;
}

/** L^H L from the nonzero entries of L. */
export function squareOf(l: Operator): Operator {
  const n = l.columns;
  const out = Operator.zeros(n);
  for (let i = 0; i < l.rows; i++) {
    const row: number[] = [];
    for (let j = 0; j < n; j++) if (isSet(l, i * n + j)) row.push(j);
    for (const k of row)
      for (const j of row) {
        const [p, q] = [i * n + k, i * n + j];
        out.re[k * n + j] += l.re[p] * l.re[q] + l.im[p] * l.im[q];
        out.im[k * n + j] += l.re[p] * l.im[q] - l.im[p] * l.re[q];
      }
  }
  return out;
}
