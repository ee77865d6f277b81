// Public entry of @weft/lab: read studies, analyze them, write reports, analyze traces. DuckDB and Vega are loaded on first use.
export { type Analysis, analyzeStudy, type RunReport, type StudyReport } from "./diagnosis/index.js";
export { ImportError, readStudies } from "./import/index.js";
export {
  amdahl,
  type CountSummary,
  fitUsl,
  gustafson,
  karpFlatt,
  type PopEfficiencies,
  popEfficiencies,
  type RunSummary,
  type StudySummary,
  summarizeStudy,
  type Usl,
  uslThroughput,
} from "./metrics/index.js";
export type {
  Evidence,
  EvidenceRank,
  Finding,
  ImportProblem,
  PredictedEffect,
  RankInfo,
  Reading,
  Run,
  RunEvent,
  RunSource,
  Severity,
  Study,
  TraceSummary,
  UtilizationSample,
} from "./model/index.js";
export { computeUs, predict } from "./predict/index.js";
export { writeReport } from "./report/index.js";
export { type MachineReport, MachineWitness } from "./runner/index.js";
export { query } from "./store/index.js";
export {
  analyzeTraces,
  diffTraces,
  mergeTraces,
  type RankReport,
  type TraceDiff,
  type TraceReport,
} from "./trace/index.js";
export { judgeStudy, type PointStatus, type ScalingPoint, type Verdict, type VerdictStatus } from "./validity/index.js";
