// Specification files of gates.
export { type GateSpec, gateSpec, matching, type OpenJump, parseGateSpec, type Target } from "./gate-spec.js";
export { SpecError } from "./keys.js";
export { type GateOutcome, GateProblem } from "./problem.js";
