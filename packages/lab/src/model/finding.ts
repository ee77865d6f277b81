// What the lab says about a study: findings with evidence, and the effects it predicts. Data only; knows no rule.

import { shortNumber } from "@weft/formats/text";

export type Severity = "invalid" | "high" | "moderate" | "low" | "info";

/** A number behind a statement, with its unit and where it came from. */
export interface Evidence {
  what: string;
  value: number | string | boolean;
  unit?: string;
  /** The bound it was held against. */
  threshold?: number;
  /** Rows behind it: `file:line`, run ids, step numbers. */
  rows?: string[];
  /** The same as a sentence for people. */
  text: string;
}

/** What a rule says of one run or count; the catalog adds the rule's own id, code, title and source. */
export type Found = Omit<Finding, "id" | "code" | "title" | "source">;

/** A promised effect: always a prediction, with an interval or the reason why there is none. */
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

export interface Finding {
  /** Stable id of the rule, e.g. `work-not-divided`. */
  id: string;
  /** Code in the catalog, e.g. `V1`. */
  code: string;
  title: string;
  severity: Severity;
  run?: string;
  devices?: number;
  evidence: Evidence[];
  cause: string;
  /** Other explanations that were looked at, and why they fall or stand. */
  alternatives?: string[];
  fix: string | null;
  predicted: PredictedEffect | null;
  /** The observation that would show this finding to be wrong. */
  refutedBy: string;
  /** Where the rule and its threshold come from. */
  source: string;
}

const order: Record<Severity, number> = { invalid: 0, high: 1, moderate: 2, low: 3, info: 4 };

/** Most severe first; equal ones keep the order of the catalog. */
export function bySeverity(a: { severity: Severity }, b: { severity: Severity }): number {
  return order[a.severity] - order[b.severity];
}

/** Evidence with its sentence made from the parts, unless the rule has a better one. */
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
