// How a diagnosis rule is written: what it is called, where it comes from, and what it sees in one run (or in the whole study).
import type { Finding, Found } from "../model/index.js";
import type { DiagnosisView, RunView } from "./view.js";

interface RuleHead {
  code: string;
  id: string;
  title: string;
  source: string;
}

/** Looks at one run; the catalog fills in the run and its devices. */
export interface RunRule extends RuleHead {
  run: (run: RunView, view: DiagnosisView) => Omit<Found, "run" | "devices"> | null;
}

export interface StudyRule extends RuleHead {
  study: (view: DiagnosisView) => Found[];
}

export type DiagnosisRule = RunRule | StudyRule;

export function applyCatalog(rules: readonly DiagnosisRule[], view: DiagnosisView): Finding[] {
  return rules.flatMap((rule): Finding[] => {
    const head = { id: rule.id, code: rule.code, title: rule.title, source: rule.source };
    if ("study" in rule) return rule.study(view).map((found) => ({ ...head, ...found }));
    return view.runs.flatMap((run): Finding[] => {
      const found = rule.run(run, view);
      return found === null ? [] : [{ ...head, run: run.run.id, devices: run.devices, ...found }];
    });
  });
}

/** The severity that a share earns. */
export const graded = (value: number, high: number): "high" | "moderate" => (value >= high ? "high" : "moderate");

export const percent = (share: number): number => share * 100;
