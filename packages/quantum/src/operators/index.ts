// Small complex matrices on the host, for Hamiltonians, jump operators and states.
export {
  addPlanes,
  applyBothSides,
  applyLeft,
  joinPlanes,
  type Planes,
  planesOf,
  sandwich,
  scalePlanes,
  tensorDiagonals,
} from "./apply.js";
export { addDiagonals, type Diagonals, localDiagonals, scaleDiagonals, sparseDiagonals } from "./diagonals.js";
export { checkFinite, isTensor, kronAll, Operator, type OperatorEntry, type OperatorLike } from "./operator.js";
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
