// A problem that the linter reports: location, rule and remedy.

export interface LintProblem {
  file: string;
  line?: number;
  id: string;
  severity: "error" | "warning" | "info";
  message: string;
  fix: string;
}
