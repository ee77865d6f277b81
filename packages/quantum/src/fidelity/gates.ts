// Gates by name, and figures of merit of a block that may leak: average and process fidelity, Pauli errors, Choi matrices.
// Infidelities are computed from the deviation from the target, so that values of 1e-10 are accurate.
import { WeftError } from "@weft/core/internal/graph";
import { abs, adjoint, conj, matmul, real, Tensor, trace, where } from "@weft/core/internal/tensor";
import { concreteOperator } from "../concrete.js";
import {
  hadamard,
  identityOperator,
  kronAll,
  Operator,
  type OperatorLike,
  pauli,
  pauliLabels,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "../operators/index.js";

const i = { re: 0, im: 1 };
const rotation = (axis: Operator, angle: number): Operator =>
  identityOperator(2)
    .scale(Math.cos(angle / 2))
    .add(axis.scale({ re: 0, im: -Math.sin(angle / 2) }));
const diagonal = (...entries: (number | typeof i)[]): Operator =>
  Operator.build(entries.length, entries.length, (a, b) => (a === b ? entries[a] : 0));
const permutation = (...to: number[]): Operator =>
  Operator.build(to.length, to.length, (a, b) => (to[b] === a ? 1 : 0));

/** Gates of one and two qubits by name; the first qubit has the slowest index. */
const gateTable: Readonly<Record<string, Operator>> = {
  I: identityOperator(2),
  X: sigmaX,
  Y: sigmaY,
  Z: sigmaZ,
  H: hadamard,
  S: diagonal(1, i),
  T: diagonal(1, { re: Math.SQRT1_2, im: Math.SQRT1_2 }),
  SX: rotation(sigmaX, Math.PI / 2),
  CNOT: permutation(0, 1, 3, 2),
  CZ: diagonal(1, 1, 1, -1),
  SWAP: permutation(0, 2, 1, 3),
  ISWAP: Operator.from([
    [1, 0, 0, 0],
    [0, 0, i, 0],
    [0, i, 0, 0],
    [0, 0, 0, 1],
  ]),
  // exp(-i pi/4 Z x X): the cross-resonance gate, a CNOT up to single-qubit gates.
  ZX90: identityOperator(4)
    .scale(Math.SQRT1_2)
    .add(pauli("ZX").scale({ re: 0, im: -Math.SQRT1_2 })),
};

/**
 * A gate by name: "X", "CNOT", or a Kronecker product such as "X*X*I".
 *
 * @param name - Names of `I X Y Z H S T SX CNOT CZ SWAP ISWAP ZX90`, joined by `*`.
 * @param qubits - Repeats the gate on all qubits: `gate("X", 4)`.
 *
 * @example
 * ```ts
 * import { averageGateFidelity, gate } from "@weft/quantum";
 *
 * const bell = gate("CNOT").mul(gate("H*I"));
 * console.log(bell.at(3, 0)); // { re: 0.7071067811865476, im: 0 }
 * console.log(averageGateFidelity(gate("X*I").tensor(), gate("I", 2)).itemSync()); // 0.2
 * ```
 */
export function gate(name: string, qubits?: number): Operator {
  const factors = name.split("*").map((part) => {
    const found = gateTable[part.trim().toUpperCase()];
    if (found === undefined)
      throw new WeftError(
        `gate: there is no "${part.trim()}"; known: ${Object.keys(gateTable).join(", ")}, joined by *`,
      );
    return found;
  });
  const product = kronAll(factors);
  if (qubits === undefined || product.rows === 2 ** qubits) return product;
  const each = Math.log2(product.rows);
  if (!Number.isInteger(qubits / each))
    throw new WeftError(`gate: ${name} acts on ${each} qubits, which does not divide ${qubits}`);
  return kronAll(Array.from({ length: qubits / each }, () => product));
}

/** The block of the computational states of an evolution. */
interface HasUnitary {
  unitary: Tensor;
}
/** A gate [n, n] on the computational states, or an evolution that has one. */
export type Unitary = Tensor | HasUnitary;

export const blockOf = (u: Unitary): Tensor => (u instanceof Tensor ? u : u.unitary);

/** Targets that were checked before. */
const unitaryTargets = new WeakSet<object>();

/** A target of numbers, which must be unitary: the fidelity with another matrix would not be in [0, 1]. */
function unitaryTarget(target: OperatorLike, room = 1e-6): Operator {
  const operator = Operator.from(target, "target");
  if (unitaryTargets.has(target)) return operator;
  const error = operator.unitaryError();
  if (operator.rows !== operator.columns || !(error <= room))
    throw new WeftError(
      `fidelity: the target is not unitary, M^H M differs from the identity by ${error.toExponential(1)}`,
    );
  unitaryTargets.add(target);
  return operator;
}

/** A target as a tensor. One whose values are known must be unitary. */
export function goalOf(target: Tensor | OperatorLike, dtype: Tensor["dtype"]): Tensor {
  if (!(target instanceof Tensor)) return unitaryTarget(target).tensor(dtype);
  if (target.node.value !== null && !unitaryTargets.has(target)) {
    const numbers = concreteOperator(target);
    if (numbers !== null) unitaryTarget(numbers, target.dtype === "complex64" ? 1e-4 : 1e-6);
    unitaryTargets.add(target);
  }
  return target;
}

export function targetOf(target: Tensor | OperatorLike, block: Tensor): Tensor {
  const t = goalOf(target, block.dtype);
  const [n, m] = block.shape.slice(-2);
  if (n !== m) throw new WeftError(`fidelity: the block must be square, got ${n}x${m}`);
  if (t.shape[t.rank - 1] !== n || t.shape[t.rank - 2] !== n)
    throw new WeftError(`fidelity: the gate is ${n}x${n}, the target ${t.shape[t.rank - 2]}x${t.shape[t.rank - 1]}`);
  return t;
}

/** Deviation target^H U e^{-i phase} - 1 with the global phase removed. */
function deviation(u: Unitary, target: Tensor | OperatorLike): { error: Tensor; n: number } {
  const block = blockOf(u);
  const m = matmul(adjoint(targetOf(target, block)), block);
  const n = m.shape[m.rank - 1];
  const total = trace(m);
  const size = abs(total);
  const still = size.equal(0);
  const turn = where(still, 1, conj(total).div(where(still, 1, size)));
  return { error: m.mul(turn.unsqueeze(-1).unsqueeze(-1)).sub(identityOperator(n).tensor(block.dtype)), n };
}

const sumSquares = (x: Tensor): Tensor => real(x).square().add(x.imag().square()).sum([-2, -1]);

/**
 * Average gate infidelity 1 - F with F = (tr(U^H U) + |tr(V^H U)|^2) / (n (n + 1)): the mean over all pure states. Leaked
 * population counts as lost.
 */
export function averageGateInfidelity(u: Unitary, target: Tensor | OperatorLike): Tensor {
  const { error, n } = deviation(u, target);
  const drift = real(trace(error));
  return drift
    .mul(2 * (n + 1))
    .add(sumSquares(error))
    .add(drift.square())
    .div(-n * (n + 1));
}
/** Average gate fidelity; see `averageGateInfidelity`. */
export const averageGateFidelity = (u: Unitary, target: Tensor | OperatorLike): Tensor =>
  averageGateInfidelity(u, target).neg().add(1);

/** Process infidelity 1 - |tr(V^H U)|^2 / n^2. */
export function processInfidelity(u: Unitary, target: Tensor | OperatorLike): Tensor {
  const { error, n } = deviation(u, target);
  const drift = real(trace(error));
  return drift
    .mul(2 * n)
    .add(drift.square())
    .div(-n * n);
}
/** Process fidelity |tr(V^H U)|^2 / n^2. */
export const processFidelity = (u: Unitary, target: Tensor | OperatorLike): Tensor =>
  processInfidelity(u, target).neg().add(1);

/** Population outside the computational states after the gate, averaged over them. */
export function leakage(u: Unitary): Tensor {
  const block = blockOf(u);
  const n = block.shape[block.rank - 1];
  return sumSquares(block).div(-n).add(1);
}

/** Weights |tr(P E)|^2 / 4^n of the error E = V^H U for every Pauli product P. They add up to 1 for a unitary E. */
export function pauliErrors(u: Unitary, target: Tensor | OperatorLike): { labels: string[]; weights: Tensor } {
  const block = blockOf(u);
  const error = matmul(adjoint(targetOf(target, block)), block);
  const n = Math.log2(block.shape[block.rank - 1]);
  if (!Number.isInteger(n)) throw new WeftError("pauliErrors: needs qubits, the block's size is not a power of two");
  const labels = pauliLabels(n);
  const size = 2 ** n;
  const rows = Operator.build(4 ** n, 4 ** n, (a, k) => pauli(labels[a]).at(k % size, Math.floor(k / size)));
  const overlaps = matmul(rows.tensor(block.dtype), error.reshape([4 ** n, 1])).squeeze(1);
  return {
    labels,
    weights: real(overlaps)
      .square()
      .add(overlaps.imag().square())
      .div(4 ** n),
  };
}

/** Choi matrix sum |i><j| x U |i><j| U^H, with trace n, of a unitary. */
export function choiOfUnitary(u: Unitary): Tensor {
  const block = blockOf(u);
  const n = block.shape[0];
  const column = block.T.reshape([n * n, 1]);
  return matmul(column, adjoint(column));
}
