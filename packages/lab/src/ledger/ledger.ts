// The ledger: every prediction that was made, and what came of it. An append-only file of JSON lines; a prediction is scored when
// a later run of the same study arrives. Knows predictions and analyzed studies, not how either was made.
import { createHash } from "node:crypto";
import { appendFileSync, existsSync, mkdirSync } from "node:fs";
import { dirname } from "node:path";
import { median } from "@weft/formats/stats";
import type { StudyReport } from "../diagnosis/index.js";
import { readLines } from "../import/index.js";

export interface LedgerPrediction {
  v: 1;
  type: "prediction";
  id: string;
  /** Unix time in seconds. */
  at: number;
  study: string;
  /** The fix that it is conditional on; null for a plain extrapolation. */
  finding: string | null;
  metric: string;
  devices: number;
  from: number | null;
  to: number;
  interval: [number, number] | null;
  unit: string;
  reason: string;
  /** Runs that it was made from; these can never score it. */
  basedOn: string[];
}

export interface LedgerOutcome {
  v: 1;
  type: "outcome";
  prediction: string;
  at: number;
  value: number;
  /** Relative error of the promised value. */
  error: number;
  /** Whether the interval held; null when there was none. */
  inside: boolean | null;
  runs: string[];
}

export interface Ledger {
  predictions: LedgerPrediction[];
  outcomes: LedgerOutcome[];
  /** Lines that could not be read. */
  unreadable: number;
}

export interface LedgerScore {
  predictions: number;
  scored: number;
  withInterval: number;
  /** Share of the scored intervals that held; null when none was scored. */
  hitRate: number | null;
  medianError: number | null;
  byFinding: { finding: string; scored: number; hitRate: number | null; medianError: number }[];
}

const idOf = (p: Omit<LedgerPrediction, "id" | "at" | "v" | "type">): string =>
  createHash("sha256")
    .update(JSON.stringify([p.study, p.finding, p.metric, p.devices, p.to, p.basedOn]))
    .digest("hex")
    .slice(0, 12);

/** A prediction under its id; the same promise made twice from the same runs is one. */
export function makePrediction(
  body: Omit<LedgerPrediction, "id" | "at" | "v" | "type">,
  at: number = Date.now() / 1000,
): LedgerPrediction {
  return { v: 1, type: "prediction", id: idOf(body), at, ...body };
}

/** What came of a prediction that was put to the test at once; appended and given. */
export function settlePrediction(
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

/** What a study's report promises: the effects of its fixes, and larger counts. */
export function promisesOf(report: StudyReport, at: number): LedgerPrediction[] {
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

export function readLedger(path: string): Ledger {
  const ledger: Ledger = { predictions: [], outcomes: [], unreadable: 0 };
  if (!existsSync(path)) return ledger;
  for (const { text } of readLines(path)) {
    if (text.trim() === "") continue;
    let value: unknown = null;
    try {
      value = JSON.parse(text);
    } catch {
      // Counted below: a cut-off line must not hide the others.
    }
    if (isPrediction(value)) ledger.predictions.push(value);
    else if (isOutcome(value)) ledger.outcomes.push(value);
    else ledger.unreadable++;
  }
  return ledger;
}

/** Appends what is not there yet; gives what was added. */
export function recordPromises(path: string, promises: readonly LedgerPrediction[]): LedgerPrediction[] {
  const known = new Set(readLedger(path).predictions.map((p) => p.id));
  const fresh = promises.filter((p) => !known.has(p.id) && known.add(p.id));
  if (fresh.length > 0) appendAll(path, fresh);
  return fresh;
}

function appendAll(path: string, entries: readonly object[]): void {
  mkdirSync(dirname(path), { recursive: true });
  appendFileSync(path, entries.map((entry) => `${JSON.stringify(entry)}\n`).join(""));
}

/** The measured value that answers a prediction, from runs it was not made from; null when there is none. */
function answer(p: LedgerPrediction, report: StudyReport): { value: number; runs: string[] } | null {
  if (report.name !== p.study) return null;
  const runs = report.runs.filter(
    (run) => run.devices === p.devices && run.epochSeconds !== null && !p.basedOn.includes(run.source),
  );
  if (runs.length === 0) return null;
  // A promise about a fix is only answered by a study in which that fault is gone.
  if (p.finding !== null && report.findings.some((f) => f.id === p.finding && f.devices === p.devices)) return null;
  const value = runs.reduce((a, run) => a + run.epochSeconds!.mean, 0) / runs.length;
  return { value, runs: runs.map((run) => run.source) };
}

/** Scores what these studies answer, appends the outcomes, and gives them. A prediction is scored once. */
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
