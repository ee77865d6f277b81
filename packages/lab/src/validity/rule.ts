// The type of validity rules and their evaluation, in the order of the list.

import type { StudySummary } from "../metrics/index.js";
import { type Finding, isHard, type RuleFinding } from "../model/index.js";
import type { WorkShare } from "./work.js";

/** The input of a validity rule. */
export interface StudyView extends StudySummary {
  /** How the work was divided at each count, in the order of `counts`. */
  work: WorkShare[];
}

export interface ValidityRule {
  id: string;
  title: string;
  /** Where the condition and its thresholds come from. */
  source: string;
  find: (view: StudyView) => RuleFinding[];
}

export function applyRules(rules: readonly ValidityRule[], view: StudyView): Finding[] {
  return rules.flatMap((rule) =>
    rule.find(view).map((found) => ({
      id: rule.id,
      title: rule.title,
      source: rule.source,
      ...found,
      // Inference alone never makes a study invalid.
      severity: found.severity === "invalid" && !found.evidence.some(isHard) ? "unresolved" : found.severity,
    })),
  );
}
