// What the linter says: a place, a rule, and the remedy. Data only.

export interface LintProblem {
  file: string;
  line?: number;
  id: string;
  severity: "error" | "warning" | "info";
  message: string;
  fix: string;
}
