// Matrices of numbers that models are written with.
export { type Entry, isTensor, kronAll, Operator, type OperatorLike, product, sumOf } from "./operator.js";
export {
  basisState,
  coherentState,
  densityOf,
  destroy,
  hadamard,
  identity,
  number,
  onSite,
  pauli,
  pauliLabels,
  sigmaMinus,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "./standard.js";
