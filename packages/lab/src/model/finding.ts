// The findings of the lab: evidence, cause, fix and predicted effect.

import { shortNumber } from "@weft/formats/text";

/** Severity of a finding; `invalid` means that the study is not a scaling measurement. */
export type Severity = "invalid" | "high" | "moderate" | "low" | "info";

/** A value that supports a finding, with its unit and its source. */
export interface Evidence {
  what: string;
  value: number | string | boolean;
  unit?: string;
  /** The threshold that it was compared with. */
  threshold?: number;
  /** Where it was measured: `file:line`, run ids, step numbers. */
  rows?: string[];
  /** The evidence as a sentence. */
  text: string;
}

/** What a rule returns for one run or device count. The catalog adds the rule's id, title and source. */
export type RuleFinding = Omit<Finding, "id" | "title" | "source">;

/** The predicted effect of a fix, with an interval where one can be given. */
export interface PredictedEffect {
  /** What is predicted, e.g. `epochSeconds`, `speedup`, `stepUs`. */
  metric: string;
  devices?: number;
  from: number | null;
  to: number | null;
  /** 80% interval of `to`. */
  interval: [number, number] | null;
  unit: string;
  /** How it was computed, in a sentence. */
  reason: string;
}

/** A finding: what limits a job or invalidates its measurement, with evidence, cause, fix and predicted effect. */
export interface Finding {
  /** Stable id of the rule, e.g. `work-not-divided`. */
  id: string;
  title: string;
  severity: Severity;
  run?: string;
  devices?: number;
  evidence: Evidence[];
  cause: string;
  /** Other explanations that were considered, and why they were rejected or kept. */
  alternatives?: string[];
  fix: string | null;
  predicted: PredictedEffect | null;
  /** The observation that would show this finding to be wrong. */
  refutedBy: string;
  /** Where the rule and its threshold come from. */
  source: string;
}

const order: Record<Severity, number> = { invalid: 0, high: 1, moderate: 2, low: 3, info: 4 };

/** Comparison function for `sort`: most severe first. */
export function bySeverity(a: { severity: Severity }, b: { severity: Severity }): number {
  return order[a.severity] - order[b.severity];
}

/** Builds evidence. The sentence is generated unless the rule gives one. */
export function evidence(
  what: string,
  value: Evidence["value"],
  options: { unit?: string; threshold?: number; rows?: string[]; text?: string } = {},
): Evidence {
  const { text, ...rest } = options;
  const shown = typeof value === "number" ? shortNumber(value) : String(value);
  const unit = options.unit === undefined ? "" : ` ${options.unit}`;
  const bound = options.threshold === undefined ? "" : ` (threshold ${shortNumber(options.threshold)}${unit})`;
  return { what, value, ...rest, text: text ?? `${what}: ${shown}${unit}${bound}` };
}
