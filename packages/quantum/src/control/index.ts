// Control: open systems under piecewise-constant controls, optimisers, robust objectives, fits.
export { readCheckpoint, writeCheckpoint } from "./checkpoint.js";
export { type ControlFile, parseControlFile } from "./file.js";
export { fitSpectrum, type SpectrumFit } from "./fit.js";
export { ensembleLoss, type GrapeEach, type GrapeOptions, grape, grapeEach } from "./grape.js";
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
  type MinimiseMethod,
  type MinimiseOptions,
  type MinimiseProgress,
  Minimiser,
  type Minimum,
  minimise,
  minimiseMethods,
  type NamedParameters,
  type ParameterLoss,
  type StopReason,
} from "./minimise.js";
export {
  type ControlProblem,
  controlInfidelity,
  controlledZ,
  type PreparedProblem,
  plainProblem,
  prepareProblem,
  qubitFlip,
  type StepMethod,
  type Steps,
  stepMethods,
} from "./open.js";
export { type RobustObjective, robustLoss } from "./robust.js";
export { type LinePoint, strongWolfe } from "./wolfe.js";
