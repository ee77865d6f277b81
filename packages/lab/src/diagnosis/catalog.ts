// The type of diagnosis rules and their evaluation on the runs of a study.
import type { Finding, RuleFinding } from "../model/index.js";
import type { DiagnosisView, RunView } from "./view.js";

interface RuleHead {
  id: string;
  title: string;
  source: string;
  /** Follows only from counts and settings, which other users of the machine do not change. */
  timeless?: true;
}

/** A rule that examines one run at a time; run and devices of the finding are filled in. */
interface RunRule extends RuleHead {
  run: (run: RunView, view: DiagnosisView) => Omit<RuleFinding, "run" | "devices"> | null;
}

interface StudyRule extends RuleHead {
  study: (view: DiagnosisView) => RuleFinding[];
}

export type DiagnosisRule = RunRule | StudyRule;

export function applyCatalog(rules: readonly DiagnosisRule[], view: DiagnosisView): Finding[] {
  return rules.flatMap((rule): Finding[] => {
    const head = { id: rule.id, title: rule.title, source: rule.source };
    if ("study" in rule) return rule.study(view).map((found) => ({ ...head, ...found }));
    return view.runs.flatMap((run): Finding[] => {
      const found = rule.run(run, view);
      return found === null ? [] : [{ ...head, run: run.run.id, devices: run.devices, ...found }];
    });
  });
}

/** The severity of a share. */
export const graded = (value: number, high: number): "high" | "moderate" => (value >= high ? "high" : "moderate");

export const toPercent = (share: number): number => share * 100;
