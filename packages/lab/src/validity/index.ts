// Exports of the validity layer: decides whether a study is a scaling measurement.
export type { StudyView } from "./rule.js";
export { judgeStudy, type PointStatus, type ScalingPoint, type Verdict, type VerdictStatus } from "./verdict.js";
