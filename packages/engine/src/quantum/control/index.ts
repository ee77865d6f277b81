// Control: open systems under piecewise-constant controls, optimisers, robust objectives, fits.
export { readCheckpoint, writeCheckpoint } from "./checkpoint.js";
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
  type ControlProblem,
  controlInfidelity,
  type PreparedProblem,
  plainProblem,
  prepareProblem,
  qubitFlip,
  type StepMethod,
  type Steps,
  stepMethods,
} from "./open.js";
