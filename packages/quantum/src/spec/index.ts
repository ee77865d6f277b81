// Gate specification files.
export {
  type GateSpec,
  type GateTarget,
  gateSpec,
  learnedKeys,
  matching,
  type OpenJump,
  parseGateSpec,
  setParameter,
  specValues,
} from "./gate-spec.js";
export { type GateOutcome, GateProblem, type Populations } from "./problem.js";
