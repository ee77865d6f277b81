// The ledger: an append-only JSON-lines file of predictions and their outcomes. A prediction is scored when a later run of the
// same study is analyzed.
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { median } from "@weft/formats/stats";
import type { StudyReport } from "../diagnosis/index.js";
import { readLines } from "../import/index.js";
import type { Finding } from "../model/index.js";

/** A recorded prediction. */
export interface LedgerPrediction {
  v: 1;
  type: "prediction";
  id: string;
  /** Unix time in seconds. */
  at: number;
  study: string;
  /** The finding whose fix is predicted; null for an extrapolation. */
  finding: string | null;
  metric: string;
  devices: number;
  from: number | null;
  to: number;
  interval: [number, number] | null;
  unit: string;
  reason: string;
  /** Runs that the prediction is based on; they cannot score it. */
  basedOn: string[];
}

/** The measured outcome of a prediction. */
interface LedgerOutcome {
  v: 1;
  type: "outcome";
  prediction: string;
  at: number;
  value: number;
  /** Relative error of the predicted value. */
  error: number;
  /** Whether the value is inside the interval; null without an interval. */
  inside: boolean | null;
  runs: string[];
}

/** The content of a ledger file. */
export interface Ledger {
  predictions: LedgerPrediction[];
  outcomes: LedgerOutcome[];
  /** Lines that could not be read. */
  unreadable: number;
}

/** How often the predictions of a ledger were right. */
interface LedgerScore {
  predictions: number;
  scored: number;
  withInterval: number;
  /** Share of the scored intervals that contained the value; null when none was scored. */
  hitRate: number | null;
  medianError: number | null;
  byFinding: { finding: string; scored: number; hitRate: number | null; medianError: number }[];
}

const idOf = (p: Omit<LedgerPrediction, "id" | "at" | "v" | "type">): string =>
  createHash("sha256")
    .update(JSON.stringify([p.study, p.finding, p.metric, p.devices, p.to, p.basedOn]))
    .digest("hex")
    .slice(0, 12);

/** Builds a prediction. Its id is a hash, so that the same prediction from the same runs is recorded once. */
export function makePrediction(
  body: Omit<LedgerPrediction, "id" | "at" | "v" | "type">,
  at: number = Date.now() / 1000,
): LedgerPrediction {
  return { v: 1, type: "prediction", id: idOf(body), at, ...body };
}

/** Scores a prediction that was measured at once; appends and returns the outcome. */
export function scorePrediction(
  path: string,
  prediction: LedgerPrediction,
  value: number,
  runs: readonly string[],
  at: number = Date.now() / 1000,
): LedgerOutcome {
  const outcome = outcomeOf(prediction, value, runs, at);
  appendAll(path, [outcome]);
  return outcome;
}

const outcomeOf = (p: LedgerPrediction, value: number, runs: readonly string[], at: number): LedgerOutcome => ({
  v: 1,
  type: "outcome",
  prediction: p.id,
  at,
  value,
  error: p.to / value - 1,
  inside: p.interval === null ? null : p.interval[0] <= value && value <= p.interval[1],
  runs: [...runs],
});

/** The predictions of a study's report: effects of fixes and larger device counts. */
export function predictionsOf(report: StudyReport, at: number): LedgerPrediction[] {
  const basedOn = report.runs.map((run) => run.source).sort();
  const make = (p: Omit<LedgerPrediction, "id" | "at" | "v" | "type" | "study" | "basedOn">): LedgerPrediction => {
    return makePrediction({ study: report.name, ...p, basedOn }, at);
  };
  const fixes = report.findings.flatMap(({ id, predicted }) =>
    predicted === null || predicted.to === null || predicted.devices === undefined
      ? []
      : [
          make({
            finding: id,
            metric: predicted.metric,
            devices: predicted.devices,
            from: predicted.from,
            to: predicted.to,
            interval: predicted.interval,
            unit: predicted.unit,
            reason: predicted.reason,
          }),
        ],
  );
  const laws = report.predictions.flatMap((p) =>
    p.value === null || p.interval === null
      ? []
      : [
          make({
            finding: null,
            metric: "epochSeconds",
            devices: p.devices,
            from: null,
            to: p.value,
            interval: p.interval,
            unit: "s",
            reason: p.reason,
          }),
        ],
  );
  return [...fixes, ...laws];
}

const isPrediction = (value: unknown): value is LedgerPrediction => {
  const p = value as Partial<LedgerPrediction> | null;
  return (
    p?.v === 1 &&
    p.type === "prediction" &&
    typeof p.id === "string" &&
    Number.isFinite(p.to) &&
    Array.isArray(p.basedOn)
  );
};
const isOutcome = (value: unknown): value is LedgerOutcome => {
  const o = value as Partial<LedgerOutcome> | null;
  return o?.v === 1 && o.type === "outcome" && typeof o.prediction === "string" && Number.isFinite(o.value);
};

