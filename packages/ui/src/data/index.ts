// Reads the runs folder.
export { readDetail, readSettings, stopRun } from "./detail.js";
export { RunsFolder } from "./folder.js";
export { findGates } from "./gates.js";
export { holderOf } from "./holder.js";
export { RunRecords } from "./records.js";
export type { RunPlace } from "./row.js";
export { findTimelines, type TimelineFiles } from "./timelines.js";
