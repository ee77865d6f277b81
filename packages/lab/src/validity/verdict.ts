// The verdict on a study: the findings of the validity rules, and for each count whether its ratio is a speedup, or else its
// work-normalized speedup.
import { karpFlatt, type ScalingClass, type StudySummary, scalingClass } from "../metrics/index.js";
import { bySeverity, type Finding, type Reading } from "../model/index.js";
import { applyRules, type StudyView } from "./rule.js";
import { validityRules } from "./rules.js";
import { assessWork, type WorkShare } from "./work.js";

/** What can be said about the ratio at one count. */
export type PointStatus = "valid" | "undecided" | "not valid";

/** What can be said about a study. */
export type VerdictStatus = PointStatus | "nothing to compare";

/** One device count of a verdict. */
export interface ScalingPoint {
  /** Number of devices. */
  devices: number;
  /** Ratio of measured times; for weak scaling that times the growth of the work. Only a speedup when `valid`. */
  speedup: number;
  /** Speedup per device, relative to the baseline. */
  efficiency: number;
  /** Whether `status` is valid. */
  valid: boolean;
  /** Whether the speedup of this count can be believed. */
  status: PointStatus;
  /** Every device got as much work as one of the baseline. */
  weak: boolean;
  /** Work of all ranks together over that of the baseline; 1 if it is divided. */
  workRatio: number;
  /** Whether the work of each rank was counted, inferred or assumed. */
  workKnown: WorkShare["known"];
  /** Work per second relative to the baseline; null where the runs are not comparable. */
  workSpeedup: number | null;
  /** Work per second and device, relative to the baseline. */
  workEfficiency: number | null;
  /** The explanations that fit, where the ratio is undecided. */
  readings: Reading[];
  /** Efficiency of the work-normalized speedup; of the ratio of times where there is none. */
  class: ScalingClass;
  /** 80% interval of the speedup, by bootstrap. */
  interval: [number, number] | null;
  /** Serial fraction by Karp and Flatt; null for the baseline. */
  karpFlatt: number | null;
}

/** The verdict on a study: validity, findings and scaling. */
export interface Verdict {
  /** The study as the rules see it. */
  view: StudyView;
  /** Findings of the validity rules. */
  findings: Finding[];
  /** Speedup and efficiency by device count. */
  scaling: ScalingPoint[];
  /** The verdict. */
  status: VerdictStatus;
  /** True or false by counted or derived evidence; null when there is nothing to judge, or when two readings fit. */
  valid: boolean | null;
}

/** Findings after which not even work per second can be compared. */
const incomparable = new Set(["baseline-mismatch", "wrong-launch", "ranks-train-different-models", "impossible-time"]);

function statusOf(findings: readonly Finding[], devices: number, baseDevices: number | undefined): PointStatus {
  // A fault of the baseline spoils every ratio to it.
  const own = findings.filter((f) => f.devices === undefined || f.devices === devices || f.devices === baseDevices);
  if (own.some((f) => f.severity === "invalid")) return "not valid";
  return devices !== baseDevices && own.some((f) => f.severity === "unresolved") ? "undecided" : "valid";
}

const scaledBy = ([low, high]: [number, number], factor: number): [number, number] => [low * factor, high * factor];

/** Applies the validity rules to a study and decides which ratios are speedups. */
export function judgeStudy(summary: StudySummary): Verdict {
  const view: StudyView = { ...summary, work: assessWork(summary) };
  const findings = applyRules(validityRules, view).sort(bySeverity);
  const base = summary.baseline;
  const scaling = summary.counts.map((count, i): ScalingPoint => {
    const work = view.work[i]!;
    const ratio = count.devices / base!.devices;
    const status = statusOf(findings, count.devices, base?.devices);
    const defended = !findings.some(
      (f) =>
        f.severity === "invalid" &&
        incomparable.has(f.id) &&
        (f.devices === undefined || f.devices === count.devices || f.devices === base!.devices),
    );
    const workSpeedup = defended ? count.speedup * work.done : null;
    return {
      devices: count.devices,
      speedup: count.speedup * work.growth,
      efficiency: count.efficiency * work.growth,
      valid: status === "valid",
      status,
      weak: work.growth !== 1,
      workRatio: work.ratio,
      workKnown: work.known,
      workSpeedup,
      workEfficiency: workSpeedup === null ? null : workSpeedup / ratio,
      readings: work.readings,
      class: scalingClass(workSpeedup ?? count.speedup, ratio),
      interval: count.speedupInterval === null ? null : scaledBy(count.speedupInterval, work.growth),
      karpFlatt: karpFlatt(count.speedup * work.growth, ratio),
    };
  });
  const worst = (["not valid", "undecided"] as const).find((s) => scaling.some((p) => p.status === s)) ?? "valid";
  const status: VerdictStatus = scaling.length < 2 ? "nothing to compare" : worst;
  return { view, findings, scaling, status, valid: status === "valid" ? true : status === "not valid" ? false : null };
}
