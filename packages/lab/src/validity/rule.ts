// What a rule is: an object that says where it comes from and looks at a study. The catalogs are lists of these, run in order.

import type { StudySummary } from "../metrics/index.js";
import type { Finding, Found } from "../model/index.js";
import type { WorkShare } from "./work.js";

/** Everything a rule may look at. */
export interface StudyView extends StudySummary {
  /** How the work was divided at each count, in the order of `counts`. */
  work: WorkShare[];
}

export interface Rule {
  code: string;
  id: string;
  title: string;
  /** Where the condition and its thresholds come from. */
  source: string;
  find: (view: StudyView) => Found[];
}

export function applyRules(rules: readonly Rule[], view: StudyView): Finding[] {
  return rules.flatMap((rule) =>
    rule.find(view).map((found) => ({
      id: rule.id,
      code: rule.code,
      title: rule.title,
      source: rule.source,
      ...found,
    })),
  );
}
