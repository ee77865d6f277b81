// Specification files of gates.
export {
  type GateSpec,
  type GateTarget,
  gateSpec,
  learnedKeys,
  matching,
  type OpenJump,
  parseGateSpec,
  specValues,
} from "./gate-spec.js";
export { SpecError } from "./keys.js";
export { type GateOutcome, GateProblem, type Populations } from "./problem.js";
