// Optimal control of open systems: piecewise constant controls, minimizers, robust objectives, spectrum fits.
export type { Bounds } from "./bounds.js";
export { readTensorCheckpoint, writeTensorCheckpoint } from "./checkpoint.js";
export { type CostValues, type RunningCosts, runningCosts, weightedCosts } from "./costs.js";
export { type ControlFile, controlJsonSchema, controlSections, parseControlFile } from "./file.js";
export { fitSpectrum, type SpectrumFit } from "./fit.js";
export { ensembleLoss, type GrapeEach, type GrapeMinimum, grape, grapeEach } from "./grape.js";
export {
  type ChosenSteps,
  checkFidelities,
  chooseSteps,
  controlFidelities,
  controlInfidelities,
  defaultProbes,
  explainSteps,
  halvingError,
  type Integration,
  type Probes,
  withSteps,
} from "./integration.js";
export {
  type MinimizeMethod,
  type MinimizeOptions,
  type MinimizeProgress,
  Minimizer,
  type Minimum,
  minimize,
  minimizeMethods,
  type NamedParameters,
  type ParameterLoss,
  type StopReason,
} from "./minimize.js";
export {
  type ControlProblem,
  controlInfidelity,
  controlledZ,
  type PreparedProblem,
  plainProblem,
  prepareProblem,
  qubitFlip,
  type SegmentSteps,
  type StepMethod,
} from "./open.js";
export type { PulseReport } from "./report.js";
export { type RobustObjective, robustLoss } from "./robust.js";
export { type ShortestDuration, shortestDuration, type TimedResult } from "./shortest.js";
export { strongWolfe } from "./wolfe.js";
