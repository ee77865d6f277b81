// Sharding: meshes, placements, the partitioner. Pure: knows graphs, nothing of processes and devices.
export { type Layout, layoutOf, type Strategy } from "./layout.js";
export { gatherValue, type Lockstep, runLockstep, scatterValue } from "./lockstep.js";
export { Mesh, type MeshAxis } from "./mesh.js";
export { type Partitioned, type PartitionOptions, partition, reshard } from "./partition.js";
export { type Box, evenBounds, type Pending, Placement, type PlacementJSON, type Split } from "./placement.js";
export { applyMove, collectiveAttrs, isCollective, type Move, planReshard } from "./reshard.js";
export type { Site } from "./sites.js";
