// Figures of merit: states, gates that leak, open systems; single-qubit compensation; Pauli errors; Choi matrices.
export {
  averageOfProcess,
  choi,
  choiAverageFidelity,
  choiFidelity,
  choiLeakage,
  compensatedTarget,
} from "./channels.js";
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
export { stateFidelity, stateInfidelity } from "./states.js";
