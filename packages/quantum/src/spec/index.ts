// Gate specification files.
export { errorBudget } from "./budget.js";
export {
  type GateSpec,
  type GateTarget,
  gateJsonSchema,
  gateSections,
  type OpenJump,
  parseGateSpec,
  scaleTimes,
  setParameter,
} from "./gate-spec.js";
export { type GateOutcome, GateProblem, type GateReport, type PartListener, type Populations } from "./problem.js";
export { type PulseLine, pulseLines } from "./pulse-lines.js";
export type { RobustSpec } from "./robust.js";
export { type TunedEvolution, tuneEvolution } from "./tune.js";
