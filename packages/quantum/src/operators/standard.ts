// Standard operators and states as host matrices.
import { WeftError } from "@weft/core/internal/graph";
import { kronAll, Operator, type OperatorEntry } from "./operator.js";

const i: OperatorEntry = { re: 0, im: 1 };
const minusI: OperatorEntry = { re: 0, im: -1 };

/** Identity matrix of size n. */
export const identityOperator = (n: number): Operator => Operator.build(n, n, (a, b) => (a === b ? 1 : 0));

/** Pauli X. */
export const sigmaX = Operator.from([
  [0, 1],
  [1, 0],
]);
/** Pauli Y. */
export const sigmaY = Operator.from([
  [0, minusI],
  [i, 0],
]);
/** Pauli Z. */
export const sigmaZ = Operator.from([
  [1, 0],
  [0, -1],
]);
/** Lowering operator |0><1| of a qubit. */
export const sigmaMinus = Operator.from([
  [0, 1],
  [0, 0],
]);
/** Hadamard gate. */
export const hadamard = Operator.from([
  [Math.SQRT1_2, Math.SQRT1_2],
  [Math.SQRT1_2, -Math.SQRT1_2],
]);

/** Annihilation operator of an oscillator truncated to n levels. */
export const destroy = (n: number): Operator => Operator.build(n, n, (a, b) => (b === a + 1 ? Math.sqrt(b) : 0));
/** Number operator diag(0, 1, ..., n - 1). */
export const numberOperator = (n: number): Operator => Operator.build(n, n, (a, b) => (a === b ? a : 0));

/** Basis state |level> of n levels as a column. */
export function basisState(n: number, level: number): Operator {
  if (!Number.isInteger(level) || level < 0 || level >= n)
    throw new WeftError(`basisState: there is no level ${level} among ${n}`);
  return Operator.build(n, 1, (a) => (a === level ? 1 : 0));
}

/** Coherent state |alpha>, truncated to n levels and normalized. */
export function coherentState(n: number, alpha: number): Operator {
  const amplitudes = [1];
  for (let k = 1; k < n; k++) amplitudes.push((amplitudes[k - 1] * alpha) / Math.sqrt(k));
  const norm = Math.hypot(...amplitudes);
  return Operator.build(n, 1, (a) => amplitudes[a] / norm);
}

/** Density matrix |psi><psi| of a pure state. */
export const densityOf = (state: Operator): Operator => state.mul(state.adjoint());

/** Operator on one site of a product space with dimensions `dims`. */
export const onSite = (operator: Operator, site: number, dims: readonly number[]): Operator =>
  kronAll(dims.map((d, k) => (k === site ? operator : identityOperator(d))));

const pauliByName: Record<string, Operator> = { I: identityOperator(2), X: sigmaX, Y: sigmaY, Z: sigmaZ };

/** Kronecker product of Pauli matrices by letters, such as `pauli("XIZ")`. */
export function pauli(letters: string): Operator {
  if (!/^[IXYZ]+$/.test(letters)) throw new WeftError(`pauli: "${letters}" has other letters than I, X, Y, Z`);
  return kronAll([...letters].map((letter) => pauliByName[letter]));
}

/** All 4^n Pauli strings of n qubits, in lexical order from I...I. */
export const pauliLabels = (n: number): string[] =>
  Array.from({ length: 4 ** n }, (_, k) =>
    k
      .toString(4)
      .padStart(n, "0")
      .replaceAll(/\d/g, (d) => "IXYZ"[Number(d)]),
  );
