// Exports of the trace layer: reads, analyzes, compares and merges traces of Kineto and JAX.
export { type MergeInput, mergeTraces } from "./chrome.js";
export { diffTraces, type TraceDiff } from "./diff.js";
export { parsePeaks } from "./gpus.js";
export { matrixKernel, tensorCoreKernel } from "./kinds.js";
export type { OperatorReport, OperatorRow } from "./operators.js";
export type { RankReport } from "./rank.js";
export { analyzeTraces, type TraceReport } from "./ranks.js";
export { readTimeline, type Timeline, type TimelineRow, timelineKinds } from "./timeline.js";
