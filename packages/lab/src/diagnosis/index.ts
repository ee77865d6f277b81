// Exports of the diagnosis layer: the rule catalog and the analysis of a study.
export {
  type Analysis,
  analyzeStudy,
  diagnosisRules,
  type RunReport,
  type StudyReport,
  studyPoints,
} from "./analyze.js";
export { applyCatalog, type DiagnosisRule } from "./catalog.js";
export { causesOf, symptoms } from "./main-cause.js";
export { type TraceChange, type TraceChanges, traceChanges } from "./trace-changes.js";
export { traceFindings, traceRules } from "./trace-rules.js";
export { attachTraces } from "./traces.js";
export { type DiagnosisView, diagnosisView, type RunView } from "./view.js";
