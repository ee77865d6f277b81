// Exports of the linter.
export { type LintOptions, lintFiles } from "./lint.js";
export type { LintProblem } from "./problem.js";
