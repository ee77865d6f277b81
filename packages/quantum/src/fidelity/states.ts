// State fidelities.
import { WeftError } from "@weft/core/internal/graph";
import { abs, conj, matmul, real, Tensor, where } from "@weft/core/internal/tensor";
import { concreteValues } from "../concrete.js";
import { Operator, type OperatorLike } from "../operators/index.js";

const squares = (x: Tensor): Tensor => real(x).square().add(x.imag().square());

function vectorOf(target: Tensor | OperatorLike, dtype: Tensor["dtype"], n: number): Tensor {
  const numbers = target instanceof Tensor ? null : Operator.from(target, "target");
  // Tensors that would have to be computed for it are not read.
  const values =
    target instanceof Tensor
      ? target.node.value === null
        ? null
        : concreteValues(target)
      : [...numbers!.re, ...numbers!.im];
  const norm = values === null ? 1 : Math.hypot(...values);
  if (!(Math.abs(norm - 1) <= (target instanceof Tensor && target.dtype === "complex64" ? 1e-4 : 1e-6)))
    throw new WeftError(`fidelity: the target has the norm ${norm} instead of 1; normalize it`);
  const t = numbers === null ? (target as Tensor) : numbers.tensor(dtype);
  const flat = t.rank === 2 && t.shape[1] === 1 ? t.squeeze(1) : t;
  if (flat.rank !== 1 || flat.shape[0] !== n)
    throw new WeftError(`fidelity: the target must be a state [${n}], got [${t.shape.join(", ")}]`);
  return flat;
}

/** What a norm may miss of 1 by rounding and integration. */
const roomOf = ({ dtype }: Tensor): number => (dtype === "complex64" ? 1e-4 : 1e-9);

/**
 * Infidelity 1 - |<target|psi>|^2 of a state [n], or of a density matrix [n, n]. For states it is computed from the
 * component orthogonal to the target, so that small values are accurate; what the norm of the state misses of 1, such as population that
 * left the computational states, is missed.
 */
export function stateInfidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  if (state.rank === 2) return stateFidelity(state, target).neg().add(1);
  const t = vectorOf(target, state.dtype, state.shape[0]);
  const overlap = conj(t).mul(state).sum();
  const lost = squares(state).sum().neg().add(1);
  const missed = where(abs(lost).greater(roomOf(state)), lost, 0);
  return squares(state.sub(t.mul(overlap)))
    .sum()
    .add(missed);
}

/** Fidelity |<target|psi>|^2 of a state [n], or <target|rho|target> of a density matrix [n, n]. */
export function stateFidelity(state: Tensor, target: Tensor | OperatorLike): Tensor {
  const t = vectorOf(target, state.dtype, state.shape[0]);
  if (state.rank === 1) return squares(conj(t).mul(state).sum());
  const column = t.unsqueeze(1);
  return real(conj(column).mul(matmul(state, column)).sum());
}
