// Sharding: meshes, placements, the planner and the partitioner. Works on graphs only and knows nothing of processes and
// devices.
export { drawPlacement } from "./draw.js";
export { explainPlan, type KernelSeconds, showBytes, showSeconds } from "./explain.js";
export { type Layout, layoutOf, type Strategy } from "./layout.js";
export { gatherValue, type Lockstep, runLockstep, scatterValue } from "./lockstep.js";
export { Mesh, type MeshAxis } from "./mesh.js";
export { type Partitioned, type PartitionOptions, partition, reshard } from "./partition.js";
export {
  type DimensionSplit,
  evenBounds,
  type IndexBox,
  type PendingReduction,
  Placement,
  type PlacementJSON,
} from "./placement.js";
export { type Alternative, type PlannerOptions, planSharding, type ShardingPlan } from "./planner.js";
export { applyMove, collectiveAttrs, isCollective, type Move, planReshard } from "./reshard.js";
export { parseRules, type ScopeRule, type ShardRule, type ShardRules } from "./rules.js";
export { type Simulated, type SimulatedRow, simulate, simulateCounts, simulatedTable } from "./simulate.js";
export type { CollectiveSite } from "./sites.js";
