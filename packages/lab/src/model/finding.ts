// The findings of the lab: evidence, cause, fix and predicted effect.

import { shortNumber } from "@weft/formats/text";

/**
 * Severity of a finding. `invalid`: counted or derived evidence shows that the study is not a scaling measurement.
 * `unresolved`: two readings fit the measurements, and the finding names the command that separates them.
 */
export type Severity = "invalid" | "unresolved" | "high" | "moderate" | "low" | "info";

/**
 * Rank of a piece of evidence: `counted` by the probe, the trainer or in a file; `derived` by arithmetic on counted facts;
 * `inferred` from times or losses; `assumed` because nothing says otherwise. Only counted and derived evidence can
 * invalidate a study.
 */
export type EvidenceRank = "counted" | "derived" | "inferred" | "assumed";

/** One of several explanations that fit the measurements. */
export interface Reading {
  /** The explanation as a sentence. */
  text: string;
  /** Share of the likelihood of all readings, 0 to 1. */
  likelihood: number;
  /** The speedup that this reading implies. */
  speedup?: number;
}

/** A value that supports a finding, with its unit and its source. */
export interface Evidence {
  /** What was measured. */
  what: string;
  /** The measured value. */
  value: number | string | boolean;
  /** How the value is known. */
  rank: EvidenceRank;
  /** Unit of the value. */
  unit?: string;
  /** The threshold that it was compared with. */
  threshold?: number;
  /** Where it was measured: `file:line`, run ids, step numbers. */
  rows?: string[];
  /** The evidence as a sentence. */
  text: string;
}

/** What a rule returns for one run or device count. The catalog adds the rule's id, title and source. */
export type RuleFinding = Omit<Finding, "id" | "title" | "source"> & { title?: string };

/** The predicted effect of a fix, with an interval where one can be given. */
export interface PredictedEffect {
  /** What is predicted, e.g. `epochSeconds`, `speedup`, `stepUs`. */
  metric: string;
  /** The device count that the prediction is for. */
  devices?: number;
  /** The value now. */
  from: number | null;
  /** The predicted value. */
  to: number | null;
  /** 80% interval of `to`. */
  interval: [number, number] | null;
  /** Relative standard error of `from`, where it is known. */
  noise?: number;
  /** Unit of both values. */
  unit: string;
  /** How it was computed, in a sentence. */
  reason: string;
}

/** A finding: what limits a job or invalidates its measurement, with evidence, cause, fix and predicted effect. */
export interface Finding {
  /** Stable id of the rule, e.g. `work-not-divided`. */
  id: string;
  /** The finding in a few words. */
  title: string;
  /** How much the finding matters. */
  severity: Severity;
  /** Id of the run that it concerns; absent for the whole study. */
  run?: string;
  /** The device count that it concerns. */
  devices?: number;
  /**
   * All runs that show it, where there are several: their ids (none if a rule judges counts as a whole), their device counts, and
   * how many runs have these counts.
   */
  shownBy?: { runs: string[]; devices: number[]; of: number };
  /** The values that support it. */
  evidence: Evidence[];
  /** The cause, in a sentence. */
  cause: string;
  /** Other explanations that were considered, and why they were rejected or kept. */
  alternatives?: string[];
  /** The explanations that fit, for an unresolved finding. */
  readings?: Reading[];
  /** What to change; null if nothing is to be done. */
  fix: string | null;
  /** The effect of the fix; null if it cannot be predicted. */
  predicted: PredictedEffect | null;
  /** The observation that would show this finding to be wrong. */
  refutedBy: string;
  /** Where the rule and its threshold come from. */
  source: string;
}

const order: Record<Severity, number> = { invalid: 0, unresolved: 1, high: 2, moderate: 3, low: 4, info: 5 };

/** Comparison function for `sort`: most severe first. */
export function bySeverity(a: { severity: Severity }, b: { severity: Severity }): number {
  return order[a.severity] - order[b.severity];
}

/** True for evidence that can invalidate a study. */
export const isHard = ({ rank }: Evidence): boolean => rank === "counted" || rank === "derived";

/** Builds evidence. The sentence is generated unless the rule gives one; most evidence is arithmetic on counted facts. */
export function evidence(
  what: string,
  value: Evidence["value"],
  options: { rank?: EvidenceRank; unit?: string; threshold?: number; rows?: string[]; text?: string } = {},
): Evidence {
  const { text, rank = "derived", ...rest } = options;
  const shown = typeof value === "number" ? shortNumber(value) : String(value);
  const unit = options.unit === undefined ? "" : ` ${options.unit}`;
  const bound = options.threshold === undefined ? "" : ` (threshold ${shortNumber(options.threshold)}${unit})`;
  return { what, value, rank, ...rest, text: text ?? `${what}: ${shown}${unit}${bound}` };
}
