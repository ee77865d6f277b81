// Sharding: meshes, placements, the planner and the partitioner. Works on graphs only and knows nothing of processes and
// devices.
export { drawPlacement } from "./draw.js";
export { explainPlan, type KernelSeconds, showBytes, showSeconds } from "./explain.js";
export { type Layout, layoutOf, type Strategy } from "./layout.js";
export { planListeners } from "./listeners.js";
export { gatherValue, type Lockstep, runLockstep, scatterValue } from "./lockstep.js";
export { type Mark, type MarkKind, markNode, markOf } from "./marks.js";
export { evenBounds, Mesh } from "./mesh.js";
export { type Partitioned, partition, reshard } from "./partition.js";
export { type DimensionSplit, type IndexBox, type PendingReduction, Placement } from "./placement.js";
export { type Alternative, type PlannerOptions, planSharding, type ShardingPlan } from "./planner.js";
export { applyMove, isCollective, type Move, planReshard } from "./reshard.js";
export { parseRules, type ShardRules } from "./rules.js";
export { simulate, simulateCounts, simulatedTable } from "./simulate.js";
export type { CollectiveSite } from "./sites.js";
export { StepModel, type StepSplit } from "./step-model.js";
export {
  nameOf,
  planStep,
  SplitProblem,
  type Stage,
  type StepCandidate,
  type StepDecision,
  type StepPlan,
  type StepPlanOptions,
} from "./step-plan.js";
export { phasesOf, rewriteStep, type StepChanges, type StepRoles } from "./step-rewrite.js";
