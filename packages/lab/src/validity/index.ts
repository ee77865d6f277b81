// The public face of validity: is this a scaling measurement at all?
export { applyRules, type Rule, type StudyView } from "./rule.js";
export { validityRules } from "./rules.js";
export { judge, type ScalingPoint, type Verdict } from "./verdict.js";
export { assessWork, type WorkShare } from "./work.js";
