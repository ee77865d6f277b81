// Exports of the trace layer: reads, analyzes, compares and merges traces of Kineto and JAX.
export type { IdleBreakdown, TimeBreakdown, TypeTime } from "./breakdown.js";
export { type MergeInput, mergeTraces } from "./chrome.js";
export type { CopyBandwidth, QueueLength } from "./counters.js";
export type { CriticalPath } from "./critical-path.js";
export { TraceData } from "./data.js";
export { type DiffRow, diffTraces, type TraceDiff } from "./diff.js";
export { type DevicePeaks, type GpuPrecision, parsePeaks, peaksOf } from "./gpus.js";
export type { CollectiveRow, KernelRow } from "./kernels.js";
export { matrixKernel, tensorCoreKernel } from "./kinds.js";
export type { LaunchStatistics } from "./launch.js";
export type { OperatorReport, OperatorRow } from "./operators.js";
export { analyzeTrace, analyzeTraceFile, type RankReport } from "./rank.js";
export { analyzeTraces, type TraceReport } from "./ranks.js";
export { readTrace, type TraceReadOptions } from "./read.js";
export { readTimeline, type Timeline, type TimelineRow, timelineKinds } from "./timeline.js";
