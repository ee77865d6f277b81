// Exports of the linter.
export { lintFiles } from "./lint.js";
export type { LintProblem } from "./problem.js";
