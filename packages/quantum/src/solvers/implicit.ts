// Diagonally implicit Runge-Kutta steps of linear equations d y / dt = A(t) y, for stiff generators: every stage solves a linear
// system, so that fast decay does not limit the step.
import { inv, matmul, solve, type Tensor } from "@weft/core/internal/tensor";
import type { Tableau } from "./tableaus.js";

/** The generator [n, n] at a time for the inputs of a piece. */
type Generator = (time: Tensor, u: Tensor) => Tensor;

/** Largest number of entries of a state: the linear systems have this size. */
export const implicitLimit = 1024;

/**
 * Stages of a method whose stages share one diagonal coefficient. The error estimate passes through the same linear system, which
 * removes the part of it that decays at once.
 */
export function implicitStages({ a, c, errors }: Tableau, generator: Generator, isConstant: boolean, eye: Tensor) {
  const [[gamma]] = a;
  return (y: Tensor, time: Tensor, h: Tensor, u: Tensor): { next: Tensor; estimates: Tensor[] } => {
    const n = y.size;
    const column = y.reshape([n, 1]);
    const ks: Tensor[] = [];
    const combined = (row: readonly number[]): Tensor | null =>
      ks.reduce<Tensor | null>((sum, k, j) => {
        if (row[j] === undefined || row[j] === 0) return sum;
        const part = k.mul(h.mul(row[j]));
        return sum === null ? part : sum.add(part);
      }, null);
    const systemOf = (at: Tensor): { matrix: Tensor; solved(b: Tensor): Tensor } => {
      const matrix = generator(at, u);
      const system = eye.sub(matrix.mul(h.mul(gamma)));
      // A constant generator has one system for all stages.
      const inverse = isConstant ? inv(system) : null;
      return { matrix, solved: (b) => (inverse === null ? solve(system, b) : matmul(inverse, b)) };
    };
    const fixed = isConstant ? systemOf(time) : null;
    let last = fixed;
    for (let stage = 0; stage < c.length; stage++) {
      const offset = combined(a[stage].slice(0, stage));
      last = fixed ?? systemOf(time.add(h.mul(c[stage])));
      const base = offset === null ? column : column.add(offset);
      ks.push(last.solved(matmul(last.matrix, base)));
    }
    const next = column.add(combined(a[a.length - 1])!);
    const estimates = errors.map((row) => last!.solved(combined(row)!).reshape(y.shape));
    return { next: next.reshape(y.shape), estimates };
  };
}
