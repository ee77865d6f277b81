// State fidelities.
import { WeftError } from "@weft/core/internal/graph";
import { conj, matmul, real, Tensor } from "@weft/core/internal/tensor";
import { Operator, type OperatorLike } from "../operators/index.js";

const squares = (x: Tensor): Tensor => real(x).square().add(x.imag().square());

function vectorOf(target: Tensor | OperatorLike, dtype: Tensor["dtype"], n: number): Tensor {
  const numbers = target instanceof Tensor ? null : Operator.from(target, "target");
  const norm = numbers === null ? 1 : Math.hypot(...numbers.re, ...numbers.im);
  if (!(Math.abs(norm - 1) <= 1e-6))
    throw new WeftError(`fidelity: the target has the norm ${norm} instead of 1; normalize it`);
  const t = numbers === null ? (target as Tensor) : numbers.tensor(dtype);
  const flat = t.rank === 2 && t.shape[1] === 1 ? t.squeeze(1) : t;
  if (flat.rank !== 1 || flat.shape[0] !== n)
    throw new WeftError(`fidelity: the target must be a state [${n}], got [${t.shape.join(", ")}]`);
  return flat;
}

/**
 * Infidelity 1 - |<target|psi>|^2 of a normalized state [n], or of a density matrix [n, n]. For states it is computed from the
 * component orthogonal to the target, so that small values are accurate.
 */
export function stateInfidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  if (state.rank === 2) return stateFidelity(state, target).neg().add(1);
  const t = vectorOf(target, state.dtype, state.shape[0]);
  const overlap = conj(t).mul(state).sum();
  return squares(state.sub(t.mul(overlap))).sum();
}

/** Fidelity |<target|psi>|^2 of a state [n], or <target|rho|target> of a density matrix [n, n]. */
export function stateFidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = vectorOf(target, state.dtype, state.shape[0]);
  if (state.rank === 1) return squares(conj(t).mul(state).sum());
  const column = t.unsqueeze(1);
  return real(conj(column).mul(matmul(state, column)).sum());
}
