// Matrices of numbers that models are written with.
export { isTensor, kronAll, Operator, type OperatorEntry, type OperatorLike, product, sumOf } from "./operator.js";
export {
  basisState,
  coherentState,
  densityOf,
  destroy,
  hadamard,
  identityOperator,
  numberOperator,
  onSite,
  pauli,
  pauliLabels,
  sigmaMinus,
  sigmaX,
  sigmaY,
  sigmaZ,
} from "./standard.js";
