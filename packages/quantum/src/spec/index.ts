// Specification files of gates.
export {
  type GateSpec,
  gateSpec,
  learnedKeys,
  matching,
  type OpenJump,
  parseGateSpec,
  specValues,
  type Target,
} from "./gate-spec.js";
export { SpecError } from "./keys.js";
export { type GateOutcome, GateProblem, type Populations } from "./problem.js";
