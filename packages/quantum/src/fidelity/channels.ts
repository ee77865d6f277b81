// Maps of density matrices as Choi matrices, and how close they are to a gate: what decay leaves of it. Compensation turns the
// target instead of the map, which is the same and needs no second evolution.
import { adjoint, conj, matmul, real, stopGradient, Tensor, trace, vmap } from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";
import { hermitianBasis } from "../solvers/internal.js";
import { type Compensation, singleQubitGates, virtualZAngles } from "./compensate.js";
import { choiOfUnitary, targetOf } from "./gates.js";

/**
 * The Choi matrix sum |i><j| x map(|i><j|) of a map of density matrices. What is sent through the map is a Hermitian basis:
 * solvers may count on it.
 */
export function choi(
  map: (rho: Tensor) => Tensor,
  n: number,
  dtype: "complex64" | "complex128" = "complex128",
): Tensor {
  const basis = hermitianBasis(n);
  const rows = Operator.build(n * n, n * n, (k, at) => basis[k].at(Math.floor(at / n), at % n)).tensor(dtype);
  const images = vmap(map)(rows.reshape([n * n, n, n])) as Tensor;
  // |i><j| = sum of (B_k)_ji B_k: images of units by i and j, each [a, b].
  const units = matmul(conj(rows).T, images.reshape([n * n, n * n]));
  return units
    .reshape([n, n, n, n])
    .permute([0, 2, 1, 3])
    .reshape([n * n, n * n]);
}

const goalOf = (target: Tensor | OperatorLike, matrix: Tensor): Tensor =>
  target instanceof Tensor ? target : Operator.from(target, "target").tensor(matrix.dtype);

/** tr(C C_target) / n^2: the process fidelity with a unitary target. */
export function choiFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = goalOf(target, matrix);
  const n = t.shape[0];
  return real(
    matmul(adjoint(choiOfUnitary(t)), matrix)
      .diagonal()
      .sum(),
  ).div(n * n);
}

/** Weight that has left the computational states, averaged over them. */
export function choiLeakage(matrix: Tensor): Tensor {
  const n = Math.sqrt(matrix.shape[0]);
  return real(trace(matrix)).div(-n).add(1);
}

/** The fidelity averaged over all pure states; what leaked counts as lost. */
export function choiAverageFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const n = Math.sqrt(matrix.shape[0]);
  return choiFidelity(matrix, target)
    .mul(n)
    .add(real(trace(matrix)).div(n))
    .div(n + 1);
}

/** The average fidelity that belongs to a process fidelity, for maps that keep the trace. */
export const averageOfProcess = (process: Tensor, n: number): Tensor =>
  process
    .mul(n)
    .add(1)
    .div(n + 1);

/** Times that the map is linearized around the target found last; decay leaves little to improve after the first. */
const refinements = 4;

/**
 * The target with the best single-qubit gates around it taken away: a map compared with it is compared as if they had been
 * applied. The fidelity is a convex form of the target, so each linearization can only go up. Constants to the gradient.
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
    // The map on the column of the target is the gate that the target must resemble.
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
