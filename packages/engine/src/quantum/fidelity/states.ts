// How close states are, and maps of density matrices: Choi matrices and process fidelities of open systems.
import { WeftError } from "../../graph/index.js";
import { adjoint, conj, matmul, real, Tensor, vmap } from "../../tensor/index.js";
import { Operator, type OperatorLike } from "../operators/index.js";
import { choiOfUnitary } from "./gates.js";

const squares = (x: Tensor): Tensor => real(x).square().add(x.imag().square());

function vectorOf(target: Tensor | OperatorLike, dtype: Tensor["dtype"], n: number): Tensor {
  const t = target instanceof Tensor ? target : Operator.from(target, "target").tensor(dtype);
  const flat = t.rank === 2 && t.shape[1] === 1 ? t.squeeze(1) : t;
  if (flat.rank !== 1 || flat.shape[0] !== n)
    throw new WeftError(`fidelity: the target must be a state [${n}], got [${t.shape.join(", ")}]`);
  return flat;
}

/** 1 - |<target|psi>|^2 for a normalised psi [n], from the part of psi that is not the target. */
export function stateInfidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  if (state.rank === 2) return stateFidelity(state, target).neg().add(1);
  const t = vectorOf(target, state.dtype, state.shape[0]);
  const overlap = conj(t).mul(state).sum();
  return squares(state.sub(t.mul(overlap))).sum();
}

/** |<target|psi>|^2 of a state [n], <target|rho|target> of a density matrix [n, n]. */
export function stateFidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = vectorOf(target, state.dtype, state.shape[0]);
  if (state.rank === 1) return squares(conj(t).mul(state).sum());
  const column = t.unsqueeze(1);
  return real(conj(column).mul(matmul(state, column)).sum());
}

/** The Choi matrix sum |i><j| x map(|i><j|) of a map of density matrices, each basis matrix sent through it. */
export function choi(
  map: (rho: Tensor) => Tensor,
  n: number,
  dtype: "complex64" | "complex128" = "complex128",
): Tensor {
  const units = Operator.build(n * n, n * n, (a, b) => (a === b ? 1 : 0))
    .tensor(dtype)
    .reshape([n * n, n, n]);
  // images[i n + j] = map(|i><j|); Choi[(i a), (j b)] = images[i, j][a, b]
  return vmap(map)(units)
    .reshape([n, n, n, n])
    .permute([0, 2, 1, 3])
    .reshape([n * n, n * n]);
}

/** tr(C C_target) / n^2: the process fidelity with a unitary target. */
export function choiFidelity(matrix: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = target instanceof Tensor ? target : Operator.from(target, "target").tensor(matrix.dtype);
  const n = t.shape[0];
  return real(
    matmul(adjoint(choiOfUnitary(t)), matrix)
      .diagonal()
      .sum(),
  ).div(n * n);
}

/** The average fidelity that belongs to a process fidelity, for maps that keep the trace. */
export const averageOfProcess = (process: Tensor, n: number): Tensor =>
  process
    .mul(n)
    .add(1)
    .div(n + 1);
