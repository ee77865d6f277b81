// Devices: parts, couplings, drives; their spectra; their evolution.
export { Chain, crossResonance, type FluxoniumChainFields, rotations } from "./chain.js";
export {
  BoundDevice,
  type Coupling,
  Device,
  type DeviceFields,
  type Drive,
  driveOperators,
  jumpOperators,
  type OperatorName,
  type Parameters,
  type ParameterValues,
  suggestion,
} from "./device.js";
export { computationalFrame, type DeviceEvolution, durationOf, type EvolveOptions, evolve } from "./evolve.js";
export {
  Duffing,
  Fluxonium,
  type Levels,
  Part,
  type PartKind,
  partRules,
  Qubit,
  Resonator,
  type Structure,
  Transmon,
} from "./parts.js";
export {
  computationalStates,
  type Dressed,
  digitsOf,
  dressedFrequency,
  dressedStates,
  numberOf,
  type SpectrumRow,
  spectrum,
  staticZZ,
} from "./spectrum.js";
