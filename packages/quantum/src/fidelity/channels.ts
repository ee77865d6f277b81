// Quantum channels as Choi matrices, and their fidelity with a gate. Compensation is applied to the target instead of the
// channel: the fidelity is the same and the channel needs no second evolution.
import {
  abs,
  adjoint,
  conj,
  matmul,
  real,
  stopGradient,
  type Tensor,
  tensor,
  trace,
  vmap,
  where,
} from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";
import { hermitianBasis } from "../solvers/internal.js";
import { type Compensation, singleQubitGates, virtualZAngles } from "./compensate.js";
import { choiOfUnitary, goalOf, targetOf } from "./gates.js";

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

/** Process fidelity tr(C C_target) / n^2 of a Choi matrix with a unitary target. */
export function choiFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = goalOf(target, matrix.dtype);
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

/** Multiplications by a Choi matrix that leave its largest component, which for a gate is far larger than the others. */
const powers = 8;
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
  const goal = goalOf(target, matrix.dtype);
  if (kind === "none") return goal;
  const map = stopGradient(matrix);
  const n = goal.shape[0];
  const fitted = (vector: Tensor): Tensor => vector.reshape([n, n]).T;
  let best: Tensor | null = null;
  for (let k = 0; k < refinements; k++) {
    // The map applied to the vectorized target is the gate to fit; at first the target may be orthogonal to the map.
    const block: Tensor =
      best === null ? fitted(mainVector(map, n)) : fitted(matmul(map, best.T.reshape([n * n, 1]))).div(n);
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
  const quality = (x: Tensor): Tensor => {
    const vector = x.T.reshape([n * n, 1]);
    return real(conj(vector).mul(matmul(map, vector)).sum());
  };
  return stopGradient(where(quality(best!).greaterEqual(quality(goal)), best!, goal));
}

/** Eigenvector of the largest eigenvalue of a Choi matrix with the norm of a unitary matrix, by powers of the matrix. */
function mainVector(map: Tensor, n: number): Tensor {
  const size = n * n;
  const probe = tensor(
    Array.from({ length: size }, (_, k) => Math.cos(1 + k * k)),
    { dtype: "float64" },
  );
  let vector = probe.cast(map.dtype).reshape([size, 1]);
  for (let k = 0; k < powers; k++) {
    const image = matmul(map, vector);
    vector = image.mul(abs(image).square().sum().rsqrt().mul(Math.sqrt(n)).cast(map.dtype));
  }
  return vector;
}
