// The public face of diagnosis: the catalogue and the analysis of a study.
export { type Analysis, analyzeStudy, diagnosisRules, type RunReport, type StudyReport } from "./analyze.js";
export { applyCatalogue, type DiagnosisRule } from "./catalogue.js";
export { attachTraces, summariseTrace, traceFiles } from "./traces.js";
export { type DiagnosisView, diagnosisView, type RunView } from "./view.js";
