// Figures of merit: state, gate and channel fidelities, leakage, Pauli errors, and single-qubit compensation.

export {
  averageOfProcess,
  choi,
  choiAverageFidelity,
  choiFidelity,
  choiLeakage,
  compensatedTarget,
} from "./channels.js";
export { type Compensation, compensate } from "./compensate.js";
export { withError } from "./format.js";
export {
  averageGateFidelity,
  averageGateInfidelity,
  choiOfUnitary,
  gate,
  leakage,
  pauliErrors,
  processFidelity,
  processInfidelity,
  type Unitary,
} from "./gates.js";
export { stateFidelity, stateInfidelity } from "./states.js";
