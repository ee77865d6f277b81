// Quantum channels as Choi matrices, and their fidelity with a gate. Compensation is applied to the target instead of the
// channel: the fidelity is the same and the channel needs no second evolution.
import { adjoint, conj, matmul, real, stopGradient, Tensor, trace, vmap } from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";
import { hermitianBasis } from "../solvers/internal.js";
import { type Compensation, singleQubitGates, virtualZAngles } from "./compensate.js";
import { choiOfUnitary, targetOf, unitaryTarget } from "./gates.js";

/**
 * Choi matrix sum |i><j| x map(|i><j|) of a map of density matrices. The map is only applied to Hermitian matrices, because
 * solvers rely on that.
 */
export function choi(
  map: (rho: Tensor) => Tensor,
  n: number,
  dtype: "complex64" | "complex128" = "complex128",
): Tensor {
  const basis = hermitianBasis(n);
  const rows = Operator.build(n * n, n * n, (k, at) => basis[k].at(Math.floor(at / n), at % n)).tensor(dtype);
  const images = vmap(map)(rows.reshape([n * n, n, n])) as Tensor;
  // |i><j| = sum of (B_k)_ji B_k: the images of |i><j|, each [a, b].
  const units = matmul(conj(rows).T, images.reshape([n * n, n * n]));
  return units
    .reshape([n, n, n, n])
    .permute([0, 2, 1, 3])
    .reshape([n * n, n * n]);
}

const goalOf = (target: Tensor | OperatorLike, matrix: Tensor): Tensor =>
  target instanceof Tensor ? target : unitaryTarget(target).tensor(matrix.dtype);

/** Process fidelity tr(C C_target) / n^2 of a Choi matrix with a unitary target. */
export function choiFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = goalOf(target, matrix);
  const n = t.shape[0];
  return real(
    matmul(adjoint(choiOfUnitary(t)), matrix)
      .diagonal()
      .sum(),
  ).div(n * n);
}

/** Population outside the computational states after the channel, averaged over them. */
export function choiLeakage(matrix: Tensor): Tensor {
  const n = Math.sqrt(matrix.shape[0]);
  return real(trace(matrix)).div(-n).add(1);
}

/** Fidelity of a Choi matrix with a unitary target, averaged over all pure states; leaked population counts as lost. */
export function choiAverageFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const n = Math.sqrt(matrix.shape[0]);
  return choiFidelity(matrix, target)
    .mul(n)
    .add(real(trace(matrix)).div(n))
    .div(n + 1);
}

/** Average fidelity from a process fidelity, for trace-preserving maps. */
export const averageOfProcess = (process: Tensor, n: number): Tensor =>
  process
    .mul(n)
    .add(1)
    .div(n + 1);

/** Number of linearizations around the latest target; with weak decay the first is nearly exact. */
const refinements = 4;

/**
 * Target multiplied by the inverses of the best single-qubit gates, so that comparing a channel with it includes the
 * compensation. The fidelity is a convex function of the target, so no linearization lowers it. The corrections are constants
 * of differentiation.
 */
export function compensatedTarget(
  matrix: Tensor,
  target: Tensor | OperatorLike,
  kind: Compensation,
  options: { rounds?: number } = {},
): Tensor {
  const goal = goalOf(target, matrix);
  if (kind === "none") return goal;
  const map = stopGradient(matrix);
  const n = goal.shape[0];
  let best = goal;
  for (let k = 0; k < refinements; k++) {
    // The map applied to the vectorized target is the gate to fit.
    const block = matmul(map, best.T.reshape([n * n, 1]))
      .reshape([n, n])
      .T.div(n);
    if (kind === "virtual-z") {
      const { after, before, phases } = virtualZAngles(block, goal, options);
      best = conj(phases(after))
        .unsqueeze(1)
        .mul(targetOf(goal, block))
        .mul(conj(phases(before)).unsqueeze(0));
    } else {
      const { after, before } = singleQubitGates(block, goal, options);
      best = matmul(adjoint(after), matmul(targetOf(goal, block), adjoint(before)));
    }
  }
  return stopGradient(best);
}
