// The verdict on a study: the findings of the validity rules, and for each count whether its ratio is a speedup, or else its
// work-normalized speedup.
import { type ScalingClass, type StudySummary, scalingClass } from "../metrics/index.js";
import { bySeverity, type Finding } from "../model/index.js";
import { applyRules, type StudyView } from "./rule.js";
import { validityRules } from "./rules.js";
import { assessWork, type WorkShare } from "./work.js";

/** One device count of a verdict. */
export interface ScalingPoint {
  devices: number;
  /** Ratio of measured times. Only a speedup when `valid`. */
  speedup: number;
  efficiency: number;
  valid: boolean;
  workRatio: number;
  workKnown: WorkShare["known"];
  /** Work per second relative to the baseline; meaningful also where the ratio of times is not. */
  workSpeedup: number;
  workEfficiency: number;
  /** Efficiency of the work-normalized speedup. */
  class: ScalingClass;
  interval: [number, number] | null;
  karpFlatt: number | null;
}

/** The verdict on a study: validity, findings and scaling. */
export interface Verdict {
  view: StudyView;
  findings: Finding[];
  scaling: ScalingPoint[];
  /** Null when there is nothing to judge. */
  valid: boolean | null;
}

/** Applies the validity rules to a study and decides which ratios are speedups. */
export function judge(summary: StudySummary): Verdict {
  const view: StudyView = { ...summary, work: assessWork(summary) };
  const findings = applyRules(validityRules, view).sort(bySeverity);
  const invalid = findings.filter((f) => f.severity === "invalid");
  const base = summary.baseline;
  // An invalid baseline invalidates every ratio to it.
  const baselineSpoiled = invalid.some((f) => f.devices === undefined || f.devices === base?.devices);
  const scaling = summary.counts.map((count, i): ScalingPoint => {
    const work = view.work[i]!;
    const workSpeedup = count.speedup * work.done;
    const ratio = count.devices / base!.devices;
    return {
      devices: count.devices,
      speedup: count.speedup,
      efficiency: count.efficiency,
      valid: !baselineSpoiled && !invalid.some((f) => f.devices === count.devices),
      workRatio: work.ratio,
      workKnown: work.known,
      workSpeedup,
      workEfficiency: workSpeedup / ratio,
      class: scalingClass(workSpeedup, ratio),
      interval: count.speedupInterval,
      karpFlatt: count.karpFlatt,
    };
  });
  return {
    view,
    findings,
    scaling,
    valid: scaling.length < 2 ? null : scaling.every((point) => point.valid),
  };
}
