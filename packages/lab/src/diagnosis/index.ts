// Exports of the diagnosis layer: the rule catalog and the analysis of a study.
export {
  type Analysis,
  analyzeStudy,
  diagnosisRules,
  type RunReport,
  type StudyReport,
  studyPoints,
} from "./analyze.js";
export { causesOf, symptoms } from "./main-cause.js";
export { type TraceChanges, traceChanges } from "./trace-changes.js";
export { traceFindings } from "./trace-rules.js";
export { attachTraces } from "./traces.js";
