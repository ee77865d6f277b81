// Sharding: meshes, placements, the planner and the partitioner. Works on graphs only and knows nothing of processes and
// devices.
export type { Compression } from "./compress.js";
export { drawPlacement } from "./draw.js";
export { explainPlan, type KernelSeconds, showBytes, showSeconds } from "./explain.js";
export { layoutOf, type Strategy } from "./layout.js";
export { planListeners } from "./listeners.js";
export { gatherValue, type Lockstep, runLockstep, scatterValue } from "./lockstep.js";
export { type MarkKind, markNode, markOf } from "./marks.js";
export { evenBounds, Mesh } from "./mesh.js";
export { type Partitioned, partitionFunction, reshard } from "./partition.js";
export { type DimensionSplit, type IndexBox, Placement } from "./placement.js";
export { type Alternative, type PlannerOptions, planSharding, type ShardingPlan } from "./planner.js";
export { parseRules, type ShardRules } from "./rules.js";
export { simulate, simulateCounts, simulatedTable } from "./simulate.js";
export type { CollectiveSite } from "./sites.js";
export type { Stage } from "./step-memory.js";
export { StepModel } from "./step-model.js";
export { planStep, type StepPlan } from "./step-plan.js";
export { SplitProblem, type StepPlanOptions } from "./step-problem.js";
export { rewriteStep, type StepRoles } from "./step-rewrite.js";
