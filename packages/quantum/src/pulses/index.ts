// Pulse shapes and pulses.
export {
  carrierParameters,
  constantPulse,
  cosinePulse,
  erfPulse,
  gaussianPulse,
  gaussianSquarePulse,
  Pulse,
  type PulseFields,
  type PulseValue,
  piecewisePulse,
  rampedCosinePulse,
  tanhPulse,
  trapezoidPulse,
} from "./pulse.js";
export { type PulseShapeName, pulseShapes } from "./shapes.js";