/** Ids of findings in ledgers of earlier versions. */
const renamedFindings: Record<string, string> = {
  "serial-initialisation": "serial-initialization",
  "low-utilisation": "low-utilization",
};

function withCurrentFinding(p: LedgerPrediction): LedgerPrediction {
  const finding = p.finding !== null && Object.hasOwn(renamedFindings, p.finding) ? renamedFindings[p.finding] : null;
  return finding === null ? p : { ...p, finding };
}

/** Reads a ledger; lines that cannot be read are counted. A missing file is an empty ledger. */
export function readLedger(path: string): Ledger {
  const ledger: Ledger = { predictions: [], outcomes: [], unreadable: 0 };
  if (!existsSync(path)) return ledger;
  for (const { text } of readLines(path)) {
    if (text.trim() === "") continue;
    let value: unknown = null;
    try {
      value = JSON.parse(text);
    } catch {
      // Counted below: an unfinished line must not hide the others.
    }
    if (isPrediction(value)) ledger.predictions.push(withCurrentFinding(value));
    else if (isOutcome(value)) ledger.outcomes.push(value);
    else ledger.unreadable++;
  }
  return ledger;
}

/** Appends the predictions that are not in the ledger; returns those. */
export function recordPredictions(path: string, predictions: readonly LedgerPrediction[]): LedgerPrediction[] {
  const known = new Set(readLedger(path).predictions.map((p) => p.id));
  const fresh = predictions.filter((p) => !known.has(p.id) && known.add(p.id));
  if (fresh.length > 0) appendAll(path, fresh);
  return fresh;
}

function appendAll(path: string, entries: readonly object[]): void {
  mkdirSync(dirname(path), { recursive: true });
  appendFileSync(path, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
}

/** The measured value for a prediction, from runs that it is not based on; null when there is none. */
function answer(p: LedgerPrediction, report: StudyReport): { value: number; runs: string[] } | null {
  if (report.name !== p.study) return null;
  const runs = report.runs.filter(
    (run) =>
      run.devices === p.devices &&
      run.epochSeconds !== null &&
      run.disturbed !== true &&
      !p.basedOn.includes(run.source),
  );
  if (runs.length === 0) return null;
  // The effect of a fix can be measured only in a study without that finding.
  const shows = (f: Finding): boolean =>
    f.id === p.finding && (f.devices === p.devices || f.shownBy?.devices.includes(p.devices) === true);
  if (p.finding !== null && report.findings.some(shows)) return null;
  const value = runs.reduce((a, run) => a + run.epochSeconds!.mean, 0) / runs.length;
  return { value, runs: runs.map((run) => run.source) };
}

/** Scores the predictions that these studies measure; appends and returns the outcomes. Each prediction is scored once. */
export function scoreLedger(path: string, reports: readonly StudyReport[], at: number): LedgerOutcome[] {
  const ledger = readLedger(path);
  const done = new Set(ledger.outcomes.map((o) => o.prediction));
  const outcomes = ledger.predictions.flatMap((p): LedgerOutcome[] => {
    if (done.has(p.id)) return [];
    for (const report of reports) {
      const found = answer(p, report);
      if (found === null) continue;
      return [outcomeOf(p, found.value, found.runs, at)];
    }
    return [];
  });
  if (outcomes.length > 0) appendAll(path, outcomes);
  return outcomes;
}

/** Computes the score of a ledger. */
export function ledgerScore({ predictions, outcomes }: Ledger): LedgerScore {
  const byId = new Map(predictions.map((p) => [p.id, p]));
  const known = outcomes.filter((o) => byId.has(o.prediction));
  const rate = (list: readonly LedgerOutcome[]): number | null => {
    const judged = list.filter((o) => o.inside !== null);
    return judged.length === 0 ? null : judged.filter((o) => o.inside).length / judged.length;
  };
  const error = (list: readonly LedgerOutcome[]): number => median(list.map((o) => Math.abs(o.error)));
  const groups = group(known, (o) => byId.get(o.prediction)!.finding ?? "extrapolation");
  return {
    predictions: predictions.length,
    scored: known.length,
    withInterval: known.filter((o) => o.inside !== null).length,
    hitRate: rate(known),
    medianError: known.length === 0 ? null : error(known),
    byFinding: [...groups].map(([finding, list]) => ({
      finding,
      scored: list.length,
      hitRate: rate(list),
      medianError: error(list),
    })),
  };
}

function group<T>(list: readonly T[], key: (item: T) => string): Map<string, T[]> {
  const groups = new Map<string, T[]>();
  for (const item of list) groups.set(key(item), [...(groups.get(key(item)) ?? []), item]);
  return groups;
}
