// Figures of merit: states, gates that leak, open systems; single-qubit compensation; Pauli errors; Choi matrices.
export {
  type CompensateOptions,
  type Compensation,
  compensate,
  singleQubitGates,
  virtualZAngles,
} from "./compensate.js";
export {
  averageGateFidelity,
  averageGateInfidelity,
  choiOfUnitary,
  gate,
  gateTable,
  leakage,
  pauliErrors,
  processFidelity,
  processInfidelity,
  type Unitary,
  X2,
  X4,
} from "./gates.js";
export { averageOfProcess, choi, choiFidelity, stateFidelity, stateInfidelity } from "./states.js";
