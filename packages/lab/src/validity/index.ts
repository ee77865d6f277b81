// Exports of the validity layer: decides whether a study is a scaling measurement.
export { applyRules, type StudyView, type ValidityRule } from "./rule.js";
export { validityRules } from "./rules.js";
export { judge, type PointStatus, type ScalingPoint, type Verdict, type VerdictStatus } from "./verdict.js";
export { assessWork, type WorkShare } from "./work.js";
