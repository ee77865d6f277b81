// Pulse shapes and pulses.
export {
  carrierParameters,
  constantPulse,
  cosinePulse,
  erfPulse,
  filteredPulse,
  fourierPulse,
  gaussianPulse,
  gaussianSquarePulse,
  Pulse,
  type PulseValue,
  piecewisePulse,
  rampedCosinePulse,
  splinePulse,
  tanhPulse,
  trapezoidPulse,
} from "./pulse.js";
export { type PulseShapeName, pulseShapes } from "./shapes.js";
