// A problem that the linter reports: location, rule and remedy.

/** A problem that the linter reports. */
export interface LintProblem {
  file: string;
  line?: number;
  id: string;
  severity: "error" | "warning" | "info";
  message: string;
  fix: string;
}
