// Quantum devices of coupled parts, their spectra and their evolution.
export { Chain, crossResonance, rotations } from "./chain.js";
export {
  BoundDevice,
  type Coupling,
  type DeviceParameters,
  type DeviceParameterValues,
  type Drive,
  driveOperators,
  jumpOperators,
  keysWithoutGradient,
  type OperatorName,
  QuantumDevice,
} from "./device.js";
export { computationalFrame, type DeviceEvolution, durationOf, evolve, stateFrame } from "./evolve.js";
export {
  DevicePart,
  Duffing,
  Fluxonium,
  type PartKind,
  type PartLevels,
  type PartStructure,
  partRules,
  Qubit,
  Resonator,
  Transmon,
} from "./parts.js";
export { checkStepLength } from "./sampling.js";
export {
  computationalStates,
  type DressedStates,
  dressedFrequency,
  dressedStates,
  levelsOfState,
  type SpectrumRow,
  spectrum,
  stateIndex,
  staticZZ,
} from "./spectrum.js";
